package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// serviced is what an SLA is about: an instance in a region.
type serviced struct{ instance, region string }

// credits gives back what the SLAs of the contracts promise for outages: to every
// instance by the outages of where it was, month by month in the platform's zone.
func (r *rating) credits() {
	if len(r.usage.Outages) == 0 {
		return
	}
	lines := map[serviced][]int{}
	var order []serviced
	for i := range r.lines.n {
		l := r.lines.at(i)
		if l.Meter != MeterGPU || l.Category != CategoryUsage || l.Status == StatusUnused || l.Cost == nil || l.BillableMs == 0 {
			continue
		}
		s := serviced{l.Instance, l.Segment.Region}
		if _, known := lines[s]; !known {
			order = append(order, s)
		}
		lines[s] = append(lines[s], i)
	}
	for _, c := range r.contracts {
		if c.SLA == nil {
			continue
		}
		for _, s := range order {
			r.creditServiced(c, s, lines[s])
		}
	}
}

// outages are those that concern an instance while a contract lasts, by time.
func (r *rating) outages(c *Contract, s serviced) (list []Outage) {
	same := func(want, got string) bool { return want == "" || want == got }
	for _, o := range r.usage.Outages {
		o.Span = Span{max(o.FromMs, int64(c.From)), min(o.ToMs, int64(c.To))}
		if o.Ms() > 0 && same(o.Platform, r.platform) && same(o.Region, s.region) && same(o.Instance, s.instance) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b Outage) int {
		return cmp.Or(cmp.Compare(a.FromMs, b.FromMs), cmp.Compare(a.ToMs, b.ToMs), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Evidence, b.Evidence))
	})
	return list
}

func (r *rating) creditServiced(c *Contract, s serviced, lines []int) {
	outages := r.outages(c, s)
	if len(outages) == 0 {
		return
	}
	last := outages[0].ToMs
	for i := range outages {
		last = max(last, outages[i].ToMs)
	}
	y, m, _ := clockOf(outages[0].FromMs, r.profile.Zone)
	start := startOfDay(y, m, 1, r.profile.Zone)
	for start < last {
		window := Span{start, EveryMonth.next(start, r.profile.Zone)}
		start = window.ToMs
		r.creditWindow(c, window, outages, lines)
	}
}

// creditWindow writes a line for each part of a line that lies in an outage, so that a
// credit falls on the time and the owner of what it is for.
func (r *rating) creditWindow(c *Contract, window Span, outages []Outage, lines []int) {
	charges := make([]Charge, len(lines))
	for k, i := range lines {
		l := r.lines.at(i)
		charges[k] = Charge{Span: l.Span, Segment: l.Segment, BillableMs: l.BillableMs, Settlements: l.Settlements, Cost: l.Cost}
	}
	spans := make([]Span, len(outages))
	for i := range outages {
		spans[i] = outages[i].Span
	}
	credit := c.SLA.Credit(window, spans, charges)
	if credit.LostMs == 0 {
		return
	}
	lost := new(big.Rat) // at cost, before the ratio and the bound
	type part struct {
		line int
		Span
		cost    *big.Rat
		because *Outage
	}
	var parts []part
	for k, i := range lines {
		for _, down := range union(window, spans) {
			// What is reported twice is lost once, by what was reported first.
			first := slices.IndexFunc(outages, func(o Outage) bool { return o.FromMs < down.ToMs && o.ToMs > down.FromMs })
			for _, s := range charges[k].paidIn(down) {
				cost := charges[k].costOf(s.Ms())
				lost.Add(lost, cost)
				parts = append(parts, part{i, s, cost, &outages[first]})
			}
		}
	}
	for _, p := range parts {
		of := r.lines.at(p.line)
		l := Line{
			Category: CategoryCredit, Meter: MeterGPU, Span: p.Span, Instance: of.Instance, Segment: of.Segment, Contract: c.ID, Settlements: 1,
			Reason: "outage: " + p.because.Reason, Currency: c.Currency, Version: c.Hash, Line: c.Line, Evidence: p.because.Evidence, MeteredMs: p.Ms(), ExcludedMs: p.Ms(),
		}
		l.zero()
		if c.SLA.Form == CreditHours {
			hours := big.NewRat(p.Ms()*of.Segment.Gpus, hourMs)
			l.Quantity = hours.Mul(hours, c.SLA.Ratio)
		} else if lost.Sign() != 0 {
			l.Cost = new(big.Rat).Mul(credit.Money, new(big.Rat).Quo(p.cost, lost))
			l.Billed, l.Effective = l.Cost, l.Cost
		}
		r.lines.add(l)
	}
}
