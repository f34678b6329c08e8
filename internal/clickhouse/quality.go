package clickhouse

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gpumeter/gpumeter/schema"
)

// LateMs is the grace time of an event: one that the stream stores later than
// this after its interval ended is counted as late in the quality of a report.
const LateMs = 10 * schema.MinuteMs

// Quality counts what a reader of a report over a span has to know about its
// data, as far as it was known at asOfMs (0 = now).
func (db *DB) Quality(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (q schema.Quality, err error) {
	where := "tenant = " + quoteText(tenant) + " AND " + overlappingRange(fromMs, toMs) + asOfCondition(asOfMs)
	if q.Conflicts, err = db.countConflicts(ctx, where); err != nil {
		return q, fmt.Errorf("count conflicts: %w", err)
	}
	if q.Late, err = db.countLate(ctx, where); err != nil {
		return q, fmt.Errorf("count late events: %w", err)
	}
	if q.OpenIncidents, q.Gaps, err = db.countIncidents(ctx, tenant, fromMs, toMs, asOfMs); err != nil {
		return q, fmt.Errorf("count incidents: %w", err)
	}
	if q.Quarantined, err = db.countQuarantine(ctx, tenant, asOfMs); err != nil {
		return q, fmt.Errorf("count quarantine: %w", err)
	}
	return q, nil
}

func (db *DB) countConflicts(ctx context.Context, where string) (int64, error) {
	return db.count(ctx, "SELECT count() FROM (SELECT 1 FROM raw_usage WHERE "+where+" GROUP BY source, id HAVING uniqExact(payload) > 1)")
}

func (db *DB) countLate(ctx context.Context, where string) (int64, error) {
	return db.count(ctx, "SELECT countIf(stored > finished + "+strconv.Itoa(LateMs)+") FROM ("+
		"SELECT toUnixTimestamp64Milli(min(stored_at)) AS stored, toUnixTimestamp64Milli(max(`end`)) AS finished "+
		"FROM raw_usage WHERE "+where+" GROUP BY source, id)")
}

func (db *DB) countQuarantine(ctx context.Context, tenant string, asOfMs int64) (int64, error) {
	return db.count(ctx, "SELECT count() FROM (SELECT max(redriven_at) AS redriven FROM quarantine WHERE tenant IN ("+quoteText(tenant)+", '')"+asOfCondition(asOfMs)+
		" GROUP BY tenant, stream, epoch, stream_sequence, place) WHERE redriven = toDateTime64(0, 3, 'UTC')")
}

func (db *DB) count(ctx context.Context, query string) (int64, error) {
	var n uint64
	err := db.conn.QueryRow(ctx, query).Scan(&n)
	return int64(n), err
}
