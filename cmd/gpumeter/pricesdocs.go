package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
)

func listProfiles(out io.Writer) error {
	profiles, err := pricing.Profiles()
	if err != nil {
		return err
	}
	return writeTable(out, profiles, []column[*pricing.Profile]{
		{"profile", true, func(f *pricing.Profile) string { return f.Platform }},
		{"rules", true, sureness},
		{"settles", true, func(f *pricing.Profile) string { return cmp.Or(string(f.Settle), "at the end of a run") }},
		{"zone", true, func(f *pricing.Profile) string { return f.Zone.String() }},
		{"sources", true, func(f *pricing.Profile) string { return fmt.Sprint(len(f.Sources)) }},
	})
}

// sureness counts the rules of a profile by how sure they are.
func sureness(f *pricing.Profile) string {
	count := map[pricing.RuleStatus]int{}
	for _, r := range f.Rules() {
		count[r.Status]++
	}
	if own := count[pricing.OwnRule]; own > 0 {
		return fmt.Sprintf("%d of your own", own)
	}
	return fmt.Sprintf("%d confirmed, %d unverified", count[pricing.Confirmed], count[pricing.Unverified])
}

func writeProfile(out io.Writer, file string, f *pricing.Profile) error {
	fmt.Fprintf(out, "%s: profile of %s, %s\n", file, oneLine(f.Platform), sureness(f))
	for _, source := range f.Sources {
		fmt.Fprintf(out, "source: %s\n", oneLine(source))
	}
	return writeTable(out, f.Rules(), []column[pricing.ProfileRule]{
		{"rule", true, func(r pricing.ProfileRule) string { return r.Name }},
		{"value", true, func(r pricing.ProfileRule) string { return cmp.Or(r.Value, "left out") }},
		{"status", true, func(r pricing.ProfileRule) string { return string(r.Status) }},
	})
}

func writeContract(out io.Writer, file string, c *pricing.Contract) error {
	fmt.Fprintf(out, "%s: contract %s with %s in %s, from %s to %s\n", file, oneLine(c.ID), oneLine(c.Platform), c.Currency,
		instantText(int64(c.From)), instantText(int64(c.To)))
	for _, write := range []func() error{
		func() error { return writeCommitments(out, c) },
		func() error { return writeRules(out, c) },
	} {
		if err := write(); err != nil {
			return err
		}
	}
	if s := c.SLA; s != nil {
		fmt.Fprintf(out, "sla: %s available, credit of %s times what an outage cost, in %s, for %s", percent(s.Target), pricing.Exact(s.Ratio),
			cmp.Or(s.Form, pricing.CreditMoney), map[pricing.SLATrigger]string{pricing.AnyOutage: "any outage", pricing.BelowTarget: "months below the target"}[s.Trigger])
		if s.Most != nil {
			fmt.Fprintf(out, ", at most %s of a month", percent(s.Most))
		}
		fmt.Fprintln(out)
	}
	for i := range c.Meters {
		fmt.Fprintf(out, "meter %s: %s\n", oneLine(c.Meters[i].Meter), meterPrice(&c.Meters[i], c.Currency))
	}
	for _, q := range c.Quotes {
		fmt.Fprintf(out, "quote %s: %s %s for project %s\n", oneLine(q.ID), pricing.Exact(q.Fee), c.Currency, oneLine(q.Project))
	}
	for i := range c.Credits {
		k := &c.Credits[i]
		fmt.Fprintf(out, "credit %s: %s %s, %s\n", oneLine(k.ID), pricing.Exact(k.Amount), c.Currency, oneLine(k.Reason))
	}
	writeClauses(out, &c.Clauses)
	return nil
}

func writeCommitments(out io.Writer, c *pricing.Contract) error {
	rows := make([]*pricing.CommittedDoc, len(c.Commitments))
	for i := range rows {
		rows[i] = &c.Commitments[i]
	}
	type doc = *pricing.CommittedDoc
	return writeTable(out, rows, []column[doc]{
		{"commitment", true, func(d doc) string { return d.ID }},
		{"model", true, func(d doc) string { return d.Model }},
		{"region", false, func(d doc) string { return d.Region }},
		{"project", false, func(d doc) string { return d.Project }},
		{"GPUs", true, func(d doc) string { return fmt.Sprint(d.Gpus) }},
		{"per GPU", true, func(d doc) string {
			return fmt.Sprintf("%s %s per %s", pricing.Exact(d.PerGPU), c.Currency, d.Term)
		}},
		{"stated", false, func(d doc) string {
			if d.Stated == nil {
				return ""
			}
			return fmt.Sprintf("%s off %s", percent(d.Stated.Discount), pricing.Exact(d.Stated.Of))
		}},
		{"recomputed", false, func(d doc) string {
			if off := d.Discount(); off != nil {
				return percent(off) + " off"
			}
			return ""
		}},
		{"from", true, func(d doc) string { return instantText(c.Commitment(d).FromMs) }},
		{"to", true, func(d doc) string { return instantText(c.Commitment(d).ToMs) }},
	})
}

// writeRules shows adjustments in the order in which they apply.
func writeRules(out io.Writer, c *pricing.Contract) error {
	rows := make([]*pricing.Rule, len(c.Rules))
	for i := range rows {
		rows[i] = &c.Rules[i]
	}
	slices.SortStableFunc(rows, func(a, b *pricing.Rule) int { return cmp.Compare(a.Adjustment().Stage, b.Adjustment().Stage) })
	return writeTable(out, rows, []column[*pricing.Rule]{
		{"adjustment", true, func(r *pricing.Rule) string { return r.ID }},
		{"stage", true, func(r *pricing.Rule) string { return string(r.Stage) }},
		{"change", true, func(r *pricing.Rule) string { return change(r.Adjustment(), c.Currency) }},
		{"when", false, conditions},
		{"from", false, func(r *pricing.Rule) string { return given(r.From) }},
		{"to", false, func(r *pricing.Rule) string { return given(r.To) }},
	})
}

// change writes what an adjustment does, such as "discount 20%".
func change(a pricing.Adjustment, currency string) string {
	text := string(a.Kind) + " "
	switch a.Kind {
	case pricing.Uplift, pricing.Discount:
		text += percent(a.Value)
	case pricing.Factor:
		text += pricing.Exact(a.Value)
	default:
		text += pricing.Exact(a.Value) + " " + currency
	}
	if a.Additive {
		text += ", additive"
	}
	return text
}

// conditions writes what has to hold for a rule.
func conditions(r *pricing.Rule) string {
	var list []string
	for _, c := range []struct {
		key    string
		values []string
	}{
		{"model", r.Models}, {"region", r.Regions}, {"dc_tier", r.Tiers}, {"tenancy", r.Tenancies}, {"plan", r.Plans},
		{"project", r.Projects}, {"workload", r.Workloads}, {"with", r.With},
	} {
		if len(c.values) > 0 {
			list = append(list, c.key+" "+strings.Join(c.values, "|"))
		}
	}
	if r.MinGpus > 0 {
		list = append(list, fmt.Sprintf("%d GPUs or more", r.MinGpus))
	}
	return strings.Join(list, ", ")
}

func writeClauses(out io.Writer, c *pricing.Clauses) {
	if c.ScaleOut > 0 {
		fmt.Fprintf(out, "clause scale_out: within %s\n", c.ScaleOut)
	}
	if c.Checkpoint > 0 {
		fmt.Fprintf(out, "clause checkpoint: every %s\n", c.Checkpoint)
	}
	if c.NoTraining {
		fmt.Fprintln(out, "clause no_training: data is not used for anything else")
	}
	if len(c.Encryption) > 0 {
		fmt.Fprintf(out, "clause encryption: %s\n", oneLine(strings.Join(c.Encryption, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Valid)) {
		fmt.Fprintf(out, "clause certificate %s: until %s\n", oneLine(name), instantText(int64(c.Valid[name])))
	}
}

// given writes an instant that may be left out.
func given(at pricing.Instant) string {
	if at == 0 {
		return ""
	}
	return instantText(int64(at))
}
