package pricing

import "math/big"

// Payment is how a commitment of several months is paid for. It says when money is taken
// and not what the time is worth: uses are the same.
type Payment string

// Payments.
const (
	PayUpfront Payment = "upfront" // each cycle when it begins
	PayPartial Payment = "partial" // a down payment then, and the rest in equal parts by the month
	PayMonthly Payment = "monthly" // equal parts by the month
)

func (Payment) values() []string {
	return []string{string(PayUpfront), string(PayPartial), string(PayMonthly)}
}

func (p *parser) checkPayment(d *CommittedDoc) {
	if (d.Payment == PayPartial) != (d.Down != nil) {
		p.wrong(d.Line, "commitment %s: a down_payment is for the payment partial, which needs one", d.ID)
	}
	if d.Down != nil && (d.Down.Sign() == 0 || d.Down.Cmp(one) >= 0) {
		p.wrong(d.Line, "commitment %s has a down_payment of %s, which is not between 0 %% and 100 %%", d.ID, Exact(d.Down))
	}
	if d.Payment != "" && d.Payment != PayUpfront && termMonths[d.Term] < 2 {
		p.wrong(d.Line, "commitment %s: the term %s is not paid in parts; quarter and year are", d.ID, d.Term)
	}
}

// payments writes the purchase of a cycle, the nth from the anchor on, in the parts in
// which it is paid. A part is bought for what is left of the cycle, so that those of one
// cycle end together.
func (r *rating) payments(b *prepaid, d *CommittedDoc, anchor int64, n int, p Purchase) {
	if d.Payment == "" || d.Payment == PayUpfront {
		r.purchase(b, p)
		return
	}
	months := termMonths[d.Term]
	down := new(big.Rat)
	if d.Down != nil {
		down.Set(d.Down)
	}
	for k := range months {
		at := p.FromMs // a month later by no months may be another hour, where clocks repeat one
		if k > 0 {
			at = AddMonths(anchor, n*months+k, r.profile.Zone)
		}
		if r.usage.NowMs != 0 && at >= r.usage.NowMs {
			return
		}
		part := new(big.Rat).Sub(one, down)
		part.Mul(part, big.NewRat(1, int64(months)))
		if k == 0 {
			part.Add(part, down)
		}
		paid := *b
		price := new(big.Rat).Mul(d.PerGPU, part)
		paid.per = "payment of a " + b.per
		paid.price = func(Span) *big.Rat { return price }
		paid.list = paid.price
		r.purchase(&paid, Purchase{Span{at, p.ToMs}, new(big.Rat).Mul(p.Cost, part)})
	}
}
