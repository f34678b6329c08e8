package clickhouse

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gpumeter/gpumeter/schema"
)

// CoarseSpans returns the spans of whole hours that overlap [fromMs, toMs) whose
// usage is kept per hour and not, or not of all units, per minute. They are in order
// and do not overlap.
func (db *DB) CoarseSpans(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Interval, error) {
	rows, err := db.conn.Query(ctx, "SELECT toInt64(toUnixTimestamp(`from`)) * 1000, toInt64(toUnixTimestamp(`to`)) * 1000 FROM coarse WHERE tenant = ? "+
		"AND `from` < "+seconds(toMs+999)+" AND `to` > "+seconds(fromMs)+" ORDER BY `from`", tenant)
	if err != nil {
		return nil, fmt.Errorf("read which hours have no minutes: %w", err)
	}
	defer rows.Close()
	var list []schema.Interval
	for rows.Next() {
		var s schema.Interval
		if err := rows.Scan(&s.FromMs, &s.ToMs); err != nil {
			return nil, fmt.Errorf("read which hours have no minutes: %w", err)
		}
		if n := len(list); n > 0 && s.FromMs <= list[n-1].ToMs {
			list[n-1].ToMs = max(list[n-1].ToMs, s.ToMs)
			continue
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// Coarse says whether the usage of an hour is kept per hour only.
func (db *DB) Coarse(ctx context.Context, h schema.TenantHour) (bool, error) {
	list, err := db.CoarseSpans(ctx, h.Tenant, h.HourMs, h.HourMs+schema.HourMs)
	return len(list) > 0, err
}

// PutCoarse notes that the usage of a span of whole hours is kept per hour only. It
// comes before the hours themselves.
func (db *DB) PutCoarse(ctx context.Context, tenant string, span schema.Interval) error {
	if span.FromMs >= span.ToMs {
		return nil
	}
	err := db.conn.Exec(ctx, "INSERT INTO coarse (tenant, `from`, `to`) SELECT "+quoteText(tenant)+", "+seconds(span.FromMs)+", "+seconds(span.ToMs))
	if err != nil {
		return fmt.Errorf("note which hours have no minutes: %w", err)
	}
	return nil
}

// PutHourCells stores usage of hours that was computed from events at once. The
// version of a cell is the sum of those that its minutes would have.
func (db *DB) PutHourCells(ctx context.Context, tenant string, cells []schema.Cell) error {
	return db.putCells(ctx, Hours.table, tenant, cells)
}

// HasEvents says whether any event is stored, of any tenant.
func (db *DB) HasEvents(ctx context.Context) (bool, error) {
	for _, table := range append([]string{"raw_usage", "quarantine"}, otherTables...) {
		if n, err := db.count(ctx, "SELECT count() FROM (SELECT tenant FROM "+table+" LIMIT 1)"); err != nil || n > 0 {
			return n > 0, err
		}
	}
	return false, nil
}

// Unfinished notes that what is derived is about to be written beside the usual
// way. Until finish is called the next start of an aggregator rebuilds everything.
func (db *DB) Unfinished(ctx context.Context) (finish func(context.Context) error, err error) {
	own := []schema.Mark{{Grain: grainRebuild, ID: rand.Uint64()}}
	if err := db.WriteMarks(ctx, own); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return db.ClearMarks(ctx, own) }, nil
}
