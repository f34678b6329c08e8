package app

import (
	"context"
	"slices"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/schema"
)

// split cuts the windows of one unit where the lease of an instance that its
// events name changes.
func (v *leaseView) split(events []schema.StoredEvent, windows []aggregator.Window) []aggregator.Window {
	var edges []int64
	var seen []string
	from, to := windows[0].StartMs, windows[len(windows)-1].EndMs
	for i := range events {
		if name := events[i].Instance; !slices.Contains(seen, name) {
			seen = append(seen, name)
			for _, s := range v.spans[name] {
				if s.fromMs > from && s.fromMs < to {
					edges = append(edges, s.fromMs)
				}
			}
		}
	}
	if len(edges) == 0 {
		return windows
	}
	return cutWindows(windows, edges)
}

// cutWindows cuts neighbouring windows at instants.
func cutWindows(windows []aggregator.Window, edges []int64) []aggregator.Window {
	from, to := windows[0].StartMs, windows[len(windows)-1].EndMs
	all := []int64{to}
	for _, w := range windows {
		all = append(all, w.StartMs)
	}
	for _, e := range edges {
		if e > from && e < to {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	list := make([]aggregator.Window, len(all)-1)
	for i := range list {
		list[i] = aggregator.Window{StartMs: all[i], EndMs: all[i+1]}
	}
	return list
}

// coverage collects what the units of leased instances cover in the windows of
// one computation, one unit after the other.
type coverage struct {
	v       *leaseView
	windows map[clickhouse.InstanceWindow]*coveredWindow
}

type coveredWindow struct {
	span  *leaseSpan
	endMs int64
	units []unitTime
}

type unitTime struct {
	unit string
	ms   int64
}

// add counts a cell of [cell.WindowMs, ...), which lies in one span and piece.
func (c *coverage) add(cell *schema.Cell, span *leaseSpan, piece aggregator.Window) {
	if span == nil || span.group == 0 || piece.StartMs >= c.v.clipMs {
		return
	}
	// Units are cut at the leases of all who hold them, so one unit may come in
	// more windows than another.
	key := clickhouse.InstanceWindow{Instance: cell.Instance, StartMs: max(piece.StartMs, span.fromMs)}
	w := c.windows[key]
	if w == nil {
		w = &coveredWindow{span: span, endMs: min(piece.EndMs, span.toMs)}
		if c.windows == nil {
			c.windows = map[clickhouse.InstanceWindow]*coveredWindow{}
		}
		c.windows[key] = w
	}
	if n := len(w.units); n == 0 || w.units[n-1].unit != cell.Unit {
		w.units = append(w.units, unitTime{unit: cell.Unit})
	}
	w.units[len(w.units)-1].ms += cell.ActiveMs + cell.IdleMs + cell.UnknownMs
}

// settle takes what is covered from the leased time and returns the windows for
// which that takes a closer look. See [clickhouse.DB.LeaseCovered].
func (c *coverage) settle() []detail {
	var unclear []detail
	for key, w := range c.windows {
		var sum, full int64
		for _, u := range w.units {
			sum += u.ms
			if u.ms == w.endMs-key.StartMs {
				full++
			}
		}
		switch {
		case int64(len(w.units)) <= w.span.gpus:
			c.v.covered(w.span.group, c.v.piece(key.StartMs), sum)
		case full >= w.span.gpus:
			c.v.covered(w.span.group, c.v.piece(key.StartMs), w.span.gpus*(w.endMs-key.StartMs))
		default:
			d := detail{instance: key.Instance, window: aggregator.Window{StartMs: key.StartMs, EndMs: w.endMs}}
			for _, u := range w.units {
				d.units = append(d.units, schema.UnitHash(u.unit))
			}
			unclear = append(unclear, d)
		}
	}
	return unclear
}

// detail is a window of one instance, within one piece, that is computed from all
// events of its units.
type detail struct {
	instance string
	window   aggregator.Window
	units    []uint64
}

// minutes is how many events the window may have, when each is a minute long.
func (d *detail) minutes() int64 {
	return (d.window.EndMs - d.window.StartMs + schema.MinuteMs - 1) / schema.MinuteMs * int64(len(d.units))
}

// maxDetailMinutes bounds how many minutes of units are held in memory at once: an
// event takes about half a kilobyte.
const maxDetailMinutes = 60_000

// details computes windows from events, and adds their usage to sums if that is
// not nil. Memory is bounded by taking some of them at a time.
func (s *usageStore) details(ctx context.Context, v *leaseView, list []detail, sums *rowSums) error {
	slices.SortFunc(list, func(a, b detail) int { return int(a.window.StartMs - b.window.StartMs) })
	for len(list) > 0 {
		var spans []clickhouse.UnitSpan
		n := 0
		for minutes := int64(0); n < len(list) && minutes < maxDetailMinutes; n++ {
			minutes += list[n].minutes()
			for _, u := range list[n].units {
				spans = append(spans, clickhouse.UnitSpan{Unit: u, StartMs: list[n].window.StartMs, EndMs: list[n].window.EndMs})
			}
		}
		units := map[uint64][][]schema.StoredEvent{}
		var settled *schema.Settlement
		err := s.db.UnitSpanEvents(ctx, v.q.Tenant, spans, v.q.AsOfMs, func(events []schema.StoredEvent, facts *schema.Settlement) error {
			settled = facts
			hash := schema.UnitHash(events[0].Unit)
			units[hash] = append(units[hash], slices.Clone(events))
			return nil
		})
		if err != nil {
			return err
		}
		for i := range list[:n] {
			s.detail(v, &list[i], units, settled, sums)
		}
		list = list[n:]
	}
	return nil
}

// detail computes one window, cut wherever the instance's lease changes or one of
// its units begins or ends to be reported.
func (s *usageStore) detail(v *leaseView, d *detail, events map[uint64][][]schema.StoredEvent, facts *schema.Settlement, sums *rowSums) {
	var units [][]schema.StoredEvent
	var edges []int64
	for _, hash := range d.units {
		for _, all := range events[hash] {
			if unit := s.counted(all, d.window, facts); len(unit) > 0 {
				units = append(units, unit)
				for i := range unit {
					if unit[i].Instance == d.instance {
						edges = append(edges, unit[i].StartMs, unit[i].EndMs)
					}
				}
			}
		}
	}
	for _, span := range v.spans[d.instance] {
		edges = append(edges, span.fromMs)
	}
	windows := cutWindows([]aggregator.Window{d.window}, edges)
	reporting, ms := make([]int64, len(windows)), make([]int64, len(windows))
	piece := v.piece(d.window.StartMs)
	for _, unit := range units {
		for _, cell := range aggregator.Compute(unit, windows, s.threshold, facts) {
			if cell.Instance != d.instance {
				continue
			}
			ms[indexOf(windows, cell.WindowMs)] += cell.ActiveMs + cell.IdleMs + cell.UnknownMs
			if span := v.at(cell.Instance, cell.WindowMs); sums != nil && v.wants(span) && keeps(&v.q, &cell) {
				sums.add(ratedRow(&cell, piece, v.q.By, span, last(&v.q, d.window.EndMs)))
			}
		}
		for i, w := range windows {
			if slices.ContainsFunc(unit, func(e schema.StoredEvent) bool {
				return e.Instance == d.instance && e.StartMs < w.EndMs && e.EndMs > w.StartMs
			}) {
				reporting[i]++
			}
		}
	}
	for i, w := range windows {
		span := v.at(d.instance, w.StartMs)
		switch {
		case span == nil || span.group == 0 || w.StartMs >= v.clipMs:
		case reporting[i] > span.gpus:
			v.covered(span.group, piece, span.gpus*(w.EndMs-w.StartMs))
		default:
			v.covered(span.group, piece, ms[i])
		}
	}
}

// counted returns the events of a unit that count in a window.
func (s *usageStore) counted(events []schema.StoredEvent, w aggregator.Window, facts *schema.Settlement) []schema.StoredEvent {
	var list []schema.StoredEvent
	for _, e := range events {
		if e.StartMs < w.EndMs && e.EndMs > w.StartMs {
			list = append(list, e)
		}
	}
	aggregator.Compute(list, []aggregator.Window{w}, s.threshold, facts)
	return slices.DeleteFunc(list, func(e schema.StoredEvent) bool { return !e.Counted })
}

func indexOf(windows []aggregator.Window, startMs int64) int {
	at, found := slices.BinarySearchFunc(windows, startMs, func(w aggregator.Window, ms int64) int { return int(w.StartMs - ms) })
	if !found {
		at--
	}
	return at
}

// windowDetails computes windows of a grain in which leases change, or that the sums
// of the grain cannot tell.
func (s *usageStore) windowDetails(ctx context.Context, v *leaseView, grain clickhouse.Grain, windows []clickhouse.InstanceWindow, sums *rowSums) error {
	units, err := s.db.InstanceUnits(ctx, v.q.Tenant, grain, windows)
	if err != nil {
		return err
	}
	var list []detail
	for _, w := range windows {
		if len(units[w]) > 0 {
			list = append(list, detail{instance: w.Instance, window: aggregator.Window{StartMs: w.StartMs, EndMs: w.StartMs + grain.Ms()}, units: units[w]})
		}
	}
	return s.details(ctx, v, list, sums)
}

// markNotHeld notes in events what the leases of their instances do not hold.
func markNotHeld(events []schema.StoredEvent, lines [][]schema.LeaseSegment) {
	byInstance := make(map[string][]schema.LeaseSegment, len(lines))
	for _, line := range lines {
		byInstance[line[0].Instance] = line
	}
	for i := range events {
		e := &events[i]
		line := byInstance[e.Instance]
		if line == nil {
			continue
		}
		at := e.StartMs // held or noted before
		for _, s := range append(slices.Clip(line), schema.LeaseSegment{FromMs: schema.LeaseOpen, ToMs: schema.LeaseOpen, State: "running"}) {
			if !s.Held() {
				continue
			}
			if until := min(s.FromMs, e.EndMs); at < until {
				e.NotHeld = append(e.NotHeld, schema.Interval{FromMs: at, ToMs: until})
			}
			at = max(at, s.ToMs)
		}
	}
}
