package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// otherTables keep the events that are not usage; they are all alike.
var otherTables = []string{"raw_lease", "raw_meter", "raw_outage", "raw_correction"}

// ofMessages selects what the messages after from and up to to left in a table.
// It is one range of a skip index. Such a statement must not read with FINAL: an
// index that leaves out a part also leaves out the row that should have won.
func ofMessages(stream string, epoch, from, to uint64) string {
	return fmt.Sprintf("stream = %s AND epoch = %d AND stream_sequence > %d AND stream_sequence <= %d", quoteText(stream), epoch, from, to)
}

// StreamProof returns how far a stream is known to be complete; Verified is 0
// when nothing is known.
func (db *DB) StreamProof(ctx context.Context, stream string, epoch uint64) (schema.StreamProof, error) {
	p := schema.StreamProof{Stream: stream, Epoch: epoch}
	err := db.conn.QueryRow(ctx, "SELECT max(verified) FROM audit_stream WHERE stream = ? AND epoch = ?", stream, epoch).Scan(&p.Verified)
	if err != nil {
		return p, fmt.Errorf("read how far %s is checked: %w", stream, err)
	}
	return p, nil
}

// SaveStreamProof notes how far a stream is known to be complete. A proof that
// reaches less far than one that is stored changes nothing.
func (db *DB) SaveStreamProof(ctx context.Context, p schema.StreamProof) error {
	err := db.conn.Exec(ctx, fmt.Sprintf("INSERT INTO audit_stream (stream, epoch, verified) VALUES (%s, %d, %d)", quoteText(p.Stream), p.Epoch, p.Verified))
	if err != nil {
		return fmt.Errorf("note how far %s is checked: %w", p.Stream, err)
	}
	return nil
}

// Newest returns the newest message of a stream and epoch that left rows, of those
// after a sequence, and when the stream stored it; 0 when there is none. Of two
// messages under one sequence it is the older one: the stream has the other.
func (db *DB) Newest(ctx context.Context, stream string, epoch, after uint64) (sequence uint64, storedNs int64, err error) {
	where := ofMessages(stream, epoch, after, 1<<63)
	var parts []string
	for _, table := range append([]string{"raw_usage", "quarantine"}, otherTables...) {
		parts = append(parts, "SELECT max(stream_sequence) AS s, argMax(toUnixTimestamp64Nano(stored_at), (stream_sequence, -toUnixTimestamp64Nano(stored_at))) AS t FROM "+table+" WHERE "+where)
	}
	err = db.conn.QueryRow(ctx, "SELECT max(s), argMax(t, (s, -t)) FROM ("+strings.Join(parts, " UNION ALL ")+")").Scan(&sequence, &storedNs)
	if err != nil {
		return 0, 0, fmt.Errorf("read the newest stored message of %s: %w", stream, err)
	}
	return sequence, storedNs, nil
}

// Doubtful returns the messages after from and up to to of which storage alone
// does not show that all of them is there: no row, or a place missing among its
// rows. The oldest come first, at most limit.
func (db *DB) Doubtful(ctx context.Context, stream string, epoch, from, to uint64, limit int) ([]uint64, error) {
	if to <= from {
		return nil, nil
	}
	where := ofMessages(stream, epoch, from, to)
	var parts []string
	for _, table := range append([]string{"raw_usage", "quarantine"}, otherTables...) {
		parts = append(parts, "SELECT stream_sequence, toInt64(place) AS p FROM "+table+" WHERE "+where)
	}
	rows, err := db.conn.Query(ctx, fmt.Sprintf("SELECT n FROM (SELECT number AS n FROM numbers(%d, %d)) AS a LEFT ANTI JOIN ("+
		"SELECT stream_sequence FROM (%s) GROUP BY stream_sequence HAVING min(p) = -1 OR min(p) = 0 AND toInt64(uniqExact(p)) = max(p) + 1) AS e "+
		"ON a.n = e.stream_sequence ORDER BY n LIMIT %d", from+1, to-from, strings.Join(parts, " UNION ALL "), limit))
	if err != nil {
		return nil, fmt.Errorf("compare %s with storage: %w", stream, err)
	}
	defer rows.Close()
	var list []uint64
	for rows.Next() {
		var n uint64
		if err := rows.Scan(&n); err != nil {
			return nil, fmt.Errorf("compare %s with storage: %w", stream, err)
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

// identity finds an expectation among rows.
type identity struct {
	table, tenant, source, id, payload string
}

// Stored says of each expectation whether storage has it, whichever message
// brought it: an event by its identity and content, a quarantined part by its
// bytes.
func (db *DB) Stored(ctx context.Context, list []schema.Expected) ([]bool, error) {
	want := map[string]map[string]*lookup{} // table, tenant
	keys := make([]identity, len(list))
	for i := range list {
		x := &list[i]
		keys[i] = identityOf(x)
		k := &keys[i]
		if want[k.table] == nil {
			want[k.table] = map[string]*lookup{}
		}
		l := want[k.table][k.tenant]
		if l == nil {
			l = &lookup{}
			want[k.table][k.tenant] = l
		}
		l.add(x)
	}
	have := map[identity]bool{}
	for table, tenants := range want {
		for tenant, l := range tenants {
			if err := db.lookUp(ctx, table, tenant, l, have); err != nil {
				return nil, fmt.Errorf("look events up: %w", err)
			}
		}
	}
	found := make([]bool, len(list))
	for i := range keys {
		found[i] = have[keys[i]]
	}
	return found, nil
}

func identityOf(x *schema.Expected) identity {
	switch {
	case x.Event == nil:
		return identity{table: "quarantine", tenant: x.Tenant, source: x.Subject, payload: strconv.FormatUint(schema.UnitHash(string(x.Raw)), 10)}
	case x.Event.Usage != nil:
		u := x.Event.Usage
		payload, _ := u.PayloadHash(nil)
		return identity{"raw_usage", x.Tenant, u.Source, u.ID, string(payload[:])}
	}
	h, payload := x.Event.Header(), x.Event.PayloadHash()
	table, _, _ := tableOf(x.Event)
	return identity{table, x.Tenant, h.Source, h.ID, string(payload[:])}
}

// lookup collects values of the columns that rows are found by.
type lookup struct {
	minutes, hashes []string
	names, ids      []string // instances, or subjects of the quarantine
}

func (l *lookup) add(x *schema.Expected) {
	switch {
	case x.Event == nil:
		l.names = append(l.names, quoteText(x.Subject))
		l.hashes = append(l.hashes, strconv.FormatUint(schema.UnitHash(string(x.Raw)), 10))
	case x.Event.Usage != nil:
		u := x.Event.Usage
		l.minutes = append(l.minutes, strconv.FormatInt(schema.Floor(u.StartMs, schema.MinuteMs)/1000, 10))
		l.hashes = append(l.hashes, strconv.FormatUint(schema.UnitHash(u.Unit), 10))
		l.ids = append(l.ids, quoteText(u.ID))
	default:
		_, instance, _ := tableOf(x.Event)
		l.names = append(l.names, quoteText(instance))
		l.ids = append(l.ids, quoteText(x.Event.Header().ID))
	}
}

func listed(values []string) string {
	slices.Sort(values)
	return "(" + strings.Join(slices.Compact(values), ",") + ")"
}

func (db *DB) lookUp(ctx context.Context, table, tenant string, l *lookup, have map[identity]bool) error {
	query := "SELECT toString(source), id, toString(hex(payload)) FROM " + table + " WHERE tenant = " + quoteText(tenant)
	switch table {
	case "quarantine":
		query = "SELECT subject, '', toString(xxHash64(raw)) FROM quarantine WHERE tenant = " + quoteText(tenant) +
			" AND subject IN " + listed(l.names) + " AND xxHash64(raw) IN " + listed(l.hashes)
	case "raw_usage":
		spans := make([]string, len(schema.SpanMs)+1)
		for i := range spans {
			spans[i] = strconv.Itoa(i)
		}
		query += " AND span IN " + listed(spans) + " AND minute IN " + listed(l.minutes) + " AND unit_hash IN " + listed(l.hashes) + " AND id IN " + listed(l.ids)
	default:
		query += " AND instance IN " + listed(l.names) + " AND id IN " + listed(l.ids)
	}
	rows, err := db.conn.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		k := identity{table: table, tenant: tenant}
		if err := rows.Scan(&k.source, &k.id, &k.payload); err != nil {
			return err
		}
		if table != "quarantine" {
			if k.payload, err = unhex(k.payload); err != nil {
				return err
			}
		}
		have[k] = true
	}
	return rows.Err()
}

// timeOf makes a stored instant milliseconds; the epoch stands for none.
func timeOf(t time.Time) int64 { return max(t.UnixMilli(), 0) }
