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
	of := "tenant = " + quoteText(tenant) + asOfCondition(asOfMs)
	span := of + " AND " + overlappingRange(fromMs, toMs)
	r, err := db.repeated(ctx, of, span)
	if err != nil {
		return q, fmt.Errorf("look for what was stored more than once: %w", err)
	}
	if q.Conflicts, err = db.countConflicts(ctx, of, fromMs, toMs, r); err != nil {
		return q, fmt.Errorf("count conflicts: %w", err)
	}
	if q.Late, err = db.countLate(ctx, span, r, grace); err != nil {
		return q, fmt.Errorf("count late events: %w", err)
	}
	if q.OpenIncidents, q.Gaps, err = db.countIncidents(ctx, tenant, fromMs, toMs, asOfMs); err != nil {
		return q, fmt.Errorf("count incidents: %w", err)
	}
	if q.Quarantined, q.Held, err = db.countQuarantine(ctx, tenant, asOfMs); err != nil {
		return q, fmt.Errorf("count quarantine: %w", err)
	}
	return q, nil
}

func (db *DB) countLate(ctx context.Context, span string, r repeated, grace time.Duration) (int64, error) {
	return db.count(ctx, "SELECT countIf("+lateCondition(grace)+") FROM ("+firstCopies(span, r)+")"+inKeyOrder())
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
