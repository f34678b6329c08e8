package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// Marks returns the marks of a grain that are to do, oldest window first, at
// most limit of them.
func (db *DB) Marks(ctx context.Context, grain string, limit int) ([]schema.Mark, error) {
	rows, err := db.conn.Query(ctx, "SELECT tenant, toInt64(toUnixTimestamp(`window`)) * 1000, mark, toInt64(max(length(units))), "+
		"toUnixTimestamp64Milli(min(marked_at)) FROM dirty WHERE grain = ? "+
		"GROUP BY tenant, `window`, mark HAVING sum(sign) > 0 ORDER BY tenant, `window`, mark LIMIT ?", grain, limit)
	if err != nil {
		return nil, fmt.Errorf("read dirty marks: %w", err)
	}
	defer rows.Close()
	var marks []schema.Mark
	for rows.Next() {
		m := schema.Mark{Grain: grain}
		var count int64
		if err := rows.Scan(&m.Tenant, &m.WindowMs, &m.ID, &count, &m.MarkedAtMs); err != nil {
			return nil, fmt.Errorf("read dirty marks: %w", err)
		}
		m.Count = int(count)
		marks = append(marks, m)
	}
	return marks, rows.Err()
}

// ClearMarks says that the marks are done.
func (db *DB) ClearMarks(ctx context.Context, marks []schema.Mark) error {
	return db.writeMarks(ctx, marks, -1)
}

// UnitEvents calls visit for every unit that the marks of minutes name, with all
// stored events of the unit that overlap a marked minute, copies and conflicts
// included, and with what is stored elsewhere about their identities. All marks
// are of one tenant and grain, in order of their windows.
func (db *DB) UnitEvents(ctx context.Context, marks []schema.Mark, visit func(events []schema.StoredEvent, facts *schema.Settlement) error) error {
	tenant := quoteText(marks[0].Tenant)
	minutes := windowsOf(marks)
	where := "tenant = " + tenant + " AND " + overlapping(minutes) +
		" AND unit_hash IN (SELECT arrayJoin(units) FROM dirty WHERE grain = " + quoteText(marks[0].Grain) + " AND tenant = " + tenant +
		" AND `window` >= " + seconds(minutes[0]) + " AND `window` <= " + seconds(minutes[len(minutes)-1]) +
		" AND mark IN (" + idList(marks) + "))"
	return db.readUnits(ctx, marks[0].Tenant, where, 0, func(startMs int64) bool {
		_, found := slices.BinarySearch(minutes, schema.Floor(startMs, schema.MinuteMs))
		return found
	}, visit)
}

// RangeEvents calls visit for every unit that has events in [fromMs, toMs), with
// all of them, and what is stored elsewhere about their identities, that the
// stream had stored by asOfMs (0 = all).
func (db *DB) RangeEvents(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, unit string, visit func(events []schema.StoredEvent, facts *schema.Settlement) error) error {
	where := "tenant = " + quoteText(tenant) + " AND " + overlappingRange(fromMs, toMs) + asOfCondition(asOfMs)
	if unit != "" {
		where += " AND unit_hash = " + strconv.FormatUint(schema.UnitHash(unit), 10) + " AND unit = " + quoteText(unit)
	}
	return db.readUnits(ctx, tenant, where, asOfMs, func(startMs int64) bool { return startMs >= fromMs && startMs < toMs }, visit)
}

func (db *DB) readUnits(ctx context.Context, tenant, where string, asOfMs int64, read func(startMs int64) bool, visit func([]schema.StoredEvent, *schema.Settlement) error) error {
	var c eventColumns
	groups := db.groups.take()
	defer func() {
		groups.reset()
		db.groups.put(groups)
	}()
	err := db.wire.query(ctx, "SELECT "+eventSelect+" FROM raw_usage WHERE "+where, c.results(), func(rows int) error {
		groups.add(&c, rows, tenant)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	facts, err := db.factsOf(ctx, tenant, groups, asOfMs, read)
	if err != nil {
		return err
	}
	return groups.each(func(events []schema.StoredEvent) error { return visit(events, facts) })
}

// overlapping selects the events that overlap any of the minutes. Short events,
// nearly all, are found by the exact minutes; longer ones by how far back their
// class reaches.
func overlapping(minutes []int64) string {
	lo, hi := minutes[0], minutes[len(minutes)-1]
	var short string
	if int64(len(minutes)-1)*schema.MinuteMs == hi-lo {
		short = "minute >= " + seconds(lo-schema.MinuteMs) + " AND minute <= " + seconds(hi)
	} else {
		var list []int64
		for i, m := range minutes {
			if i == 0 || minutes[i-1] != m-schema.MinuteMs {
				list = append(list, max(m-schema.MinuteMs, 0))
			}
			list = append(list, m)
		}
		short = "minute IN (" + secondsList(list) + ")"
	}
	return spans(short, lo, hi) + " AND " + clipped(lo, hi+schema.MinuteMs)
}

func overlappingRange(fromMs, toMs int64) string {
	lo, hi := schema.Floor(fromMs, schema.MinuteMs), schema.Floor(toMs-1, schema.MinuteMs)
	short := "minute >= " + seconds(lo-schema.MinuteMs) + " AND minute <= " + seconds(hi)
	return spans(short, lo, hi) + " AND " + clipped(fromMs, toMs)
}

func spans(short string, lo, hi int64) string {
	var b strings.Builder
	b.WriteString("(span = 0 AND " + short)
	for class := 1; class < len(schema.SpanMs); class++ {
		fmt.Fprintf(&b, " OR span = %d AND minute >= %s AND minute <= %s", class, seconds(lo-schema.SpanMs[class]), seconds(hi))
	}
	return b.String() + ")"
}

func clipped(fromMs, toMs int64) string {
	return fmt.Sprintf("start < fromUnixTimestamp64Milli(%d, 'UTC') AND `end` > fromUnixTimestamp64Milli(%d, 'UTC')", toMs, fromMs)
}

// seconds writes an instant on a whole second as a literal for DateTime columns.
func seconds(ms int64) string {
	return "toDateTime(" + strconv.FormatInt(max(ms, 0)/1000, 10) + ", 'UTC')"
}

func windowsOf(marks []schema.Mark) []int64 {
	var windows []int64
	for _, m := range marks {
		if n := len(windows); n == 0 || windows[n-1] != m.WindowMs {
			windows = append(windows, m.WindowMs)
		}
	}
	return windows
}

func idList(marks []schema.Mark) string {
	var b strings.Builder
	for i, m := range marks {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(m.ID, 10))
	}
	return b.String()
}

// PutMinutes stores the usage of minutes.
func (db *DB) PutMinutes(ctx context.Context, tenant string, cells []schema.Cell) error {
	return db.putCells(ctx, Minutes.table, tenant, cells)
}

func (db *DB) putCells(ctx context.Context, table, tenant string, cells []schema.Cell) error {
	if len(cells) == 0 {
		return nil
	}
	c := db.cells.take()
	defer db.cells.put(c)
	c.input.Reset()
	for i := range cells {
		c.add(tenant, &cells[i])
	}
	return db.insert(ctx, table, c.input)
}

const (
	amountColumns = "active_ms, idle_ms, unknown_ms, utilization_ms, utilization_sum, memory_ms, memory_byte_ms, energy_mj, energy_ms, overlap_ms, oversubscribed_ms"
	ownerColumns  = "unit_hash, unit, instance, project, node, platform, region, model, labels"
)

// latest selects the newest version of every row of a usage table. FINAL picks it
// while reading, whether parts have been merged or not; the tables are ordered so
// that parts of different windows do not even have to be compared. (Grouping by
// key and taking argMax of each amount gives the same at ten times the cost, see
// ADR 3; raw events, which FINAL could not settle, are never read this way.)
func latest(table, where string) string {
	return "SELECT * FROM " + table + " FINAL WHERE " + where
}

// PutHours sums the minutes of the hours that the hour marks name. All marks are
// of one tenant.
func (db *DB) PutHours(ctx context.Context, marks []schema.Mark) error {
	tenant := quoteText(marks[0].Tenant)
	windows := windowsOf(marks)
	where := "tenant = " + tenant + " AND " + windowCondition(Windows{FromMs: windows[0], ToMs: windows[len(windows)-1] + schema.HourMs, Hours: windows}) +
		" AND unit_hash IN (SELECT arrayJoin(units) FROM dirty WHERE grain = 'hour' AND tenant = " + tenant +
		" AND mark IN (" + idList(marks) + "))"
	var attributes, sums []string
	for _, c := range strings.Split(ownerColumns, ", ") {
		attributes = append(attributes, "any(m."+c+")")
	}
	for _, c := range strings.Split(amountColumns, ", ") {
		sums = append(sums, "sum(m."+c+")")
	}
	query := "INSERT INTO usage_hour (tenant, `window`, owner, " + ownerColumns + ", " + amountColumns + ", version) SELECT " + tenant +
		", toStartOfHour(`window`, 'UTC') AS hour, owner, " + strings.Join(attributes, ", ") + ", " + strings.Join(sums, ", ") + ", sum(m.version) FROM (" +
		latest("usage_minute", where) + ") AS m GROUP BY hour, owner"
	if err := db.conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("sum up hours: %w", err)
	}
	return nil
}

// MarkHours marks the hours of marks of minutes, which are of one tenant and
// grain, with the same units. It runs in
// the server, which has the units already.
func (db *DB) MarkHours(ctx context.Context, marks []schema.Mark, id uint64, nowMs int64) error {
	tenant := quoteText(marks[0].Tenant)
	windows := windowsOf(marks)
	query := fmt.Sprintf("INSERT INTO dirty (grain, tenant, `window`, mark, units, marked_at, sign) "+
		"SELECT 'hour', tenant, toStartOfHour(`window`, 'UTC') AS hour, %d, groupUniqArrayArray(units), fromUnixTimestamp64Milli(%d, 'UTC'), 1 "+
		"FROM dirty WHERE grain = %s AND tenant = %s AND `window` >= %s AND `window` <= %s AND mark IN (%s) GROUP BY tenant, hour",
		id, nowMs, quoteText(marks[0].Grain), tenant, seconds(windows[0]), seconds(windows[len(windows)-1]), idList(marks))
	if err := db.conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("mark hours: %w", err)
	}
	return nil
}
