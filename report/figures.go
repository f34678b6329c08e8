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
//   - Cost is AllocatedMs times the price, IdleWaste the idle time that an owner
//     held times the price, FreeCost FreeMs times the price; in the report's
//     currency, rounded. They cover the priced time only and are nil without any.
//   - UnpricedMs is the allocated time for which there is no price.
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
}

// collector adds up usage. Time is kept per price until the end: there are few
// prices and many rows, and adding integers is exact and cheap.
type collector struct {
	sums       schema.Sums
	energyMj   *big.Int
	unpricedMs int64
	priced     map[*pricing.Entry]*pricedMs
}

// pricedMs is the time that one price applies to.
type pricedMs struct {
	allocated, heldIdle, free int64
	utilization               int64   // of known utilization
	utilizationSum            big.Int // millionths x ms
}

// add adds one row, priced if ok. It fails on what no store may return, and on
// sums beyond 64 bits, rather than show a figure that wrapped around.
func (c *collector) add(row *schema.UsageRow, price pricing.Price, ok bool) error {
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
	if !ok {
		c.unpricedMs += s.AllocatedMs()
	} else {
		if c.priced == nil {
			c.priced = map[*pricing.Entry]*pricedMs{}
		}
		p := c.priced[price.Entry]
		if p == nil {
			p = &pricedMs{}
			c.priced[price.Entry] = p
		}
		p.allocated += s.AllocatedMs()
		p.heldIdle += s.IdleMs - s.FreeMs
		p.free += s.FreeMs
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
	if len(c.priced) > 0 {
		for _, column := range amountColumns {
			*column(&f) = new(big.Rat)
		}
	}
	for entry, p := range c.priced {
		price := pricing.Price{PerGPUHour: entry.PerGPUHour, Entry: entry}
		f.Cost.Add(f.Cost, pricing.Cost(p.allocated, price))
		f.IdleWaste.Add(f.IdleWaste, pricing.Cost(p.heldIdle, price))
		f.FreeCost.Add(f.FreeCost, pricing.Cost(p.free, price))
		used := p.used(price)
		f.UsedCost.Add(f.UsedCost, used)
		f.UnusedCost.Add(f.UnusedCost, used.Sub(pricing.Cost(p.utilization, price), used))
	}
	return f
}

// used is the exact price of the time of known utilization, weighted by it.
func (p *pricedMs) used(price pricing.Price) *big.Rat {
	ms := new(big.Rat).SetFrac(&p.utilizationSum, big.NewInt(schema.UtilizationOne))
	return ms.Mul(ms, pricing.Cost(1, price))
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
}

// roundColumns rounds the amounts of all rows and sets the totals' to their sum.
func roundColumns(rows []*Figures, totals *Figures) {
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
}
