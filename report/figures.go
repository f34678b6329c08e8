package report

import (
	"fmt"
	"math/big"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// Figures are the columns of a report, for one row or for the totals.
//
//   - AllocatedMs = KnownMs + UnknownMs, KnownMs = ActiveMs + IdleMs, and FreeMs
//     is the part of IdleMs during which nobody held the unit.
//   - Cost is what is billed: of an instance with a lease what the lines of its bill
//     say, of other usage AllocatedMs times the price; in the report's currency,
//     rounded. It covers what has a price and is nil where nothing has.
//   - EffectiveCost is Cost with purchases spread over the time that they pay for,
//     used or not. ListCost is what would have been paid at list price. Both cover
//     what Cost covers; ListCost is nil when the list price of any part of that is not
//     known, such as of a used commitment that the price list has no entry for.
//   - IdleWaste is the part of EffectiveCost for idle time that an owner held,
//     FreeCost that for FreeMs. They and UsefulCost to CreditCost are the classes of
//     EffectiveCost: they add up to it, as they are shown, too.
//   - UnpricedMs is the allocated time for which there is no price. Time without one
//     that is billed while the instance holds no GPUs is in it, too, and not in
//     AllocatedMs. Of an instance whose GPUs are paid for in part it is their share.
//   - Utilization is the mean in millionths over the time in which it is known,
//     rounded half up; unknown when there is no such time.
//   - EnergyMj is in millijoules; nil when no energy was reported.
//   - OverlapMs is the part of AllocatedMs that several events of one instance
//     reported; it is allocated, and paid for, once.
//   - OversubscribedMs is the part of AllocatedMs in which the instances that held
//     a unit claimed more than all of it together, each its share or, without one,
//     the whole unit.
//   - UsedCost is the cost of the time with a known utilization times that
//     utilization, UnusedCost the rest of the cost of that time. Time whose
//     utilization is not known is in neither. Like Cost they cover the priced
//     time only.
type Figures struct {
	AllocatedMs int64
	KnownMs     int64
	ActiveMs    int64
	IdleMs      int64
	UnknownMs   int64
	Utilization schema.Maybe
	Cost        *big.Rat
	IdleWaste   *big.Rat
	UnpricedMs  int64
	FreeMs      int64
	FreeCost    *big.Rat
	EnergyMj    *big.Int

	OverlapMs        int64
	OversubscribedMs int64
	UsedCost         *big.Rat
	UnusedCost       *big.Rat

	ListCost      *big.Rat
	EffectiveCost *big.Rat

	UsefulCost           *big.Rat // active time
	UnknownCost          *big.Rat // held time of which nobody knows what it was used for
	StoppedCost          *big.Rat // billed while the instance did not hold its GPUs
	MinimumCost          *big.Rat // billed beyond the instance's time, by a minimum or rounding
	CommitmentUnusedCost *big.Rat // bought and not used
	ReworkCost           *big.Rat // active time whose work was lost when the platform took the instance
	MeterCost            *big.Rat // transfer, storage
	CreditCost           *big.Rat // given back; negative

	unpriced *big.Rat // UnpricedMs, exact; nil = it is
}

// collector adds up usage. Time is kept per rate until the end: there are few rates
// and many rows, and adding integers is exact and cheap.
type collector struct {
	sums       schema.Sums
	energyMj   *big.Int
	unpricedMs int64
	priced     map[*rate]*pricedMs

	lumped       bool // an amount was added that belongs to no time of a unit
	listUnknown  bool
	list, cost   big.Rat
	lumpsOfClass [classes]big.Rat
}

// pricedMs is the time that one rate applies to.
type pricedMs struct {
	allocated, active, heldIdle, free, unknown int64
	utilization                                int64   // of known utilization
	utilizationSum                             big.Int // millionths x ms
}

// add adds one row at its rate, nil = it has no price. It fails on what no store may
// return, and on sums beyond 64 bits, rather than show a figure that wrapped around.
func (c *collector) add(row *schema.UsageRow, at *rate) error {
	s := &row.Sums
	if min(s.ActiveMs, s.IdleMs, s.FreeMs, s.UnknownMs, s.AllocatedMs(), s.UtilizationMs, s.EnergyMj, s.EnergyMs, s.OverlapMs, s.OversubscribedMs) < 0 ||
		s.FreeMs > s.IdleMs || max(s.OverlapMs, s.OversubscribedMs) > s.AllocatedMs() {
		return fmt.Errorf("report: impossible usage row %+v", *row)
	}
	c.sums.Add(s)
	if c.energyMj == nil {
		c.energyMj = new(big.Int)
	}
	// The store's sum of one row fits; the sum of rows may not.
	c.energyMj.Add(c.energyMj, big.NewInt(s.EnergyMj))
	if at == nil {
		c.unpricedMs += s.AllocatedMs()
	} else {
		if c.priced == nil {
			c.priced = map[*rate]*pricedMs{}
		}
		p := c.priced[at]
		if p == nil {
			p = &pricedMs{}
			c.priced[at] = p
		}
		p.allocated += s.AllocatedMs()
		p.active += s.ActiveMs
		p.heldIdle += s.IdleMs - s.FreeMs
		p.free += s.FreeMs
		p.unknown += s.UnknownMs
		p.utilization += s.UtilizationMs
		if s.UtilizationSum != nil {
			p.utilizationSum.Add(&p.utilizationSum, s.UtilizationSum)
		}
	}
	if min(c.sums.ActiveMs, c.sums.IdleMs, c.sums.UnknownMs, c.sums.AllocatedMs(), c.sums.UtilizationMs, c.sums.EnergyMs) < 0 {
		return fmt.Errorf("report: the sum of times exceeds 64 bits of milliseconds; ask for a shorter span")
	}
	return nil
}

// lump adds an amount that does not depend on what a unit did.
func (c *collector) lump(l *lumpRow) {
	if l.lump.cost == nil || l.lump.effective == nil {
		c.unpricedMs += l.unpricedMs
		return
	}
	c.lumped = true
	c.cost.Add(&c.cost, new(big.Rat).Mul(l.lump.cost, l.part))
	of := &c.lumpsOfClass[l.lump.class]
	of.Add(of, new(big.Rat).Mul(l.lump.effective, l.part))
	if l.lump.list == nil {
		c.listUnknown = true
		return
	}
	c.list.Add(&c.list, new(big.Rat).Mul(l.lump.list, l.part))
}

// figures returns the columns with exact, unrounded amounts.
func (c *collector) figures() Figures {
	s := &c.sums
	f := Figures{
		AllocatedMs: s.AllocatedMs(), KnownMs: s.ActiveMs + s.IdleMs, ActiveMs: s.ActiveMs, IdleMs: s.IdleMs,
		UnknownMs: s.UnknownMs, UnpricedMs: c.unpricedMs, FreeMs: s.FreeMs,
		Utilization: mean(s.UtilizationSum, s.UtilizationMs), OverlapMs: s.OverlapMs, OversubscribedMs: s.OversubscribedMs,
	}
	if s.EnergyMs > 0 {
		f.EnergyMj = c.energyMj
	}
	if len(c.priced) == 0 && !c.lumped {
		return f
	}
	for _, column := range amountColumns {
		*column(&f) = new(big.Rat)
	}
	f.Cost.Set(&c.cost)
	f.ListCost.Set(&c.list)
	for k, column := range classColumns {
		(*column(&f)).Set(&c.lumpsOfClass[k])
	}
	listUnknown := c.listUnknown
	for at, p := range c.priced {
		plus := func(sum *big.Rat, ms int64, perMs *big.Rat) {
			if ms != 0 {
				sum.Add(sum, new(big.Rat).Mul(perMs, big.NewRat(ms, 1)))
			}
		}
		plus(f.Cost, p.allocated, at.cost)
		if at.list == nil {
			listUnknown = true
		} else {
			plus(f.ListCost, p.allocated, at.list)
		}
		if at.rework {
			plus(f.ReworkCost, p.active, at.effective)
		} else {
			plus(f.UsefulCost, p.active, at.effective)
		}
		plus(f.IdleWaste, p.heldIdle, at.effective)
		plus(f.FreeCost, p.free, at.effective)
		plus(f.UnknownCost, p.unknown, at.effective)
		if at.unpriced != nil {
			if f.unpriced == nil {
				f.unpriced = new(big.Rat)
			}
			plus(f.unpriced, p.allocated, at.unpriced)
		}
		used := p.used(at)
		f.UsedCost.Add(f.UsedCost, used)
		plus(f.UnusedCost, p.utilization, at.effective)
		f.UnusedCost.Sub(f.UnusedCost, used)
	}
	for _, column := range classColumns {
		f.EffectiveCost.Add(f.EffectiveCost, *column(&f))
	}
	if listUnknown {
		f.ListCost = nil
	}
	if f.unpriced != nil { // rounded down, until rows are rounded so that they add up
		f.UnpricedMs += new(big.Int).Quo(f.unpriced.Num(), f.unpriced.Denom()).Int64()
		f.unpriced.Add(f.unpriced, big.NewRat(c.unpricedMs, 1))
	}
	return f
}

// used is the exact price of the time of known utilization, weighted by it.
func (p *pricedMs) used(at *rate) *big.Rat {
	ms := new(big.Rat).SetFrac(&p.utilizationSum, big.NewInt(schema.UtilizationOne))
	return ms.Mul(ms, at.effective)
}

// mean is sum/ms in millionths, rounded half up.
func mean(sum *big.Int, ms int64) schema.Maybe {
	if ms == 0 {
		return schema.Maybe{}
	}
	twice := new(big.Int)
	if sum != nil {
		twice.Lsh(sum, 1)
	}
	d := big.NewInt(ms)
	twice.Add(twice, d).Quo(twice, d.Lsh(d, 1))
	return schema.Some(twice.Int64())
}

// amountColumns are the columns that are rounded so that rows add up.
var amountColumns = [...]func(*Figures) **big.Rat{
	func(f *Figures) **big.Rat { return &f.Cost },
	func(f *Figures) **big.Rat { return &f.IdleWaste },
	func(f *Figures) **big.Rat { return &f.FreeCost },
	func(f *Figures) **big.Rat { return &f.UsedCost },
	func(f *Figures) **big.Rat { return &f.UnusedCost },
	func(f *Figures) **big.Rat { return &f.ListCost },
	func(f *Figures) **big.Rat { return &f.EffectiveCost },
	func(f *Figures) **big.Rat { return &f.UsefulCost },
	func(f *Figures) **big.Rat { return &f.UnknownCost },
	func(f *Figures) **big.Rat { return &f.StoppedCost },
	func(f *Figures) **big.Rat { return &f.MinimumCost },
	func(f *Figures) **big.Rat { return &f.CommitmentUnusedCost },
	func(f *Figures) **big.Rat { return &f.ReworkCost },
	func(f *Figures) **big.Rat { return &f.MeterCost },
	func(f *Figures) **big.Rat { return &f.CreditCost },
}

// classColumns are the columns of the classes, whose sum is the effective cost.
var classColumns = [classes]func(*Figures) **big.Rat{
	useful:        func(f *Figures) **big.Rat { return &f.UsefulCost },
	heldIdleClass: func(f *Figures) **big.Rat { return &f.IdleWaste },
	freeClass:     func(f *Figures) **big.Rat { return &f.FreeCost },
	unknownClass:  func(f *Figures) **big.Rat { return &f.UnknownCost },
	stoppedClass:  func(f *Figures) **big.Rat { return &f.StoppedCost },
	minimumClass:  func(f *Figures) **big.Rat { return &f.MinimumCost },
	unusedClass:   func(f *Figures) **big.Rat { return &f.CommitmentUnusedCost },
	reworkClass:   func(f *Figures) **big.Rat { return &f.ReworkCost },
	meterClass:    func(f *Figures) **big.Rat { return &f.MeterCost },
	creditClass:   func(f *Figures) **big.Rat { return &f.CreditCost },
}

// roundColumns rounds the amounts of all rows and sets the totals' to their sum.
func roundColumns(rows []*Figures, totals *Figures) {
	rest := totals.largest()
	for _, column := range amountColumns {
		parts := make([]*big.Rat, len(rows))
		for i, f := range rows {
			parts[i] = *column(f)
		}
		rounded, total := pricing.RoundParts(parts, pricing.Decimals)
		for i, f := range rows {
			*column(f) = rounded[i]
		}
		if *column(totals) != nil {
			*column(totals) = total
		}
	}
	roundUnpriced(rows, totals)
	if totals.EffectiveCost == nil {
		return
	}
	for _, f := range rows {
		f.balance(rest)
	}
	totals.balance(rest)
}

// roundUnpriced rounds the time without a price to whole milliseconds where the GPUs of
// an instance are priced in part.
func roundUnpriced(rows []*Figures, totals *Figures) {
	if totals.unpriced == nil {
		return
	}
	parts := make([]*big.Rat, len(rows))
	for i, f := range rows {
		if parts[i] = f.unpriced; parts[i] == nil {
			parts[i] = big.NewRat(f.UnpricedMs, 1)
		}
	}
	rounded, total := pricing.RoundParts(parts, 0)
	for i, f := range rows {
		f.UnpricedMs = rounded[i].Num().Int64()
	}
	totals.UnpricedMs = total.Num().Int64()
}

// largest returns the class that most of the effective cost is in.
func (f *Figures) largest() class {
	k := useful
	for i, column := range classColumns {
		if x, most := *column(f), *classColumns[k](f); x != nil && (most == nil || x.Cmp(most) > 0) {
			k = class(i)
		}
	}
	return k
}

// balance makes the rounded classes add up to the rounded effective cost: what rounding
// left over, at most a few last digits, goes to one of them. It is the same one in all
// rows and in the totals, so that columns add up, too.
func (f *Figures) balance(rest class) {
	if f.EffectiveCost == nil {
		return
	}
	left := new(big.Rat).Set(f.EffectiveCost)
	for k, column := range classColumns {
		if class(k) != rest {
			left.Sub(left, *column(f))
		}
	}
	*classColumns[rest](f) = left
}
