package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/spf13/cobra"
)

func pricesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prices",
		Short: "Check price files, apply them and show what was applied",
	}
	asGroup(cmd)
	cmd.AddCommand(priceVersionCommands()...)
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Check a price file and show what it says",
		Long: "Checks a price file. The most specific entry that is valid at an instant sets the price: an entry of the model\n" +
			"before one of \"*\", then one with platform and region, with platform, with region, with neither.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, files []string) error {
			book, err := pricing.Load(files[0])
			if err != nil {
				return err
			}
			return writeBook(c.OutOrStdout(), files[0], book)
		},
	})
	return cmd
}

func writeBook(out io.Writer, file string, b *pricing.Book) error {
	fmt.Fprintf(out, "%s: %d entries in %s, version %s\n", file, len(b.Entries), b.Currency, b.Hash)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(b.Entries) > 0 {
		fmt.Fprintln(w, "line\tmodel\tplatform\tregion\tper GPU-hour\tfrom\tto")
	}
	for _, e := range b.Entries {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s %s\t%s\t%s\n", e.Line, oneLine(e.Model), oneLine(cmp.Or(e.Platform, "any")), oneLine(cmp.Or(e.Region, "any")),
			pricing.Exact(e.PerGPUHour), b.Currency, instantText(e.FromMs), instantText(e.ToMs))
	}
	return w.Flush()
}

func instantText(ms int64) string {
	switch ms {
	case pricing.Always:
		return "always"
	case pricing.Forever:
		return "until further notice"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
