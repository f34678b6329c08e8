package pricing

import (
	"math/big"
)

// credits gives back what the SLAs of the contracts promise for outages: to every
// instance by its own outages, month by month in the platform's zone.
func (r *rating) credits() {
	if len(r.usage.Outages) == 0 {
		return
	}
	byInstance := map[string][]int{}
	var order []string
	for i := range r.lines {
		l := &r.lines[i]
		if l.Meter != MeterGPU || l.Category != CategoryUsage || l.Status == StatusUnused || l.Effective == nil || l.BillableMs == 0 {
			continue
		}
		if _, known := byInstance[l.Instance]; !known {
			order = append(order, l.Instance)
		}
		byInstance[l.Instance] = append(byInstance[l.Instance], i)
	}
	for _, c := range r.contracts {
		if c.SLA == nil {
			continue
		}
		for _, instance := range order {
			r.creditInstance(c, byInstance[instance])
		}
	}
}

// concerns says whether an outage touches what a line is about.
func (o *Outage) concerns(l *Line) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(o.Platform, l.Segment.Platform) && same(o.Region, l.Segment.Region) && same(o.Instance, l.Instance)
}

func (r *rating) creditInstance(c *Contract, lines []int) {
	var outages []Span
	reason, evidence := "", ""
	for i := range r.usage.Outages {
		o := &r.usage.Outages[i]
		if o.concerns(&r.lines[lines[0]]) && o.FromMs < int64(c.To) && o.ToMs > int64(c.From) {
			outages = append(outages, Span{max(o.FromMs, int64(c.From)), min(o.ToMs, int64(c.To))})
			reason, evidence = o.Reason, o.Evidence
		}
	}
	if len(outages) == 0 {
		return
	}
	first, last := outages[0].FromMs, outages[0].ToMs
	for _, o := range outages {
		first, last = min(first, o.FromMs), max(last, o.ToMs)
	}
	y, m, _ := clockOf(first, r.profile.Zone)
	start := startOfDay(y, m, 1, r.profile.Zone)
	for start < last {
		window := Span{start, EveryMonth.next(start, r.profile.Zone)}
		start = window.ToMs
		r.creditWindow(c, window, outages, lines, reason, evidence)
	}
}

// creditWindow writes a line for each part of a line that lies in an outage, so that a
// credit falls on the time and the owner of what it is for.
func (r *rating) creditWindow(c *Contract, window Span, outages []Span, lines []int, reason, evidence string) {
	charges := make([]Charge, len(lines))
	for k, i := range lines {
		l := &r.lines[i]
		charges[k] = Charge{Span: l.Span, Segment: l.Segment, BillableMs: l.BillableMs, Cost: l.Effective}
	}
	credit := c.SLA.Credit(window, outages, charges)
	if credit.LostMs == 0 {
		return
	}
	lost := new(big.Rat) // at cost, before the ratio and the bound
	type part struct {
		line int
		Span
		cost *big.Rat
	}
	var parts []part
	for _, i := range lines {
		l := &r.lines[i]
		for _, o := range union(window, outages) {
			if s := (Span{max(l.FromMs, o.FromMs), min(l.ToMs, o.ToMs)}); s.Ms() > 0 {
				cost := new(big.Rat).Mul(l.Effective, big.NewRat(s.Ms(), l.Ms()))
				lost.Add(lost, cost)
				parts = append(parts, part{i, s, cost})
			}
		}
	}
	for _, p := range parts {
		of := &r.lines[p.line]
		l := Line{
			Category: CategoryCredit, Meter: MeterGPU, Span: p.Span, Instance: of.Instance, Segment: of.Segment, Contract: c.ID, Settlements: 1,
			Reason: "outage: " + reason, Currency: c.Currency, Version: c.Hash, Line: c.Line, Evidence: evidence, MeteredMs: p.Ms(), ExcludedMs: p.Ms(),
		}
		l.zero()
		if c.SLA.Form == CreditHours {
			hours := big.NewRat(p.Ms()*of.Segment.Gpus, hourMs)
			l.Quantity = hours.Mul(hours, c.SLA.Ratio)
		} else if lost.Sign() != 0 {
			l.Cost = new(big.Rat).Mul(credit.Money, new(big.Rat).Quo(p.cost, lost))
			l.Billed, l.Effective = l.Cost, l.Cost
		}
		r.lines = append(r.lines, l)
	}
}
