package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/gpumeter/gpumeter/web"
	"github.com/spf13/cobra"
)

// maxRefs is how many items the server takes in one request.
const maxRefs = 1000

func quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "See and drive again what could not be accepted",
	}
	asGroup(cmd)
	cmd.AddCommand(quarantineListCommand(), quarantineRedriveCommand())
	return cmd
}

func quarantineListCommand() *cobra.Command {
	var f serverFlags
	var limit int
	var after, format string
	cmd := &cobra.Command{Use: "list", Short: "List quarantined messages and events with the reason", Args: args(cobra.NoArgs)}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "items per page, 1 to 1000")
	cmd.Flags().StringVar(&after, "after", "", "show the page after this one: the next of the page before")
	cmd.Flags().StringVar(&format, "format", "table", "form of the answer: table, json")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if format != "table" && format != "json" {
			return usagef("--format: %q is not one of table, json", format)
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		if after != "" {
			query.Set("after", after)
		}
		var page web.QuarantinePage
		if err := server.exchange(c.Context(), http.MethodGet, "/api/v1/quarantine", query, nil, &page); err != nil {
			return err
		}
		if format == "json" {
			return json.NewEncoder(c.OutOrStdout()).Encode(page)
		}
		return writeQuarantine(c, &page)
	}
	return cmd
}

func writeQuarantine(c *cobra.Command, page *web.QuarantinePage) error {
	if len(page.Items) == 0 {
		_, err := fmt.Fprintln(c.OutOrStdout(), "nothing is quarantined")
		return err
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ref\tstored at\tsubject\treason\theld until\tdriven again")
	for _, i := range page.Items {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(i.Ref), i.StoredAt, oneLine(i.Subject), oneLine(i.Reason), i.DueAt, i.RedrivenAt)
	}
	if page.Next != "" {
		fmt.Fprintf(w, "\nmore: --after %s\n", oneLine(page.Next))
	}
	return w.Flush()
}

func quarantineRedriveCommand() *cobra.Command {
	var f serverFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "redrive (--all | REF...)",
		Short: "Offer quarantined items to the stream again",
		Long:  "Offers items to the stream again, for example after an upgrade that knows their type. Harmless to repeat:\nan event that was taken before counts once. REF is as \"quarantine list\" shows it.",
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "everything not driven again yet; events that are held until their time need nobody")
	cmd.RunE = func(c *cobra.Command, refs []string) error {
		if all == (len(refs) > 0) {
			return usagef("give either --all or the REFs of items")
		}
		if len(refs) > maxRefs {
			return usagef("%d items at once, at most %d are allowed", len(refs), maxRefs)
		}
		for _, ref := range refs {
			if _, err := web.ParseRef(ref); err != nil {
				return &usageError{err}
			}
		}
		server, err := f.client(c.Context())
		if err != nil {
			return err
		}
		var result web.RedriveResult
		if err := server.exchange(c.Context(), http.MethodPost, "/api/v1/quarantine/redrive", nil, web.RedriveRequest{All: all, Refs: refs}, &result); err != nil {
			return err
		}
		return json.NewEncoder(c.OutOrStdout()).Encode(result)
	}
	return cmd
}
