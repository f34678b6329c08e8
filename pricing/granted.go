package pricing

import "math/big"

// CreditDoc is an amount that a platform gives apart from any price, such as a subsidy:
// at an instant, or spread evenly over a time.
type CreditDoc struct {
	ID      string   `yaml:"id,required"`
	Project string   `yaml:"project"` // whose it is; left out: nobody's in particular
	Region  string   `yaml:"region"`
	Amount  *big.Rat `yaml:"amount,required"` // in the contract's currency
	Reason  string   `yaml:"reason,required"`
	At      Instant  `yaml:"at"`   // or from and to
	From    Instant  `yaml:"from"` // left out: the contract's
	To      Instant  `yaml:"to"`

	Line int
}

func (p *parser) checkCredit(c *Contract, d *CreditDoc) {
	if d.Amount.Sign() == 0 {
		p.wrong(d.Line, "credit %s is of 0", d.ID)
	}
	if d.At != 0 && (d.From != 0 || d.To != 0) {
		p.wrong(d.Line, "credit %s falls on one instant (at) or is spread over a time (from, to), not both", d.ID)
		return
	}
	s := d.span(c)
	if s.FromMs < int64(c.From) || s.ToMs > int64(c.To) || s.FromMs > s.ToMs || d.At == 0 && s.Ms() == 0 || d.At == c.To {
		p.wrong(d.Line, "credit %s is for %s to %s, which is not within the contract", d.ID, instantText(s.FromMs), instantText(s.ToMs))
	}
}

// span is empty for a credit of an instant.
func (d *CreditDoc) span(c *Contract) Span {
	if d.At != 0 {
		return Span{int64(d.At), int64(d.At)}
	}
	s := Span{int64(d.From), int64(d.To)}
	if d.From == 0 {
		s.FromMs = int64(c.From)
	}
	if d.To == 0 {
		s.ToMs = int64(c.To)
	}
	return s
}

// granted gives what contracts give apart from any price, as far as its time has come.
func (r *rating) granted() {
	for _, c := range r.contracts {
		for i := range c.Credits {
			d := &c.Credits[i]
			span := d.span(c)
			until := span.ToMs
			if now := r.usage.NowMs; now != 0 {
				if span.FromMs >= now {
					continue
				}
				until = min(until, now)
			}
			if span.Ms() == 0 {
				r.grant(c, d, span, d.Amount)
				continue
			}
			for _, piece := range Cut(span.FromMs, until, r.usage.Cuts) {
				r.grant(c, d, piece, new(big.Rat).Mul(d.Amount, big.NewRat(piece.Ms(), span.Ms())))
			}
		}
	}
}

func (r *rating) grant(c *Contract, d *CreditDoc, span Span, amount *big.Rat) {
	l := Line{
		Category: CategoryCredit, Meter: MeterGPU, Span: span, Segment: Segment{Span: span, Project: d.Project, Platform: c.Platform, Region: d.Region},
		Contract: c.ID, Settlements: 1, Reason: d.ID + ": " + d.Reason, Currency: c.Currency, Version: c.Hash, Line: d.Line,
	}
	l.zero()
	l.Cost = new(big.Rat).Neg(amount)
	l.Billed, l.Effective = l.Cost, l.Cost
	r.lines.add(l)
}
