package producer

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// byIdentity maps each event's identity to what it says.
func byIdentity(events []schema.Usage) map[string]schema.Hash {
	all := map[string]schema.Hash{}
	for i := range events {
		all[events[i].ID], _ = events[i].PayloadHash(nil)
	}
	return all
}

// The past, metered at once, gives the events that running through it would have
// given; a second time adds nothing; and Run goes on from there without a gap.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(26*time.Hour + 3*time.Second)
		stream := &fakeStream{}
		p := newProducer(t, Options{Source: boards{n: 3}, Stream: stream})
		from := time.Now().Add(-24 * time.Hour)
		must(t, p.Backfill(context.Background(), from, time.Time{}))
		must(t, p.Backfill(context.Background(), from, time.Time{}))
		runFor(t, p, 98*time.Second)
		events := stream.check(t)
		last := map[string]int64{}
		var energy int64
		for i := range events {
			u := &events[i]
			if end, ok := last[u.Unit]; ok && u.StartMs != end {
				t.Fatalf("%s: hole or overlap of %d ms at %s", u.Unit, u.StartMs-end, schema.FormatTime(u.StartMs))
			}
			last[u.Unit] = u.EndMs
			energy += u.EnergyMj.Value
		}
		// From the next whole minute: 24 h - 57 s, and the run up to its last tick.
		want := 3 * (24*time.Hour - 57*time.Second + 98*time.Second).Truncate(10*time.Second)
		if got := covered(events); got != want {
			t.Errorf("covered %s, want %s", got, want)
		}
		if energy != int64(covered(events)/time.Millisecond)*300 {
			t.Errorf("%d mJ in %s", energy, covered(events))
		}
	})
}

// Interrupted at any place and taken up by a new process, the result is the same
// time covered once; and over a lost spool the same identities say the same.
func TestBackfillIsResumable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * time.Hour)
		from := time.Now().Add(-6 * time.Hour)
		whole := &fakeStream{}
		p := newProducer(t, Options{Source: boards{n: 2}, Stream: whole})
		must(t, p.Backfill(context.Background(), from, time.Time{}))
		runFor(t, p, time.Second) // sends the rest

		path := filepath.Join(t.TempDir(), "spool")
		stream := &fakeStream{}
		for i := range 4 {
			spool := openSpool(t, SpoolOptions{Path: path})
			p = newProducer(t, Options{Source: boards{n: 2}, Stream: stream, Spool: spool})
			to := from.Add(time.Duration(i+1)*80*time.Minute + 30*time.Second)
			must(t, p.Backfill(context.Background(), from, to))
			must(t, spool.Close()) // as a kill would leave it: the open minute is in the spool
		}
		p = newProducer(t, Options{Source: boards{n: 2}, Stream: stream, Spool: openSpool(t, SpoolOptions{Path: path})})
		must(t, p.Backfill(context.Background(), from, time.Time{}))
		runFor(t, p, time.Second)
		if got, want := covered(stream.check(t)), 2*6*time.Hour; got != want {
			t.Errorf("covered %s, want %s", got, want)
		}

		stepwise := &fakeStream{}
		p = newProducer(t, Options{Source: boards{n: 2}, Stream: stepwise})
		for i := range 6 {
			must(t, p.Backfill(context.Background(), from, from.Add(time.Duration(i+1)*50*time.Minute+20*time.Second)))
		}
		must(t, p.Backfill(context.Background(), from, time.Time{}))
		runFor(t, p, time.Second)
		if !maps.Equal(byIdentity(stepwise.check(t)), byIdentity(whole.check(t))) {
			t.Errorf("in steps of one process: %d events, at once: %d, or with other contents", len(stepwise.events), len(whole.events))
		}

		p = newProducer(t, Options{Source: boards{n: 2}, Stream: whole})
		before := len(whole.events)
		must(t, p.Backfill(context.Background(), from.Add(3*time.Hour), time.Time{}))
		runFor(t, p, time.Second)
		if len(whole.events) != before || len(whole.faults) != 0 || whole.repeats != before/2 {
			t.Errorf("a second run over a new spool made %d new events and %d repeats, %v", len(whole.events)-before, whole.repeats, whole.faults)
		}
		if len(byIdentity(whole.events)) != len(whole.events) {
			t.Error("an identity twice")
		}
	})
}

func TestBackfillNeedsHistory(t *testing.T) {
	p := newProducer(t, Options{Source: present{boards{n: 1}}, Stream: &fakeStream{}})
	if err := p.Backfill(context.Background(), time.Now().Add(-time.Hour), time.Now()); !errors.Is(err, ErrNoHistory) {
		t.Errorf("%v", err)
	}
}

func BenchmarkBackfillDay(b *testing.B) {
	for b.Loop() {
		p := newProducer(b, Options{Source: boards{n: 8}, Stream: &fakeStream{}})
		to := time.UnixMilli(testDay).Add(24 * time.Hour)
		if err := p.Backfill(context.Background(), time.UnixMilli(testDay), to); err != nil {
			b.Fatal(err)
		}
	}
}
