package clickhouse_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

const (
	heldAt = "2026-03-01T12:01:00Z"
	dueAt  = "2026-03-01T12:11:00Z"
)

// setAside puts items into the quarantine: numbers up to held are held, the first
// due at dueAt and each of the others a minute later, and the rest is broken.
func setAside(t *testing.T, db *clickhouse.DB, held, broken int) {
	t.Helper()
	b := db.NewBatch()
	for n := range held + broken {
		at := &schema.Position{Tenant: "default", Stream: "USAGE_0", Epoch: 7, StreamSequence: uint64(n + 1), StoredAtNs: testkit.At(heldAt)*1e6 + int64(n)}
		if n >= held {
			b.Quarantine(at, "s.broken", schema.ContentTypeBatch, &schema.Reject{Place: -1, Raw: []byte("\xff{"), Err: errors.New("broken")})
			continue
		}
		b.Quarantine(at, "s.held", schema.ContentTypeEvent, &schema.Reject{
			Place: n, Raw: fmt.Appendf(nil, "event\xff %d", n), Err: &schema.Error{Kind: schema.KindFuture, Msg: "too early"},
			Held: &schema.Held{Source: "agent/1", DueMs: testkit.At(dueAt) + int64(n)*schema.MinuteMs, AheadMs: 600_000 + int64(n)},
		})
	}
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func due(t *testing.T, db *clickhouse.DB, nowMs int64, limit, maxBytes int) []schema.QuarantinedItem {
	t.Helper()
	items, err := db.Due(t.Context(), nowMs, limit, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// An event is due from its end on, not a millisecond before; what is broken never is.
func TestDue(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "due")
	setAside(t, db, 5, 2)
	first := testkit.At(dueAt)
	for nowMs, want := range map[int64]int{first - 1: 0, first: 1, first + 1: 1, first + schema.MinuteMs: 2, first + schema.HourMs: 5} {
		waiting, n, err := db.Held(t.Context(), nowMs)
		if got := due(t, db, nowMs, 100, 1<<20); len(got) != want || n != int64(want) || waiting != 5 || err != nil {
			t.Errorf("at %s: %d items, counted %d of %d, %v; want %d", schema.FormatTime(nowMs), len(got), n, waiting, err, want)
		}
	}
	all := due(t, db, first+schema.HourMs, 100, 1<<20)
	for n, it := range all {
		want := schema.QuarantinedItem{
			Tenant: "default", Stream: "USAGE_0", Epoch: 7, StreamSequence: uint64(n + 1), Place: int32(n),
			Subject: "s.held", ContentType: schema.ContentTypeEvent, Raw: fmt.Sprintf("event\xff %d", n),
		}
		if !reflect.DeepEqual(it, want) {
			t.Errorf("item %d is %+v, want %+v", n, it, want)
		}
	}
	if got := due(t, db, first+schema.HourMs, 3, 1<<20); !reflect.DeepEqual(got, all[:3]) {
		t.Errorf("three of them: %+v", got)
	}
	for maxBytes, want := range map[int]int{0: 1, 1: 1, len(all[0].Raw): 1, len(all[0].Raw) + 1: 2} {
		if got := due(t, db, first+schema.HourMs, 100, maxBytes); !reflect.DeepEqual(got, all[:want]) {
			t.Errorf("at most %d bytes: %d items, want %d", maxBytes, len(got), want)
		}
	}
	// A request for everything drives what is broken, and what is held by itself.
	items, err := db.Quarantine(t.Context(), "default", 100, true)
	if err != nil || len(items) != 2 || items[0].Kind == schema.KindFuture || items[1].DueAt != "" {
		t.Errorf("to drive again: %+v, %v", items, err)
	}
	if items, err = db.Quarantine(t.Context(), "default", 100, false); err != nil || len(items) != 7 || items[6].DueAt != "2026-03-01T12:11:00.000Z" || items[6].Kind != schema.KindFuture {
		t.Errorf("listed: %+v, %v", items, err)
	}
	got, err := db.Reread(t.Context(), append(slices.Clone(items[:2]), items[6], items[6]), 1<<20)
	if err != nil || len(got) != 3 || got[0].Raw != "\xff{" || got[0].ContentType != schema.ContentTypeBatch || got[2].Raw != all[0].Raw {
		t.Errorf("read again: %+v, %v", got, err)
	}
	if none, err := db.Reread(t.Context(), []schema.QuarantinedItem{{Tenant: "other'", Stream: "USAGE_0", Epoch: 7, StreamSequence: 1}}, 1<<20); err != nil || len(none) != 0 {
		t.Errorf("what is not there: %+v, %v", none, err)
	}
}

// The first time at which an item was driven again stays, whatever is noted, read
// and merged after it: what a report as of an instant says does not change.
func TestFirstRedriveStays(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "redriven")
	setAside(t, db, 2, 1)
	stored, first := testkit.At(heldAt), testkit.At(dueAt)
	items, err := db.Quarantine(t.Context(), "default", 100, false)
	if err != nil || len(items) != 3 {
		t.Fatal(items, err)
	}
	// Both items of the first round are noted with one insert, one of them again
	// together with the broken one.
	rounds := []func(){
		func() { mark(t, db, items[1:], first+5) },
		func() { mark(t, db, items[:2], first+9000) },
		func() { setAside(t, db, 2, 1) }, // the stream is replayed
		func() {
			if err := db.Exec(t.Context(), "OPTIMIZE TABLE quarantine FINAL"); err != nil {
				t.Fatal(err)
			}
		},
		func() { mark(t, db, items, first+20_000) },
	}
	for n, round := range rounds {
		round()
		want := map[int64]string{
			stored - 1: "0 quarantined 0 held", stored: "0 quarantined 1 held", // the others came some nanoseconds later
			stored + 1: "1 quarantined 2 held", first + 4: "1 quarantined 2 held", first + 5: "1 quarantined 0 held", first + 8999: "1 quarantined 0 held",
		}
		if n == 0 {
			want[0] = "1 quarantined 0 held"
		} else {
			want[first+9000], want[0] = "0 quarantined 0 held", "0 quarantined 0 held"
		}
		for asOf, w := range want {
			q, err := db.Quality(t.Context(), "default", 0, stored, asOf, time.Minute)
			if got := fmt.Sprintf("%d quarantined %d held", q.Quarantined, q.Held); err != nil || got != w {
				t.Errorf("after round %d as of %s: %s, want %s; %v", n, schema.FormatTime(asOf), got, w, err)
			}
		}
		if waiting, _, err := db.Held(t.Context(), first+schema.HourMs); waiting != 0 || err != nil {
			t.Errorf("after round %d: %d wait, %v", n, waiting, err)
		}
	}
	after, err := db.Quarantine(t.Context(), "default", 100, false)
	if err != nil || len(after) != 3 {
		t.Fatal(after, err)
	}
	for i := range after {
		want := items[i]
		want.RedrivenAt = schema.FormatTime([]int64{first + 9000, first + 5, first + 5}[i])
		if !reflect.DeepEqual(after[i], want) {
			t.Errorf("item %d is\n%+v, want\n%+v", i, after[i], want)
		}
	}
}

func mark(t *testing.T, db *clickhouse.DB, items []schema.QuarantinedItem, nowMs int64) {
	t.Helper()
	if err := db.MarkRedriven(t.Context(), items, nowMs); err != nil {
		t.Fatal(err)
	}
}

// A round is as large as it gets and still one statement.
func TestMarksManyItems(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "many")
	b := db.NewBatch()
	var items []schema.QuarantinedItem
	for n := range 1500 {
		at := &schema.Position{Tenant: strings.Repeat("t'\\", 100), Stream: "USAGE_0", Epoch: 1 << 63, StreamSequence: 1<<63 + uint64(n), StoredAtNs: 1e18}
		b.Quarantine(at, "s", schema.ContentTypeEvent, &schema.Reject{Err: &schema.Error{Kind: schema.KindFuture}, Held: &schema.Held{Source: "agent/1", DueMs: 1}})
		items = append(items, schema.QuarantinedItem{Tenant: at.Tenant, Stream: at.Stream, Epoch: at.Epoch, StreamSequence: at.StreamSequence})
	}
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark(t, db, items[:1000], 2)
	if waiting, n, err := db.Held(t.Context(), 5); waiting != 500 || n != 500 || err != nil {
		t.Errorf("%d wait, %d due, %v", waiting, n, err)
	}
	got := due(t, db, 5, 1000, 1<<20)
	if len(got) != 500 || got[0].StreamSequence != 1<<63+1000 {
		t.Errorf("%d items due, the first is %+v", len(got), got[0])
	}
}

// lateEvents stores events of some sources: each so long after its end, made so
// long before or after it was stored.
type sourceEvent struct {
	source     string
	delay      time.Duration
	ahead      time.Duration
	withTime   bool
	afterFirst bool // a copy, stored later, which does not count
}

func storeSources(t *testing.T, db *clickhouse.DB, list []sourceEvent) {
	t.Helper()
	b := db.NewBatch()
	for n, e := range list {
		u := testkit.Usage(fmt.Sprint("GPU-", n), "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
		u.Source, u.ID = e.source, fmt.Sprint(n)
		stored := u.EndMs*1e6 + int64(e.delay)
		if e.withTime {
			u.TimeMs = (stored + int64(e.ahead)) / 1e6
		}
		b.Usage(&schema.Position{Tenant: "default", Stream: "S", StreamSequence: uint64(n), StoredAtNs: stored}, &u)
		if e.afterFirst {
			u.TimeMs = stored/1e6 + schema.HourMs
			b.Usage(&schema.Position{Tenant: "default", Stream: "S", StreamSequence: uint64(n + 1000), StoredAtNs: stored + int64(time.Hour)}, &u)
		}
	}
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An event that came exactly at its grace is not late, one that came a nanosecond
// later is; a copy that came later still says nothing.
func TestLateAndSources(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "sources")
	const grace = 10 * time.Minute
	storeSources(t, db, []sourceEvent{
		{"agent/exact", grace, -grace, true, true},
		{"agent/late", grace + 1, -time.Second, true, false},
		{"agent/late", 26 * time.Hour, -26 * time.Hour, true, false},
		{"agent/late", time.Second, -time.Second, true, false},
		{"agent/ahead", time.Second, 90 * time.Second, true, false},
		{"agent/ahead", time.Second, 30 * time.Second, true, false},
		{"agent/early", -time.Minute, 61 * time.Second, true, false},
		{"script", time.Second, 0, false, false},
	})
	setAside(t, db, 2, 1)
	ctx, from, to := t.Context(), testkit.At("2026-03-01T10:00:00Z"), testkit.At("2026-03-01T13:00:00Z")
	const (
		ahead  = "agent/ahead: 2 events 0 late 0 held, 1000 90000, 10:01:01.000"
		early  = "agent/early: 1 events 0 late 0 held, 0 61000, 10:00:00.000"
		exact  = "agent/exact: 1 events 0 late 0 held, 600000 0, 10:11:00.000"
		late   = "agent/late: 3 events 2 late 0 held, 93600000 0, 12:01:00.000"
		script = "script: 1 events 0 late 0 held, 1000 ?, 10:01:01.000"
		held   = "agent/1: 0 events 0 late 2 held, ? 600001, 12:01:00.000"
	)
	for _, c := range []struct {
		name         string
		from, to, at int64
		grace        time.Duration
		late         int64
		want         []string
	}{
		{"now", from, to, 0, grace, 2, []string{late, held, ahead, early, exact, script}},
		{"another grace", from, to, 0, grace - 1, 3, []string{late, strings.Replace(exact, "0 late", "1 late", 1), held, ahead, early, script}},
		{"as of before most", from, to, testkit.At("2026-03-01T10:02:00Z"), grace, 0, []string{ahead, early,
			"agent/late: 1 events 0 late 0 held, 1000 0, 10:01:01.000", script}},
		{"before it was held", from, testkit.At("2026-03-01T12:01:00Z"), 0, grace, 2, []string{late, ahead, early, exact, script}},
		{"when it waited", testkit.At("2026-03-01T12:11:00Z") - 1, to, 0, grace, 0, []string{held}},
		{"when one waited", testkit.At("2026-03-01T12:11:00Z"), to, 0, grace, 0, []string{"agent/1: 0 events 0 late 1 held, ? 600001, 12:01:00.000"}},
	} {
		list, total, err := db.Sources(ctx, "default", c.from, c.to, c.at, c.grace)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprintf("%s: %d events %d late %d held, %s %s, %s", s.Source, s.Events, s.Late, s.Held, orUnknown(s.WorstDelayMs), orUnknown(s.ClockOffsetMs), schema.FormatTime(s.LastEventMs)[11:23]))
		}
		if !slices.Equal(got, c.want) || total != int64(len(c.want)) {
			t.Errorf("%s: %d sources\n  %s\nwant\n  %s", c.name, total, strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
		}
		q, err := db.Quality(ctx, "default", c.from, c.to, c.at, c.grace)
		if err != nil || q.Late != c.late {
			t.Errorf("%s: %d late, want %d; %v", c.name, q.Late, c.late, err)
		}
	}
	// What was released waits no more, and its source's clock was ahead all the same.
	items := due(t, db, testkit.At(dueAt)+schema.HourMs, 100, 1<<20)
	mark(t, db, items, testkit.At(dueAt)+schema.HourMs)
	for asOf, want := range map[int64]int64{0: 0, testkit.At(dueAt): 2} {
		list, _, err := db.Sources(ctx, "default", testkit.At("2026-03-01T12:05:00Z"), to, asOf, grace)
		if err != nil || len(list) != 1 || list[0].Held != want || list[0].ClockOffsetMs != schema.Some(600_001) {
			t.Errorf("released, as of %d: %+v, %v", asOf, list, err)
		}
	}
	if list, total, err := db.Sources(ctx, "other", from, to, 0, grace); err != nil || len(list) != 0 || total != 0 {
		t.Errorf("of another tenant: %+v %d %v", list, total, err)
	}
}

func orUnknown(m schema.Maybe) string {
	if !m.Known {
		return "?"
	}
	return fmt.Sprint(m.Value)
}

// More sources than are named are counted.
func TestSourcesAreBounded(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "bounded")
	var events []sourceEvent
	for n := range schema.MaxSources + 20 {
		events = append(events, sourceEvent{fmt.Sprintf("agent/%03d", n), time.Duration(n) * time.Minute, 0, true, false})
	}
	storeSources(t, db, events)
	list, total, err := db.Sources(context.Background(), "default", 0, testkit.At("2026-03-02T00:00:00Z"), 0, 110*time.Minute)
	if err != nil || len(list) != schema.MaxSources || total != schema.MaxSources+20 {
		t.Fatalf("%d of %d sources, %v", len(list), total, err)
	}
	if list[0].Source != "agent/111" || list[8].Source != "agent/119" || list[9].Late != 0 {
		t.Errorf("the late ones are not first: %+v", list[:10])
	}
}
