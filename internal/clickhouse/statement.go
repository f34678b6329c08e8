package clickhouse

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Statements returns every statement of a tenant that was ever stored, without
// its content.
func (db *DB) Statements(ctx context.Context, tenant string) ([]schema.Statement, error) {
	rows, err := db.conn.Query(ctx, "SELECT period, toString(zone), toUnixTimestamp64Milli(`from`), toUnixTimestamp64Milli(`to`), "+
		"toUnixTimestamp64Milli(as_of), toUnixTimestamp64Milli(closed_at), closed_by, reason, override, content_hash, previous "+
		"FROM statement WHERE tenant = "+quoteText(tenant)+" ORDER BY closed_at, content_hash LIMIT 1 BY content_hash")
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	defer rows.Close()
	var list []schema.Statement
	for rows.Next() {
		s := schema.Statement{Tenant: tenant}
		if err := rows.Scan(&s.Period, &s.Zone, &s.FromMs, &s.ToMs, &s.AsOfMs, &s.ClosedAtMs, &s.ClosedBy, &s.Reason, &s.Override, &s.Hash, &s.Previous); err != nil {
			return nil, fmt.Errorf("read statements: %w", err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	return list, nil
}

// StatementContent returns a statement exactly as it was stored.
func (db *DB) StatementContent(ctx context.Context, tenant, hash string) ([]byte, error) {
	var content string
	err := db.conn.QueryRow(ctx, "SELECT content FROM statement WHERE tenant = "+quoteText(tenant)+" AND content_hash = "+quoteText(hash)+" LIMIT 1").Scan(&content)
	if err != nil {
		return nil, fmt.Errorf("read the statement %s: %w", hash, err)
	}
	return []byte(content), nil
}

// PutStatement stores a statement. When it returns nil the statement is on disk;
// storing it twice is as storing it once.
func (db *DB) PutStatement(ctx context.Context, s *schema.Statement) error {
	batch, err := db.conn.PrepareBatch(ctx, "INSERT INTO statement (tenant, period, zone, `from`, `to`, as_of, closed_at, closed_by, reason, override, content, content_hash, previous)")
	if err != nil {
		return fmt.Errorf("store statement: %w", err)
	}
	instant := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	err = batch.Append(s.Tenant, s.Period, s.Zone, instant(s.FromMs), instant(s.ToMs), instant(s.AsOfMs), instant(s.ClosedAtMs),
		s.ClosedBy, s.Reason, s.Override, string(s.Content), s.Hash, s.Previous)
	if err == nil {
		err = batch.Send()
	}
	if err != nil {
		return fmt.Errorf("store statement: %w", err)
	}
	return nil
}

// Arrivals lists the distinct usage events that were first stored in a span of
// stream time and overlap a span of event time, in the order of storing, and
// counts all of them. Counted is false for another content of an identity that
// was stored before.
func (db *DB) Arrivals(ctx context.Context, q schema.ArrivalQuery) ([]schema.StoredEvent, int64, error) {
	where := "tenant = " + quoteText(q.Tenant) + " AND " + overlappingRange(q.FromMs, q.ToMs) + asOfCondition(q.AsOfMs)
	after := "fromUnixTimestamp64Milli(" + strconv.FormatInt(q.AfterMs, 10) + ", 'UTC')"
	// Identities with a row of the span of stream time are few; only they are
	// looked at from their first row on.
	query := "SELECT unit, start_ms, end_ms, source, id, payload, instance, project, stored_ns, stream, sequence, place, counted, count() OVER () FROM (" +
		"SELECT *, row_number() OVER (PARTITION BY source, id ORDER BY stored_ns, sequence, place, payload) = 1 AS counted FROM (" +
		"SELECT unit, toUnixTimestamp64Milli(start) AS start_ms, toUnixTimestamp64Milli(any(`end`)) AS end_ms, toString(source) AS source, id, toString(hex(payload)) AS payload, " +
		"any(instance) AS instance, toString(any(project)) AS project, toUnixTimestamp64Nano(min(stored_at)) AS stored_ns, " +
		"toString(argMin(stream, stored_at)) AS stream, argMin(stream_sequence, stored_at) AS sequence, argMin(place, stored_at) AS place " +
		"FROM (SELECT * FROM raw_usage WHERE " + where + " AND (source, id) IN (SELECT source, id FROM raw_usage WHERE " + where + " AND stored_at > " + after + ")) " +
		"GROUP BY unit, start, source, id, payload)) WHERE stored_ns > " + strconv.FormatInt(q.AfterMs, 10) + " * 1000000 " +
		"ORDER BY stored_ns, stream, sequence, place, source, id, payload LIMIT " + strconv.Itoa(max(1, q.Limit))
	rows, err := db.conn.Query(ctx, query)
	if err != nil {
		return nil, 0, fmt.Errorf("read arrivals: %w", err)
	}
	defer rows.Close()
	var events []schema.StoredEvent
	var total uint64
	for rows.Next() {
		var e schema.StoredEvent
		var payload string
		var counted uint8
		if err := rows.Scan(&e.Unit, &e.StartMs, &e.EndMs, &e.Source, &e.ID, &payload, &e.Instance, &e.Project,
			&e.StoredAtNs, &e.Stream, &e.StreamSequence, &e.Place, &counted, &total); err != nil {
			return nil, 0, fmt.Errorf("read arrivals: %w", err)
		}
		if raw, err := hex.DecodeString(payload); err == nil {
			copy(e.Payload[:], raw)
		}
		e.Tenant, e.Counted = q.Tenant, counted == 1
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("read arrivals: %w", err)
	}
	return events, int64(total), nil
}

// OtherArrivals lists the lease, meter and outage events and the corrections that were
// first stored in a span of stream time, and counts all of them. What begins after the
// span of event time is left out; corrections are not told apart.
func (db *DB) OtherArrivals(ctx context.Context, q schema.ArrivalQuery) ([]schema.OtherArrival, int64, error) {
	from := func(kind, table, where string) string {
		return "SELECT " + quoteText(kind) + " AS type, toString(source) AS source, id, toString(hex(payload)) AS hash, any(instance) AS instance, " +
			"toUnixTimestamp64Nano(min(stored_at)) AS stored_ns FROM " + table + " WHERE tenant = " + quoteText(q.Tenant) + asOfCondition(q.AsOfMs) + where +
			" GROUP BY source, id, payload HAVING stored_ns > " + strconv.FormatInt(q.AfterMs, 10) + " * 1000000"
	}
	before := " AND at < fromUnixTimestamp64Milli(" + strconv.FormatInt(q.ToMs, 10) + ", 'UTC')"
	query := "SELECT *, count() OVER () FROM (" + from(schema.TypeLease, "raw_lease", before) +
		" UNION ALL " + from(schema.TypeMeter, "raw_meter", before) + " UNION ALL " + from(schema.TypeOutage, "raw_outage", before) +
		" UNION ALL " + from(schema.TypeCorrection, "raw_correction", "") + ") ORDER BY stored_ns, type, source, id, hash LIMIT " + strconv.Itoa(max(1, q.Limit))
	var list []schema.OtherArrival
	var total uint64
	err := db.each(ctx, query, func(scan func(...any) error) error {
		var e schema.OtherArrival
		var hash string
		if err := scan(&e.Type, &e.Source, &e.ID, &hash, &e.Instance, &e.StoredAtNs, &total); err != nil {
			return err
		}
		e.Payload = hashOf(hash)
		list = append(list, e)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read arrivals: %w", err)
	}
	return list, int64(total), nil
}
