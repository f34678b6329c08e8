package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/spf13/cobra"
)

func pricesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prices",
		Short: "Check, apply and show price books, platform profiles and contracts",
	}
	asGroup(cmd)
	cmd.AddCommand(priceVersionCommands()...)
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE...",
		Short: "Check price books, platform profiles and contracts, and show what they say",
		Long: "Checks price books, platform profiles and contracts. In a book the most specific entry that is valid at an instant\n" +
			"sets the price: an entry of the plan before one without a plan; then one of the sku, of the model, of \"*\"; then one\n" +
			"with platform and region, with platform, with region, with neither.",
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, files []string) error { return checkPrices(c.OutOrStdout(), files) },
	}, &cobra.Command{
		Use:   "profiles [NAME]",
		Short: "List the platform profiles that come with gpumeter, or print one to be edited",
		Args:  args(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, names []string) error {
			if len(names) == 0 {
				return listProfiles(c.OutOrStdout())
			}
			text, ok := pricing.ProfileText(names[0])
			if !ok {
				return usagef("no profile %q comes with gpumeter; there are %s", names[0], strings.Join(pricing.ProfileNames(), ", "))
			}
			_, err := c.OutOrStdout().Write(text)
			return err
		},
	})
	return cmd
}

// checkPrices shows every file that is right; its error has what is wrong in the others.
func checkPrices(out io.Writer, files []string) error {
	var wrong []error
	shown := 0
	for _, file := range files {
		document, err := pricing.LoadAny(file)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		var text bytes.Buffer
		if shown++; shown > 1 {
			text.WriteByte('\n')
		}
		switch d := document.(type) {
		case *pricing.Book:
			err = writeBook(&text, file, d)
		case *pricing.Profile:
			err = writeProfile(&text, file, d)
		case *pricing.Contract:
			err = writeContract(&text, file, d)
		}
		if err == nil {
			_, err = out.Write(text.Bytes())
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// column is one of a table; those that hold nothing are left out, unless they always
// have a place.
type column[T any] struct {
	title  string
	always bool
	of     func(row T) string
}

func writeTable[T any](out io.Writer, rows []T, columns []column[T]) error {
	if len(rows) == 0 {
		return nil
	}
	lines := make([][]string, len(rows)+1)
	for _, c := range columns {
		cells, used := make([]string, len(rows)), c.always
		for i, row := range rows {
			cells[i] = oneLine(c.of(row))
			used = used || cells[i] != ""
		}
		if used {
			for i, cell := range append([]string{c.title}, cells...) {
				lines[i] = append(lines[i], cell)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}

func writeBook(out io.Writer, file string, b *pricing.Book) error {
	what := fmt.Sprintf("%d entries", len(b.Entries))
	if len(b.Meters) > 0 {
		what += fmt.Sprintf(" and %d meters", len(b.Meters))
	}
	fmt.Fprintf(out, "%s: %s in %s, version %s\n", file, what, b.Currency, b.Hash)
	entries := make([]*pricing.Entry, len(b.Entries))
	title := "per GPU-hour"
	for i := range b.Entries {
		if entries[i] = &b.Entries[i]; entries[i].PerGPU != nil {
			title = "per GPU"
		}
	}
	size := func(of func(e *pricing.Entry) *big.Rat) func(e *pricing.Entry) string {
		return func(e *pricing.Entry) string { return maybe(of(e)) }
	}
	err := writeTable(out, entries, []column[*pricing.Entry]{
		{"line", true, func(e *pricing.Entry) string { return fmt.Sprint(e.Line) }},
		{"sku", false, func(e *pricing.Entry) string { return e.SKU }},
		{"model", true, func(e *pricing.Entry) string { return e.Model }},
		{"platform", true, func(e *pricing.Entry) string { return cmp.Or(e.Platform, "any") }},
		{"region", true, func(e *pricing.Entry) string { return cmp.Or(e.Region, "any") }},
		{"plan", false, func(e *pricing.Entry) string { return e.Plan }},
		{title, true, func(e *pricing.Entry) string { return entryPrice(e, title != "per GPU-hour") }},
		{"of a node", false, nodePrice},
		{"from", true, func(e *pricing.Entry) string { return instantText(e.FromMs) }},
		{"to", true, func(e *pricing.Entry) string { return instantText(e.ToMs) }},
		{"GPU GiB", false, size(func(e *pricing.Entry) *big.Rat { return e.GPUMemoryGiB })},
		{"vCPU", false, size(func(e *pricing.Entry) *big.Rat { return e.VCPU })},
		{"RAM GiB", false, size(func(e *pricing.Entry) *big.Rat { return e.RAMGiB })},
		{"disk GiB", false, size(func(e *pricing.Entry) *big.Rat { return e.DiskGiB })},
		{"interconnect", false, func(e *pricing.Entry) string { return e.Interconnect }},
		{"tier", false, func(e *pricing.Entry) string { return e.DCTier }},
		{"tenancy", false, func(e *pricing.Entry) string { return e.Tenancy }},
		{"source", false, func(e *pricing.Entry) string { return e.Source }},
	})
	if err != nil {
		return err
	}
	return writeMeters(out, b)
}

func writeMeters(out io.Writer, b *pricing.Book) error {
	meters := make([]*pricing.MeterEntry, len(b.Meters))
	for i := range b.Meters {
		meters[i] = &b.Meters[i]
	}
	return writeTable(out, meters, []column[*pricing.MeterEntry]{
		{"line", true, func(m *pricing.MeterEntry) string { return fmt.Sprint(m.Line) }},
		{"meter", true, func(m *pricing.MeterEntry) string { return m.Meter }},
		{"platform", true, func(m *pricing.MeterEntry) string { return cmp.Or(m.Platform, "any") }},
		{"region", true, func(m *pricing.MeterEntry) string { return cmp.Or(m.Region, "any") }},
		{"price", true, func(m *pricing.MeterEntry) string { return meterPrice(&m.MeterPrice, m.Currency) }},
		{"from", true, func(m *pricing.MeterEntry) string { return instantText(m.FromMs) }},
		{"to", true, func(m *pricing.MeterEntry) string { return instantText(m.ToMs) }},
	})
}

// entryPrice writes the price of a GPU, with what it is per if asked for.
func entryPrice(e *pricing.Entry, per bool) string {
	price, term := e.PerGPUHour, "hour"
	if price == nil {
		price, term = e.PerGPU, string(e.Term)
	}
	text := pricing.Exact(price) + " " + e.Currency
	if per {
		text += " per " + term
	}
	return text
}

func nodePrice(e *pricing.Entry) string {
	switch {
	case e.PerNode != nil:
		return fmt.Sprintf("%s of %d GPUs", pricing.Exact(e.PerNode), e.GpusPerNode)
	case e.GpusPerNode > 0:
		return fmt.Sprintf("%d GPUs", e.GpusPerNode)
	}
	return ""
}

func meterPrice(m *pricing.MeterPrice, currency string) string {
	return fmt.Sprintf("%s %s per %s", pricing.Exact(m.Price), currency, m.Per)
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

// maybe writes a number that may be missing.
func maybe(x *big.Rat) string {
	if x == nil {
		return ""
	}
	return pricing.Exact(x)
}

// percent writes a ratio.
func percent(x *big.Rat) string {
	return pricing.Exact(new(big.Rat).Mul(x, big.NewRat(100, 1))) + "%"
}
