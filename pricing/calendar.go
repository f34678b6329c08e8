package pricing

import (
	"fmt"
	"slices"
	"time"
)

// Every is a step of the calendar in a zone.
type Every string

// Steps. An hour, a day and a month begin where the clocks of the zone say so: a
// day has 23 or 25 hours where clocks change, and hours of a zone with an offset of
// half an hour begin at the half hour of UTC.
const (
	EveryHour  Every = "hour"
	EveryDay   Every = "day"
	EveryMonth Every = "month"
)

// Boundaries returns the instants inside (fromMs, toMs) at which a step begins,
// rising.
func (e Every) Boundaries(fromMs, toMs int64, zone *time.Location) []int64 {
	var list []int64
	for at := e.next(fromMs, zone); at < toMs; at = e.next(at, zone) {
		list = append(list, at)
	}
	return list
}

// stretch is a number of settlements in a row, all as long as each other.
type stretch struct {
	Span
	n    int64
	ends int64 // when the first one does, of which the span may be a part
}

// stretches divides a span into settlements. Those that are whole hours of the same
// length come as one, so that a month costs as much to rate as a day.
func (e Every) stretches(s Span, zone *time.Location) []stretch {
	if e == "" {
		return []stretch{{s, 1, s.ToMs}}
	}
	var list []stretch
	for at := s.FromMs; at < s.ToMs; {
		t := time.UnixMilli(at).In(zone)
		ends := e.next(at, zone)
		next := min(ends, s.ToMs)
		whole := int64(1)
		if e == EveryHour && next-at == hourMs && t.Minute() == 0 {
			// Until the clocks change hours are just that.
			end := s.ToMs
			if _, change := t.ZoneBounds(); !change.IsZero() {
				end = min(end, change.UnixMilli()-1)
			}
			whole = max(1, (end-at)/hourMs)
			next = at + whole*hourMs
		}
		list = append(list, stretch{Span{at, next}, whole, ends})
		at = next
	}
	return list
}

// cut divides a stretch at instants inside of it, which are in order: whole settlements
// between two of them stay together.
func (s stretch) cut(instants []int64) []stretch {
	var list []stretch
	unit := s.Ms() / s.n
	add := func(from, to, n int64) {
		if from < to {
			list = append(list, stretch{Span{from, to}, n, s.ends + (from-s.FromMs)/unit*unit})
		}
	}
	from := s.FromMs
	for _, at := range append(instants, s.ToMs) {
		// The first and the last settlement of what lies before the cut may be parts.
		first := s.FromMs + (from-s.FromMs+unit-1)/unit*unit
		last := s.FromMs + (at-s.FromMs)/unit*unit
		if first > last { // all of it lies within one
			add(from, at, 1)
		} else {
			add(from, first, 1)
			add(first, last, (last-first)/unit)
			add(last, at, 1)
		}
		from = at
	}
	return list
}

// next returns the first beginning of a step after an instant.
func (e Every) next(ms int64, zone *time.Location) int64 {
	t := time.UnixMilli(ms).In(zone)
	y, m, d := t.Date()
	switch e {
	case EveryHour:
		// Clock hours in real time: where clocks change by half an hour, the hour that
		// they go back in is that much longer, and the one that they go forward into
		// that much shorter.
		hour := t.Hour()
		for at := ms - ms%quarterMs + quarterMs; ; at += quarterMs {
			if now := time.UnixMilli(at).In(zone); now.Minute() == 0 || now.Hour() != hour {
				return at
			}
		}
	case EveryDay:
		return startOfDay(y, m, d+1, zone)
	case EveryMonth:
		return startOfDay(y, m+1, 1, zone)
	}
	panic(fmt.Sprintf("pricing: %q is no step of the calendar", string(e)))
}

// quarterMs divides every offset of a zone since 1972.
const quarterMs = 15 * 60 * 1000

// startOfDay is the first instant of a date. Where midnight does not exist, because
// clocks go forward over it, the date begins when they have; a date that a zone left
// out begins with the next one.
func startOfDay(y int, m time.Month, d int, zone *time.Location) int64 {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	// time.Date resolves a midnight that is skipped to an instant of the day before.
	for dateOf(t).Before(want) {
		t = t.Add(15 * time.Minute)
	}
	return t.UnixMilli()
}

func dateOf(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// AddMonths returns the instant n months after an anchor, at the same time of day
// in the zone. A day that the month does not have becomes its last one; the next
// month has the anchor's day again, because nothing is computed from a clamped day:
// after 31 January come 28 February and 31 March.
func AddMonths(anchorMs int64, n int, zone *time.Location) int64 {
	t := time.UnixMilli(anchorMs).In(zone)
	y, m, d := t.Date()
	last := time.Date(y, m+time.Month(n)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	midnight := startOfDay(y, m+time.Month(n), min(d, last), zone)
	hour, minute, second := t.Clock()
	day := time.UnixMilli(midnight).In(zone)
	at := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, second, t.Nanosecond(), zone).UnixMilli()
	return max(at, midnight)
}

func clockOf(ms int64, zone *time.Location) (int, time.Month, int) {
	return time.UnixMilli(ms).In(zone).Date()
}

// Cut divides [fromMs, toMs) at the cuts that lie inside; cuts need no order.
func Cut(fromMs, toMs int64, cuts ...[]int64) []Span {
	all := slices.Concat(append([][]int64{{fromMs, toMs}}, cuts...)...)
	slices.Sort(all)
	all = slices.Compact(all)
	var list []Span
	for i, at := range all {
		if at >= fromMs && at < toMs {
			list = append(list, Span{at, all[i+1]})
		}
	}
	return list
}

// Span is [FromMs, ToMs).
type Span struct{ FromMs, ToMs int64 }

// Ms returns the length.
func (s Span) Ms() int64 { return s.ToMs - s.FromMs }
