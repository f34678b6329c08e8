package clickhouse

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Quality counts what a reader of a report over a span has to know about its
// data, as far as it was known at asOfMs (0 = now). An event is late when the
// stream stored it more than grace after its end.
func (db *DB) Quality(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, grace time.Duration) (q schema.Quality, err error) {
	where := "tenant = " + quoteText(tenant) + " AND " + overlappingRange(fromMs, toMs) + asOfCondition(asOfMs)
	if q.Conflicts, err = db.countConflicts(ctx, where); err != nil {
		return q, fmt.Errorf("count conflicts: %w", err)
	}
	if q.Late, err = db.countLate(ctx, where, grace); err != nil {
		return q, fmt.Errorf("count late events: %w", err)
	}
	if q.Gaps, err = db.countGaps(ctx, where); err != nil {
		return q, fmt.Errorf("count gaps: %w", err)
	}
	if q.Quarantined, q.Held, err = db.countQuarantine(ctx, tenant, asOfMs); err != nil {
		return q, fmt.Errorf("count quarantine: %w", err)
	}
	return q, nil
}

func (db *DB) countConflicts(ctx context.Context, where string) (int64, error) {
	return db.count(ctx, "SELECT count() FROM (SELECT 1 FROM raw_usage WHERE "+where+" GROUP BY source, id HAVING uniqExact(payload) > 1)")
}

func (db *DB) countLate(ctx context.Context, where string, grace time.Duration) (int64, error) {
	return db.count(ctx, "SELECT countIf("+lateCondition(grace)+") FROM ("+firstCopies(where)+")")
}

// countGaps counts the missing sequence numbers. A source numbers all its events;
// what is missing between the first and the last that the span holds never
// arrived, or not yet.
func (db *DB) countGaps(ctx context.Context, where string) (int64, error) {
	return db.count(ctx, "SELECT sum(greatest(toInt64(most) - toInt64(least) + 1 - toInt64(n), 0))::UInt64 FROM ("+
		"SELECT max(sequence) AS most, min(sequence) AS least, uniqExact(sequence) AS n FROM raw_usage WHERE sequence > 0 AND "+where+
		" GROUP BY source)")
}

// countQuarantine counts what is set aside for good and what is held until its
// time, neither of them driven again by then.
func (db *DB) countQuarantine(ctx context.Context, tenant string, asOfMs int64) (quarantined, held int64, err error) {
	var q, h uint64
	err = db.conn.QueryRow(ctx, "SELECT countIf(due = "+never+"), countIf(due > "+never+") FROM ("+
		"SELECT max(redriven_at) AS redriven, max(due_at) AS due FROM quarantine WHERE tenant IN ("+quoteText(tenant)+", '')"+asOfCondition(asOfMs)+
		" GROUP BY "+itemKey+") WHERE "+pendingCondition(asOfMs)).Scan(&q, &h)
	return int64(q), int64(h), err
}

func (db *DB) count(ctx context.Context, query string) (int64, error) {
	var n uint64
	err := db.conn.QueryRow(ctx, query).Scan(&n)
	return int64(n), err
}
