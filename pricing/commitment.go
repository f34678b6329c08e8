package pricing

import (
	"cmp"
	"container/heap"
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
	Tenancy  string
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
	Rank func(s *Segment, atMs int64) *big.Rat
	// RankCuts are the instants at which that may change.
	RankCuts []int64
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

// demand is a segment that wants GPUs of a commitment, as long as its rank is the same.
type demand struct {
	Span
	segment  *Segment
	instance string
	rental   int
	own      bool // it is the owner's
	rank     *big.Rat

	got   int64 // GPUs that it has now
	was   int64 // and those that it had since an instant
	since int64
	ended bool
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
	for _, cycle := range cycles {
		out.Purchases = append(out.Purchases, Purchase{cycle, new(big.Rat).Mul(c.price(cycle), big.NewRat(c.Gpus, 1))})
	}
	if len(cycles) == 0 {
		copy(out.Rest, rentals)
		return out
	}
	end := cycles[len(cycles)-1].ToMs
	if c.UntilMs != 0 {
		end = min(end, c.UntilMs)
	}
	var demands []demand
	for i, r := range rentals {
		for k := range r.Segments {
			s := &r.Segments[k]
			span := Span{max(s.FromMs, c.FromMs), min(s.ToMs, end)}
			if span.Ms() <= 0 || s.Gpus <= 0 || !c.covers(r.Instance, s) || !wants(s) {
				continue
			}
			for _, piece := range Cut(span.FromMs, span.ToMs, c.RankCuts) {
				d := demand{Span: piece, segment: s, instance: r.Instance, rental: i, own: s.Project == c.Project}
				if c.Rank != nil {
					d.rank = c.Rank(s, piece.FromMs)
				}
				demands = append(demands, d)
			}
		}
	}
	taken := make([][]Use, len(rentals)) // by rental and time
	for _, g := range c.sweep(demands, Span{c.FromMs, end}) {
		d := g.to
		use := Use{Project: c.Project, Gpus: g.gpus}
		if d != nil {
			use.Instance, use.Project, use.Segment = d.instance, d.segment.Project, d.segment
			taken[d.rental] = append(taken[d.rental], Use{Span: g.Span, Gpus: g.gpus})
		}
		first, _ := slices.BinarySearchFunc(cycles, g.FromMs+1, func(cycle Span, ms int64) int { return cmp.Compare(cycle.ToMs, ms) })
		for i := first; i < len(cycles) && cycles[i].FromMs < g.ToMs; i++ {
			part := use
			part.Span = Span{max(g.FromMs, cycles[i].FromMs), min(g.ToMs, cycles[i].ToMs)}
			part.Cycle, part.Cost = i, c.part(cycles[i], part.Span, g.gpus)
			out.Uses = append(out.Uses, part)
		}
	}
	for i, r := range rentals {
		out.Rest[i] = without(r, taken[i])
	}
	return out
}

func (c *Commitment) covers(instance string, s *Segment) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(c.Instance, instance) && same(c.Platform, s.Platform) && same(c.Region, s.Region) && same(c.Model, s.Model) && same(c.Tenancy, s.Tenancy)
}

// given is GPUs of a commitment that a demand has, or nobody.
type given struct {
	Span
	to   *demand // nil = nobody
	gpus int64
}

// sweep divides the GPUs among the demands: at every instant the first in the order get
// what they want, as far as it goes. It goes from one change to the next and looks only
// at what changes there: who comes, who goes, and who is at the border between those
// that have GPUs and those that wait. The result is in order of time.
func (c *Commitment) sweep(demands []demand, span Span) (list []given) {
	comes := make([]*demand, len(demands))
	for i := range demands {
		comes[i] = &demands[i]
	}
	goes := slices.Clone(comes)
	slices.SortFunc(comes, func(a, b *demand) int { return cmp.Compare(a.FromMs, b.FromMs) })
	slices.SortFunc(goes, func(a, b *demand) int { return cmp.Compare(a.ToMs, b.ToMs) })
	s := &division{
		left:    c.Gpus,
		have:    queue{before: func(a, b *demand) bool { return order(a, b) > 0 }}, // the last one first
		waiting: queue{before: func(a, b *demand) bool { return order(a, b) < 0 }},
	}
	nobody := &demand{was: c.Gpus, since: span.FromMs}
	write := func(d *demand, now int64, to *demand) {
		if d.was == d.got {
			return
		}
		if d.was > 0 && d.since < now {
			list = append(list, given{Span{d.since, now}, to, d.was})
		}
		d.was, d.since = d.got, now
	}
	for len(goes) > 0 {
		now := goes[0].ToMs
		if len(comes) > 0 {
			now = min(now, comes[0].FromMs)
		}
		for ; len(goes) > 0 && goes[0].ToMs == now; goes = goes[1:] {
			s.goes(goes[0])
		}
		for ; len(comes) > 0 && comes[0].FromMs == now; comes = comes[1:] {
			s.comes(comes[0])
		}
		for _, d := range s.changed {
			write(d, now, d)
		}
		s.changed = s.changed[:0]
		nobody.got = s.left
		write(nobody, now, nil)
	}
	nobody.got = -1
	write(nobody, span.ToMs, nil)
	slices.SortFunc(list, func(a, b given) int {
		switch {
		case a.FromMs != b.FromMs:
			return cmp.Compare(a.FromMs, b.FromMs)
		case a.to == nil || b.to == nil: // only one of them is
			if a.to == nil {
				return 1
			}
			return -1
		}
		return order(a.to, b.to)
	})
	return list
}

// division says who has GPUs of a commitment at an instant. All who have some come
// before all who wait, only the last of them may want more, and nobody waits as long as
// any are left.
type division struct {
	left    int64
	have    queue
	waiting queue
	changed []*demand
}

func (s *division) comes(d *demand) {
	last := s.have.first()
	if s.left == 0 && last != nil && order(d, last) > 0 {
		heap.Push(&s.waiting, d)
		return
	}
	s.give(d, d.segment.Gpus)
	heap.Push(&s.have, d)
	for s.left < 0 {
		last = s.have.first()
		s.give(last, -min(last.got, -s.left))
		if last.got == 0 {
			heap.Pop(&s.have)
			heap.Push(&s.waiting, last)
		}
	}
}

func (s *division) goes(d *demand) {
	d.ended = true
	s.give(d, -d.got)
	for s.left > 0 {
		last := s.have.first()
		if last == nil || last.got == last.segment.Gpus {
			if last = s.waiting.first(); last == nil {
				return
			}
			heap.Pop(&s.waiting)
			heap.Push(&s.have, last)
		}
		s.give(last, min(s.left, last.segment.Gpus-last.got))
	}
}

func (s *division) give(d *demand, gpus int64) {
	d.got += gpus
	s.left -= gpus
	s.changed = append(s.changed, d)
}

// queue is a heap of demands; those that have ended leave it when they come first.
type queue struct {
	list   []*demand
	before func(a, b *demand) bool
}

func (q *queue) Len() int           { return len(q.list) }
func (q *queue) Less(i, j int) bool { return q.before(q.list[i], q.list[j]) }
func (q *queue) Swap(i, j int)      { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *queue) Push(x any)         { q.list = append(q.list, x.(*demand)) }
func (q *queue) Pop() any {
	last := q.list[len(q.list)-1]
	q.list = q.list[:len(q.list)-1]
	return last
}

// first returns the first demand that has not ended; nil = there is none.
func (q *queue) first() *demand {
	for len(q.list) > 0 && q.list[0].ended {
		heap.Pop(q)
	}
	if len(q.list) == 0 {
		return nil
	}
	return q.list[0]
}

// order says who is covered first.
func order(a, b *demand) int {
	if a.own != b.own {
		if a.own {
			return -1
		}
		return 1
	}
	rank := 0
	if a.rank != nil && b.rank != nil {
		rank = b.rank.Cmp(a.rank)
	}
	return cmp.Or(rank, cmp.Compare(a.instance, b.instance), cmp.Compare(a.FromMs, b.FromMs))
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
