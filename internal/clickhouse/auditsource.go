package clickhouse

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

func unhex(s string) (string, error) {
	b, err := hex.DecodeString(s)
	return string(b), err
}

// Numbers returns which numbers the messages after from and up to to brought, per
// source as unbroken runs, with how live the source is. Quarantined events whose
// number can be read count as brought: they are not lost.
func (db *DB) Numbers(ctx context.Context, stream string, epoch, from, to uint64, graceMs int64) ([]schema.SourceProof, error) {
	where := ofMessages(stream, epoch, from, to) + " AND sequence > 0"
	parts := []string{
		"SELECT toString(tenant) AS t, toString(source) AS s, sequence AS n, toUnixTimestamp64Milli(start) AS a, toUnixTimestamp64Milli(`end`) AS b, " +
			"toUnixTimestamp64Milli(stored_at) AS at, 1 AS interval FROM raw_usage WHERE " + where,
		quarantinedNumbers(ofMessages(stream, epoch, from, to)),
	}
	for _, table := range otherTables {
		column := "toUnixTimestamp64Milli(at)"
		parts = append(parts, "SELECT toString(tenant), toString(source), sequence, "+column+", "+column+" + 1, toUnixTimestamp64Milli(stored_at), 0 FROM "+table+" WHERE "+where)
	}
	// A minute is left for clocks that go ahead. Numbers of one run differ from their rank by the same amount.
	live := "interval AND stored + 60000 >= z AND stored <= z + " + strconv.FormatInt(graceMs, 10)
	query := "SELECT t, s, min(n), max(n), argMin(a, n), argMin(z, n), argMax(a, n), argMax(z, n), min(stored), " +
		"toInt64(uniqExactIf(z, " + live + ")), maxIf(z - a, " + live + "), max(stored) FROM (" +
		"SELECT t, s, n, a, b AS z, at AS stored, interval, n - dense_rank() OVER (PARTITION BY t, s ORDER BY n) AS run FROM (" + strings.Join(parts, " UNION ALL ") + ")" +
		") GROUP BY t, s, run ORDER BY t, s, min(n)"
	rows, err := db.conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read the numbers of sources: %w", err)
	}
	defer rows.Close()
	var list []schema.SourceProof
	for rows.Next() {
		var tenant, source string
		var r schema.NumberRun
		var ends, interval, heard int64
		if err := rows.Scan(&tenant, &source, &r.First, &r.Last, &r.FirstStartMs, &r.FirstEndMs, &r.LastStartMs, &r.LastEndMs, &r.FirstStoredMs, &ends, &interval, &heard); err != nil {
			return nil, fmt.Errorf("read the numbers of sources: %w", err)
		}
		if n := len(list); n == 0 || list[n-1].Tenant != tenant || list[n-1].Source != source {
			list = append(list, schema.SourceProof{Tenant: tenant, Source: source, Stream: stream, Epoch: epoch, Verified: to})
		}
		p := &list[len(list)-1]
		p.Runs = append(p.Runs, r)
		p.LiveEnds += ends
		p.IntervalMs, p.HeardMs = max(p.IntervalMs, interval), max(p.HeardMs, heard)
	}
	return list, rows.Err()
}

// quarantinedNumbers reads the numbers of single quarantined events. One that
// claims another source than its subject was authorised for proves nothing.
func quarantinedNumbers(where string) string {
	number := "toUInt64OrZero(if(JSONType(raw, 'sequence') = 'String', JSONExtractString(raw, 'sequence'), JSONExtractRaw(raw, 'sequence')))"
	return "SELECT toString(tenant), JSONExtractString(raw, 'source'), " + number + " AS number, toUnixTimestamp64Milli(stored_at), toUnixTimestamp64Milli(stored_at) + 1, " +
		"toUnixTimestamp64Milli(stored_at), 0 FROM quarantine WHERE " + where + " AND kind != 'misdirected' AND number > 0"
}

// SourceProofs returns all proofs of all sources.
func (db *DB) SourceProofs(ctx context.Context) ([]schema.SourceProof, error) {
	rows, err := db.conn.Query(ctx, "SELECT toString(tenant), source, toString(stream), epoch, max(a.verified) AS most, argMax(runs, a.verified), argMax(live_ends, a.verified), "+
		"argMax(interval_ms, a.verified), argMax(heard_at, a.verified) FROM audit_source AS a GROUP BY tenant, source, stream, epoch ORDER BY tenant, source, epoch, stream")
	if err != nil {
		return nil, fmt.Errorf("read what sources sent: %w", err)
	}
	defer rows.Close()
	var list []schema.SourceProof
	for rows.Next() {
		var p schema.SourceProof
		var runs string
		var heard time.Time
		if err := rows.Scan(&p.Tenant, &p.Source, &p.Stream, &p.Epoch, &p.Verified, &runs, &p.LiveEnds, &p.IntervalMs, &heard); err != nil {
			return nil, fmt.Errorf("read what sources sent: %w", err)
		}
		if err := json.Unmarshal([]byte(runs), &p.Runs); err != nil {
			return nil, fmt.Errorf("read what %s sent: %w (TRUNCATE TABLE audit_source makes the auditor look again)", p.Source, err)
		}
		p.HeardMs = timeOf(heard)
		list = append(list, p)
	}
	return list, rows.Err()
}

// SaveSourceProofs stores proofs. One that knows less than what is stored changes
// nothing.
func (db *DB) SaveSourceProofs(ctx context.Context, list []schema.SourceProof) error {
	if len(list) == 0 {
		return nil
	}
	batch, err := db.conn.PrepareBatch(ctx, "INSERT INTO audit_source (tenant, source, stream, epoch, verified, runs, live_ends, interval_ms, heard_at)")
	if err != nil {
		return fmt.Errorf("store what sources sent: %w", err)
	}
	defer batch.Close()
	for i := range list {
		p := &list[i]
		runs, err := json.Marshal(p.Runs)
		if err != nil {
			return fmt.Errorf("store what %s sent: %w", p.Source, err)
		}
		if err := batch.Append(p.Tenant, p.Source, p.Stream, p.Epoch, p.Verified, string(runs), p.LiveEnds, p.IntervalMs, time.UnixMilli(p.HeardMs).UTC()); err != nil {
			return fmt.Errorf("store what %s sent: %w", p.Source, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("store what sources sent: %w", err)
	}
	return nil
}

// NewConflicts returns the identities with several contents of which the messages
// after from and up to to brought a copy. An event whose id tells where it lies
// can only differ from copies there: same tenant, minute and unit. The copies of
// other identities, and those of lease events, are looked for wherever they lie.
func (db *DB) NewConflicts(ctx context.Context, stream string, epoch, from, to uint64) ([]schema.EventConflict, error) {
	of := ofMessages(stream, epoch, from, to)
	where := "minute IN (SELECT DISTINCT minute FROM raw_usage WHERE " + of + ") AND cityHash64(tenant, span, minute, unit_hash) IN (" +
		"SELECT DISTINCT cityHash64(tenant, span, minute, unit_hash) FROM raw_usage WHERE " + of + ")"
	list, err := db.conflictsIn(ctx, "raw_usage", where)
	if err != nil {
		return nil, err
	}
	anywhere, err := db.conflictsIn(ctx, "usage_identity", "(tenant, told, source, id) IN (SELECT tenant, told, source, id FROM usage_identity WHERE "+of+")")
	if err != nil {
		return nil, err
	}
	const leases = "(SELECT *, at AS start, at + toIntervalMillisecond(1) AS `end` FROM raw_lease)"
	ofLeases, err := db.conflictsIn(ctx, leases, "(tenant, source, id) IN (SELECT tenant, source, id FROM raw_lease WHERE "+of+")")
	if err != nil {
		return nil, err
	}
	return slices.Concat(list, anywhere, ofLeases), nil
}

func (db *DB) conflictsIn(ctx context.Context, table, where string) ([]schema.EventConflict, error) {
	// By hash first: nearly always that finds nothing, and it is far cheaper than
	// grouping by text.
	rows, err := db.conn.Query(ctx, "SELECT DISTINCT h FROM (SELECT cityHash64(source, id) AS h FROM "+table+" WHERE "+where+
		" GROUP BY tenant, h HAVING min(payload) != max(payload)) LIMIT "+strconv.Itoa(maxConflicts))
	if err != nil {
		return nil, fmt.Errorf("look for conflicts: %w", err)
	}
	defer rows.Close()
	var hashes []string
	for rows.Next() {
		var h uint64
		if err := rows.Scan(&h); err != nil {
			return nil, fmt.Errorf("look for conflicts: %w", err)
		}
		hashes = append(hashes, strconv.FormatUint(h, 10))
	}
	if err := rows.Err(); err != nil || len(hashes) == 0 {
		return nil, err
	}
	return db.conflicts(ctx, table, where+" AND cityHash64(source, id) IN "+listed(hashes))
}

// maxConflicts bounds the conflicts of one range; the auditor opens no more at once.
const maxConflicts = 10_000

// conflicts returns the identities with several contents among rows of a table.
func (db *DB) conflicts(ctx context.Context, table, where string) ([]schema.EventConflict, error) {
	rows, err := db.conn.Query(ctx, "SELECT toString(tenant) AS t, toString(source) AS s, id, toInt64(uniqExact(payload)) AS contents, "+
		"toUnixTimestamp64Milli(min(start)), toUnixTimestamp64Milli(max(`end`)) FROM "+table+" WHERE "+where+
		" GROUP BY tenant, source, id HAVING contents > 1 ORDER BY t, s, id LIMIT "+strconv.Itoa(maxConflicts))
	if err != nil {
		return nil, fmt.Errorf("look for conflicts: %w", err)
	}
	defer rows.Close()
	var list []schema.EventConflict
	for rows.Next() {
		var c schema.EventConflict
		if err := rows.Scan(&c.Tenant, &c.Source, &c.ID, &c.Contents, &c.FromMs, &c.ToMs); err != nil {
			return nil, fmt.Errorf("look for conflicts: %w", err)
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

// Corrected returns which of a tenant's identities, each source and id, a
// correction names: a person has settled what they say.
func (db *DB) Corrected(ctx context.Context, tenant string) (map[[2]string]bool, error) {
	rows, err := db.conn.Query(ctx, "SELECT DISTINCT toString(target_source), target_id FROM correction WHERE tenant = ?", tenant)
	if err != nil {
		return nil, fmt.Errorf("read corrections: %w", err)
	}
	defer rows.Close()
	settled := map[[2]string]bool{}
	for rows.Next() {
		var k [2]string
		if err := rows.Scan(&k[0], &k[1]); err != nil {
			return nil, fmt.Errorf("read corrections: %w", err)
		}
		settled[k] = true
	}
	return settled, rows.Err()
}
