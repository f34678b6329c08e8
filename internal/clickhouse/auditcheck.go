package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// TouchedHours returns the newest hours that the messages after from and up to to
// brought usage of, at most limit.
func (db *DB) TouchedHours(ctx context.Context, stream string, epoch, from, to uint64, limit int) ([]schema.TenantHour, error) {
	return db.tenantHours(ctx, "SELECT DISTINCT toString(tenant) AS t, toInt64(toUnixTimestamp(toStartOfHour(minute, 'UTC'))) * 1000 AS h FROM raw_usage WHERE "+
		ofMessages(stream, epoch, from, to)+" ORDER BY h DESC, t LIMIT "+strconv.Itoa(limit))
}

// PickHours returns some of the hours that usage is kept of; another seed picks
// others.
func (db *DB) PickHours(ctx context.Context, seed uint64, limit int) ([]schema.TenantHour, error) {
	return db.tenantHours(ctx, fmt.Sprintf("SELECT t, h FROM (SELECT DISTINCT toString(tenant) AS t, toInt64(toUnixTimestamp(`window`)) * 1000 AS h FROM usage_hour) "+
		"ORDER BY cityHash64(t, h, toUInt64(%d)) LIMIT %d", seed, limit))
}

func (db *DB) tenantHours(ctx context.Context, query string) ([]schema.TenantHour, error) {
	rows, err := db.conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("pick hours: %w", err)
	}
	defer rows.Close()
	var list []schema.TenantHour
	for rows.Next() {
		var h schema.TenantHour
		if err := rows.Scan(&h.Tenant, &h.HourMs); err != nil {
			return nil, fmt.Errorf("pick hours: %w", err)
		}
		list = append(list, h)
	}
	return list, rows.Err()
}

// Marked says whether anything of an hour is still to be computed. An event of the
// hour may have its mark in a minute of it, so minutes count as well.
func (db *DB) Marked(ctx context.Context, h schema.TenantHour) (bool, error) {
	n, err := db.count(ctx, "SELECT count() FROM (SELECT mark FROM dirty WHERE grain = '"+grainRebuild+"' OR tenant = "+quoteText(h.Tenant)+
		" AND `window` >= "+seconds(h.HourMs)+" AND `window` < "+seconds(h.HourMs+schema.HourMs)+" GROUP BY grain, tenant, `window`, mark HAVING sum(sign) > 0 LIMIT 1)")
	if err != nil {
		return false, fmt.Errorf("read marks: %w", err)
	}
	return n > 0, nil
}

// ReadBothWays reads an hour with FINAL and with explicit deduplication, and says
// where the two disagree ("" = nowhere). FINAL is kept from using skip indexes,
// which it can go wrong with.
func (db *DB) ReadBothWays(ctx context.Context, h schema.TenantHour) (string, error) {
	tenant := "tenant = " + quoteText(h.Tenant)
	minutes := tenant + " AND minute >= " + seconds(h.HourMs) + " AND minute < " + seconds(h.HourMs+schema.HourMs)
	windows := tenant + " AND `window` >= " + seconds(h.HourMs) + " AND `window` < " + seconds(h.HourMs+schema.HourMs)
	const exact = " SETTINGS use_skip_indexes_if_final = 0"
	key := "tenant, span, minute, unit_hash, unit, start, source, id, payload"
	checks := []struct{ table, final, explicit string }{{
		"raw_usage", "SELECT toString(count()) FROM raw_usage FINAL WHERE " + minutes + exact,
		"SELECT toString(uniqExact(" + key + ")) FROM raw_usage WHERE " + minutes,
	}}
	var sums, latestOf []string
	for _, c := range strings.Split(amountColumns, ", ") {
		sums = append(sums, "toString(sum(toUInt128("+c+")))")
		latestOf = append(latestOf, "argMax(u."+c+", u.version) AS "+c)
	}
	all := "concat(toString(count()), ' rows: ', " + strings.Join(sums, ", ' ', ") + ")"
	for _, table := range []string{"usage_minute", "usage_hour"} {
		checks = append(checks, struct{ table, final, explicit string }{
			table, "SELECT " + all + " FROM " + table + " FINAL WHERE " + windows + exact,
			"SELECT " + all + " FROM (SELECT " + strings.Join(latestOf, ", ") + " FROM " + table + " AS u WHERE " + windows + " GROUP BY tenant, `window`, unit_hash, owner)",
		})
	}
	for _, c := range checks {
		var final, explicit string
		if err := db.conn.QueryRow(ctx, c.final).Scan(&final); err != nil {
			return "", fmt.Errorf("read %s with FINAL: %w", c.table, err)
		}
		if err := db.conn.QueryRow(ctx, c.explicit).Scan(&explicit); err != nil {
			return "", fmt.Errorf("read %s grouped: %w", c.table, err)
		}
		if final != explicit {
			return fmt.Sprintf("%s: with FINAL %s, grouped by key %s", c.table, final, explicit), nil
		}
	}
	return "", nil
}

// KeptMinutes returns the cells that are kept of the minutes of a span, without
// those of zeros.
func (db *DB) KeptMinutes(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Cell, error) {
	return db.cellsOf(ctx, Minutes, tenant, fromMs, toMs)
}

// KeptHour returns the cells that are kept of an hour, without those of zeros.
func (db *DB) KeptHour(ctx context.Context, h schema.TenantHour) ([]schema.Cell, error) {
	return db.cellsOf(ctx, Hours, h.Tenant, h.HourMs, h.HourMs+schema.HourMs)
}

func (db *DB) cellsOf(ctx context.Context, g Grain, tenant string, fromMs, toMs int64) ([]schema.Cell, error) {
	where := "tenant = " + quoteText(tenant) + " AND `window` >= " + seconds(fromMs) + " AND `window` < " + seconds(toMs)
	rows, err := db.conn.Query(ctx, "SELECT toInt64(toUnixTimestamp(`window`)) * 1000, unit, instance, toString(project), toString(node), toString(platform), toString(region), "+
		"toString(model), labels, "+amountColumns+" FROM ("+latest(g.table, where)+") WHERE active_ms + idle_ms + unknown_ms > 0")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", g.table, err)
	}
	defer rows.Close()
	var list []schema.Cell
	for rows.Next() {
		var c schema.Cell
		var n [11]uint64
		if err := rows.Scan(&c.WindowMs, &c.Unit, &c.Instance, &c.Project, &c.Node, &c.Platform, &c.Region, &c.Model, &c.Labels,
			&n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8], &n[9], &n[10]); err != nil {
			return nil, fmt.Errorf("read %s: %w", g.table, err)
		}
		c.ActiveMs, c.IdleMs, c.UnknownMs, c.UtilizationMs, c.UtilizationSum = int64(n[0]), int64(n[1]), int64(n[2]), int64(n[3]), int64(n[4])
		c.MemoryMs, c.MemoryByteMs, c.EnergyMj, c.EnergyMs = int64(n[5]), int64(n[6]), int64(n[7]), int64(n[8])
		c.OverlapMs, c.OversubscribedMs = int64(n[9]), int64(n[10])
		list = append(list, c)
	}
	return list, rows.Err()
}
