package app

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

var _ report.OrderedStore = (*usageStore)(nil)

// UsageInOrder implements report.OrderedStore. It merges what Usage adds up: the
// hours and the minutes come from the database in order, a block at a time; what
// cut minutes hold is computed and sorted first. So it needs memory for the groups
// of the cut minutes only, of which a question seldom has more than two.
//
// As of an instant everything is computed from raw events, in the order of time,
// and leases add rows of their own; there it needs memory for all groups.
func (s *usageStore) UsageInOrder(ctx context.Context, q schema.UsageScan, visit func(*schema.UsageRow) error) error {
	if len(q.Cuts) < 2 {
		return fmt.Errorf("usage of %d cuts: at least two are needed", len(q.Cuts))
	}
	v, err := s.leases(ctx, &q.UsageQuery, false)
	if err != nil {
		return err
	}
	if q.AsOfMs > 0 || v != nil {
		rows, err := s.Usage(ctx, q.UsageQuery)
		if err != nil {
			return err
		}
		return merge(&q, visit, inOrder(&q, rows))
	}
	p, err := s.plan(ctx, &q.UsageQuery)
	if err != nil {
		return err
	}
	var cut rowSums
	for _, span := range p.cut {
		if err := s.fromEvents(ctx, &q.UsageQuery, span.StartMs, span.EndMs, nil, &cut); err != nil {
			return err
		}
	}
	return merge(&q, visit, inOrder(&q, cut.rows),
		s.db.UsageRows(ctx, &q, clickhouse.Hours, p.hours),
		s.db.UsageRows(ctx, &q, clickhouse.Minutes, p.minutes))
}

// inOrder sorts rows as the database does and leaves out those of earlier pages.
func inOrder(q *schema.UsageScan, rows []schema.UsageRow) iter.Seq2[schema.UsageRow, error] {
	slices.SortStableFunc(rows, func(a, b schema.UsageRow) int {
		return schema.CompareOrder(q.Values(&a, nil), q.Values(&b, nil))
	})
	return func(yield func(schema.UsageRow, error) bool) {
		for _, r := range rows {
			if q.After != nil && schema.CompareOrder(q.Values(&r, nil), q.After) <= 0 {
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// merge visits the rows of ordered sources in their common order.
func merge(q *schema.UsageScan, visit func(*schema.UsageRow) error, sources ...iter.Seq2[schema.UsageRow, error]) error {
	type head struct {
		next   func() (schema.UsageRow, error, bool)
		row    schema.UsageRow
		values []schema.OrderValue
	}
	var heads []*head
	advance := func(h *head) (more bool, err error) {
		if h.row, err, more = h.next(); err == nil && more {
			h.values = q.Values(&h.row, h.values)
		}
		return more, err
	}
	for _, s := range sources {
		next, stop := iter.Pull2(s)
		defer stop()
		h := &head{next: next}
		more, err := advance(h)
		if err != nil {
			return err
		}
		if more {
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		first := 0
		for i := 1; i < len(heads); i++ {
			if schema.CompareOrder(heads[i].values, heads[first].values) < 0 {
				first = i
			}
		}
		if err := visit(&heads[first].row); err != nil {
			return err
		}
		more, err := advance(heads[first])
		if err != nil {
			return err
		}
		if !more {
			heads = slices.Delete(heads, first, first+1)
		}
	}
	return nil
}
