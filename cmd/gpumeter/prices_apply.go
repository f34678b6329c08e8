package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/web"
	"github.com/spf13/cobra"
)

const pricesPath = "/api/v1/prices"

// priceVersionCommands work on the versions that a running gpumeter keeps.
func priceVersionCommands() []*cobra.Command {
	return []*cobra.Command{pricesApplyCommand(), pricesDiffCommand(), pricesListCommand(), pricesShowCommand(), pricesWithdrawCommand()}
}

// versionFlags are what every version says of itself.
type versionFlags struct {
	serverFlags
	by, reason, force string
	dryRun            bool
}

func (f *versionFlags) add(cmd *cobra.Command) {
	f.serverFlags.add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.by, "by", userName(), "`WHO` does it")
	fs.StringVar(&f.reason, "reason", "", "`WHY` (required)")
	fs.StringVar(&f.force, "force", "", "`REASON` to do it although it changes closed months; the change is an adjustment of the next statement")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only show what would change")
}

func (f *versionFlags) query() (url.Values, error) {
	if f.by == "" || strings.TrimSpace(f.reason) == "" {
		return nil, usagef("--by and --reason are needed: every version says who applied it and why")
	}
	return url.Values{"by": {f.by}, "reason": {f.reason}, "force": {f.force}, "dry_run": {strconv.FormatBool(f.dryRun)}}, nil
}

func pricesApplyCommand() *cobra.Command {
	var f versionFlags
	cmd := &cobra.Command{
		Use: "apply FILE...", Short: "Apply a price book, contracts or platform profiles as new versions", Args: args(cobra.MinimumNArgs(1)),
		Long: "Applies files as new versions: reports use them from now on, and reports as of an earlier instant do not. All files\n" +
			"are checked before any is applied, and when one is refused none is. A change of prices in a closed month is refused\n" +
			"unless --force says why; it becomes an adjustment of the next statement.",
		Example: "  gpumeter prices apply prices.yaml contract.yaml --by ann --reason \"renewal 2026\" --dry-run",
	}
	f.add(cmd)
	cmd.RunE = func(c *cobra.Command, files []string) error {
		query, err := f.query()
		if err != nil {
			return err
		}
		applied, err := f.send(c, files, query)
		if err != nil {
			return err
		}
		if err := writeApplied(c.OutOrStdout(), applied); err != nil {
			return err
		}
		if applied.Refused != "" {
			return errors.New(oneLine(applied.Refused))
		}
		return nil
	}
	return cmd
}

func pricesDiffCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use: "diff FILE...", Short: "Show what applying files would change", Args: args(cobra.MinimumNArgs(1)),
		Long: "Compares files with what is in force and shows what applying them would change, also in closed months.",
	}
	f.add(cmd)
	cmd.RunE = func(c *cobra.Command, files []string) error {
		v := versionFlags{serverFlags: f}
		applied, err := v.send(c, files, url.Values{"by": {"diff"}, "reason": {"diff"}, "dry_run": {"true"}})
		if err != nil {
			return err
		}
		return writeApplied(c.OutOrStdout(), applied)
	}
	return cmd
}

// send checks all files here, where a fault needs no server, and sends them together.
func (f *versionFlags) send(c *cobra.Command, files []string, query url.Values) (*web.AppliedPrices, error) {
	var request struct {
		Documents []web.PriceFile `json:"documents"`
	}
	var faults []error
	for _, file := range files {
		text, err := readFile(file)
		if err == nil {
			_, err = pricing.ReadDocument(file, text)
		}
		faults = append(faults, err)
		request.Documents = append(request.Documents, web.PriceFile{File: file, Content: string(text)})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	server, err := f.client(c.Context())
	if err != nil {
		return nil, err
	}
	var applied web.AppliedPrices
	return &applied, server.exchange(c.Context(), http.MethodPost, pricesPath, query, request, &applied)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, pricing.MaxFileBytes+1))
}

// writeApplied says of each document what changed, or would.
func writeApplied(out io.Writer, a *web.AppliedPrices) error {
	var b strings.Builder
	for i := range a.Documents {
		d := &a.Documents[i]
		what := "applied"
		switch {
		case d.Unchanged:
			what = "in force already"
		case d.Version.Withdrawn:
			what = "withdrawn"
		}
		if a.DryRun && !d.Unchanged {
			what = "would be " + what
		}
		fmt.Fprintf(&b, "%s %s: %s", d.Kind, oneLine(d.Name), what)
		if d.Version.Version != "" {
			fmt.Fprintf(&b, ", version %s", d.Version.Version)
		}
		if d.Version.AppliedAt != "" {
			fmt.Fprintf(&b, ", since %s", d.Version.AppliedAt)
		}
		b.WriteByte('\n')
		for _, text := range d.Changes {
			fmt.Fprintf(&b, "  %s\n", oneLine(text))
		}
		if more := d.ChangesTotal - len(d.Changes); more > 0 {
			fmt.Fprintf(&b, "  and %d changes more\n", more)
		}
		if len(d.ClosedPeriods) > 0 {
			fmt.Fprintf(&b, "  closed months that change: %s\n", strings.Join(d.ClosedPeriods, ", "))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func pricesListCommand() *cobra.Command {
	var f serverFlags
	var format string
	cmd := &cobra.Command{Use: "list", Short: "List what was applied, with all versions", Args: args(cobra.NoArgs)}
	f.add(cmd)
	cmd.Flags().StringVar(&format, "format", "table", "form of the answer: table, json")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if format != "table" && format != "json" {
			return usagef("--format: %q is not one of table, json", oneLine(format))
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		if format == "json" {
			return server.copyTo(c.Context(), c.OutOrStdout(), pricesPath, nil)
		}
		var list web.PriceList
		if err := server.exchange(c.Context(), http.MethodGet, pricesPath, nil, nil, &list); err != nil {
			return err
		}
		return writePriceList(c.OutOrStdout(), &list)
	}
	return cmd
}

func writePriceList(out io.Writer, list *web.PriceList) error {
	if len(list.Documents) == 0 {
		_, err := fmt.Fprintln(out, "nothing was applied; everything is unpriced")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tname\tversion\tapplied at\tby\treason\tforced\tin force")
	for _, d := range list.Documents {
		for i, v := range d.Versions {
			state := ""
			if i == len(d.Versions)-1 {
				state = "yes"
			}
			if v.Withdrawn {
				state = "withdrawn"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Kind, oneLine(d.Name), cmp.Or(v.Version, "-"), v.AppliedAt, oneLine(v.AppliedBy), oneLine(v.Reason), oneLine(v.Forced), state)
		}
	}
	return w.Flush()
}

func documentPath(kind, name string) string {
	return pricesPath + "/" + url.PathEscape(kind) + "/" + url.PathEscape(name)
}

func pricesShowCommand() *cobra.Command {
	var f serverFlags
	var version string
	cmd := &cobra.Command{
		Use: "show KIND NAME", Short: "Show a document as it was applied", Args: args(cobra.ExactArgs(2)),
		Long:    "Shows the version of a document that is in force, or another one, byte for byte. KIND is book, contract or profile.",
		Example: "  gpumeter prices show book default",
	}
	f.add(cmd)
	cmd.Flags().StringVar(&version, "version", "", "version or content `HASH`, as \"prices list\" shows it (default: the one in force)")
	cmd.RunE = func(c *cobra.Command, words []string) error {
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		query := url.Values{}
		if version != "" {
			query.Set("version", version)
		}
		return server.copyTo(c.Context(), c.OutOrStdout(), documentPath(words[0], words[1]), query)
	}
	return cmd
}

func pricesWithdrawCommand() *cobra.Command {
	var f versionFlags
	cmd := &cobra.Command{
		Use: "withdraw KIND NAME", Short: "End a contract or a platform profile from now on", Args: args(cobra.ExactArgs(2)),
		Long: "Withdraws a contract or a profile: reports use it no more, and reports as of an earlier instant still do. Where a\n" +
			"profile comes with the program it takes the place of the one that is withdrawn.",
	}
	f.add(cmd)
	cmd.RunE = func(c *cobra.Command, words []string) error {
		query, err := f.query()
		if err != nil {
			return err
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		var applied web.AppliedPrices
		if err := server.exchange(c.Context(), http.MethodDelete, documentPath(words[0], words[1]), query, nil, &applied); err != nil {
			return err
		}
		if err := writeApplied(c.OutOrStdout(), &applied); err != nil {
			return err
		}
		if applied.Refused != "" {
			return errors.New(oneLine(applied.Refused))
		}
		return nil
	}
	return cmd
}
