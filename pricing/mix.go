package pricing

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
)

// Pool is what GPUs have in common that can stand in for each other. A field that is
// empty makes no difference.
type Pool struct{ Platform, Region, Model, SKU, Workload string }

// PoolOf puts GPUs of one model in one region of a platform together.
func PoolOf(s *Segment) Pool {
	return Pool{Platform: s.Platform, Region: s.Region, Model: s.Model}
}

// compare orders pools by their fields.
func (p Pool) item(plan string) Item {
	return Item{Model: p.Model, Platform: p.Platform, Region: p.Region, Plan: plan}
}

func (p Pool) compare(q Pool) int {
	return cmp.Or(cmp.Compare(p.Platform, q.Platform), cmp.Compare(p.Region, q.Region), cmp.Compare(p.Model, q.Model), cmp.Compare(p.SKU, q.SKU), cmp.Compare(p.Workload, q.Workload))
}

// Level is a time in which the same number of GPUs is wanted.
type Level struct {
	Span
	Gpus int64
}

// PoolDemand is what was wanted of a pool in a span of time.
type PoolDemand struct {
	Pool Pool
	Span
	Levels []Level  // by time and without a gap: they cover the span
	Demand []Demand // the same by number of GPUs, rising; its times add up to the span
}

// GPUMs is the GPU time that was wanted.
func (d *PoolDemand) GPUMs() (ms int64) { return served(d.Demand, d.Peak()) }

// Peak is the greatest number of GPUs that was wanted at once.
func (d *PoolDemand) Peak() int64 {
	if len(d.Demand) == 0 {
		return 0
	}
	return d.Demand[len(d.Demand)-1].Gpus
}

// Wants says whether an instance wants its GPUs in a segment and is billed for them: it
// does not when it is stopped, even where a platform bills that.
func (t *Terms) Wants(s *Segment) bool {
	switch s.State {
	case "provisioning", "running", "stopping":
		return s.Gpus > 0 && t.Profile(s.Platform).Billed.Bills(s.State)
	}
	return false
}

// MeasureDemand returns how many GPUs were wanted at once, and for how long, in a span
// that is not empty, by pool and in their order. wants says which segments want GPUs,
// key in which pool.
func MeasureDemand(rentals []*Rental, span Span, wants func(s *Segment) bool, key func(s *Segment) Pool) []PoolDemand {
	changes := map[Pool]map[int64]int64{} // of the number of GPUs, by instant
	for _, r := range rentals {
		for i := range r.Segments {
			s := &r.Segments[i]
			part := s.Span.in(span)
			if part.Ms() == 0 || !wants(s) {
				continue
			}
			k := key(s)
			if changes[k] == nil {
				changes[k] = map[int64]int64{span.FromMs: 0, span.ToMs: 0}
			}
			changes[k][part.FromMs] += s.Gpus
			changes[k][part.ToMs] -= s.Gpus
		}
	}
	var list []PoolDemand
	for _, k := range slices.SortedFunc(maps.Keys(changes), Pool.compare) {
		d := PoolDemand{Pool: k, Span: span}
		times := map[int64]int64{}
		instants := slices.Sorted(maps.Keys(changes[k]))
		gpus := int64(0)
		for i, at := range instants[:len(instants)-1] {
			gpus += changes[k][at]
			times[gpus] += instants[i+1] - at
			if n := len(d.Levels); n > 0 && d.Levels[n-1].Gpus == gpus {
				d.Levels[n-1].ToMs = instants[i+1]
				continue
			}
			d.Levels = append(d.Levels, Level{Span{at, instants[i+1]}, gpus})
		}
		for _, n := range slices.Sorted(maps.Keys(times)) {
			d.Demand = append(d.Demand, Demand{n, times[n]})
		}
		list = append(list, d)
	}
	return list
}

// PlanPrice is what a GPU costs on a plan.
type PlanPrice struct {
	Term    Term
	PerGPU  *big.Rat // for one term
	Ms      int64    // of the term
	MinGpus int64    // that it is sold from; 0 = any number
}

// PerHour is the price for each hour of the term, used or not.
func (p *PlanPrice) PerHour() *big.Rat {
	return new(big.Rat).Quo(p.PerGPU, big.NewRat(p.Ms, hourMs))
}

// PoolPrices are the ways to pay for a pool, all in one currency.
type PoolPrices struct {
	OnDemand *big.Rat // per GPU and hour; nil = not known
	Spot     *big.Rat // per GPU and hour, without rework; nil = there is none, or the work must not be interrupted
	Rework   *big.Rat // part of the useful work that is done again on spot; nil = none
	Plans    []PlanPrice
	Step     int64 // as in Options
	Least    int64
}

// Effective is what work costs on spot when rework is the part of it that is lost and
// done again: spot x (1 + lost / useful).
func Effective(spot, rework *big.Rat) *big.Rat {
	if rework == nil {
		return spot
	}
	return new(big.Rat).Mul(spot, new(big.Rat).Add(one, rework))
}

// MeasureSpot returns what a GPU-hour of a pool cost on spot in a span, and lost /
// useful of that time. The price is nil without priced spot time, the rework without
// useful time.
func MeasureSpot(lines []Line, span Span, pool Pool) (perHour, rework *big.Rat) {
	var lost, useful, priced int64
	cost := new(big.Rat)
	for i := range lines {
		l := &lines[i]
		if l.Segment.Plan != PlanSpot || l.Segment.Platform != pool.Platform || l.Segment.Region != pool.Region || l.Segment.Model != pool.Model {
			continue
		}
		ms := l.gpuMs(span)
		if l.Rework {
			lost += ms
		} else {
			useful += ms
		}
		if l.Cost != nil {
			priced += ms
			cost.Add(cost, l.share(l.Cost, span))
		}
	}
	if priced > 0 {
		perHour = cost.Quo(cost, big.NewRat(priced, hourMs))
	}
	return perHour, ratio(lost, useful)
}

// GPUsFor returns how many GPUs a load needs when each takes so much of it, and how
// many whole ones: a third of 10 is 4. each is more than 0.
func GPUsFor(load, each *big.Rat) (exact *big.Rat, whole int64) {
	exact = new(big.Rat).Quo(load, each)
	n, rest := floor(exact, big.NewInt(1))
	if whole = n.Int64(); rest.Sign() > 0 {
		whole++
	}
	return exact, whole
}

// terms are the terms that a pool can be bought for, the shortest first.
func (p *PoolPrices) terms() []Term {
	ms := map[Term]int64{}
	for i := range p.Plans {
		ms[p.Plans[i].Term] = p.Plans[i].Ms
	}
	return slices.SortedFunc(maps.Keys(ms), func(a, b Term) int { return cmp.Or(cmp.Compare(ms[a], ms[b]), cmp.Compare(a, b)) })
}

// price returns the plan of a term that n GPUs are sold at: of those that are sold from
// so few the cheapest. Fewer than any is sold from get nil.
func (p *PoolPrices) price(term Term, n int64) (best *PlanPrice) {
	for i := range p.Plans {
		if q := &p.Plans[i]; q.Term == term && q.MinGpus <= n && (best == nil || q.PerHour().Cmp(best.PerHour()) < 0) {
			best = q
		}
	}
	return best
}

// options are those of reserving for a term.
func (p *PoolPrices) options(term Term) Options {
	o := Options{OnDemand: p.OnDemand, Step: p.Step, Reserved: func(n int64) *big.Rat { return p.price(term, n).PerHour() }}
	if p.Spot != nil {
		o.Spot = Effective(p.Spot, p.Rework)
	}
	first := int64(-1)
	for i := range p.Plans {
		if q := &p.Plans[i]; q.Term == term {
			if first < 0 || q.MinGpus < first {
				first = q.MinGpus
			}
			o.Also = append(o.Also, q.MinGpus)
		}
	}
	slices.Sort(o.Also)
	o.Least = max(p.Least, first)
	return o
}

// Code is what an advice comes to.
type Code string

// Codes.
const (
	CodeUnpriced Code = "unpriced"  // the price on demand is not known
	CodeNoPlan   Code = "no_plan"   // no plan's price is known
	CodeReserve  Code = "reserve"   // so many GPUs of the best offer
	CodeOnDemand Code = "on_demand" // nothing: no plan is cheaper
	CodeSpot     Code = "spot"      // nothing: spot is cheaper than any plan
)

// Offer is what reserving for a term would do for a demand.
type Offer struct {
	Term      Term
	PerHour   *big.Rat // of a GPU, at the best mix or, without GPUs in it, at the least number
	Threshold *big.Rat // the part of the time that a GPU has to be wanted to be worth it
	Curve     []Mix
	Best      Mix
	Layers    []Layer
}

// Advice is the cheapest way to meet a demand that goes on as it was measured. Costs
// are for the measured span.
type Advice struct {
	Demand   PoolDemand
	OnDemand *big.Rat // per GPU and hour; nil = not known
	Spot     *big.Rat // with rework; nil = none
	Offers   []Offer  // the shortest term first
	Best     int      // position of the cheapest offer, the shorter of two that cost the same; -1 = none
	Without  *big.Rat // what nothing reserved costs; nil = not known
	Savings  *big.Rat // of the best mix against it; never negative
	Code     Code
}

// Advise works out all offers of a pool.
func Advise(d PoolDemand, p *PoolPrices) Advice {
	a := Advice{Demand: d, OnDemand: p.OnDemand, Best: -1, Code: CodeUnpriced}
	if p.OnDemand == nil {
		return a
	}
	base := p.options("")
	rest, spot := base.rest()
	a.Spot, a.Without, a.Savings = base.Spot, hoursAt(d.GPUMs(), rest), new(big.Rat)
	for _, term := range p.terms() {
		o := p.options(term)
		offer := Offer{Term: term, Curve: Curve(d.Demand, o), Layers: Layers(d.Demand, o)}
		offer.Best = Cheapest(offer.Curve)
		offer.PerHour = o.Reserved(max(offer.Best.Reserved, o.Least))
		if rest.Sign() > 0 {
			offer.Threshold = new(big.Rat).Quo(offer.PerHour, rest)
		}
		a.Offers = append(a.Offers, offer)
		if a.Best < 0 || offer.Best.Cost.Cmp(a.Offers[a.Best].Best.Cost) < 0 {
			a.Best = len(a.Offers) - 1
		}
	}
	switch {
	case a.Best >= 0 && a.Offers[a.Best].Best.Reserved > 0:
		a.Code = CodeReserve
		a.Savings = new(big.Rat).Sub(a.Without, a.Offers[a.Best].Best.Cost)
	case spot:
		a.Code = CodeSpot
	case a.Best >= 0:
		a.Code = CodeOnDemand
	default:
		a.Code = CodeNoPlan
	}
	return a
}

// Layer are the GPUs From to To of a demand, counted from 1, which are wanted for the
// same time: the k-th one while at least k are.
type Layer struct {
	From, To int64
	Ms       int64    // that they are wanted
	Duty     *big.Rat // of the span
	Mode     BillingMode
}

// Layers returns the layers of a demand whose times add up to the term, the lowest
// first. One is reserved when its duty is more than reserved / the cheaper of the
// others; of a tie it is not, as by [Cheapest]. With a constant price and a step of 1
// the layers that are reserved are the cheapest mix.
func Layers(demand []Demand, o Options) []Layer {
	sorted := slices.Clone(demand)
	slices.SortFunc(sorted, func(a, b Demand) int { return cmp.Compare(a.Gpus, b.Gpus) })
	wanted := int64(0)
	for _, d := range sorted {
		wanted += d.Ms
	}
	term, below := wanted, int64(0)
	rest, spot := o.rest()
	var list []Layer
	for _, d := range sorted {
		if d.Gpus > below && wanted > 0 {
			l := Layer{From: below + 1, To: d.Gpus, Ms: wanted, Duty: big.NewRat(wanted, term), Mode: BillOnDemand}
			if spot {
				l.Mode = BillSpot
			}
			if new(big.Rat).Mul(l.Duty, rest).Cmp(o.Reserved(max(l.To, o.Least))) > 0 {
				l.Mode = BillReserved
			}
			list = append(list, l)
			below = d.Gpus
		}
		wanted -= d.Ms
	}
	return list
}
