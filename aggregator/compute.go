package aggregator

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// DefaultThreshold is the utilization, in millionths, from which a unit counts
// as active when its event does not say how much of the interval was.
const DefaultThreshold = 10_000

// Window is a half-open span [StartMs, EndMs).
type Window struct{ StartMs, EndMs int64 }

// Compute returns the usage of one unit in each of the windows.
//
// events are all stored events of the unit that overlap any of the windows, in
// any order, with any repetition; events of other spans do no harm. facts are
// what is stored elsewhere about their identities, nil when there is nothing: see
// [schema.Facts]. The rules:
//
//   - Identity: of the events with one (source, id), wherever they lie, the one
//     stored first counts. Another with other content is a conflict and counts
//     nothing, and neither does what a correction took out:
//     see [schema.Settlement].
//   - Union: a millisecond that several events of one owner cover counts once.
//     The event that knows more of its interval speaks for it, then the one that
//     saw more activity, then the lower identity.
//   - Sharing: a millisecond that several owners hold is divided among them by
//     their shares, equally among those who gave none. Nobody (instance "")
//     gets what the owners leave. Shares that add up to more than the unit are
//     scaled down to it. Of the time that owners get while their claims, the
//     whole unit where none is given, exceed the unit it is noted that it was
//     oversubscribed, and of the time that several events of an owner cover that
//     they overlapped.
//   - Division into whole milliseconds is by position on the time axis, see
//     [divide], so that no split of a span ever changes a sum.
//
// Every owner that any of the events names gets a cell in the window, if need be
// of zeros: it replaces what was stored before, when fewer events were known.
// events is reordered and its Counted fields are overwritten.
func Compute(events []schema.StoredEvent, windows []Window, threshold int64, facts *schema.Settlement) []schema.Cell {
	c := computation{threshold: threshold}
	c.settle(events, facts)
	var cells []schema.Cell
	for i, w := range windows {
		cells = c.window(w, i+1, cells)
	}
	return cells
}

type computation struct {
	threshold int64
	settled
	covering []*schema.StoredEvent // overlap the window and count
	cuts     []int64
	holders  []holder
}

// holder is an owner in one segment, and the event that speaks for it.
type holder struct {
	event          *schema.StoredEvent
	weight         int64
	overlap        bool // other events of the owner say something too
	oversubscribed bool
}

// heard takes one more event of the owner.
func (h *holder) heard(c *computation, e *schema.StoredEvent) {
	h.overlap = h.event != nil
	h.event = c.better(h.event, e)
}

// window counts one window. number tells the windows of a computation apart, from 1.
func (c *computation) window(w Window, number int, cells []schema.Cell) []schema.Cell {
	c.covering, c.cuts = c.covering[:0], c.cuts[:0]
	first := len(cells)
	var version uint64
	for i := range c.rows {
		r := &c.rows[i]
		if r.startMs >= w.EndMs {
			break
		}
		if r.endMs <= w.StartMs {
			continue
		}
		e := r.event
		version += c.weight(r, number)
		cells = cellFor(cells, first, e, w.StartMs)
		if e.Counted {
			c.covering = append(c.covering, e)
			c.cuts = append(c.cuts, max(e.StartMs, w.StartMs), min(e.EndMs, w.EndMs))
		}
	}
	if len(c.covering) > 1 {
		slices.Sort(c.cuts)
		c.cuts = slices.Compact(c.cuts)
	}
	for i := 1; i < len(c.cuts); i++ {
		c.segment(c.cuts[i-1], c.cuts[i], cells[first:])
	}
	for i := first; i < len(cells); i++ {
		cells[i].Version = version
	}
	return cells
}

func ownerOf(e *schema.StoredEvent) schema.Owner {
	return schema.Owner{
		Instance: e.Instance, Project: e.Project, Node: e.Node,
		Platform: e.Platform, Region: e.Region, Model: e.Model, Labels: e.LabelsText,
	}
}

func cellFor(cells []schema.Cell, first int, e *schema.StoredEvent, windowMs int64) []schema.Cell {
	o := ownerOf(e)
	for i := first; i < len(cells); i++ {
		if cells[i].Owner == o {
			return cells
		}
	}
	return append(cells, schema.Cell{Unit: e.Unit, WindowMs: windowMs, Owner: o})
}

// segment counts [from, to), in which the set of covering events does not change.
func (c *computation) segment(from, to int64, cells []schema.Cell) {
	c.holders = c.holders[:0]
	var nobody holder
	for _, e := range c.covering {
		if e.StartMs >= to || e.EndMs <= from {
			continue
		}
		if e.Instance == "" {
			nobody.heard(c, e)
			continue
		}
		at, found := slices.BinarySearchFunc(c.holders, e.Instance, func(h holder, instance string) int {
			return cmp.Compare(h.event.Instance, instance)
		})
		if !found {
			c.holders = slices.Insert(c.holders, at, holder{})
		}
		c.holders[at].heard(c, e)
	}
	whole := weigh(c.holders)
	divide(c.holders, whole, from, to, func(h *holder, from, to int64) { c.count(h, from, to, cells) },
		func(from, to int64) {
			if nobody.event != nil {
				c.count(&nobody, from, to, cells)
			}
		})
}

// better chooses between two events that speak for the same owner.
func (c *computation) better(a, b *schema.StoredEvent) *schema.StoredEvent {
	if a == nil {
		return b
	}
	activeA, idleA, _ := a.Split(c.threshold)
	activeB, idleB, _ := b.Split(c.threshold)
	order := cmp.Or(
		compareRatio(activeB+idleB, b.LengthMs(), activeA+idleA, a.LengthMs()),
		compareRatio(activeB, b.LengthMs(), activeA, a.LengthMs()),
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.ID, b.ID))
	if order <= 0 {
		return a
	}
	return b
}

// compareRatio compares a/b with x/y; all are non-negative, b and y positive.
func compareRatio(a, b, x, y int64) int {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(y))
	hi2, lo2 := bits.Mul64(uint64(x), uint64(b))
	return cmp.Or(cmp.Compare(hi1, hi2), cmp.Compare(lo1, lo2))
}

// weigh gives every holder its weight, says which are oversubscribed, and returns
// the weight of the whole unit.
// A single holder without a share, or several of whom none gave one, hold all.
func weigh(holders []holder) int64 {
	var given, silent int64
	for i := range holders {
		if s := holders[i].event.Share; s.Known {
			holders[i].weight = s.Value
			given += s.Value
		} else {
			silent++
		}
	}
	if given+silent*schema.ShareOne > schema.ShareOne {
		for i := range holders {
			holders[i].oversubscribed = true
		}
	}
	switch {
	case silent == 0:
		return max(given, schema.ShareOne)
	case given == 0:
		for i := range holders {
			holders[i].weight = 1
		}
		return silent
	case given < schema.ShareOne:
		// Those who gave none divide the rest. Weights are scaled by their
		// number so that the division stays exact.
		for i := range holders {
			if holders[i].event.Share.Known {
				holders[i].weight *= silent
			} else {
				holders[i].weight = schema.ShareOne - given
			}
		}
		return schema.ShareOne * silent
	default:
		// Oversubscribed: who gave none counts as holding the whole unit, and
		// all are scaled down.
		for i := range holders {
			if !holders[i].event.Share.Known {
				holders[i].weight = schema.ShareOne
			}
		}
		return given + silent*schema.ShareOne
	}
}

// divide gives every millisecond of [from, to) to exactly one holder, or to the
// rest when the weights do not fill the whole.
//
// The first holder owns floor(weight/whole x t) of the first t milliseconds of
// the time axis. What is left over is an axis of its own, and the next holder
// owns its part of that, and so on. Each count only grows with t and by at most
// one a step, so whichever way a span is cut, the parts add up and none is
// negative. The callbacks get the span as positions on the holder's own axis.
func divide(holders []holder, whole, from, to int64, give func(h *holder, from, to int64), rest func(from, to int64)) {
	for i := range holders {
		h := &holders[i]
		if h.weight == whole {
			give(h, from, to)
			return
		}
		ownFrom, ownTo := scale(from, h.weight, whole), scale(to, h.weight, whole)
		give(h, ownFrom, ownTo)
		from, to, whole = from-ownFrom, to-ownTo, whole-h.weight
	}
	rest(from, to)
}

// scale returns floor(x * part / whole) for 0 <= part <= whole.
func scale(x, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

// count adds the positions [from, to) of an owner to the cell of its event. The
// event's states lie evenly over time: of the first x positions floor(x*K/L) are
// known and of the first k known ones floor(k*A/K) are active. Over the length
// of the event that gives exactly K and A.
func (c *computation) count(h *holder, from, to int64, cells []schema.Cell) {
	if from == to {
		return
	}
	e := h.event
	a := amountsFor(cells, e)
	if h.overlap {
		a.OverlapMs += to - from
	}
	if h.oversubscribed {
		a.OversubscribedMs += to - from
	}
	length := e.LengthMs()
	active, idle, _ := e.Split(c.threshold)
	known := active + idle
	knownFrom, knownTo := scale(from, known, length), scale(to, known, length)
	if known > 0 {
		active = scale(knownTo, active, known) - scale(knownFrom, active, known)
	}
	known = knownTo - knownFrom
	a.ActiveMs += active
	a.IdleMs += known - active
	a.UnknownMs += to - from - known
	if e.Utilization.Known {
		a.UtilizationMs += known
		a.UtilizationSum += known * e.Utilization.Value
	}
	if e.MemoryUsedBytes.Known {
		a.MemoryMs += to - from
		a.MemoryByteMs += (to - from) * e.MemoryUsedBytes.Value
	}
	if e.EnergyMj.Known {
		a.EnergyMs += to - from
		a.EnergyMj += scale(to, e.EnergyMj.Value, length) - scale(from, e.EnergyMj.Value, length)
	}
}

func amountsFor(cells []schema.Cell, e *schema.StoredEvent) *schema.Amounts {
	if len(cells) == 1 {
		return &cells[0].Amounts
	}
	o := ownerOf(e)
	for i := range cells {
		if cells[i].Owner == o {
			return &cells[i].Amounts
		}
	}
	panic("aggregator: an event without a cell") // window made one for every event
}
