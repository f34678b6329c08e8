package main

import (
	"net/url"
	"strconv"

	"github.com/gpumeter/gpumeter/report"
	"github.com/spf13/cobra"
)

func explainCommand() *cobra.Command {
	var f questionFlags
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "explain [LINE]",
		Short: "Show the events, intervals and prices behind a figure, or the arithmetic of a charge",
		Long: "Takes a figure apart: the total that a report shows for the same span and filter, the calculation for every\n" +
			"kind of unit and price, the charges of leases, and the events it comes from, a page at a time.\n\n" +
			"With a LINE, the id of a charge or its first digits, eight at least: how that charge comes about, step by step,\n" +
			"and when it was booked.",
		Example: "  gpumeter explain --from 2026-03-01 --to 2026-03-02 --filter instance=i1\n  gpumeter explain 3f9a02c1",
		Args:    args(cobra.MaximumNArgs(1)),
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", report.DefaultPage, "events per page, 1 to "+strconv.Itoa(report.MaxPage))
	cmd.Flags().StringVar(&after, "after", "", "show the page after this one: the next of the page before")
	cmd.RunE = func(c *cobra.Command, line []string) error {
		if len(line) == 1 {
			return f.charge(c, line[0])
		}
		query, err := f.query("", nil)
		if err != nil {
			return err
		}
		if limit < 1 || limit > report.MaxPage {
			return usagef("--limit: %d is not between 1 and %d", limit, report.MaxPage)
		}
		query.Set("limit", strconv.Itoa(limit))
		if after != "" {
			query.Set("after", after)
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		return server.copyTo(c.Context(), c.OutOrStdout(), "/api/v1/explain", query)
	}
	return cmd
}

// charge shows how one line of a bill comes about.
func (f *questionFlags) charge(c *cobra.Command, line string) error {
	for _, name := range []string{"from", "to", "as-of", "zone", "filter", "limit", "after"} {
		if c.Flags().Changed(name) {
			return usagef("--%s is of a figure; a charge is named by its id alone", name)
		}
	}
	if err := report.CheckFormat(f.format); err != nil {
		return usagef("%v", err)
	}
	server, err := f.client(c.Context())
	if err != nil {
		return err
	}
	return server.copyTo(c.Context(), c.OutOrStdout(), "/api/v1/charges/"+url.PathEscape(line), url.Values{"format": {f.format}})
}
