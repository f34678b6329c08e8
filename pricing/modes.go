package pricing

import (
	"math/big"
	"slices"
)

// BillingMode is a way to pay for GPUs. One that is bought for a time is named by its
// term.
type BillingMode string

// Modes without a term. BillReserved stands for any term.
const (
	BillOnDemand BillingMode = "on_demand"
	BillSpot     BillingMode = "spot"
	BillReserved BillingMode = "reserved"
)

// ModeCost is what a demand costs when all of it is paid for in one way.
type ModeCost struct {
	Mode BillingMode
	Cost *big.Rat // in the measured span
}

// ModeAdvice says which one way fits a demand: by the hour what is sporadic, by the day
// what comes in days, by the month what goes on. Nothing but prices draws the line.
type ModeAdvice struct {
	Pool   Pool
	Duty   *big.Rat    // wanted GPU time / (peak x span): 1 = all the time as much; nil = nothing was wanted
	GPUMs  int64       // that were wanted
	Peak   int64       // GPUs at once
	Costs  []ModeCost  // on demand, spot, then terms, the shortest first; only those with a price
	Best   BillingMode // the first of the cheapest; empty = no price is known
	Saving *big.Rat    // of it against on demand; nil = not known
}

// Modes works out what each way of paying would cost. A term is bought anew for every
// GPU when it is wanted and the last one bought is over; of a cycle that goes beyond the
// span the part in the span counts. A term that is longer than the span counts with its
// part of all of the span, because it is paid for in the times between, too.
func Modes(d *PoolDemand, p *PoolPrices) ModeAdvice {
	a := ModeAdvice{Pool: d.Pool, GPUMs: d.GPUMs(), Peak: d.Peak()}
	a.Duty = ratio(a.GPUMs, a.Peak*d.Ms())
	add := func(mode BillingMode, cost *big.Rat) {
		if a.Costs = append(a.Costs, ModeCost{mode, cost}); len(a.Costs) == 1 || cost.Cmp(a.cost(a.Best)) < 0 {
			a.Best = mode
		}
	}
	if p.OnDemand != nil {
		add(BillOnDemand, hoursAt(a.GPUMs, p.OnDemand))
	}
	if p.Spot != nil {
		add(BillSpot, hoursAt(a.GPUMs, Effective(p.Spot, p.Rework)))
	}
	for _, term := range p.terms() {
		if plan := p.price(term, a.Peak); plan != nil {
			add(BillingMode(term), d.planned(plan))
		}
	}
	if p.OnDemand != nil {
		a.Saving = new(big.Rat).Sub(a.Costs[0].Cost, a.cost(a.Best))
	}
	return a
}

func (a *ModeAdvice) cost(mode BillingMode) *big.Rat {
	return a.Costs[slices.IndexFunc(a.Costs, func(c ModeCost) bool { return c.Mode == mode })].Cost
}

// planned is what the demand costs when every GPU of it is on a plan.
func (d *PoolDemand) planned(plan *PlanPrice) *big.Rat {
	paid, below := int64(0), int64(0) // GPU-ms
	for _, layer := range d.Demand {
		if layer.Gpus > below {
			paid += (layer.Gpus - below) * d.bought(layer.Gpus, plan.Ms)
			below = layer.Gpus
		}
	}
	return new(big.Rat).Mul(plan.PerGPU, big.NewRat(paid, plan.Ms))
}

// bought is the time in the span that is paid for a GPU that is wanted while n are.
func (d *PoolDemand) bought(n, termMs int64) (ms int64) {
	if termMs >= d.Ms() {
		return d.Ms()
	}
	until := d.FromMs
	for i := range d.Levels {
		l := &d.Levels[i]
		if l.Gpus < n || l.ToMs <= until {
			continue
		}
		from := max(l.FromMs, until)
		cycles := (l.ToMs - from + termMs - 1) / termMs
		until = min(from+cycles*termMs, d.ToMs)
		ms += until - from
	}
	return ms
}
