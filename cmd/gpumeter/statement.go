package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/user"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/web"
	"github.com/spf13/cobra"
)

func statementCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "statement",
		Short: "Close periods and show what was closed",
		Long: "Closing a calendar month freezes its usage and cost as known then. What arrives later is an adjustment in the\n" +
			"statement of the month that is closed next, with the month that it comes from and the events behind it.",
		Example: "  gpumeter statement close --period 2026-03 --zone Asia/Shanghai\n" +
			"  gpumeter statement show --period 2026-03 --format json\n" +
			"  gpumeter statement diff --period 2026-03",
	}
	asGroup(cmd)
	cmd.AddCommand(statementCloseCommand(), statementShowCommand(), statementListCommand(), statementDiffCommand())
	return cmd
}

// periodFlags name a period of a running gpumeter.
type periodFlags struct {
	serverFlags
	period, tenant, format string
}

func (f *periodFlags) add(cmd *cobra.Command, formats string) {
	f.serverFlags.add(cmd)
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant that the server has to answer for (default: whichever it does)")
	cmd.Flags().StringVar(&f.format, "format", "table", "form of the answer: "+formats)
}

func (f *periodFlags) addPeriod(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.period, "period", "", "calendar month, such as 2026-03 (required)")
}

// query checks what can be checked without a server.
func (f *periodFlags) query() (url.Values, error) {
	if err := report.CheckFormat(f.format); err != nil {
		return nil, usagef("--%s", err)
	}
	q := url.Values{"format": {f.format}}
	if f.tenant != "" {
		q.Set("tenant", f.tenant)
	}
	return q, nil
}

// periodQuery does so for a command about one period, and says where that is.
func (f *periodFlags) periodQuery() (path string, q url.Values, err error) {
	if q, err = f.query(); err != nil {
		return "", nil, err
	}
	if _, err := time.Parse("2006-01", f.period); err != nil {
		return "", nil, usagef("--period: %q is not a month such as 2026-03", oneLine(f.period))
	}
	return "/api/v1/statements/" + f.period, q, nil
}

func statementCloseCommand() *cobra.Command {
	var f periodFlags
	request := web.CloseRequest{}
	var by []string
	cmd := &cobra.Command{
		Use: "close", Short: "Close a month, for ever", Args: args(cobra.NoArgs),
		Long: "Freezes a calendar month that has ended, when the grace time for late events is over and no incident that touches\n" +
			"it is open; --override closes it all the same and is printed in the statement. A closed month cannot be opened again.",
	}
	f.add(cmd, strings.Join(report.Formats, ", "))
	f.addPeriod(cmd)
	fs := cmd.Flags()
	fs.StringVar(&request.Zone, "zone", "", "IANA time zone of the month (default: that of the other statements, else UTC)")
	fs.StringArrayVar(&by, "by", nil, "`KEYS` of the rows, separated by commas: "+strings.Join(report.Dimensions(), ", ")+", day, label:KEY (default: project)")
	fs.StringVar(&request.Actor, "actor", userName(), "who closes the month")
	fs.StringVar(&request.Reason, "reason", "", "`TEXT` that the statement gives as its reason")
	fs.StringVar(&request.Override, "override", "", "`REASON` to close before the grace time is over or with open incidents")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		path, _, err := f.periodQuery()
		if err != nil {
			return err
		}
		request.Period, request.By, request.Tenant = f.period, splitKeys(by), f.tenant
		if request.Actor == "" {
			return usagef("--actor: who closes the month is missing")
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		var frozen json.RawMessage
		server.http.Timeout = closeTimeout
		if err := server.exchange(c.Context(), http.MethodPost, "/api/v1/statements", nil, request, &frozen); err != nil {
			return err
		}
		// The stored bytes are shown, not those of the answer: what is printed
		// is what will be printed in a year.
		return server.copyTo(c.Context(), c.OutOrStdout(), path, url.Values{"format": {f.format}})
	}
	return cmd
}

// userName is who runs the command, or nobody.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func statementShowCommand() *cobra.Command {
	var f periodFlags
	var zone string
	var by []string
	cmd := &cobra.Command{
		Use: "show", Short: "Show the statement of a month", Args: args(cobra.NoArgs),
		Long: "Shows the statement of a closed month as it was frozen; --format json prints the stored bytes, whose SHA-256 is the\n" +
			"hash in the table and in \"statement list\". Of an open month it shows what closing it now would freeze.",
	}
	f.add(cmd, strings.Join(report.Formats, ", "))
	f.addPeriod(cmd)
	cmd.Flags().StringVar(&zone, "zone", "", "IANA time zone of an open month (default: that of the statements, else UTC)")
	cmd.Flags().StringArrayVar(&by, "by", nil, "`KEYS` of the rows of an open month, separated by commas (default: project)")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		path, query, err := f.periodQuery()
		if err != nil {
			return err
		}
		if zone != "" {
			query.Set("zone", zone)
		}
		if keys := splitKeys(by); len(keys) > 0 {
			query.Set("by", strings.Join(keys, ","))
		}
		return f.show(c, path, query)
	}
	return cmd
}

// show writes the answer to a question.
func (f *periodFlags) show(c *cobra.Command, path string, query url.Values) error {
	server, err := f.client(c.Context())
	if err != nil {
		return err
	}
	return server.copyTo(c.Context(), c.OutOrStdout(), path, query)
}

func statementListCommand() *cobra.Command {
	var f periodFlags
	cmd := &cobra.Command{Use: "list", Short: "List the closed months", Args: args(cobra.NoArgs)}
	f.add(cmd, strings.Join(report.Formats, ", "))
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		query, err := f.query()
		if err != nil {
			return err
		}
		return f.show(c, "/api/v1/statements", query)
	}
	return cmd
}

func statementDiffCommand() *cobra.Command {
	var f periodFlags
	var asOf string
	cmd := &cobra.Command{
		Use: "diff", Short: "Show what changed in a month since it was closed", Args: args(cobra.NoArgs),
		Long: "Shows usage as known now, or as of an instant, with today's prices, minus the frozen statement, and the events that\n" +
			"came in since.",
	}
	f.add(cmd, strings.Join(report.Formats, ", "))
	f.addPeriod(cmd)
	cmd.Flags().StringVar(&asOf, "as-of", "", "compare with what was stored by then: RFC 3339, or a date in the statement's zone (default: everything)")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		path, query, err := f.periodQuery()
		if err != nil {
			return err
		}
		if asOf != "" {
			query.Set("as_of", asOf)
		}
		return f.show(c, path+"/diff", query)
	}
	return cmd
}
