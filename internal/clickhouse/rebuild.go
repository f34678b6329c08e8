package clickhouse

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// grainRebuild marks that a rebuild is under way: while such a mark is to do, the
// kept usage may be incomplete.
const grainRebuild = "rebuild"

// CountMarks counts the marks of minutes and of hours that are to do; a pending
// rebuild counts as a minute.
func (db *DB) CountMarks(ctx context.Context) (minutes, hours int, err error) {
	var m, h uint64
	err = db.conn.QueryRow(ctx, "SELECT countIf(grain != 'hour'), countIf(grain = 'hour') FROM "+
		"(SELECT grain FROM dirty GROUP BY grain, tenant, `window`, mark HAVING sum(sign) > 0)").Scan(&m, &h)
	if err != nil {
		return 0, 0, fmt.Errorf("count dirty marks: %w", err)
	}
	return int(m), int(h), nil
}

// RebuildPending says whether a rebuild was begun and not finished.
func (db *DB) RebuildPending(ctx context.Context) (bool, error) {
	marks, err := db.Marks(ctx, grainRebuild, 1)
	return len(marks) > 0, err
}

// Rebuild empties what is derived from raw events, or makes it anew where a table
// is gone, and marks every window as to be computed. progress is called with the
// number of days marked and their total.
//
// It may be interrupted at any point: the first thing it writes is a mark of its
// own, and whoever finds that mark calls Rebuild again.
func (db *DB) Rebuild(ctx context.Context, progress func(done, total int)) error {
	if err := db.ensureDerived(ctx); err != nil {
		return err
	}
	own := schema.Mark{Grain: grainRebuild, ID: rand.Uint64()}
	if err := db.writeMarks(ctx, []schema.Mark{own}, 1); err != nil {
		return err
	}
	pending, err := db.Marks(ctx, grainRebuild, 1000)
	if err != nil {
		return err
	}
	for _, table := range []string{"usage_minute", "usage_hour", "coarse"} {
		if err := db.conn.Exec(ctx, "TRUNCATE TABLE "+table); err != nil {
			return fmt.Errorf("empty %s: %w", table, err)
		}
	}
	days, err := db.eventDays(ctx)
	if err != nil {
		return err
	}
	for i, day := range days {
		if err := db.markDay(ctx, day); err != nil {
			return err
		}
		progress(i+1, len(days))
	}
	return db.ClearMarks(ctx, pending)
}

func (db *DB) eventDays(ctx context.Context) ([]uint32, error) {
	rows, err := db.conn.Query(ctx, "SELECT DISTINCT toUnixTimestamp(toStartOfDay(minute, 'UTC')) AS day FROM raw_usage ORDER BY day")
	if err != nil {
		return nil, fmt.Errorf("list days: %w", err)
	}
	defer rows.Close()
	var days []uint32
	for rows.Next() {
		var d uint32
		if err := rows.Scan(&d); err != nil {
			return nil, fmt.Errorf("list days: %w", err)
		}
		days = append(days, d)
	}
	return days, rows.Err()
}

// markDay marks all minutes that the events beginning on a day overlap.
func (db *DB) markDay(ctx context.Context, day uint32) error {
	from := seconds(int64(day) * 1000)
	query := fmt.Sprintf("INSERT INTO dirty (grain, tenant, `window`, mark, units, marked_at, sign) "+
		"SELECT 'minute', tenant, toDateTime(m * 60, 'UTC'), %d, groupUniqArray(unit_hash), now64(3, 'UTC'), 1 FROM (SELECT tenant, unit_hash, arrayJoin(range("+
		"toUInt32(intDiv(toUnixTimestamp64Milli(start), 60000)), toUInt32(intDiv(toUnixTimestamp64Milli(`end`) - 1, 60000) + 1))) AS m "+
		"FROM raw_usage WHERE minute >= %s AND minute < %s + INTERVAL 1 DAY) GROUP BY tenant, m", rand.Uint64(), from, from)
	if err := db.conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("mark the windows of a day: %w", err)
	}
	return nil
}

// derivedFiles are the migrations that make the derived tables and add to them, in
// order. They do nothing where that is done.
var derivedFiles = [...]string{"0002_usage.sql", "0007_overlap.sql", "0010_coarse.sql"}

// ensureDerived makes the derived tables where they are gone.
func (db *DB) ensureDerived(ctx context.Context) error {
	for _, name := range derivedFiles {
		if err := db.runMigration(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) runMigration(ctx context.Context, name string) error {
	file, err := fs.ReadFile(schema.SQL(), name)
	if err != nil {
		return err
	}
	for _, part := range strings.Split(string(file), "-- +goose StatementBegin")[1:] {
		statement, _, _ := strings.Cut(part, "-- +goose StatementEnd")
		// The same substitution as the migrations have.
		statement = strings.ReplaceAll(statement, "${GPUMETER_ENGINE_PREFIX:-}", os.Getenv("GPUMETER_ENGINE_PREFIX"))
		if err := db.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("make a derived table: %w", err)
		}
	}
	return nil
}
