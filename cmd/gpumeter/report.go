package main

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/report"
	"github.com/spf13/cobra"
)

// questionFlags are what reports and explanations are asked with.
type questionFlags struct {
	serverFlags
	from, to, asOf, zone, format string
	filter                       []string
	part                         partFlags
}

// partFlags ask for some of the rows of a report.
type partFlags struct {
	top, limit int
	after      string
}

func (f *partFlags) add(cmd *cobra.Command, kind string) {
	by := "cost"
	if kind == "waste" {
		by = "idle waste"
	}
	most := strconv.Itoa(report.MaxRows)
	fs := cmd.Flags()
	fs.IntVar(&f.top, "top", 0, "show only the `N` rows of most "+by+", at most "+most+"; totals are of all rows (default: all rows)")
	fs.IntVar(&f.limit, "limit", 0, "show only a page of `N` rows, at most "+most+", in the order of their keys; totals are of all rows (default: all rows)")
	fs.StringVar(&f.after, "after", "", "with --limit: show the page after this one: the next of the page before")
}

func (f *partFlags) write(q url.Values) {
	for name, n := range map[string]int{"top": f.top, "limit": f.limit} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	if f.after != "" {
		q.Set("after", f.after)
	}
}

func (f *questionFlags) add(cmd *cobra.Command) {
	f.serverFlags.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from", "", "start: RFC 3339, or a date, which is the start of that day in the zone (default: the start of the month that holds the end)")
	fs.StringVar(&f.to, "to", "", "end, exclusive, written as --from (default: now); --from 2026-03-01 --to 2026-04-01 is March")
	fs.StringVar(&f.asOf, "as-of", "", "count only what was stored by then, written as --from (default: everything)")
	fs.StringVar(&f.zone, "zone", "UTC", "IANA time zone of dates, hours, days and months")
	fs.StringArrayVar(&f.filter, "filter", nil, "only usage whose `KEY=VALUE`; keys as for --by without times; an empty value is usage without one; repeatable")
	fs.StringVar(&f.format, "format", "table", "form of the answer: "+strings.Join(report.Formats, ", "))
}

// query checks the question here, so that a mistake is reported as such even
// when no server runs, and writes it as the server reads it.
func (f *questionFlags) query(kind string, by []string) (url.Values, error) {
	filter, err := report.ParseFilter(f.filter)
	if err == nil {
		_, err = report.Parse(report.Params{Kind: kind, From: f.from, To: f.to, AsOf: f.asOf, Zone: f.zone, By: by, Filter: filter, Top: f.part.top, Limit: f.part.limit, After: f.part.after}, app.SystemClock().Now())
	}
	if err == nil {
		err = report.CheckFormat(f.format)
	}
	if err != nil {
		return nil, asUsage(err)
	}
	q := url.Values{"format": {f.format}, "zone": {f.zone}}
	for name, value := range map[string]string{"from": f.from, "to": f.to, "as_of": f.asOf, "by": strings.Join(by, ",")} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, pair := range f.filter {
		q.Add("filter", pair)
	}
	f.part.write(q)
	return q, nil
}

// asUsage makes a mistake of the asker one of the command line.
func asUsage(err error) error {
	var wrong *report.RequestError
	if errors.As(err, &wrong) {
		return usagef("--%s: %s", strings.ReplaceAll(wrong.Param, "_", "-"), oneLine(wrong.Msg))
	}
	return err
}

var reportShort = map[string]string{
	"spend":       "What was spent",
	"waste":       "What idle units cost those who held them, most first",
	"utilization": "How busy units were",
	"usage":       "How long units were held, busy, idle and unknown",
	"quality":     "What there is to know about the data: conflicts, quarantine, late and held events, gaps, and each source",
}

func reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report spend, waste, utilization, usage, data quality or plans, and advise",
		Long: "Reports over a span of time. Times are UTC unless --zone says otherwise; spans are half-open.\n" +
			"The JSON of spend, waste, utilization and usage has the same fields; their tables show what each is about.",
		Example: "  gpumeter report spend --from 2026-03-01 --to 2026-04-01 --by project\n" +
			"  gpumeter report waste --by instance,day --zone Asia/Shanghai --filter project=a\n" +
			"  gpumeter report spend --by label:team --format json\n" +
			"  gpumeter report waste --by instance --top 20\n" +
			"  gpumeter report spend --by instance --limit 1000 --format json",
	}
	asGroup(cmd)
	for _, kind := range report.Kinds {
		cmd.AddCommand(reportKindCommand(kind))
	}
	cmd.AddCommand(reportPlansCommand(), reportAdviseCommand())
	return cmd
}

func reportKindCommand(kind string) *cobra.Command {
	var f questionFlags
	var by []string
	cmd := &cobra.Command{Use: kind, Short: reportShort[kind], Args: args(cobra.NoArgs)}
	f.add(cmd)
	if kind != "quality" {
		f.part.add(cmd, kind)
	}
	cmd.Flags().StringArrayVar(&by, "by", nil, "`KEYS` to group by, separated by commas: "+strings.Join(report.Dimensions(), ", ")+", hour, day, month, label:KEY (default: totals only)")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		query, err := f.query(kind, splitKeys(by))
		if err != nil {
			return err
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		return server.copyTo(c.Context(), c.OutOrStdout(), "/api/v1/reports/"+kind, query)
	}
	return cmd
}

// splitKeys allows "--by project,day", "--by project --by day" and spaces.
func splitKeys(by []string) []string {
	var keys []string
	for _, list := range by {
		for key := range strings.SplitSeq(list, ",") {
			keys = append(keys, strings.TrimSpace(key))
		}
	}
	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}
