package report

import (
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
)

// JSON writes the report on one line, keys always in the same order.
func (r *AdviceReport) JSON() []byte { return encode(r) }

// CSV writes, as one line each, every point of the cost curves, every mode, every
// what-if and every platform's price; kind says which. best marks the cheapest of each.
func (r *AdviceReport) CSV(w io.Writer) error {
	n := func(x int64) string { return strconv.FormatInt(x, 10) }
	currency := text(r.Currency)
	lines := [][]string{{"kind", "platform", "region", "model", "workload", "mode", "reserved_gpus", "cost", "gpu_ms", "unused_ms", "unpriced_ms", "best", "currency"}}
	for i := range r.Pools {
		p := &r.Pools[i]
		for k := range p.Offers {
			o := &p.Offers[k]
			for _, m := range o.Curve {
				best := k == p.advice.Best && m.Reserved == o.Reserve
				lines = append(lines, []string{"mix", p.Platform, p.Region, p.Model, "", o.Term, n(m.Reserved), m.Cost, n(p.GPUMs), n(m.UnusedMs), "0", strconv.FormatBool(best), currency})
			}
		}
		if len(p.Offers) == 0 {
			lines = append(lines, []string{"mix", p.Platform, p.Region, p.Model, "", p.Code, "0", text(p.Without), n(p.GPUMs), "0", "", "true", currency})
		}
	}
	for i := range r.Modes {
		m := &r.Modes[i]
		for _, c := range m.Costs {
			lines = append(lines, []string{"mode", m.Platform, m.Region, m.Model, m.Workload, c.Mode, "", c.Cost, n(m.GPUMs), "", "0", strconv.FormatBool(c.Mode == text(m.Mode)), currency})
		}
	}
	for i := range r.WhatIfs {
		w := &r.WhatIfs[i]
		lines = append(lines, []string{"what_if", w.Platform, "", "", "", w.mode(), "", text(w.Cost), n(w.GPUMs), "", n(w.UnpricedMs), strconv.FormatBool(i == 0 && w.complete()), currency})
	}
	for i := range r.Spreads {
		for k, p := range r.Spreads[i].Prices {
			lines = append(lines, []string{"price", p.Platform, p.Region, r.Spreads[i].Model, "", "on_demand", "", p.PerHour, "3600000", "", "0", strconv.FormatBool(k == 0), currency})
		}
	}
	return writeCSV(w, lines)
}

func (w *WhatIfRow) mode() string {
	if w.Term != "" {
		return w.Term
	}
	return w.Kind
}

func (w *WhatIfRow) complete() bool { return w.Cost != nil && w.UnpricedMs == 0 }

// Table writes a sentence for each pool with the part of its curve that matters, and
// what else there is to choose from.
func (r *AdviceReport) Table(w io.Writer) error {
	var b strings.Builder
	r.table(&b, "advice")
	if len(r.Pools) == 0 {
		b.WriteString("\nnothing was used in this time\n")
	} else {
		b.WriteString("costs are for this time, if what is wanted in the next one is the same\n")
	}
	for i := range r.Pools {
		r.tablePool(&b, &r.Pools[i])
	}
	r.tableModes(&b)
	r.tableWhatIfs(&b)
	r.tableSpreads(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// name writes a pool.
func (k *PoolKey) name() string {
	parts := []string{}
	for _, s := range []string{k.Platform, k.Region, k.Model} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return printable(strings.Join(parts, " "))
}

func (r *AdviceReport) tablePool(b *strings.Builder, p *PoolAdvice) {
	fmt.Fprintf(b, "\n%s: %s GPU-hours, at most %d at once", p.name(), gpuHours(p.GPUMs), p.Peak)
	if p.Committed > 0 {
		fmt.Fprintf(b, "; %d GPUs are committed already", p.Committed)
	}
	fmt.Fprintf(b, "\n%s\n", p.sentence(text(r.Currency)))
	if p.advice.Best < 0 {
		return
	}
	o := &p.Offers[p.advice.Best]
	lines := [][]string{{"reserved", "for them", "for the rest", "together", "reserved and unused"}}
	for _, k := range worthShowing(o) {
		m := &o.Curve[k]
		mark := strconv.FormatInt(m.Reserved, 10)
		if m.Reserved == o.Reserve {
			mark += " <"
		}
		lines = append(lines, []string{mark, m.ReservedCost, m.RestCost, m.Cost, Duration(m.UnusedMs)})
	}
	align(b, 1, lines)
	lines = [][]string{{"GPUs", "wanted", "by mode"}}
	for _, l := range o.Layers {
		duty, _ := new(big.Rat).SetString(l.Duty)
		lines = append(lines, []string{fmt.Sprintf("%d to %d", l.From, l.To), percent(duty, big.NewRat(1, 1)), strings.ReplaceAll(l.Mode, "_", " ")})
	}
	align(b, 1, lines)
}

// worthShowing are the points of a curve that its reader wants: both ends, the best, and
// some around it that show how flat it is.
func worthShowing(o *OfferRow) (list []int) {
	best := 0
	for i := range o.Curve {
		if o.Curve[i].Reserved == o.Reserve {
			best = i
		}
	}
	for i := range o.Curve {
		if i == 0 || i == len(o.Curve)-1 || i >= best-2 && i <= best+2 {
			list = append(list, i)
		}
	}
	return list
}

func (p *PoolAdvice) sentence(currency string) string {
	amount := func(s *string) string { return text(s) + " " + currency }
	switch pricing.Code(p.Code) {
	case pricing.CodeUnpriced:
		return "It has no price on demand, so there is nothing to compare with"
	case pricing.CodeNoPlan:
		return fmt.Sprintf("No price of a plan is known; on demand it costs %s", amount(p.Without))
	case pricing.CodeReserve:
		s := fmt.Sprintf("Reserve %d GPUs by the %s: %s instead of %s", *p.Reserve, *p.BestTerm, amount(p.Cost), amount(p.Without))
		return s + p.threshold()
	case pricing.CodeSpot:
		return fmt.Sprintf("Stay on spot: it costs %s, less than any plan%s", amount(p.Without), p.threshold())
	}
	return fmt.Sprintf("Stay on demand: it costs %s, and no plan is cheaper%s", amount(p.Without), p.threshold())
}

// threshold says from which use on a GPU of the best offer is worth it.
func (p *PoolAdvice) threshold() string {
	if p.advice.Best < 0 || p.advice.Offers[p.advice.Best].Threshold == nil {
		return ""
	}
	o := &p.advice.Offers[p.advice.Best]
	if o.Threshold.Cmp(big.NewRat(1, 1)) > 0 {
		return fmt.Sprintf("; a GPU by the %s never breaks even", o.Term)
	}
	return fmt.Sprintf("; a GPU by the %s breaks even when it is wanted %s of the time", o.Term, percent(o.Threshold, big.NewRat(1, 1)))
}

func (r *AdviceReport) tableModes(b *strings.Builder) {
	if len(r.Modes) == 0 {
		return
	}
	lines := [][]string{{"pool", "workload", "duty", "all of it", "cost", "saves against on demand"}}
	for i := range r.Modes {
		m := &r.Modes[i]
		workload, duty, cost := m.Workload, unknown, unknown
		if workload == "" {
			workload = "(none)"
		}
		if m.Duty != nil {
			d, _ := new(big.Rat).SetString(*m.Duty)
			duty = percent(d, big.NewRat(1, 1))
		}
		for _, c := range m.Costs {
			if c.Mode == text(m.Mode) {
				cost = c.Cost + " " + text(r.Currency)
			}
		}
		mode := strings.ReplaceAll(text(m.Mode), "_", " ")
		if m.Mode == nil {
			mode = unknown
		}
		lines = append(lines, []string{m.name(), workload, duty, mode, cost, orUnknown(m.Saving, r.Currency)})
	}
	b.WriteString("\nthe one way of paying that fits\n")
	align(b, 2, lines)
}

func (r *AdviceReport) tableWhatIfs(b *strings.Builder) {
	lines := [][]string{{"what if", "cost", "billed", "at original prices", "unpriced"}}
	for i := range r.WhatIfs {
		w := &r.WhatIfs[i]
		what := map[string]string{"as_is": "as it is", "on_demand": "all on demand", "plan": "all by the " + w.Term, "platform": "on " + w.Platform}[w.Kind]
		lines = append(lines, []string{what, orUnknown(w.Cost, r.Currency), Duration(w.GPUMs), Duration(w.OriginalMs), Duration(w.UnpricedMs)})
	}
	b.WriteString("\nthe same usage paid for otherwise; what is unpriced is in no cost\n")
	align(b, 1, lines)
}

func (r *AdviceReport) tableSpreads(b *strings.Builder) {
	lines := [][]string{{"model", "cheapest", "dearest", "apart"}}
	for i := range r.Spreads {
		s := &r.Spreads[i]
		if len(s.Prices) < 2 {
			continue
		}
		price := func(p PlatformRow) string {
			key := PoolKey{Platform: p.Platform, Region: p.Region}
			return key.name() + " " + p.PerHour
		}
		d, _ := new(big.Rat).SetString(text(s.Spread))
		lines = append(lines, []string{s.Model, price(s.Prices[0]), price(s.Prices[len(s.Prices)-1]), percent(d, big.NewRat(1, 1))})
	}
	if len(lines) > 1 {
		b.WriteString("\nprices of platforms for a GPU-hour\n")
		align(b, 1, lines)
	}
}
