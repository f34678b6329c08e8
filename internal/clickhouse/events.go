package clickhouse

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Events returns the distinct stored usage events that overlap a span, by start,
// unit and identity, and the cursor of the next page ("" = that was the last).
// Of each identity the copy stored first is Counted.
func (db *DB) Events(ctx context.Context, q schema.EventQuery) ([]schema.StoredEvent, string, error) {
	limit := q.Limit
	if limit <= 0 || limit > 10_000 {
		limit = 1000
	}
	where := "tenant = " + quoteText(q.Tenant) + " AND " + overlappingRange(q.FromMs, q.ToMs) + filterCondition(q.Filter) + asOfCondition(q.AsOfMs)
	after, err := cursorCondition(q.After)
	if err != nil {
		return nil, "", err
	}
	// The inner query makes one row of each content, the window function finds
	// the identity's first. The page is cut out around that: a condition beside
	// it would take the rows of earlier pages away before it looks.
	query := "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY source, id ORDER BY stored_ns, stream_sequence, place, payload) = 1 AS counted FROM (" +
		"SELECT unit, toUnixTimestamp64Milli(start) AS start_ms, toUnixTimestamp64Milli(any(`end`)) AS end_ms, source, id, toString(hex(payload)) AS payload, " +
		"toUnixTimestamp64Milli(any(time)) AS time_ms, argMin(sequence, stored_at) AS seq, any(instance) AS instance, toString(any(project)) AS project, " +
		"toString(any(node)) AS node, toString(any(platform)) AS platform, toString(any(region)) AS region, toString(any(model)) AS model, " +
		"any(utilization), any(active_ms), any(idle_ms), any(memory_used_bytes), any(memory_total_bytes), any(energy_mj), any(share), any(labels), " +
		"toString(argMin(stream, stored_at)), argMin(epoch, stored_at), argMin(stream_sequence, stored_at) AS stream_sequence, argMin(place, stored_at) AS place, " +
		"toUnixTimestamp64Nano(min(stored_at)) AS stored_ns FROM (SELECT * FROM raw_usage WHERE " + where + ") GROUP BY unit, start, source, id, payload))" +
		after + " ORDER BY start_ms, unit, source, id, payload LIMIT " + strconv.Itoa(limit+1)
	rows, err := db.conn.Query(ctx, query)
	if err != nil {
		return nil, "", fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var events []schema.StoredEvent
	for rows.Next() {
		e, err := scanEvent(rows, q.Tenant)
		if err != nil {
			return nil, "", fmt.Errorf("read events: %w", err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("read events: %w", err)
	}
	next := ""
	if len(events) > limit {
		events = events[:limit]
		next = cursorOf(&events[limit-1])
	}
	return events, next, nil
}

func scanEvent(rows interface{ Scan(...any) error }, tenant string) (schema.StoredEvent, error) {
	var (
		e                                         schema.StoredEvent
		payload                                   string
		timeMs                                    *int64
		utilization, share                        *uint32
		active, idle, memoryUsed, memoryT, energy *uint64
		counted                                   uint8
	)
	err := rows.Scan(&e.Unit, &e.StartMs, &e.EndMs, &e.Source, &e.ID, &payload, &timeMs, &e.Sequence, &e.Instance, &e.Project, &e.Node,
		&e.Platform, &e.Region, &e.Model, &utilization, &active, &idle, &memoryUsed, &memoryT, &energy, &share, &e.LabelsText,
		&e.Stream, &e.Epoch, &e.StreamSequence, &e.Place, &e.StoredAtNs, &counted)
	if err != nil {
		return e, err
	}
	if raw, err := hex.DecodeString(payload); err == nil {
		copy(e.Payload[:], raw)
	}
	e.Tenant, e.Counted = tenant, counted == 1
	if timeMs != nil {
		e.TimeMs = *timeMs
	}
	e.Utilization, e.Share = maybeOf(utilization), maybeOf(share)
	e.ActiveMs, e.IdleMs, e.EnergyMj = maybeOf(active), maybeOf(idle), maybeOf(energy)
	e.MemoryUsedBytes, e.MemoryTotalBytes = maybeOf(memoryUsed), maybeOf(memoryT)
	if e.LabelsText != "" {
		var m map[string]string
		if json.Unmarshal([]byte(e.LabelsText), &m) == nil {
			for k, v := range m {
				e.Labels = append(e.Labels, schema.Label{Key: k, Value: v})
			}
			e.Labels.Sort()
		}
	}
	return e, nil
}

func maybeOf[T uint32 | uint64](v *T) schema.Maybe {
	if v == nil {
		return schema.Maybe{}
	}
	return schema.Some(int64(*v))
}

func asOfCondition(asOfMs int64) string {
	if asOfMs == 0 {
		return ""
	}
	return " AND stored_at <= fromUnixTimestamp64Milli(" + strconv.FormatInt(asOfMs, 10) + ", 'UTC')"
}

// A cursor names the last row of a page by its place in the order, so pages stay
// right when rows are added in between.
func cursorOf(e *schema.StoredEvent) string {
	b, _ := json.Marshal([]string{strconv.FormatInt(e.StartMs, 10), e.Unit, e.Source, e.ID, strings.ToUpper(fmt.Sprintf("%x", e.Payload[:]))})
	return base64.RawURLEncoding.EncodeToString(b)
}

func cursorCondition(cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	var parts []string
	if err == nil {
		err = json.Unmarshal(b, &parts)
	}
	if err == nil && len(parts) == 5 {
		var start int64
		if start, err = strconv.ParseInt(parts[0], 10, 64); err == nil {
			return fmt.Sprintf(" WHERE (start_ms, unit, source, id, payload) > (%d, %s, %s, %s, %s)",
				start, quoteText(parts[1]), quoteText(parts[2]), quoteText(parts[3]), quoteText(parts[4])), nil
		}
	}
	return "", fmt.Errorf("%w: %q is not one that a page returned", ErrBadCursor, cursor)
}

// ErrBadCursor is returned for a cursor that no page gave out.
var ErrBadCursor = fmt.Errorf("bad cursor")

// Quarantine returns what is set aside, newest first, at most limit items.
// pendingOnly leaves out what was driven again, and what is held, which will be.
func (db *DB) Quarantine(ctx context.Context, tenant string, limit int, pendingOnly bool) ([]schema.QuarantinedItem, error) {
	having := ""
	if pendingOnly {
		having = " HAVING max(redriven_at) = " + never + " AND max(due_at) = " + never
	}
	rows, err := db.conn.Query(ctx, "SELECT toString(tenant), any(stored_at), toString(stream), epoch, stream_sequence, place, any(subject), any(content_type), "+
		"toString(any(kind)), any(reason), any(raw), max(redriven_at), max(due_at) FROM quarantine WHERE tenant IN (?, '') "+
		"GROUP BY tenant, stream, epoch, stream_sequence, place"+having+" ORDER BY epoch DESC, stream_sequence DESC, place DESC LIMIT ?", tenant, limit)
	if err != nil {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	defer rows.Close()
	var items []schema.QuarantinedItem
	for rows.Next() {
		var (
			it                    schema.QuarantinedItem
			stored, redriven, due time.Time
			kind                  string
		)
		if err := rows.Scan(&it.Tenant, &stored, &it.Stream, &it.Epoch, &it.StreamSequence, &it.Place, &it.Subject, &it.ContentType, &kind, &it.Reason, &it.Raw, &redriven, &due); err != nil {
			return nil, fmt.Errorf("read quarantine: %w", err)
		}
		it.Kind, it.StoredAt = schema.Kind(kind), schema.FormatTime(stored.UnixMilli())
		if ms := redriven.UnixMilli(); ms > 0 {
			it.RedrivenAt = schema.FormatTime(ms)
		}
		if ms := due.UnixMilli(); ms > 0 {
			it.DueAt = schema.FormatTime(ms)
		}
		items = append(items, it)
	}
	return items, rows.Err()
}
