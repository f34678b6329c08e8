package clickhouse_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// What a batch stores is what is read back, to the last field, whatever is in it
// and however often it is sent.
func TestBatchStoresEveryField(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db := testkit.DB(t, testkit.Engine(t), "batch")
	full := testkit.Usage("GPU-1", "x' OR 1=1 --", "2026-03-01T10:00:00.123Z", "2026-03-01T10:01:00.456Z")
	full.Project, full.Region, full.Platform, full.Model = "漢\\'\"`", "eu\n", "p\t", "{x:String}"
	full.TimeMs, full.Sequence = full.EndMs, 1<<63+5
	full.ActiveMs, full.IdleMs = schema.Some(0), schema.Some(60_000)
	full.Utilization, full.Share = schema.Some(schema.UtilizationOne), schema.Some(schema.ShareOne)
	full.MemoryUsedBytes, full.MemoryTotalBytes, full.EnergyMj = schema.Some(0), schema.Some(1<<41), schema.Some(1<<29)
	full.Labels = schema.Labels{{Key: "a'b", Value: `"quoted"`}, {Key: "😀", Value: strings.Repeat("x", 4000)}}
	bare := schema.Usage{Header: schema.Header{Source: "s", ID: "i"}, Unit: "GPU-2", StartMs: full.StartMs, EndMs: full.StartMs + 1}
	var want []schema.StoredEvent
	for i, u := range []schema.Usage{full, bare} {
		if err := u.Validate(); err != nil {
			t.Fatal(err)
		}
		e := schema.StoredEvent{Usage: u, LabelsText: schema.LabelsJSON(u.Labels), Counted: true}
		e.Payload, _ = u.PayloadHash(nil)
		e.Position = schema.Position{Tenant: "t'1", Stream: "USAGE_0", Epoch: 1<<63 + 1, StreamSequence: 1<<63 + uint64(i), Place: 1<<32 - 1, StoredAtNs: 1_772_359_261_123_456_789}
		want = append(want, e)
	}
	b := db.NewBatch()
	for round := range 3 {
		for i := range want {
			b.Usage(&want[i].Position, &want[i].Usage)
		}
		if b.Rows() != 2 {
			t.Fatalf("%d rows in the batch of round %d", b.Rows(), round)
		}
		for range 2 { // its answer was lost, the same block goes again
			if err := b.WriteRaw(ctx); err != nil {
				t.Fatal(err)
			}
		}
		b.Reset()
	}
	got, more, err := db.Events(ctx, schema.EventQuery{Tenant: "t'1", FromMs: full.StartMs - 1000, ToMs: full.EndMs})
	if err != nil || more != "" {
		t.Fatal(err, more)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	// The path that recomputes reads the same rows by another way, copies and all.
	copies := 0
	err = db.RangeEvents(ctx, "t'1", full.StartMs, full.EndMs, 0, "", func(events []schema.StoredEvent, _ *schema.Settlement) error {
		for _, e := range events {
			w := want[0]
			if e.Unit == bare.Unit {
				w = want[1]
			}
			// Not read there, because computing needs none of them.
			w.TimeMs, w.Sequence, w.MemoryTotalBytes, w.Labels, w.Stream, w.Epoch, w.Counted = 0, 0, schema.Maybe{}, nil, "", 0, false
			if !reflect.DeepEqual(e, w) {
				t.Errorf("recomputing reads\n%+v\nwant\n%+v", e, w)
			}
			copies++
		}
		return nil
	})
	if err != nil || copies < 2 {
		t.Errorf("%d copies: %v", copies, err)
	}
	if other, _, err := db.Events(ctx, schema.EventQuery{Tenant: "t", FromMs: 0, ToMs: full.EndMs}); err != nil || len(other) != 0 {
		t.Errorf("another tenant sees %d events (%v)", len(other), err)
	}
}

// Of the copies of an identity the one that the stream stored first counts, and
// every page of a listing agrees on that.
func TestEventsPagesAndConflicts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db := testkit.DB(t, testkit.Engine(t), "pages")
	b := db.NewBatch()
	const n = 7
	for i := range n {
		u := testkit.Usage(fmt.Sprint("GPU-", i), "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
		for version, at := range []int64{5, 3, 4} {
			u.Utilization = schema.Some(int64(version))
			b.Usage(&schema.Position{Tenant: "default", StreamSequence: uint64(at), StoredAtNs: at * 1e9}, &u)
		}
	}
	if err := b.WriteRaw(ctx); err != nil {
		t.Fatal(err)
	}
	seen, counted := map[string]bool{}, 0
	q := schema.EventQuery{Tenant: "default", FromMs: testkit.At("2026-03-01T10:00:59.999Z"), ToMs: testkit.At("2026-03-01T11:00:00Z"), Limit: 4}
	for pages := 0; ; pages++ {
		events, next, err := db.Events(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			seen[fmt.Sprint(e.Unit, e.Payload)] = true
			if e.Counted {
				counted++
				if e.Utilization.Value != 1 {
					t.Errorf("%s: version %d counts, which was not stored first", e.Unit, e.Utilization.Value)
				}
			}
		}
		if q.After = next; next == "" {
			break
		}
		if pages > 10 {
			t.Fatal("the pages do not end")
		}
	}
	if len(seen) != 3*n || counted != n {
		t.Errorf("%d rows seen of %d, %d count", len(seen), 3*n, counted)
	}
	if _, _, err := db.Events(ctx, schema.EventQuery{Tenant: "default", After: "garbage"}); err == nil {
		t.Error("a cursor of garbage is taken")
	}
}
