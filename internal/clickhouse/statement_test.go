package clickhouse_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// A statement comes back byte for byte, however odd its bytes, once however often
// it was stored, and to its tenant only.
func TestStatementsComeBackAsTheyWere(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "statements")
	odd := schema.Statement{
		Tenant: "t'1", Period: "2026-03", Zone: "Asia/Shanghai", FromMs: testkit.At("2026-02-28T16:00:00Z"), ToMs: testkit.At("2026-03-31T16:00:00Z"),
		AsOfMs: testkit.At("2026-04-05T00:00:00.001Z"), ClosedAtMs: testkit.At("2026-04-05T00:00:00.999Z"),
		ClosedBy: `o'neil\"`, Reason: "line\nbreak\t\x00", Override: "因为", Hash: strings.Repeat("a", 64), Previous: strings.Repeat("b", 64),
		Content: []byte("{\"é\\u0000\":\"\x00\xff'\\\"\"}\n" + strings.Repeat("x", 1<<20)),
	}
	second := odd
	second.Period, second.Hash, second.ClosedAtMs, second.Content = "2026-04", strings.Repeat("c", 64), odd.ClosedAtMs+1, []byte("{}\n")
	for _, s := range []*schema.Statement{&second, &odd, &odd} {
		if err := db.PutStatement(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	list, err := db.Statements(t.Context(), odd.Tenant)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d statements, %v", len(list), err)
	}
	for i, want := range []schema.Statement{odd, second} {
		content, err := db.StatementContent(t.Context(), odd.Tenant, want.Hash)
		if err != nil || string(content) != string(want.Content) {
			t.Errorf("content of %s differs: %v", want.Period, err)
		}
		want.Content = nil
		if fmt.Sprintf("%#v", list[i]) != fmt.Sprintf("%#v", want) {
			t.Errorf("got  %#v\nwant %#v", list[i], want)
		}
	}
	if list, err := db.Statements(t.Context(), "other"); err != nil || len(list) != 0 {
		t.Errorf("another tenant sees %v, %v", list, err)
	}
	if _, err := db.StatementContent(t.Context(), "other", odd.Hash); err == nil {
		t.Error("another tenant reads the content")
	}
}

// storedAt stores events as the stream would have at the instants.
func storedAt(t *testing.T, db *clickhouse.DB, events map[string][]schema.Usage) {
	t.Helper()
	n := uint64(0)
	for _, at := range slices.Sorted(mapKeys(events)) {
		b := db.NewBatch()
		for i := range events[at] {
			n++
			b.Usage(&schema.Position{Tenant: "default", Stream: "S", Epoch: 1, StreamSequence: n, StoredAtNs: testkit.At(at) * 1e6}, &events[at][i])
		}
		if err := b.WriteRaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func mapKeys(m map[string][]schema.Usage) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Arrivals are what was first stored in the span of stream time: its end counts,
// its beginning does not, a copy of what was there is none, other content of a
// known identity is one that does not count.
func TestArrivals(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "arrivals")
	usage := func(unit, from, to string) schema.Usage { return testkit.Usage(unit, "i1", from, to) }
	early := usage("GPU-early", "2026-03-10T10:00:00Z", "2026-03-10T10:01:00Z")
	other := early
	other.Project = "b"
	start := usage("GPU-at-start", "2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z")
	storedAt(t, db, map[string][]schema.Usage{
		"2026-03-10T10:02:00Z":     {early},
		"2026-04-05T00:00:00Z":     {start},
		"2026-04-05T00:00:00.001Z": {usage("GPU-after", "2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z"), early, start},
		"2026-04-06T00:00:00Z":     {other, usage("GPU-edge", "2026-03-31T23:59:30Z", "2026-04-01T00:00:30Z"), usage("GPU-april", "2026-04-01T00:00:00Z", "2026-04-01T00:01:00Z")},
		"2026-04-07T00:00:00Z":     {usage("GPU-at-end", "2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z"), usage("GPU-after", "2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z")},
		"2026-04-07T00:00:00.001Z": {usage("GPU-too-late", "2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z")},
	})
	q := schema.ArrivalQuery{
		Tenant: "default", FromMs: testkit.At("2026-03-01T00:00:00Z"), ToMs: testkit.At("2026-04-01T00:00:00Z"),
		AfterMs: testkit.At("2026-04-05T00:00:00Z"), AsOfMs: testkit.At("2026-04-07T00:00:00Z"), Limit: 10,
	}
	show := func(q schema.ArrivalQuery) string {
		t.Helper()
		events, total, err := db.Arrivals(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, e := range events {
			fmt.Fprintf(&b, "%s %s %s %v; ", e.Unit, e.Project, schema.FormatTime(e.StoredAtNs/1e6), e.Counted)
		}
		return fmt.Sprint(b.String(), total)
	}
	const after, conflict, edge, end = "GPU-after a 2026-04-05T00:00:00.001Z true; ", "GPU-early b 2026-04-06T00:00:00.000Z false; ",
		"GPU-edge a 2026-04-06T00:00:00.000Z true; ", "GPU-at-end a 2026-04-07T00:00:00.000Z true; "
	if got, want := show(q), after+conflict+edge+end+"4"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	q.Limit = 2
	if got, want := show(q), after+conflict+"4"; got != want {
		t.Errorf("limited: got %s, want %s", got, want)
	}
	q.Limit, q.AfterMs = 10, q.AsOfMs
	if got := show(q); got != "0" {
		t.Errorf("an empty span: %s", got)
	}
	q.Tenant, q.AfterMs = "other", 0
	if got := show(q); got != "0" {
		t.Errorf("another tenant: %s", got)
	}
}
