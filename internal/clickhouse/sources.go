package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Sources says of each source that has usage events in a span, or held ones that
// waited during it, what there is to know about them, as far as it was known at
// asOfMs (0 = now): those with most late events first, then most held, then the
// clock furthest ahead; at most schema.MaxSources of them, and how many there are.
// An event is late when it was stored more than grace after its end.
func (db *DB) Sources(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, grace time.Duration) (list []schema.SourceQuality, total int64, err error) {
	of := "tenant = " + quoteText(tenant) + asOfCondition(asOfMs)
	span := of + " AND " + overlappingRange(fromMs, toMs)
	r, err := db.repeated(ctx, of, span)
	if err != nil {
		return nil, 0, fmt.Errorf("read the quality of sources: %w", err)
	}
	from, to := milliseconds(fromMs), milliseconds(toMs)
	stored := "SELECT source, count() AS events, countIf(" + lateCondition(grace) + ") AS late, 0 AS held, " +
		"max(toNullable(" + delayNs + ")) AS delay_ns, max(made_ns - stored_ns) AS ahead_ns, max(stored_ns) AS last_ns FROM (" +
		firstCopies(span, r) + ") GROUP BY source"
	// A held event is one that waits until its end since it was stored.
	held := "SELECT source, 0 AS events, 0 AS late, countIf(" + pendingCondition(asOfMs) + ") AS held, " +
		"NULL AS delay_ns, max(toNullable(toInt64(ahead_ms) * 1000000)) AS ahead_ns, max(stored_ns) AS last_ns FROM (" +
		"SELECT any(source) AS source, max(ahead_ms) AS ahead_ms, max(redriven_at) AS redriven, toUnixTimestamp64Nano(any(stored_at)) AS stored_ns " +
		"FROM quarantine WHERE tenant = " + quoteText(tenant) + " AND due_at > " + from + " AND stored_at < " + to + asOfCondition(asOfMs) +
		" GROUP BY " + itemKey + ") GROUP BY source"
	// An aggregate may not have the name of a column that another one reads.
	rows, err := db.conn.Query(ctx, "SELECT toString(source), toInt64(sum(events)) AS n, toInt64(sum(late)) AS l, toInt64(sum(held)) AS h, "+
		"max(delay_ns), max(ahead_ns) AS ahead, "+
		"intDiv(max(last_ns), 1000000), toInt64(count() OVER ()) FROM ("+stored+" UNION ALL "+held+") "+
		"GROUP BY source ORDER BY l DESC, h DESC, if(ahead > 0, ahead, 0) DESC, source LIMIT "+strconv.Itoa(schema.MaxSources)+inKeyOrder())
	if err != nil {
		return nil, 0, fmt.Errorf("read the quality of sources: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s schema.SourceQuality
		var delay, ahead *int64
		if err := rows.Scan(&s.Source, &s.Events, &s.Late, &s.Held, &delay, &ahead, &s.LastEventMs, &total); err != nil {
			return nil, 0, fmt.Errorf("read the quality of sources: %w", err)
		}
		s.WorstDelayMs, s.ClockOffsetMs = lengthOf(delay), lengthOf(ahead)
		list = append(list, s)
	}
	return list, total, rows.Err()
}

// lengthOf makes whole milliseconds of nanoseconds, and none of less than none.
func lengthOf(ns *int64) schema.Maybe {
	if ns == nil {
		return schema.Maybe{}
	}
	return schema.Some(max(*ns, 0) / int64(time.Millisecond))
}

// firstCopies selects, of each identity of a span, the copy that the stream stored
// first: when that was, when it ended, and when it was made as far as it says so.
// The statement has to end in inKeyOrder.
func firstCopies(span string, r repeated) string {
	several := "(" + r.minute + " OR " + r.identity + ")"
	const (
		ended, made = "toUnixTimestamp64Milli(`end`) * 1000000", "toUnixTimestamp64Milli(time) * 1000000"
		order       = "(stored_at, stream_sequence, place, payload)"
	)
	return "SELECT source, toUnixTimestamp64Nano(stored_at) AS stored_ns, " + ended + " AS end_ns, " + made + " AS made_ns FROM raw_usage WHERE " + span + " AND NOT " + several +
		" UNION ALL SELECT source, toUnixTimestamp64Nano(min(stored_at)), argMin(" + ended + ", " + order + "), argMin(tuple(" + made + "), " + order + ").1 " +
		"FROM raw_usage WHERE " + span + " AND " + several + " GROUP BY source, id"
}

// delayNs is how long after its end a row of firstCopies was stored.
const delayNs = "(stored_ns - end_ns)"

// lateCondition selects the late rows of firstCopies. An event that comes exactly
// at its grace is not late.
func lateCondition(grace time.Duration) string {
	return delayNs + " > " + strconv.FormatInt(int64(grace), 10)
}

// pendingCondition selects what was not driven again by asOfMs (0 = now): redriven
// is when an item first was.
func pendingCondition(asOfMs int64) string {
	pending := "redriven = " + never
	if asOfMs != 0 {
		pending = "(" + pending + " OR redriven > " + milliseconds(asOfMs) + ")"
	}
	return pending
}
