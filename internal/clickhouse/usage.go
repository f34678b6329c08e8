package clickhouse

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// Grain is one of the two tables that usage is kept in.
type Grain struct {
	table  string
	length int64 // of a window, milliseconds
}

// Grains of kept usage.
var (
	Minutes = Grain{"usage_minute", schema.MinuteMs}
	Hours   = Grain{"usage_hour", schema.HourMs}
)

// Windows selects windows of a grain: those that start in [FromMs, ToMs),
// without those in Except, and, when Hours is not nil, only in those hours.
type Windows struct {
	FromMs, ToMs int64
	Except       []int64
	Hours        []int64

	// Leases, when not nil, decides about the usage of instances that have one.
	// Finer takes single windows of an instance out; Also adds to Hours those of
	// single instances.
	Leases *LeaseTable
	Finer  []InstanceWindow
	Also   []InstanceWindow
}

// Ms returns the length of a window of the grain in milliseconds.
func (g Grain) Ms() int64 { return g.length }

// PendingHours returns the hours of a tenant whose sum is older than its minutes.
func (db *DB) PendingHours(ctx context.Context, tenant string, fromMs, toMs int64) ([]int64, error) {
	rows, err := db.conn.Query(ctx, "SELECT toInt64(toUnixTimestamp(`window`)) * 1000 AS hour FROM dirty WHERE grain = 'hour' AND tenant = ? "+
		"AND `window` >= "+seconds(schema.Floor(fromMs, schema.HourMs))+" AND `window` < "+seconds(toMs+999)+
		" GROUP BY hour, mark HAVING sum(sign) > 0", tenant)
	if err != nil {
		return nil, fmt.Errorf("read pending hours: %w", err)
	}
	defer rows.Close()
	var hours []int64
	for rows.Next() {
		var h int64
		if err := rows.Scan(&h); err != nil {
			return nil, fmt.Errorf("read pending hours: %w", err)
		}
		hours = append(hours, h)
	}
	slices.Sort(hours)
	return slices.Compact(hours), rows.Err()
}

// Usage sums the windows of one grain. Every window must lie within one piece of
// the query; it is counted in the piece that holds its start.
func (db *DB) Usage(ctx context.Context, q *schema.UsageQuery, grain Grain, w Windows) ([]schema.UsageRow, error) {
	if w.Hours != nil && len(w.Hours)+len(w.Also) == 0 || w.FromMs >= w.ToMs {
		return nil, nil
	}
	if w.Leases != nil {
		ctx = roomy(ctx)
	}
	rows, err := db.conn.Query(ctx, usageQuery(q, grain, w, "", nil))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", grain.table, err)
	}
	defer rows.Close()
	var list []schema.UsageRow
	for rows.Next() {
		r, err := scanUsage(rows, q)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", grain.table, err)
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// usageQuery sums the windows that meet the condition, if there is one, per piece
// and group: k0, k1, ... are the keys of q.By. Rows come in the order given, which
// is of those and of piece, and then in the order of all of them.
func usageQuery(q *schema.UsageQuery, grain Grain, w Windows, condition string, order []string) string {
	windows := windowCondition
	if w.Leases != nil {
		windows = leasedCondition
	}
	where := "tenant = " + quoteText(q.Tenant) + " AND " + windows(w) + filterCondition(q.Filter) + scopeCondition(q.Projects) + instancesCondition(q.Instances)
	if condition != "" {
		where += " AND " + condition
	}
	source := latest(grain.table, where)
	rate := "0"
	if w.Leases != nil {
		source, rate = w.Leases.filtered(source), "u.rate"
	}
	keys := make([]string, len(q.By))
	names := make([]string, len(q.By))
	for i, by := range q.By {
		keys[i] = fmt.Sprintf("%s AS k%d", dimension(by), i)
		names[i] = fmt.Sprintf("k%d", i)
	}
	group := append([]string{"piece", "model", "platform", "region", "rated"}, names...)
	selected := append([]string{pieceOf(q.Cuts) + " AS piece", "model", "platform", "region", "toUInt32(" + rate + ") AS rated"}, keys...)
	sums := []string{"sum(u.active_ms)", "sum(u.idle_ms)", "sumIf(u.idle_ms, u.instance = '')", "sum(u.unknown_ms)", "sum(u.utilization_ms)", "sum(toUInt128(u.utilization_sum))",
		"sum(u.memory_ms)", "sum(toUInt128(u.memory_byte_ms))", "sum(u.energy_mj)", "sum(u.energy_ms)", "sum(u.overlap_ms)", "sum(u.oversubscribed_ms)"}
	if q.Activity {
		for _, condition := range []string{"u.active_ms > 0", "u.active_ms + u.idle_ms > 0"} {
			sums = append(sums, fmt.Sprintf("toInt64(maxIf(toUnixTimestamp(u.`window`) + %d, %s)) * 1000", grain.length/1000, condition))
		}
	}
	return "SELECT " + strings.Join(append(selected, sums...), ", ") + " FROM (" + source + ") AS u GROUP BY " +
		strings.Join(group, ", ") + " ORDER BY " + strings.Join(append(order, group...), ", ")
}

func scanUsage(rows interface{ Scan(...any) error }, q *schema.UsageQuery) (schema.UsageRow, error) {
	r := schema.UsageRow{Keys: make([]string, len(q.By))}
	var piece int64
	var rate uint32
	var active, idle, free, unknown, utilizationMs, memoryMs, energyMj, energyMs, overlap, oversubscribed uint64
	r.UtilizationSum, r.MemoryByteMs = new(big.Int), new(big.Int)
	into := []any{&piece, &r.Model, &r.Platform, &r.Region, &rate}
	for i := range r.Keys {
		into = append(into, &r.Keys[i])
	}
	into = append(into, &active, &idle, &free, &unknown, &utilizationMs, r.UtilizationSum, &memoryMs, r.MemoryByteMs, &energyMj, &energyMs, &overlap, &oversubscribed)
	if q.Activity {
		into = append(into, &r.LastActiveMs, &r.LastKnownMs)
	}
	if err := rows.Scan(into...); err != nil {
		return r, err
	}
	r.Piece, r.Rate = int(piece), int(rate)
	r.ActiveMs, r.IdleMs, r.FreeMs, r.UnknownMs = int64(active), int64(idle), int64(free), int64(unknown)
	r.UtilizationMs, r.MemoryMs, r.EnergyMj, r.EnergyMs = int64(utilizationMs), int64(memoryMs), int64(energyMj), int64(energyMs)
	r.OverlapMs, r.OversubscribedMs = int64(overlap), int64(oversubscribed)
	return r, nil
}

// pieceOf numbers the piece that holds the start of the window.
func pieceOf(cuts []int64) string {
	if len(cuts) == 2 {
		return "toInt64(0)"
	}
	list := make([]string, len(cuts)-1)
	for i, c := range cuts[:len(cuts)-1] {
		list[i] = strconv.FormatInt(c, 10)
	}
	array := "[" + strings.Join(list, ",") + "]"
	return "toInt64(indexOf(" + array + ", roundDown(toInt64(toUnixTimestamp(`window`)) * 1000, " + array + "))) - 1"
}

func windowCondition(w Windows) string {
	condition := "`window` >= " + seconds(w.FromMs) + " AND `window` < " + seconds(w.ToMs+999)
	if w.Hours != nil {
		condition += " AND (" + hoursCondition(w.Hours) + ")"
	}
	if len(w.Except) > 0 {
		condition += " AND `window` NOT IN (" + secondsList(w.Except) + ")"
	}
	return condition
}

// maxHourRanges bounds how many ranges of hours are written out: the server
// bounds how many parts a statement may have, and a year has many hours.
const maxHourRanges = 100

// hoursCondition selects the windows that lie in any of the hours, which are in
// order. A few ranges of the key are far quicker than testing every window
// between the first hour and the last.
func hoursCondition(hours []int64) string {
	var ranges []string
	for from := 0; from < len(hours); {
		to := from + 1
		for to < len(hours) && hours[to] == hours[to-1]+schema.HourMs {
			to++
		}
		ranges = append(ranges, "`window` >= "+seconds(hours[from])+" AND `window` < "+seconds(hours[to-1]+schema.HourMs))
		from = to
	}
	if len(ranges) > maxHourRanges {
		return "toStartOfHour(`window`, 'UTC') IN (" + secondsList(hours) + ")"
	}
	return strings.Join(ranges, " OR ")
}

// secondsList writes windows for IN. They are bare numbers because a list of
// those is one literal, however long; the server bounds how many parts a
// statement may have, and a year has many hours.
func secondsList(windows []int64) string {
	var b strings.Builder
	for i, w := range windows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(w/1000, 10))
	}
	return b.String()
}

// Dimensions lists what usage can be grouped and filtered by, beside label:KEY.
var Dimensions = []string{"project", "instance", "unit", "node", "model", "platform", "region"}

// dimension returns the expression of a dimension. A dimension that is none of
// ours selects nothing rather than reaching SQL.
func dimension(by string) string {
	if key, ok := strings.CutPrefix(by, "label:"); ok {
		return "JSONExtractString(labels, " + quoteText(key) + ")"
	}
	if slices.Contains(Dimensions, by) {
		return "toString(" + by + ")"
	}
	return "''"
}

func filterCondition(filter map[string]string) string {
	var b strings.Builder
	if unit, ok := filter["unit"]; ok {
		fmt.Fprintf(&b, " AND unit_hash = %d", schema.UnitHash(unit)) // the key's column
	}
	for _, by := range sortedKeys(filter) {
		b.WriteString(" AND " + dimension(by) + " = " + quoteText(filter[by]))
	}
	return b.String()
}

// scopeCondition is [schema.InScope] of the column project.
func scopeCondition(projects []string) string {
	switch {
	case projects == nil:
		return ""
	case len(projects) == 0:
		return " AND 0"
	}
	return " AND project != '' AND project IN (" + quotedList(projects) + ")"
}

// instancesCondition keeps rows of some instances; nil = of all.
func instancesCondition(instances []string) string {
	switch {
	case instances == nil:
		return ""
	case len(instances) == 0:
		return " AND 0"
	}
	return " AND instance IN (" + quotedList(instances) + ")"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Bounds returns the start of a tenant's earliest usage event and the end of the
// latest; both 0 when there is none.
func (db *DB) Bounds(ctx context.Context, tenant string) (fromMs, toMs int64, err error) {
	err = db.conn.QueryRow(ctx, "SELECT toUnixTimestamp64Milli(min(start)), toUnixTimestamp64Milli(max(`end`)) FROM raw_usage WHERE tenant = ?", tenant).Scan(&fromMs, &toMs)
	if err != nil {
		return 0, 0, fmt.Errorf("read the bounds of usage: %w", err)
	}
	return fromMs, toMs, nil
}
