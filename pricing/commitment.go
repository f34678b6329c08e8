package pricing

import (
	"cmp"
	"math/big"
	"slices"
	"time"
)

// Commitment is a number of GPUs that are paid for over a term, used or not: a
// monthly or yearly plan, or the base of a mix.
type Commitment struct {
	ID       string
	Platform string // what it covers; empty = any
	Region   string
	Model    string
	Instance string // covers this one only; empty = any
	Project  string // the owner, whose rentals are covered first

	Gpus  int64
	Span           // of the term
	Term  Term     // of a billing cycle
	Day   DayCycle // of a daily one
	Price *big.Rat // of one GPU for one cycle
	// PriceOf, when it is there, returns the price of a cycle instead of Price.
	PriceOf func(cycle Span) *big.Rat
	// Rank puts what is eligible into the order in which it is covered, after the
	// owner's own: higher first, then by the name of the instance. nil = by name.
	Rank func(s *Segment) *big.Rat
	// UntilMs is the instant of the question: what lies later has not happened, so
	// there is no use of it yet, and no cycle begins. 0 = there is no later.
	UntilMs int64
}

// Purchase is the price of one cycle of a commitment.
type Purchase struct {
	Span
	Cost *big.Rat
}

// Use is GPU time of a commitment with its part of the purchase: used by an instance,
// or, without one, unused and its owner's.
type Use struct {
	Span
	Instance string
	Project  string
	Segment  *Segment // that uses it; nil without one
	Cycle    int      // position of its purchase
	Gpus     int64
	Cost     *big.Rat
}

// Covered is what a commitment does for rentals.
type Covered struct {
	Purchases []Purchase // by time
	Uses      []Use      // by time; used and unused ones add up to the purchases exactly
	// Rest are the rentals with the GPUs that are not covered. A segment whose GPUs
	// all are stays, with none: the instance does not start anew when it ends.
	Rest []*Rental
}

// demand is a segment that wants GPUs of a commitment.
type demand struct {
	Span
	segment  *Segment
	instance string
	rental   int
}

// Cover lets the commitment cover the segments for which wants says that they need
// GPUs. At every instant it covers as many as it has, each of an instance as long as
// there are any left: of an instance with 8 GPUs it may cover 3.
func (c *Commitment) Cover(rentals []*Rental, wants func(s *Segment) bool, zone *time.Location) Covered {
	out := Covered{Rest: make([]*Rental, len(rentals))}
	until := c.ToMs
	if c.UntilMs != 0 {
		until = min(until, c.UntilMs)
	}
	cycles := c.Term.Cycles(c.FromMs, until, c.Day, zone)
	var demands []demand
	var cuts []int64
	for _, cycle := range cycles {
		out.Purchases = append(out.Purchases, Purchase{cycle, new(big.Rat).Mul(c.price(cycle), big.NewRat(c.Gpus, 1))})
		cuts = append(cuts, cycle.FromMs, cycle.ToMs)
	}
	if len(cycles) == 0 {
		copy(out.Rest, rentals)
		return out
	}
	end := cycles[len(cycles)-1].ToMs
	if c.UntilMs != 0 {
		end = min(end, c.UntilMs)
	}
	for i, r := range rentals {
		for k := range r.Segments {
			s := &r.Segments[k]
			span := Span{max(s.FromMs, c.FromMs), min(s.ToMs, end)}
			if span.Ms() > 0 && s.Gpus > 0 && c.covers(r.Instance, s) && wants(s) {
				demands = append(demands, demand{span, s, r.Instance, i})
				cuts = append(cuts, span.FromMs, span.ToMs)
			}
		}
	}
	taken := make([][]Use, len(rentals)) // by rental and time
	c.sweep(demands, Cut(c.FromMs, end, cuts), func(d *demand, piece Span, gpus int64) {
		cycle := slices.IndexFunc(cycles, func(cycle Span) bool { return piece.FromMs < cycle.ToMs })
		use := Use{Span: piece, Project: c.Project, Gpus: gpus, Cycle: cycle, Cost: c.part(cycles[cycle], piece, gpus)}
		if d != nil {
			use.Instance, use.Project, use.Segment = d.instance, d.segment.Project, d.segment
			taken[d.rental] = append(taken[d.rental], use)
		}
		out.Uses = append(out.Uses, use)
	})
	for i, r := range rentals {
		out.Rest[i] = without(r, taken[i])
	}
	return out
}

func (c *Commitment) covers(instance string, s *Segment) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(c.Instance, instance) && same(c.Platform, s.Platform) && same(c.Region, s.Region) && same(c.Model, s.Model)
}

// sweep divides every piece of time among the demands in it. give gets no demand for
// what is left.
func (c *Commitment) sweep(demands []demand, pieces []Span, give func(d *demand, piece Span, gpus int64)) {
	slices.SortFunc(demands, func(a, b demand) int { return cmp.Compare(a.FromMs, b.FromMs) })
	var active []*demand
	next := 0
	for _, piece := range pieces {
		active = slices.DeleteFunc(active, func(d *demand) bool { return d.ToMs <= piece.FromMs })
		for ; next < len(demands) && demands[next].FromMs <= piece.FromMs; next++ {
			d := &demands[next]
			at, _ := slices.BinarySearchFunc(active, d, c.order)
			active = slices.Insert(active, at, d)
		}
		left := c.Gpus
		for _, d := range active {
			if left == 0 {
				break
			}
			gpus := min(left, d.segment.Gpus)
			give(d, piece, gpus)
			left -= gpus
		}
		if left > 0 {
			give(nil, piece, left)
		}
	}
}

// order says who is covered first.
func (c *Commitment) order(a, b *demand) int {
	rank := 0
	if c.Rank != nil {
		rank = c.Rank(b.segment).Cmp(c.Rank(a.segment))
	}
	others := func(d *demand) int {
		if d.segment.Project == c.Project {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(others(a), others(b)), rank, cmp.Compare(a.instance, b.instance), cmp.Compare(a.FromMs, b.FromMs))
}

// part is the part of a cycle's purchase that GPUs have in a piece of it.
func (c *Commitment) part(cycle, piece Span, gpus int64) *big.Rat {
	time := big.NewRat(piece.Ms(), cycle.Ms())
	return time.Mul(time, new(big.Rat).Mul(c.price(cycle), big.NewRat(gpus, 1)))
}

func (c *Commitment) price(cycle Span) *big.Rat {
	if c.PriceOf != nil {
		return c.PriceOf(cycle)
	}
	return c.Price
}

// without returns a rental with fewer GPUs where some are covered.
func without(r *Rental, taken []Use) *Rental {
	if len(taken) == 0 {
		return r
	}
	cuts := make([]int64, 0, 2*len(taken))
	for i := range taken {
		cuts = append(cuts, taken[i].FromMs, taken[i].ToMs)
	}
	rest := &Rental{Instance: r.Instance}
	next := 0
	for i := range r.Segments {
		s := r.Segments[i]
		if s.Ms() == 0 { // an interruption may be a moment
			rest.Segments = append(rest.Segments, s)
		}
		for _, piece := range Cut(s.FromMs, s.ToMs, cuts) {
			part := s
			part.Span = piece
			for next < len(taken) && taken[next].ToMs <= piece.FromMs {
				next++
			}
			if next < len(taken) && taken[next].FromMs <= piece.FromMs {
				part.Gpus -= taken[next].Gpus
			}
			rest.Segments = append(rest.Segments, part)
		}
	}
	return rest
}
