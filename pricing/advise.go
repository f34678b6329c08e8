package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// Demand is how many GPUs were wanted at once, and for how long in all.
type Demand struct {
	Gpus int64
	Ms   int64
}

// Options are the prices that a mix is made of, each per GPU and hour.
type Options struct {
	// Reserved returns the price of each of n reserved GPUs for every hour of the
	// term, used or not: it may fall with n.
	Reserved func(n int64) *big.Rat
	OnDemand *big.Rat
	// Spot is the price of work that may be interrupted, with what has to be done
	// again in it; nil = none of the work may be.
	Spot *big.Rat
	// Step is how many GPUs can be reserved at once, such as those of a node; 1 when 0.
	Step int64
	// Least is the least number that can be reserved, such as that of a cluster.
	Least int64
	// Also are numbers beyond the demand that are worth a look, because Reserved falls
	// there.
	Also []int64
}

// feasible returns the numbers of GPUs that can be reserved, rising: none, all until
// the demand is served, and those beyond it that are asked for.
func (o *Options) feasible(most int64) []int64 {
	step := max(o.Step, 1)
	up := func(n int64) int64 { return (max(n, o.Least, 1) + step - 1) / step * step }
	list := []int64{0}
	if most == 0 {
		return list
	}
	for n := up(step); ; n += step {
		if list = append(list, n); n >= most {
			break
		}
	}
	for _, n := range o.Also {
		if n = up(n); n > list[len(list)-1] {
			list = append(list, n)
		}
	}
	return list
}

// rest is the price of what is not reserved.
func (o *Options) rest() (price *big.Rat, spot bool) {
	if o.Spot != nil && o.Spot.Cmp(o.OnDemand) < 0 {
		return o.Spot, true
	}
	return o.OnDemand, false
}

// Mix is a point of the cost curve: so many GPUs reserved, and the rest of the
// demand paid for as it comes.
type Mix struct {
	Reserved     int64
	ReservedCost *big.Rat
	UsedMs       int64    // GPU-ms of the demand that the reserved GPUs serve
	UnusedMs     int64    // reserved GPU-ms that nobody wants
	RestCost     *big.Rat // of the GPU-ms beyond, at the cheaper of the other two
	RestMs       int64
	Cost         *big.Rat
}

// Curve returns the cost of every number of GPUs that can be reserved, from none up
// to the first that serves all of the demand, and of those that the options name beyond
// it. The demand's times add up to the term.
//
// The curve is computed and not only its minimum by the rule of the layers, which
// says to reserve the k-th GPU when the part of the time in which k are wanted is at
// least reserved / on demand: with nodes and volume discounts the curve jumps, and
// its reader wants to see how flat it is.
func Curve(demand []Demand, o Options) []Mix {
	sorted := slices.Clone(demand)
	slices.SortFunc(sorted, func(a, b Demand) int { return cmp.Compare(a.Gpus, b.Gpus) })
	term, total, most := int64(0), int64(0), int64(0)
	for _, d := range sorted {
		term += d.Ms
		total += d.Gpus * d.Ms
		most = max(most, d.Gpus)
	}
	rest, _ := o.rest()
	var curve []Mix
	for _, n := range o.feasible(most) {
		m := Mix{Reserved: n, ReservedCost: new(big.Rat), UsedMs: served(sorted, n)}
		m.UnusedMs, m.RestMs = n*term-m.UsedMs, total-m.UsedMs
		if n > 0 {
			m.ReservedCost = hoursAt(n*term, o.Reserved(n))
		}
		m.RestCost = hoursAt(m.RestMs, rest)
		m.Cost = new(big.Rat).Add(m.ReservedCost, m.RestCost)
		curve = append(curve, m)
	}
	return curve
}

// served is what n GPUs serve of the demand.
func served(demand []Demand, n int64) (ms int64) {
	for _, d := range demand {
		ms += min(d.Gpus, n) * d.Ms
	}
	return ms
}

func hoursAt(ms int64, perHour *big.Rat) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(ms, hourMs), perHour)
}

// Cheapest returns the cheapest mix of a curve: of several the one that binds least.
func Cheapest(curve []Mix) Mix {
	return slices.MinFunc(curve, func(a, b Mix) int { return a.Cost.Cmp(b.Cost) })
}
