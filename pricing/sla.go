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

// Credit returns what outages of a window give back for the charges in it. A charge
// counts with the part of its metered time that lies in an outage, at its own cost.
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
		inside := max(0, min(charge.ToMs, window.ToMs)-max(charge.FromMs, window.FromMs))
		all.Add(all, new(big.Rat).Mul(charge.Cost, big.NewRat(inside, charge.Ms())))
		for _, o := range merged {
			if ms := min(charge.ToMs, o.ToMs) - max(charge.FromMs, o.FromMs); ms > 0 {
				c.LostMs += ms * charge.Segment.Gpus
				lost.Add(lost, new(big.Rat).Mul(charge.Cost, big.NewRat(ms, charge.Ms())))
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
