package main

import (
	"strconv"

	"github.com/gpumeter/gpumeter/report"
	"github.com/spf13/cobra"
)

func explainCommand() *cobra.Command {
	var f questionFlags
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show the events, intervals and prices behind a figure",
		Long: "Takes a figure apart: the total that a report shows for the same span and filter, the calculation for every\n" +
			"kind of unit and price, and the events it comes from, a page at a time.",
		Example: "  gpumeter explain --from 2026-03-01 --to 2026-03-02 --filter instance=i1",
		Args:    args(cobra.NoArgs),
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", report.DefaultPage, "events per page, 1 to "+strconv.Itoa(report.MaxPage))
	cmd.Flags().StringVar(&after, "after", "", "show the page after this one: the next of the page before")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
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
