package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// SLA is what a contract promises about availability, and what it pays when it does
// not hold (C5).
type SLA struct {
	Target  *big.Rat   `yaml:"target,required"`       // such as 99.9%
	Ratio   *big.Rat   `yaml:"credit_ratio,required"` // 2: two hours for one
	Form    CreditForm `yaml:"credit_form"`
	Trigger SLATrigger `yaml:"trigger,required"`
	// Most is the part of the cost of the window that credits never exceed; nil = no
	// bound.
	Most *big.Rat `yaml:"at_most"`
}

// CreditForm is how a credit is given.
type CreditForm string

// Forms of credits.
const (
	CreditMoney CreditForm = "money"
	CreditHours CreditForm = "hours"
)

// SLATrigger says which outages are compensated.
type SLATrigger string

// Triggers.
const (
	AnyOutage   SLATrigger = "any"
	BelowTarget SLATrigger = "below_target" // only in a window that misses the target
)

func (CreditForm) values() []string { return []string{string(CreditMoney), string(CreditHours)} }
func (SLATrigger) values() []string { return []string{string(AnyOutage), string(BelowTarget)} }

// Credit is what an SLA gives back for one window, such as a month.
type Credit struct {
	Outage       int64    // ms of the window, overlapping outages once
	Availability *big.Rat // of the window
	Missed       bool     // the target
	LostMs       int64    // GPU-ms that were charged for during outages
	Money        *big.Rat // negative, or 0
	Hours        *big.Rat // GPU-hours given instead
}

// Credit returns what outages of a window give back for the charges in it. Every
// millisecond that was billed counts at its own cost; what a minimum or rounding adds
// behind the end of a charge was not lost by an outage, and is part of what the window
// cost.
func (s *SLA) Credit(window Span, outages []Span, charges []Charge) Credit {
	merged := union(window, outages)
	c := Credit{Money: new(big.Rat), Hours: new(big.Rat)}
	for _, o := range merged {
		c.Outage += o.Ms()
	}
	c.Availability = big.NewRat(window.Ms()-c.Outage, window.Ms())
	c.Missed = c.Availability.Cmp(s.Target) < 0
	if s.Trigger == BelowTarget && !c.Missed {
		return c
	}
	lost, all := new(big.Rat), new(big.Rat)
	for i := range charges {
		charge := &charges[i]
		if charge.Cost == nil || charge.BillableMs == 0 {
			continue
		}
		all.Add(all, charge.costIn(window))
		for _, o := range merged {
			for _, part := range charge.paidIn(o) {
				c.LostMs += part.Ms() * charge.Segment.Gpus
				lost.Add(lost, charge.costOf(part.Ms()))
			}
		}
	}
	if s.Form == CreditHours {
		c.Hours.Mul(big.NewRat(c.LostMs, hourMs), s.Ratio)
		return c
	}
	lost.Mul(lost, s.Ratio)
	if s.Most != nil {
		if most := new(big.Rat).Mul(all, s.Most); lost.Cmp(most) > 0 {
			lost = most
		}
	}
	c.Money.Neg(lost)
	return c
}

// paidIn returns the parts of a span for which a charge is billed. What rounding takes
// away is taken from the end of each settlement.
func (c *Charge) paidIn(span Span) (parts []Span) {
	add := func(s Span) {
		if s = (Span{max(s.FromMs, span.FromMs), min(s.ToMs, span.ToMs)}); s.Ms() > 0 {
			parts = append(parts, s)
		}
	}
	if c.BillableMs >= c.Ms() {
		add(c.Span)
		return parts
	}
	n := max(1, c.Settlements)
	unit, paid := c.Ms()/n, c.BillableMs/n
	for from := c.FromMs; from < c.ToMs; from += unit {
		add(Span{from, from + paid})
	}
	return parts
}

// costOf is what some of the billed time of a charge costs.
func (c *Charge) costOf(ms int64) *big.Rat {
	x := big.NewRat(ms, c.BillableMs)
	return x.Mul(x, c.Cost)
}

// costIn is what a charge costs within a window. What a minimum or rounding adds lies at
// the end of each settlement.
func (c *Charge) costIn(window Span) *big.Rat {
	ms := int64(0)
	for _, part := range c.paidIn(window) {
		ms += part.Ms()
	}
	n := max(1, c.Settlements)
	unit, more := c.Ms()/n, max(0, c.BillableMs-c.Ms())/n
	for end := c.FromMs + unit; more > 0 && end <= c.ToMs; end += unit {
		if window.FromMs < end && end <= window.ToMs {
			ms += more
		}
	}
	return c.costOf(ms)
}

// AllowedOutageMs returns how long a window may be down with its target held: 99.9 %
// of 720 h allow 43.2 min.
func (s *SLA) AllowedOutageMs(window Span) *big.Rat {
	down := new(big.Rat).Sub(one, s.Target)
	return down.Mul(down, big.NewRat(window.Ms(), 1))
}

// union returns the spans clipped to a window, those that touch joined.
func union(window Span, spans []Span) (list []Span) {
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b Span) int { return cmp.Compare(a.FromMs, b.FromMs) })
	for _, s := range sorted {
		s = Span{max(s.FromMs, window.FromMs), min(s.ToMs, window.ToMs)}
		if s.Ms() <= 0 {
			continue
		}
		if n := len(list); n > 0 && s.FromMs <= list[n-1].ToMs {
			list[n-1].ToMs = max(list[n-1].ToMs, s.ToMs)
			continue
		}
		list = append(list, s)
	}
	return list
}
