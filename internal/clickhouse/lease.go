package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	chgo "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/gpumeter/gpumeter/schema"
)

// LeaseEvents returns the stored lease events of a tenant, copies and conflicts
// included, that the stream had stored by asOfMs (0 = all). With instances, which are nil
// for all, it returns those of every identity that names one of them in any of its
// copies, so that the copy that counts is among them.
func (db *DB) LeaseEvents(ctx context.Context, tenant string, instances []string, asOfMs int64) ([]schema.StoredLease, error) {
	if instances == nil {
		return db.leaseEvents(ctx, tenant, "", asOfMs)
	}
	if len(instances) == 0 {
		return nil, nil
	}
	of := "tenant = " + quoteText(tenant) + asOfCondition(asOfMs)
	return db.leaseEvents(ctx, tenant, " AND (source, id) IN (SELECT source, id FROM raw_lease WHERE "+of+" AND instance IN ("+quotedList(instances)+"))", asOfMs)
}

// leaseEvents returns those that meet the further condition.
func (db *DB) leaseEvents(ctx context.Context, tenant, condition string, asOfMs int64) ([]schema.StoredLease, error) {
	var list []schema.StoredLease
	err := db.wholeEvents(ctx, "raw_lease", tenant, condition, asOfMs, func(e *schema.Event, payload schema.Hash, at schema.Position) error {
		if e.Lease == nil {
			return fmt.Errorf("event %s/%s is no lease event", e.Header().Source, e.Header().ID)
		}
		list = append(list, schema.StoredLease{Lease: *e.Lease, Payload: payload, Position: at})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read lease events: %w", err)
	}
	return list, nil
}

// wholeEvents visits the events of a table that keeps them whole, copies and conflicts
// included.
func (db *DB) wholeEvents(ctx context.Context, table, tenant, condition string, asOfMs int64, visit func(e *schema.Event, payload schema.Hash, at schema.Position) error) error {
	var (
		event           proto.ColStr
		stream          textResult
		payload         proto.ColFixedStr16
		epoch, sequence proto.ColUInt64
		place           proto.ColUInt32
		storedNs        proto.ColInt64
	)
	results := proto.Results{
		{Name: "event", Data: &event}, {Name: "payload", Data: &payload}, {Name: "stream", Data: &stream}, {Name: "epoch", Data: &epoch},
		{Name: "stream_sequence", Data: &sequence}, {Name: "place", Data: &place}, {Name: "stored_ns", Data: &storedNs},
	}
	query := "SELECT event, payload, stream, epoch, stream_sequence, place, toUnixTimestamp64Nano(stored_at) AS stored_ns FROM " + table +
		" WHERE tenant = " + quoteText(tenant) + asOfCondition(asOfMs) + condition
	return db.wire.query(ctx, query, results, func(rows int) error {
		for i := range rows {
			e, err := schema.DecodeEvent([]byte(event.Row(i)))
			if err != nil {
				return err
			}
			err = visit(e, payload[i], schema.Position{
				Tenant: tenant, Stream: stream.Row(i), Epoch: epoch[i], StreamSequence: sequence[i], Place: place[i], StoredAtNs: storedNs[i],
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// LeaseSpan says what an instance's lease means for its usage from AtMs until
// its next span begins.
type LeaseSpan struct {
	Instance string
	AtMs     int64
	Held     bool
	// Gpus are leased; of the time of so many, what usage does not cover is added
	// to Group. Group 0 adds nothing.
	Gpus  int64
	Group int
	Rate  int
}

// InstanceWindow is a window of the usage of one instance.
type InstanceWindow struct {
	Instance string
	StartMs  int64
}

// LeaseTable is a list of spans that statements can join with. Every instance
// with a lease has a span that begins at 0.
type LeaseTable struct {
	sql     string
	outside bool
}

// NewLeaseTable makes a table that keeps the usage of instances without a lease
// and what lies in held spans, or, if outside, only what lies in the others.
func NewLeaseTable(spans []LeaseSpan, outside bool) *LeaseTable {
	var b strings.Builder
	for i := range spans {
		s := &spans[i]
		held := 0
		if s.Held {
			held = 1
		}
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\t%d\t%d\n", tabText.Replace(s.Instance), s.AtMs, held, s.Gpus, s.Group, s.Rate)
	}
	return &LeaseTable{sql: inline("leased String, at Int64, held UInt8, gpus Int64, grp UInt32, rate UInt32", b.String()), outside: outside}
}

// tabText writes text into a field of tab-separated lines.
var tabText = strings.NewReplacer("\\", "\\\\", "\t", "\\t", "\n", "\\n", "\r", "\\r", "\x00", "\\0")

// inline writes rows, one at least, into a statement as one literal, whatever their
// number: the server bounds how many parts a statement may have.
func inline(columns, lines string) string {
	return "(SELECT * FROM format('TSV', '" + columns + "', " + quoteText(lines) + "))"
}

// windowsInline is a set of (instance, window).
func windowsInline(list []InstanceWindow) string {
	var b strings.Builder
	for _, w := range list {
		fmt.Fprintf(&b, "%s\t%d\n", tabText.Replace(w.Instance), w.StartMs/1000)
	}
	return "(SELECT i, toDateTime(w, 'UTC') FROM " + inline("i String, w UInt32", b.String()) + ")"
}

// roomy lets a statement be as long as leases make it: about 60 bytes for every
// change of a lease in the span.
func roomy(ctx context.Context) context.Context {
	return chgo.Context(ctx, chgo.WithSettings(chgo.Settings{"max_query_size": 1 << 30}))
}

// leasedCondition selects the windows of w when leases decide about them.
func leasedCondition(w Windows) string {
	condition := "`window` >= " + seconds(w.FromMs) + " AND `window` < " + seconds(w.ToMs+999)
	if w.Hours != nil {
		var any []string
		if len(w.Hours) > 0 {
			any = append(any, hoursCondition(w.Hours))
		}
		if len(w.Also) > 0 {
			any = append(any, "("+hoursCondition(hoursOf(w.Also))+") AND (instance, toStartOfHour(`window`, 'UTC')) IN "+windowsInline(w.Also))
		}
		condition += " AND (" + strings.Join(any, " OR ") + ")"
	}
	if len(w.Except) > 0 {
		condition += " AND `window` NOT IN (" + secondsList(w.Except) + ")"
	}
	if len(w.Finer) > 0 {
		condition += " AND (instance, `window`) NOT IN " + windowsInline(w.Finer)
	}
	return condition
}

func hoursOf(list []InstanceWindow) []int64 {
	hours := make([]int64, len(list))
	for i, w := range list {
		hours[i] = w.StartMs
	}
	slices.Sort(hours)
	return slices.Compact(hours)
}

// filtered keeps of the rows of a usage table what the leases allow.
func (t *LeaseTable) filtered(rows string) string {
	kept := "s.leased = '' OR s.held = 1"
	join := "ASOF LEFT JOIN"
	if t.outside {
		kept, join = "s.held = 0", "ASOF JOIN"
	}
	return "SELECT u.*, s.rate AS rate FROM (" + withMs(rows) + ") AS u " + join + " " + t.sql + " AS s ON u.instance = s.leased AND u.window_ms >= s.at WHERE " + kept
}

func withMs(rows string) string {
	return strings.Replace(rows, "SELECT *", "SELECT *, toInt64(toUnixTimestamp(`window`)) * 1000 AS window_ms", 1)
}

// Covered is how much of the leased time of a group its instances' usage covers
// in a piece.
type Covered struct {
	Group, Piece int
	Ms           int64
}

// LeaseCovered says how much of the leased time is covered by the windows of a
// grain, and in which windows the sums do not tell: several units reported part
// of the window each, more of them than are leased, and whether they did so at
// the same time has to be looked at in finer grain.
//
// Every window must lie within one span of the instance and one piece.
func (db *DB) LeaseCovered(ctx context.Context, tenant string, cuts []int64, grain Grain, w Windows) ([]Covered, []InstanceWindow, error) {
	if w.Hours != nil && len(w.Hours)+len(w.Also) == 0 || w.FromMs >= w.ToMs {
		return nil, nil, nil
	}
	covered, crowded, err := db.leaseCoveredByFew(ctx, tenant, cuts, grain, w)
	if err != nil || len(crowded) == 0 {
		return covered, nil, err
	}
	where := "tenant = " + quoteText(tenant) + " AND " + leasedCondition(w) + instancesCondition(crowded)
	units := "SELECT instance, `window`, unit, sum(active_ms + idle_ms + unknown_ms) AS ms FROM (" + latest(grain.table, where) + ") GROUP BY instance, `window`, unit"
	windows := fmt.Sprintf("SELECT instance, `window`, toInt64(toUnixTimestamp(`window`)) * 1000 AS window_ms, toInt64(count()) AS units, "+
		"toInt64(countIf(ms = %d)) AS full, toInt64(sum(ms)) AS covered FROM (%s) GROUP BY instance, `window`", grain.length, units)
	judged := fmt.Sprintf("SELECT u.instance AS instance, u.window_ms AS window_ms, s.grp AS grp, %s AS piece, u.units > s.gpus AND u.full < s.gpus AS unclear, "+
		"multiIf(unclear, 0, u.units <= s.gpus, u.covered, s.gpus * %d) AS ms FROM (%s) AS u ASOF JOIN %s AS s "+
		"ON u.instance = s.leased AND u.window_ms >= s.at WHERE s.grp > 0", pieceOf(cuts), grain.length, windows, w.Leases.sql)
	query := "SELECT grp, piece, sum(ms), groupArrayIf(instance, unclear), groupArrayIf(window_ms, unclear) FROM (" + judged + ") GROUP BY grp, piece"
	rows, err := db.conn.Query(roomy(ctx), query)
	if err != nil {
		return nil, nil, fmt.Errorf("compare leases with %s: %w", grain.table, err)
	}
	defer rows.Close()
	var unclear []InstanceWindow
	for rows.Next() {
		var (
			group     uint32
			piece, ms int64
			instances []string
			starts    []int64
		)
		if err := rows.Scan(&group, &piece, &ms, &instances, &starts); err != nil {
			return nil, nil, fmt.Errorf("compare leases with %s: %w", grain.table, err)
		}
		covered = append(covered, Covered{Group: int(group), Piece: int(piece), Ms: ms})
		for i := range instances {
			unclear = append(unclear, InstanceWindow{instances[i], starts[i]})
		}
	}
	return covered, unclear, rows.Err()
}

// leaseCoveredByFew is LeaseCovered for the instances of which, in each piece of each
// span, no more units reported than are leased: so no more did in any window, and what
// they cover is their sum. These are nearly all, and they need no look at single windows.
// It returns the others.
func (db *DB) leaseCoveredByFew(ctx context.Context, tenant string, cuts []int64, grain Grain, w Windows) (covered []Covered, crowded []string, err error) {
	where := "tenant = " + quoteText(tenant) + " AND " + leasedCondition(w)
	parts := fmt.Sprintf("SELECT u.instance AS instance, s.at AS at, %s AS piece, any(s.grp) AS grp, uniqExact(u.unit) > any(s.gpus) AS crowd, "+
		"sum(u.active_ms + u.idle_ms + u.unknown_ms) AS ms FROM (%s) AS u ASOF JOIN %s AS s ON u.instance = s.leased AND u.window_ms >= s.at WHERE s.grp > 0 GROUP BY instance, at, piece",
		pieceOf(cuts), withMs(latest(grain.table, where)), w.Leases.sql)
	query := "SELECT grp, piece, toInt64(sumIf(ms, few)), groupUniqArrayIf(instance, NOT few) FROM " +
		"(SELECT *, max(crowd) OVER (PARTITION BY instance) = 0 AS few FROM (" + parts + ")) GROUP BY grp, piece"
	rows, err := db.conn.Query(roomy(ctx), query)
	if err != nil {
		return nil, nil, fmt.Errorf("compare leases with %s: %w", grain.table, err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			group     uint32
			piece, ms int64
			others    []string
		)
		if err := rows.Scan(&group, &piece, &ms, &others); err != nil {
			return nil, nil, fmt.Errorf("compare leases with %s: %w", grain.table, err)
		}
		covered, crowded = append(covered, Covered{Group: int(group), Piece: int(piece), Ms: ms}), append(crowded, others...)
	}
	slices.Sort(crowded)
	return covered, slices.Compact(crowded), rows.Err()
}

// InstanceUnits returns which units an instance used in each of the windows of a
// grain, by their hash.
func (db *DB) InstanceUnits(ctx context.Context, tenant string, grain Grain, windows []InstanceWindow) (map[InstanceWindow][]uint64, error) {
	if len(windows) == 0 {
		return nil, nil
	}
	lo, hi := windows[0].StartMs, windows[0].StartMs
	for _, w := range windows {
		lo, hi = min(lo, w.StartMs), max(hi, w.StartMs)
	}
	rows, err := db.conn.Query(roomy(ctx), "SELECT instance, toInt64(toUnixTimestamp(`window`)) * 1000 AS ms, groupUniqArray(unit_hash) FROM "+grain.table+" WHERE tenant = "+
		quoteText(tenant)+" AND `window` >= "+seconds(lo)+" AND `window` <= "+seconds(hi)+" AND ("+hoursCondition(floors(windows))+
		") AND (instance, `window`) IN "+windowsInline(windows)+" GROUP BY instance, ms")
	if err != nil {
		return nil, fmt.Errorf("read the units of instances: %w", err)
	}
	defer rows.Close()
	units := make(map[InstanceWindow][]uint64, len(windows))
	for rows.Next() {
		var w InstanceWindow
		var hashes []uint64
		if err := rows.Scan(&w.Instance, &w.StartMs, &hashes); err != nil {
			return nil, fmt.Errorf("read the units of instances: %w", err)
		}
		units[w] = hashes
	}
	return units, rows.Err()
}

func floors(windows []InstanceWindow) []int64 {
	hours := make([]int64, len(windows))
	for i, w := range windows {
		hours[i] = schema.Floor(w.StartMs, schema.HourMs)
	}
	slices.Sort(hours)
	return slices.Compact(hours)
}

// UnitSpan is a time of one unit, [StartMs, EndMs).
type UnitSpan struct {
	Unit           uint64 // hash
	StartMs, EndMs int64
}

// UnitSpanEvents calls visit for every unit of the list, with events that the
// stream had stored by asOfMs (0 = all): all that overlap a span of the unit
// in the list, and perhaps others.
func (db *DB) UnitSpanEvents(ctx context.Context, tenant string, list []UnitSpan, asOfMs int64, visit func(events []schema.StoredEvent, facts *schema.Settlement) error) error {
	if len(list) == 0 {
		return nil
	}
	lo, hi := list[0].StartMs, list[0].EndMs
	var pairs unitPairs
	for _, s := range list {
		lo, hi = min(lo, s.StartMs), max(hi, s.EndMs)
		pairs.add(s)
	}
	where := "tenant = " + quoteText(tenant) + " AND " + pairs.spans(lo, hi) + " AND " + clipped(lo, hi) + asOfCondition(asOfMs)
	// Copies may begin in minutes that are not in the list, so all identities are
	// looked up.
	return db.readUnits(ctx, tenant, where, asOfMs, func(int64) bool { return false }, visit)
}

// unitPairs are the minutes and hours of units in which events begin that may overlap
// spans of theirs. Events of an hour or less, nearly all, are found by them, longer ones
// by how far back their class reaches.
type unitPairs struct {
	units                map[uint64]bool
	minutes, hours, long strings.Builder // of events up to a minute: by the minute, by the hour; up to an hour
	hashes               strings.Builder
}

// byMinute is up to how long a span is looked up by its minutes.
const byMinute = 5 * schema.MinuteMs

func (p *unitPairs) add(s UnitSpan) {
	write := func(b *strings.Builder, from, to, step int64) {
		for at := max(schema.Floor(from, step), 0); at < to; at += step {
			fmt.Fprintf(b, "%d\t%d\n", at/1000, s.Unit)
		}
	}
	if s.EndMs-s.StartMs <= byMinute {
		write(&p.minutes, s.StartMs-schema.SpanMs[0], s.EndMs, schema.MinuteMs)
	} else {
		write(&p.hours, s.StartMs-schema.SpanMs[0], s.EndMs, schema.HourMs)
	}
	write(&p.long, s.StartMs-schema.SpanMs[1], s.EndMs, schema.HourMs)
	if p.units == nil {
		p.units = map[uint64]bool{}
	}
	if !p.units[s.Unit] {
		p.units[s.Unit] = true
		p.hashes.WriteString(strconv.FormatUint(s.Unit, 10) + "\n")
	}
}

// spans is a condition for the events that may overlap any of the spans, which all lie in
// [loMs, hiMs).
func (p *unitPairs) spans(loMs, hiMs int64) string {
	in := func(window string, b *strings.Builder) string {
		if b.Len() == 0 {
			return "0"
		}
		return "(" + window + ", unit_hash) IN (SELECT toDateTime(m, 'UTC'), u FROM " + inline("m UInt32, u UInt64", b.String()) + ")"
	}
	began := func(class int) string {
		return fmt.Sprintf("span = %d AND minute >= %s AND minute <= %s", class, seconds(schema.Floor(loMs-schema.SpanMs[class], schema.MinuteMs)), seconds(schema.Floor(hiMs-1, schema.MinuteMs)))
	}
	const hour = "toStartOfHour(minute, 'UTC')"
	conditions := []string{
		began(0) + " AND (" + in("minute", &p.minutes) + " OR " + in(hour, &p.hours) + ")",
		began(1) + " AND " + in(hour, &p.long),
	}
	for class := 2; class < len(schema.SpanMs); class++ {
		conditions = append(conditions, began(class)+" AND unit_hash IN (SELECT u FROM "+inline("u UInt64", p.hashes.String())+")")
	}
	return "(" + strings.Join(conditions, " OR ") + ")"
}
