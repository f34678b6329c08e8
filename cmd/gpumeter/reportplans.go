package main

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/report"
	"github.com/spf13/cobra"
)

// plansFlags are what plans and advice are asked with.
type plansFlags struct {
	questionFlags
	spotRework string
	step       int64
}

func (f *plansFlags) add(cmd *cobra.Command) {
	f.questionFlags.add(cmd)
	fs := cmd.Flags()
	fs.Lookup("filter").Usage = "only `KEY=VALUE`, with a key of " + strings.Join(report.RatedFilters, ", ") + "; repeatable"
	fs.Lookup("to").Usage = "end, exclusive, written as --from (default: now); what lies after now is left out"
	fs.Lookup("as-of").Usage = "count only what was stored and has happened by then, written as --from (default: now)"
}

// plansQuery checks the question here, as [questionFlags.query] does.
func (f *plansFlags) plansQuery() (url.Values, error) {
	q, err := f.query("", nil)
	if err != nil {
		return nil, err
	}
	filter, err := report.ParseFilter(f.filter)
	if err == nil {
		_, _, err = report.ParseAdvise(report.AdviseParams{
			PlansParams: report.PlansParams{From: f.from, To: f.to, AsOf: f.asOf, Zone: f.zone, Filter: filter}, SpotRework: f.spotRework, Step: f.step,
		}, app.SystemClock().Now())
	}
	if err != nil {
		return nil, asUsage(err)
	}
	if f.spotRework != "" {
		q.Set("spot_rework", f.spotRework)
	}
	if f.step != 0 {
		q.Set("step", strconv.FormatInt(f.step, 10))
	}
	return q, nil
}

// ask writes the answer.
func (f *plansFlags) ask(cmd *cobra.Command, kind string) {
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		query, err := f.plansQuery()
		if err != nil {
			return err
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		return server.copyTo(c.Context(), c.OutOrStdout(), "/api/v1/reports/"+kind, query)
	}
}

func reportPlansCommand() *cobra.Command {
	var f plansFlags
	cmd := &cobra.Command{
		Use: "plans", Short: "What commitments, plans and quotes were worth against on demand", Args: args(cobra.NoArgs),
		Long: "Checks every plan that lasted in the span: how much of it was used, what it cost, what the same use costs on demand\n" +
			"at list, and from how many hours on it breaks even. A plan that is dearer is said to be.",
		Example: "  gpumeter report plans --from 2026-03-01 --to 2026-04-01 --zone Asia/Shanghai\n" +
			"  gpumeter report plans --filter platform=p --format csv",
	}
	f.add(cmd)
	f.ask(cmd, "plans")
	return cmd
}

func reportAdviseCommand() *cobra.Command {
	var f plansFlags
	cmd := &cobra.Command{
		Use: "advise", Short: "How what was used could be paid for", Args: args(cobra.NoArgs),
		Long: "Measures how many GPUs were wanted at once, and for how long, and finds the cheapest mix of reserved ones, on demand\n" +
			"and spot, the way of paying that fits each workload, and what the same usage costs by the rules and prices of every\n" +
			"platform. Costs are for the span, if what is wanted goes on like that.",
		Example: "  gpumeter report advise --from 2026-03-01 --to 2026-04-01 --step 8\n" +
			"  gpumeter report advise --filter model=H100 --spot-rework 0.05 --format json",
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.spotRework, "spot-rework", "", "`PART` of useful work that spot does again, such as 0.05 (default: as it was measured)")
	cmd.Flags().Int64Var(&f.step, "step", 0, "reserve so many `GPUS` at once, such as those of a node (default: 1)")
	f.ask(cmd, "advise")
	return cmd
}
