package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

const (
	// itemKey names an item of the quarantine.
	itemKey = "tenant, stream, epoch, stream_sequence, place"
	// never is a time that is not set.
	never = "toDateTime64(0, 3, 'UTC')"
	// waiting selects the held items that were not driven again. This is asked
	// every second: once merges have put a note in the place of the row without
	// one, the inner query finds nothing of what was ever released, and the outer
	// one reads only what it found.
	waiting = "FROM quarantine WHERE (" + itemKey + ") IN (SELECT " + itemKey + " FROM quarantine WHERE due_at > " + never + " AND redriven_at = " + never + ")" +
		" GROUP BY " + itemKey + " HAVING max(redriven_at) = " + never
)

// Held counts, over all tenants, the events that are held and were not driven
// again, and those of them whose time has come.
func (db *DB) Held(ctx context.Context, nowMs int64) (n, due int64, err error) {
	var w, d uint64
	err = db.conn.QueryRow(ctx, "SELECT count(), countIf(due <= "+milliseconds(nowMs)+") FROM ("+
		"SELECT max(due_at) AS due "+waiting+")").Scan(&w, &d)
	if err != nil {
		return 0, 0, fmt.Errorf("count held events: %w", err)
	}
	return int64(w), int64(d), nil
}

// Due returns the events of all tenants that are held, were not driven again and
// whose time has come, the longest due first: at most limit of them, and no more
// after maxBytes bytes, but at least one if there is any.
func (db *DB) Due(ctx context.Context, nowMs int64, limit, maxBytes int) ([]schema.QuarantinedItem, error) {
	keys := "SELECT " + itemKey + " " + waiting + " AND max(due_at) <= " + milliseconds(nowMs) + " ORDER BY max(due_at), " + itemKey + " LIMIT " + strconv.Itoa(limit)
	items, err := db.items(ctx, keys, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read held events that are due: %w", err)
	}
	return items, nil
}

// Reread returns the items again with their bytes exactly as they came, in
// the order of the stream, up to maxBytes as [DB.Due] does. An item that is
// there twice is returned once.
func (db *DB) Reread(ctx context.Context, items []schema.QuarantinedItem, maxBytes int) ([]schema.QuarantinedItem, error) {
	if len(items) == 0 {
		return nil, nil
	}
	got, err := db.items(ctx, itemKeys(items), maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read quarantined items: %w", err)
	}
	return got, nil
}

// items returns what has to be known of items to drive them again.
func (db *DB) items(ctx context.Context, keys string, maxBytes int) ([]schema.QuarantinedItem, error) {
	rows, err := db.conn.Query(ctx, "SELECT toString(tenant), toString(stream), epoch, stream_sequence, place, any(subject), any(content_type), any(raw) "+
		"FROM quarantine WHERE ("+itemKey+") IN ("+keys+") GROUP BY "+itemKey+" ORDER BY max(due_at), epoch, stream_sequence, place, tenant, stream")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []schema.QuarantinedItem
	for bytes := 0; rows.Next() && (bytes < maxBytes || len(items) == 0); {
		var it schema.QuarantinedItem
		if err := rows.Scan(&it.Tenant, &it.Stream, &it.Epoch, &it.StreamSequence, &it.Place, &it.Subject, &it.ContentType, &it.Raw); err != nil {
			return nil, err
		}
		bytes += len(it.Raw)
		items = append(items, it)
	}
	return items, rows.Err()
}

// MarkRedriven notes with one insert that items were driven again. Of an item that
// is noted already the first time stays: as of any instant before it, the item was
// set aside.
func (db *DB) MarkRedriven(ctx context.Context, items []schema.QuarantinedItem, nowMs int64) error {
	if len(items) == 0 {
		return nil
	}
	const others = "subject, content_type, kind, reason, raw, due_at, source, ahead_ms"
	// The row of the latest time has the others right: a row that was there before
	// the last ones were added has none of them.
	latest := make([]string, 0, 8)
	for _, column := range strings.Split(others, ", ") {
		latest = append(latest, "argMax("+column+", due_at)")
	}
	err := db.conn.Exec(ctx, "INSERT INTO quarantine (stored_at, redriven_at, "+itemKey+", "+others+") "+
		"SELECT any(stored_at), "+milliseconds(nowMs)+", "+itemKey+", "+strings.Join(latest, ", ")+
		" FROM quarantine WHERE ("+itemKey+") IN ("+itemKeys(items)+") GROUP BY "+itemKey+" HAVING max(redriven_at) = "+never)
	if err != nil {
		return fmt.Errorf("note the re-drive of %d items: %w", len(items), err)
	}
	return nil
}

func itemKeys(items []schema.QuarantinedItem) string {
	var b strings.Builder
	for i := range items {
		it := &items[i]
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%s,%s,%d,%d,%d)", quoteText(it.Tenant), quoteText(it.Stream), it.Epoch, it.StreamSequence, it.Place)
	}
	return b.String()
}

func milliseconds(ms int64) string {
	return "fromUnixTimestamp64Milli(" + strconv.FormatInt(ms, 10) + ", 'UTC')"
}
