package aggregator

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// reference does what Compute promises, one millisecond after the other and with
// exact fractions. It knows nothing of segments, of cells as they are built or
// of 64 bits, and is far too slow for anything but tests.
func reference(events []schema.StoredEvent, windows []Window, threshold int64) []schema.Cell {
	var unit string
	for i := range events {
		unit = events[i].Unit
	}
	return world{events: events}.reference(unit, windows, threshold)
}

// reference computes the windows of a unit of the world, and settles identities
// over all of it.
func (w world) reference(unit string, windows []Window, threshold int64) []schema.Cell {
	events := w.events
	var cells []schema.Cell
	world := w
	for _, w := range windows {
		var first []*schema.StoredEvent
		owners := map[schema.Owner]*schema.Amounts{}
		for i := range events {
			e := &events[i]
			if e.Unit != unit || e.EndMs <= w.StartMs || e.StartMs >= w.EndMs {
				continue
			}
			owners[ownerOf(e)] = &schema.Amounts{}
			// A content that was stored again is the same report.
			again := slices.ContainsFunc(first, func(o *schema.StoredEvent) bool { return o.Identity() == e.Identity() })
			if world.counts(e) && !again {
				first = append(first, e)
			}
		}
		for ms := w.StartMs; ms < w.EndMs; ms++ {
			speaks, reports := map[string]*schema.StoredEvent{}, map[string]int{}
			for _, e := range first {
				if e.StartMs <= ms && ms < e.EndMs {
					reports[e.Instance]++
					if have := speaks[e.Instance]; have == nil || knowsMore(e, have, threshold) {
						speaks[e.Instance] = e
					}
				}
			}
			if e, at := holderOf(speaks, ms); e != nil {
				a := owners[ownerOf(e)]
				countOne(a, e, at, threshold)
				if reports[e.Instance] > 1 {
					a.OverlapMs++
				}
				if claimed(speaks).Cmp(big.NewRat(1, 1)) > 0 {
					a.OversubscribedMs++
				}
			}
		}
		for o, a := range owners {
			cells = append(cells, schema.Cell{Unit: unit, WindowMs: w.StartMs, Owner: o, Amounts: *a, Version: world.version(unit, w)})
		}
	}
	return inOrder(cells)
}

func earlier(a, b *schema.StoredEvent) bool {
	switch {
	case a.StoredAtNs != b.StoredAtNs:
		return a.StoredAtNs < b.StoredAtNs
	case a.StreamSequence != b.StreamSequence:
		return a.StreamSequence < b.StreamSequence
	case a.Place != b.Place:
		return a.Place < b.Place
	}
	return bytes.Compare(a.Payload[:], b.Payload[:]) < 0
}

func knowsMore(a, b *schema.StoredEvent, threshold int64) bool {
	activeA, idleA, _ := a.Split(threshold)
	activeB, idleB, _ := b.Split(threshold)
	if c := big.NewRat(activeA+idleA, a.LengthMs()).Cmp(big.NewRat(activeB+idleB, b.LengthMs())); c != 0 {
		return c > 0
	}
	if c := big.NewRat(activeA, a.LengthMs()).Cmp(big.NewRat(activeB, b.LengthMs())); c != 0 {
		return c > 0
	}
	return a.Source+"\x00"+a.ID < b.Source+"\x00"+b.ID
}

// holderOf says which event gets the millisecond, and its place on that holder's
// own axis.
func holderOf(speaks map[string]*schema.StoredEvent, ms int64) (*schema.StoredEvent, *big.Int) {
	one, given, silent := big.NewRat(1, 1), new(big.Rat), int64(0)
	var names []string
	for instance, e := range speaks {
		if instance == "" {
			continue
		}
		names = append(names, instance)
		if e.Share.Known {
			given.Add(given, big.NewRat(e.Share.Value, schema.ShareOne))
		} else {
			silent++
		}
	}
	slices.Sort(names)
	rest := new(big.Rat).Sub(one, given)
	whole, quiet := one, new(big.Rat) // quiet: what each gets that gave no share
	switch {
	case silent == 0:
		if given.Cmp(one) > 0 {
			whole = given
		}
	case rest.Sign() > 0:
		quiet.Quo(rest, big.NewRat(silent, 1))
	default:
		quiet.Set(one)
		whole = new(big.Rat).Add(given, big.NewRat(silent, 1))
	}
	at, left := big.NewInt(ms), new(big.Rat).Set(whole)
	for _, name := range names {
		part := quiet
		if s := speaks[name].Share; s.Known {
			part = big.NewRat(s.Value, schema.ShareOne)
		}
		mine := floorOf(at, new(big.Rat).Quo(part, left))
		after := floorOf(new(big.Int).Add(at, big.NewInt(1)), new(big.Rat).Quo(part, left))
		if after.Cmp(mine) > 0 {
			return speaks[name], mine
		}
		at = new(big.Int).Sub(at, mine)
		left.Sub(left, part)
	}
	return speaks[""], at
}

// claimed adds up what the instances say they have of the unit; who says nothing
// has all of it.
func claimed(speaks map[string]*schema.StoredEvent) *big.Rat {
	sum := new(big.Rat)
	for instance, e := range speaks {
		switch {
		case instance == "":
		case e.Share.Known:
			sum.Add(sum, big.NewRat(e.Share.Value, schema.ShareOne))
		default:
			sum.Add(sum, big.NewRat(1, 1))
		}
	}
	return sum
}

func floorOf(x *big.Int, r *big.Rat) *big.Int {
	n := new(big.Int).Mul(x, r.Num())
	return n.Div(n, r.Denom())
}

func countOne(a *schema.Amounts, e *schema.StoredEvent, at *big.Int, threshold int64) {
	active, idle, _ := e.Split(threshold)
	next := new(big.Int).Add(at, big.NewInt(1))
	knownPart := big.NewRat(active+idle, e.LengthMs())
	k := floorOf(at, knownPart)
	if floorOf(next, knownPart).Cmp(k) > 0 {
		activePart := big.NewRat(active, active+idle)
		if floorOf(new(big.Int).Add(k, big.NewInt(1)), activePart).Cmp(floorOf(k, activePart)) > 0 {
			a.ActiveMs++
		} else {
			a.IdleMs++
		}
		if e.Utilization.Known {
			a.UtilizationMs++
			a.UtilizationSum += e.Utilization.Value
		}
	} else {
		a.UnknownMs++
	}
	if e.MemoryUsedBytes.Known {
		a.MemoryMs++
		a.MemoryByteMs += e.MemoryUsedBytes.Value
	}
	if e.EnergyMj.Known {
		per := big.NewRat(e.EnergyMj.Value, e.LengthMs())
		a.EnergyMs++
		a.EnergyMj += new(big.Int).Sub(floorOf(next, per), floorOf(at, per)).Int64()
	}
}

// inOrder sorts cells so that two computations can be compared.
func inOrder(cells []schema.Cell) []schema.Cell {
	slices.SortFunc(cells, func(a, b schema.Cell) int {
		return cmp.Or(
			cmp.Compare(a.WindowMs, b.WindowMs), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Project, b.Project),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Labels, b.Labels))
	})
	return cells
}
