package clickhouse

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Events returns the distinct stored usage events that overlap a span, by start,
// unit and identity, and the cursor of the next page ("" = that was the last).
// Whether one is Counted depends neither on the span nor on the filter.
func (db *DB) Events(ctx context.Context, q schema.EventQuery) ([]schema.StoredEvent, string, error) {
	limit := q.Limit
	if limit <= 0 || limit > 10_000 {
		limit = 1000
	}
	where := "tenant = " + quoteText(q.Tenant) + " AND " + overlappingRange(q.FromMs, q.ToMs) + filterCondition(q.Filter) + scopeCondition(q.Projects) + asOfCondition(q.AsOfMs)
	after, err := cursorCondition(q.After)
	if err != nil {
		return nil, "", err
	}
	events, err := db.readEvents(ctx, q.Tenant, where, after+" ORDER BY start_ms, unit, source, id, payload LIMIT "+strconv.Itoa(limit+1))
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(events) > limit {
		events = events[:limit]
		next = cursorOf(&events[limit-1])
	}
	ids := make([]schema.Identity, len(events))
	for i := range events {
		ids[i] = events[i].Identity()
	}
	facts, err := db.Settlement(ctx, q.Tenant, ids, q.AsOfMs)
	if err != nil {
		return nil, "", err
	}
	markCounted(events, facts)
	return events, next, nil
}

// markCounted says of each event whether it counts, and why.
func markCounted(events []schema.StoredEvent, facts *schema.Settlement) {
	claims := make([]schema.Claim, len(events))
	for i := range events {
		claims[i] = schema.Claim{Identity: events[i].Identity(), Order: schema.OrderOf(&events[i].Position, events[i].Payload)}
	}
	for i, counted := range facts.Counted(claims) {
		events[i].Counted, events[i].Settled = counted, facts.Explain(claims[i])
	}
}

// readEvents reads events with all that they say, each content once, as its copy
// that was stored first.
func (db *DB) readEvents(ctx context.Context, tenant, where, rest string) ([]schema.StoredEvent, error) {
	query := "SELECT * FROM (" +
		"SELECT unit, toUnixTimestamp64Milli(start) AS start_ms, toUnixTimestamp64Milli(any(`end`)) AS end_ms, source, id, toString(hex(payload)) AS payload, " +
		"toUnixTimestamp64Milli(any(time)) AS time_ms, argMin(sequence, stored_at) AS seq, any(instance) AS instance, toString(any(project)) AS project, " +
		"toString(any(node)) AS node, toString(any(platform)) AS platform, toString(any(region)) AS region, toString(any(model)) AS model, " +
		"any(utilization), any(active_ms), any(idle_ms), any(memory_used_bytes), any(memory_total_bytes), any(energy_mj), any(share), any(labels), " +
		"toString(argMin(stream, stored_at)), argMin(epoch, stored_at), argMin(stream_sequence, stored_at) AS stream_sequence, argMin(place, stored_at) AS place, " +
		"toUnixTimestamp64Nano(min(stored_at)) AS stored_ns FROM (SELECT * FROM raw_usage WHERE " + where + ") GROUP BY unit, start, source, id, payload)" + rest
	var events []schema.StoredEvent
	err := db.each(ctx, query, func(scan func(...any) error) error {
		e, err := scanEvent(scan, tenant)
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return events, nil
}

func scanEvent(scan func(...any) error, tenant string) (schema.StoredEvent, error) {
	var (
		e                                         schema.StoredEvent
		payload                                   string
		timeMs                                    *int64
		utilization, share                        *uint32
		active, idle, memoryUsed, memoryT, energy *uint64
	)
	err := scan(&e.Unit, &e.StartMs, &e.EndMs, &e.Source, &e.ID, &payload, &timeMs, &e.Sequence, &e.Instance, &e.Project, &e.Node,
		&e.Platform, &e.Region, &e.Model, &utilization, &active, &idle, &memoryUsed, &memoryT, &energy, &share, &e.LabelsText,
		&e.Stream, &e.Epoch, &e.StreamSequence, &e.Place, &e.StoredAtNs)
	if err != nil {
		return e, err
	}
	e.Tenant, e.Payload = tenant, hashOf(payload)
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
