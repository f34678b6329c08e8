package producer

import (
	"maps"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// A label that says who holds a unit can be missing from some readings while the
// owner goes on (NVIDIA/dcgm-exporter#428, #342). So a unit that had one owner and
// is read without any is undecided for a while, and its time is kept back:
//
//   - the owner is read again at most OwnerHold after the last time: all of the
//     time in between is the owner's;
//   - another owner is read, or several are, or the time is over: nobody had it
//     from the moment the label vanished.
//
// What was emitted is never changed. The identity of an event is its unit and its
// start, so it is the same whoever gets it. A unit that several owners hold at once
// is not held: a reading without any of them says that it is free.
//
// The undecided time is in the spool like the unfinished events. After a crash, a
// stop or a gap it is decided by the next readings in the same way; the time
// without readings is in no event.
type undecided struct {
	owner   schema.Usage // the owner's attributes; identity and amounts mean nothing
	sinceMs int64        // the last tick at which the owner was read
	pieces  []schema.Usage
}

// withheld returns the undecided time that the holding's belongs to, nil if its
// owner is known.
func (m *Meter) withheld(h *holding) *undecided {
	if h.instance != "" {
		return nil
	}
	return m.undecided[h.unit]
}

// end ends the holding's event here and appends it to finished, or keeps it back.
func (m *Meter) end(h *holding, finished []schema.Usage) []schema.Usage {
	if h.span == nil {
		return finished
	}
	u := h.span.event()
	h.span = nil
	if w := m.withheld(h); w != nil {
		w.pieces = append(w.pieces, u)
		return finished
	}
	return append(finished, u)
}

// vanish begins the undecided time of units that are read without an owner and
// had one at the last reading.
func (m *Meter) vanish(readings []schema.Reading, seen map[string]int) {
	if m.o.OwnerHold == 0 {
		return
	}
	for i := range readings {
		r := &readings[i]
		if r.Instance != "" || seen[r.Unit] > 1 || m.undecided[r.Unit] != nil {
			continue
		}
		var last []*holding
		for _, h := range m.holdings {
			if h.unit == r.Unit {
				last = append(last, h)
			}
		}
		if len(last) == 1 && last[0].instance != "" {
			m.undecided[r.Unit] = &undecided{owner: last[0].usage, sinceMs: m.lastTick}
		}
	}
}

// decide appends the events whose owner is known by the readings of a tick.
func (m *Meter) decide(tickMs int64, readings []schema.Reading, finished []schema.Usage) []schema.Usage {
	if len(m.undecided) == 0 {
		return finished
	}
	owners := map[string][]*schema.Reading{}
	for i := range readings {
		if r := &readings[i]; r.Instance != "" && m.undecided[r.Unit] != nil {
			owners[r.Unit] = append(owners[r.Unit], r)
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(m.undecided)) {
		w, now := m.undecided[unit], owners[unit]
		passed, hold := tickMs-w.sinceMs, m.o.OwnerHold.Milliseconds()
		switch {
		case len(now) == 1 && now[0].Instance == w.owner.Instance && now[0].Project == w.owner.Project && passed <= hold:
			for i := range w.pieces {
				finished = append(finished, w.ownersPiece(i))
			}
		case len(now) > 0 || passed >= hold:
			finished = append(finished, w.pieces...)
		default:
			continue
		}
		delete(m.undecided, unit)
	}
	return finished
}

// ownersPiece is a piece as it is when the owner had the unit after all.
func (w *undecided) ownersPiece(i int) schema.Usage {
	p, u := &w.pieces[i], w.owner
	u.Header = p.Header
	u.StartMs, u.EndMs = p.StartMs, p.EndMs
	u.Utilization, u.ActiveMs, u.IdleMs = p.Utilization, p.ActiveMs, p.IdleMs
	u.MemoryUsedBytes, u.MemoryTotalBytes, u.EnergyMj = p.MemoryUsedBytes, p.MemoryTotalBytes, p.EnergyMj
	u.Labels = slices.Clone(u.Labels)
	return u
}

// Undecided returns the time that is kept back, as of the last tick, in the form
// that Restore takes: for each unit the owner that it may be of, an event from when
// he was last read, and after it what nobody's events would be.
func (m *Meter) Undecided() []schema.Usage {
	var list []schema.Usage
	for _, unit := range slices.Sorted(maps.Keys(m.undecided)) {
		w := m.undecided[unit]
		pieces := slices.Clone(w.pieces)
		for _, h := range m.holdings {
			if h.unit == unit && m.withheld(h) != nil && h.span != nil {
				pieces = append(pieces, h.span.event())
			}
		}
		if len(pieces) == 0 {
			continue // the label vanished and no time has passed
		}
		head := w.owner
		head.Source, head.ID = m.o.Source, schema.UsageID(unit, w.sinceMs)
		head.StartMs, head.EndMs = w.sinceMs, pieces[len(pieces)-1].EndMs
		list = append(append(list, head), pieces...)
	}
	return list
}

// Restore takes back what Undecided returned, before the first tick.
func (m *Meter) Restore(list []schema.Usage) {
	for i := range list {
		u := list[i]
		if w := m.undecided[u.Unit]; u.Instance == "" && w != nil {
			w.pieces = append(w.pieces, u)
			continue
		}
		m.undecided[u.Unit] = &undecided{owner: u, sinceMs: u.StartMs}
	}
}
