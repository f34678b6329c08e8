package app

import (
	"context"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of what is computed from raw events at once: the events that begin in
// it, so that memory is bounded, and its hours, of which each is a window that
// looks at all events of a unit.
const (
	maxSpanEvents = 100_000
	maxSpanHours  = 7 * 24
)

// spans cuts [fromMs, toMs) at whole hours into spans that are computed at once.
// Hours before the first of counts and after the last may hold events too, which
// began before.
func spans(fromMs, toMs int64, counts []clickhouse.HourCount) []aggregator.Window {
	var list []aggregator.Window
	start, events := fromMs, int64(0)
	next := 0
	for hour := schema.Floor(fromMs, schema.HourMs); hour < toMs; hour += schema.HourMs {
		n := int64(0)
		for ; next < len(counts) && counts[next].HourMs <= hour; next++ {
			n += counts[next].Events
		}
		if hour > start && (events+n > maxSpanEvents || hour-start >= maxSpanHours*schema.HourMs) {
			list = append(list, aggregator.Window{StartMs: start, EndMs: hour})
			start, events = hour, 0
		}
		events += n
	}
	if start < toMs {
		list = append(list, aggregator.Window{StartMs: start, EndMs: toMs})
	}
	return list
}

// asOf computes from the events that were stored by an instant, some hours at a
// time so that memory is bounded.
func (s *usageStore) asOf(ctx context.Context, q *schema.UsageQuery, v *leaseView) ([]schema.UsageRow, error) {
	var sums rowSums
	first, last, err := s.db.Bounds(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	from, to := max(q.Cuts[0], first), min(q.Cuts[len(q.Cuts)-1], last)
	if from >= to {
		return nil, nil
	}
	counts, err := s.db.HourCounts(ctx, q.Tenant, from, to)
	if err != nil {
		return nil, err
	}
	for _, w := range spans(from, to, counts) {
		if err := s.fromEvents(ctx, q, w.StartMs, w.EndMs, v, &sums); err != nil {
			return nil, err
		}
	}
	return sums.rows, nil
}
