package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// maxIncidents bounds what one question about incidents returns.
const maxIncidents = 100_000

// NoteIncidents adds to the log of incidents what was learned at an instant.
func (db *DB) NoteIncidents(ctx context.Context, nowMs int64, list []schema.Incident) error {
	if len(list) == 0 {
		return nil
	}
	batch, err := db.conn.PrepareBatch(ctx, "INSERT INTO incident (tenant, kind, key, noted_at, detail, count, from, to, opened_at, closed_at, closed_by)")
	if err != nil {
		return fmt.Errorf("note incidents: %w", err)
	}
	defer batch.Close()
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	for i := range list {
		n := &list[i]
		if err := batch.Append(n.Tenant, n.Kind, n.Key, at(nowMs), n.Detail, n.Count, at(n.FromMs), at(n.ToMs), at(n.OpenedAtMs), at(n.ClosedAtMs), n.ClosedBy); err != nil {
			return fmt.Errorf("note incidents: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("note incidents: %w", err)
	}
	return nil
}

// Incidents returns the incidents of a tenant that were open at asOfMs (0 = now)
// and touch [fromMs, toMs) (both 0 = any time), by when they were opened, as far
// as was known then. Incidents of no tenant touch all.
func (db *DB) Incidents(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) ([]schema.Incident, error) {
	where := "tenant IN (" + quoteText(tenant) + ", '')"
	having := " HAVING closed = 0" + touching(fromMs, toMs)
	return db.incidents(ctx, where+notedBy(asOfMs), having)
}

// StandingIncidents returns the incidents of all tenants that are open, and those
// that a person closed.
func (db *DB) StandingIncidents(ctx context.Context) ([]schema.Incident, error) {
	return db.incidents(ctx, "1", " HAVING closed = 0 OR by_whom != ''")
}

// OpenIncidents returns the open incidents of all tenants.
func (db *DB) OpenIncidents(ctx context.Context) ([]schema.Incident, error) {
	return db.incidents(ctx, "1", " HAVING closed = 0")
}

// PastIncidents returns the incidents of all tenants that were opened since an
// instant and have ended.
func (db *DB) PastIncidents(ctx context.Context, sinceMs int64) ([]schema.Incident, error) {
	return db.incidents(ctx, "1", fmt.Sprintf(" HAVING closed > 0 AND opened >= %d", sinceMs))
}

func touching(fromMs, toMs int64) string {
	if fromMs == 0 && toMs == 0 {
		return ""
	}
	return fmt.Sprintf(" AND (a = 0 AND z = 0 OR a < %d AND z > %d)", toMs, fromMs)
}

func notedBy(asOfMs int64) string {
	if asOfMs == 0 {
		return ""
	}
	return " AND noted_at <= fromUnixTimestamp64Milli(" + strconv.FormatInt(asOfMs, 10) + ", 'UTC')"
}

func (db *DB) incidents(ctx context.Context, where, having string) ([]schema.Incident, error) {
	newest := func(column string) string { return "argMax(" + column + ", (noted_at, closed_at))" }
	ms := func(column string) string { return "toUnixTimestamp64Milli(" + newest(column) + ")" }
	rows, err := db.conn.Query(ctx, "SELECT toString(tenant), toString(kind), key, "+newest("detail")+", "+newest("count")+", "+ms("from")+" AS a, "+ms("to")+" AS z, "+
		ms("opened_at")+" AS opened, "+ms("closed_at")+" AS closed, "+newest("closed_by")+" AS by_whom FROM incident WHERE "+where+
		" GROUP BY tenant, kind, key"+having+" ORDER BY opened, tenant, kind, key LIMIT "+strconv.Itoa(maxIncidents))
	if err != nil {
		return nil, fmt.Errorf("read incidents: %w", err)
	}
	defer rows.Close()
	var list []schema.Incident
	for rows.Next() {
		var n schema.Incident
		if err := rows.Scan(&n.Tenant, &n.Kind, &n.Key, &n.Detail, &n.Count, &n.FromMs, &n.ToMs, &n.OpenedAtMs, &n.ClosedAtMs, &n.ClosedBy); err != nil {
			return nil, fmt.Errorf("read incidents: %w", err)
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

// countIncidents counts the open incidents of a span and the numbers missing in
// its gaps.
func (db *DB) countIncidents(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (open, gaps int64, err error) {
	ms := func(column string) string {
		return "toUnixTimestamp64Milli(argMax(" + column + ", (noted_at, closed_at)))"
	}
	err = db.conn.QueryRow(ctx, "SELECT toInt64(count()), toInt64(sumIf(n, k = '"+schema.IncidentSourceGap+"')) FROM ("+
		"SELECT toString(kind) AS k, argMax(count, (noted_at, closed_at)) AS n, "+ms("from")+" AS a, "+ms("to")+" AS z, "+ms("closed_at")+" AS closed FROM incident WHERE tenant IN ("+
		quoteText(tenant)+", '')"+notedBy(asOfMs)+" GROUP BY tenant, kind, key HAVING closed = 0"+touching(fromMs, toMs)+")").Scan(&open, &gaps)
	return open, gaps, err
}
