package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
)

// encode writes an answer on one line, keys always in the same order.
func encode(answer any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		panic(err) // texts, integers and maps of texts can always be written
	}
	return b.Bytes()
}

// JSON writes the report on one line, keys always in the same order.
func (r *PlansReport) JSON() []byte { return encode(r) }

// CSV writes one line per plan.
func (r *PlansReport) CSV(w io.Writer) error {
	lines := [][]string{{
		"id", "contract", "kind", "instance", "project", "platform", "region", "model", "term", "gpus", "from", "to",
		"committed_ms", "used_ms", "unused_ms", "eligible_ms", "utilization", "coverage", "purchased", "refunded", "cost", "used_cost", "unused_cost",
		"on_demand_cost", "savings", "cycle_hours", "break_even_hours", "never_breaks_even", "hours_to_break_even", "hours_left", "verdict", "currency",
	}}
	for i := range r.Plans {
		p := &r.Plans[i]
		n := func(x int64) string { return strconv.FormatInt(x, 10) }
		lines = append(lines, []string{
			p.ID, p.Contract, p.Kind, p.Instance, p.Project, p.Platform, p.Region, p.Model, p.Term, n(p.GPUs), p.From, p.To,
			n(p.CommittedMs), n(p.UsedMs), n(p.UnusedMs), n(p.EligibleMs), text(p.Utilization), text(p.Coverage), p.Purchased, p.Refunded, p.Cost, p.UsedCost, p.UnusedCost,
			text(p.OnDemand), text(p.Savings), text(p.CycleHours), text(p.BreakEvenHours), strconv.FormatBool(p.NeverBreaks), text(p.MissingHours), p.LeftHours, p.Verdict, p.Currency,
		})
	}
	return writeCSV(w, lines)
}

// Table writes the plans and a sentence about each.
func (r *PlansReport) Table(w io.Writer) error {
	var b strings.Builder
	r.table(&b, "plans")
	if len(r.Plans) == 0 {
		b.WriteString("\nno plan, commitment or quote lasted in this time\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	lines := [][]string{{"plan", "contract", "of", "term", "gpus", "used", "utilization", "coverage", "cost", "of it unused", "on demand", "savings", "verdict"}}
	for i := range r.Plans {
		p := &r.Plans[i]
		gpus := strconv.FormatInt(p.GPUs, 10)
		if p.Kind == string(pricing.PlanQuote) {
			gpus = "-"
		}
		lines = append(lines, []string{
			p.ID, p.Contract, p.of(), orDash(p.Term), gpus, Duration(p.UsedMs), share(p.check.Utilization), share(p.check.Coverage),
			p.Cost + " " + p.Currency, p.UnusedCost + " " + p.Currency, orUnknown(p.OnDemand, &p.Currency), orUnknown(p.Savings, &p.Currency), strings.ReplaceAll(p.Verdict, "_", " "),
		})
	}
	for i := range r.Totals {
		t := &r.Totals[i]
		lines = append(lines, []string{
			"total", "", "", "", "", "", "", "", t.Cost + " " + t.Currency, t.UnusedCost + " " + t.Currency, orUnknown(t.OnDemand, &t.Currency), orUnknown(t.Savings, &t.Currency), "",
		})
	}
	b.WriteByte('\n')
	align(&b, 4, lines)
	b.WriteByte('\n')
	for i := range r.Plans {
		fmt.Fprintf(&b, "%s: %s\n", printable(r.Plans[i].ID), printable(r.Plans[i].sentence()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// of says what was bought.
func (p *PlanRow) of() string {
	parts := []string{p.Platform}
	for _, s := range []string{p.Region, p.Model} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if p.Kind == string(pricing.PlanQuote) {
		parts = append(parts, "project "+p.Project)
	}
	return strings.Join(parts, " ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// share is a part in percent; "-" when there is no whole.
func share(x *big.Rat) string {
	if x == nil {
		return "-"
	}
	return percent(x, big.NewRat(1, 1))
}

// sentence says what the verdict rests on, in words that need no other column.
func (p *PlanRow) sentence() string {
	c := &p.check
	hours := gpuHours(c.UsedMs)
	worth := fmt.Sprintf("%s bought %s GPU-hours", p.Cost, hours)
	if p.OnDemand != nil {
		worth += fmt.Sprintf(" that would have cost %s on demand", *p.OnDemand)
	}
	switch c.Verdict {
	case pricing.VerdictUnused:
		if c.Kind == pricing.PlanQuote {
			return fmt.Sprintf("Nothing used this plan: %s paid for no GPU-hours", p.Cost)
		}
		return fmt.Sprintf("Nothing used this plan: %s paid for %s GPU-hours that lay idle", p.Cost, gpuHours(c.CommittedMs))
	case pricing.VerdictNever:
		return fmt.Sprintf("This plan never breaks even: it needs %s hours, the cycle has %s; %s", trimmed(c.BreakEven, 1), gpuHours(c.Cycle.Ms()), worth)
	case pricing.VerdictUnknown:
		return fmt.Sprintf("It is not known whether this plan pays: %s, and there is no price on demand to compare with", worth)
	case pricing.VerdictTooDear:
		return "This plan is dearer than on demand at your use: " + worth + p.outlook()
	}
	return "This plan pays at your use: " + worth + p.outlook()
}

// outlook says what the rest of the cycle can change.
func (p *PlanRow) outlook() string {
	c := &p.check
	if c.BreakEven == nil || c.Kind == pricing.PlanQuote {
		return ""
	}
	text := fmt.Sprintf("; it breaks even at %s hours of %s", trimmed(c.BreakEven, 1), gpuHours(c.Cycle.Ms()))
	switch left := big.NewRat(c.LeftMs, 3_600_000); {
	case c.LeftMs == 0 || c.Missing.Sign() == 0:
		return text
	case c.Missing.Cmp(left) > 0:
		return text + fmt.Sprintf(", which it cannot reach any more: %s are missing and %s left", trimmed(c.Missing, 1), trimmed(left, 1))
	default:
		return text + fmt.Sprintf(": %s of the %s that are left", trimmed(c.Missing, 1), trimmed(left, 1))
	}
}
