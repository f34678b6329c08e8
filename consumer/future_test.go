package consumer

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// An event may end as late as the tolerance says after it was stored, to the
// nanosecond, and is held from there on.
func TestHoldsFromToleranceOn(t *testing.T) {
	endNs := usage(1).EndMs * int64(time.Millisecond)
	for _, tolerance := range []time.Duration{1, time.Millisecond, DefaultFutureTolerance, 292 * 365 * 24 * time.Hour} {
		for name, c := range map[string]struct {
			storedNs int64
			held     bool
		}{
			"exactly":           {endNs - int64(tolerance), false},
			"a nanosecond over": {endNs - int64(tolerance) - 1, true},
			"below":             {endNs - int64(tolerance) + 1, false},
			"at its end":        {endNs, false},
			"long after":        {endNs + int64(time.Hour), false},
		} {
			if c.storedNs < 0 {
				continue // before the first stream there was
			}
			for _, e := range timed(usage(1).StartMs, usage(1).EndMs) {
				got := hold(&schema.Position{StoredAtNs: c.storedNs}, &e, tolerance)
				if (got != nil) != c.held {
					t.Errorf("%s, tolerance %v, %s: held %+v", e.Type(), tolerance, name, got)
				}
				if got != nil && (got.DueMs != usage(1).EndMs || got.Source != "agent/1" || got.AheadMs != (endNs-c.storedNs)/int64(time.Millisecond)) {
					t.Errorf("%s, %s: %+v", e.Type(), name, got)
				}
			}
		}
	}
}

// timed returns one event of each type that is held.
func timed(startMs, endMs int64) []schema.Event {
	h := schema.Header{Source: "agent/1", ID: "1"}
	return []schema.Event{
		{Usage: &schema.Usage{Header: h, Unit: "GPU-1", StartMs: startMs, EndMs: endMs}},
		{Meter: &schema.Meter{Header: h, Instance: "i1", Meter: "egress_bytes", Quantity: "1", StartMs: startMs, EndMs: endMs}},
		{Lease: &schema.Lease{Header: h, Instance: "i1", State: "running", AtMs: endMs}},
	}
}

// An announced outage lies in the future, and a correction may be of anything.
func TestNeverHoldsOutagesAndCorrections(t *testing.T) {
	h := schema.Header{Source: "agent/1", ID: "1", TimeMs: schema.MaxTimeMs - 1}
	far := timed(usage(1).StartMs, schema.MaxTimeMs-1)[0]
	for _, e := range []schema.Event{
		{Outage: &schema.Outage{Header: h, Platform: "p", StartMs: schema.MaxTimeMs - 2, EndMs: schema.MaxTimeMs - 1}},
		{Correction: &schema.Correction{Header: h, CorrectsSource: "s", CorrectsID: "i", Action: "replace", Replacement: &far, Actor: "a"}},
	} {
		if got := hold(&schema.Position{StoredAtNs: storedNs}, &e, 1); got != nil {
			t.Errorf("%s is held: %+v", e.Type(), got)
		}
	}
}

// How far the clock of the source is ahead is at least what its end says, and what
// the time says that it was made at.
func TestClockOffsetOfHeld(t *testing.T) {
	e := timed(usage(1).StartMs, usage(1).EndMs)[0]
	at := &schema.Position{StoredAtNs: (usage(1).EndMs-600_000)*int64(time.Millisecond) + 1}
	for timeMs, want := range map[int64]int64{0: 599_999, usage(1).StartMs: 599_999, usage(1).EndMs + 2000: 601_999} {
		e.Usage.TimeMs = timeMs
		if got := hold(at, &e, DefaultFutureTolerance); got == nil || got.AheadMs != want {
			t.Errorf("made at %d: %+v, want %d ms ahead", timeMs, got, want)
		}
	}
}

// Of any events stored at any time, each is either stored or held, as exact
// arithmetic says, and again so when the same message comes once more.
func TestEveryEventIsStoredOrHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tolerance := time.Duration(rapid.OneOf(rapid.Int64Range(1, int64(time.Hour)), rapid.Int64Range(1, 1<<62)).Draw(t, "tolerance"))
		base := rapid.Int64Range(schema.MinTimeMs, schema.MaxTimeMs-1).Draw(t, "base") * int64(time.Millisecond)
		stored := base + rapid.Int64Range(0, 999_999).Draw(t, "nanoseconds")
		var events []schema.Usage
		want := map[string]bool{}
		for n := range rapid.IntRange(1, 6).Draw(t, "events") {
			u := usage(n)
			u.EndMs = rapid.OneOf(
				rapid.Int64Range(schema.MinTimeMs+1, schema.MaxTimeMs-1),
				rapid.Map(rapid.Int64Range(-2, 2), func(d int64) int64 {
					return min(max((stored+int64(min(tolerance, 1<<60)))/int64(time.Millisecond)+d, schema.MinTimeMs+1), schema.MaxTimeMs-1)
				}),
			).Draw(t, "end")
			u.StartMs = u.EndMs - 1
			latest := new(big.Int).Add(big.NewInt(stored), big.NewInt(int64(tolerance)))
			want[u.ID] = new(big.Int).Mul(big.NewInt(u.EndMs), big.NewInt(int64(time.Millisecond))).Cmp(latest) > 0
			events = append(events, u)
		}
		payload, err := schema.EncodeCompact(events)
		if err != nil {
			t.Fatal(err)
		}
		l := &load{batch: &batch{s: &storage{}}, touched: touched{minutes: map[minute]*units{}}, tolerance: tolerance}
		d := schema.Delivery{
			Subject: "gpumeter.v1.default.agent~2F1.usage", ContentType: schema.ContentTypeCompact, Payload: payload,
			Position: schema.Position{StreamSequence: 1, StoredAtNs: stored},
		}
		l.take(&d)
		l.take(&d)
		rows := l.batch.(*batch).rows
		if len(rows) != 2*len(events) || !slices.Equal(rows[:len(events)], rows[len(events):]) {
			t.Fatalf("taken twice: %q", rows)
		}
		got := map[string]int{}
		for _, r := range rows[:len(events)] {
			got[r]++
		}
		marked := map[uint64]bool{}
		for _, m := range l.touched.marks(func() uint64 { return 1 }, 1) {
			for _, u := range m.Units {
				marked[u] = true
			}
		}
		for n, u := range events {
			isStored := got[fmt.Sprintf("default usage agent/1/%s @1.%d", u.ID, n)]
			isHeld := got[fmt.Sprintf("default quarantine future gpumeter.v1.default.agent~2F1.usage @1.%d %s until %d", n, schema.ContentTypeEvent, u.EndMs)]
			if isStored+isHeld != 1 || (isHeld == 1) != want[u.ID] || marked[schema.UnitHash(u.Unit)] == want[u.ID] {
				t.Fatalf("event %d is stored %d times and held %d times, want held %v: %q", n, isStored, isHeld, want[u.ID], rows)
			}
		}
		if l.events+l.quarantined != 2*int64(len(events)) {
			t.Fatalf("%d stored and %d set aside of %d", l.events, l.quarantined, 2*len(events))
		}
	})
}

// What is held is kept whole, says why, and is the same event when it comes again.
func TestHeldKeepsTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{FutureTolerance: 5 * time.Minute})
		u := usage(1)
		u.StartMs, u.EndMs = u.StartMs+10*60_000, u.EndMs+10*60_000
		lease := &schema.Event{Lease: &schema.Lease{Header: schema.Header{Source: "agent/1", ID: "l"}, Instance: "i1", State: "running", AtMs: u.EndMs}}
		subject := schema.Address{Tenant: "default", Source: "agent/1", Kind: "mixed"}.Subject()
		original := string(schema.EncodeEvent(&schema.Event{Usage: &u}))
		batch := "[" + original + "," + string(schema.EncodeEvent(lease)) + "]"
		s.in <- s.delivery(subject, schema.ContentTypeBatch, []byte(batch))
		time.Sleep(time.Second)
		s.stop()
		if len(s.rejects) != 2 || len(s.settled) != 1 || len(s.marks) != 0 {
			t.Fatalf("rejects %v, settled %v, marks %v", s.rejects, s.settled, s.marks)
		}
		for i, r := range s.rejects {
			decoded, err := schema.DecodeEvent(r.Raw)
			if err != nil {
				t.Fatal(err)
			}
			want := schema.Event{Usage: &u}
			if i == 1 {
				want = *lease
			}
			if decoded.PayloadHash() != want.PayloadHash() || *decoded.Header() != *want.Header() || r.Held.DueMs != u.EndMs {
				t.Errorf("held %s until %d, want %s", r.Raw, r.Held.DueMs, original)
			}
			field := []string{"data.end", "data.at"}[i]
			for _, say := range []string{"future: " + field, `the clock of "agent/1" is ahead by at least 9m59.999s`, schema.FormatTime(u.EndMs), "(event agent/1/"} {
				if !strings.Contains(r.Err.Error(), say) {
					t.Errorf("the reason does not say %q: %v", say, r.Err)
				}
			}
		}
	})
}
