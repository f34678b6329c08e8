package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// says is a clock that stands.
type says int64

func (s says) Now() time.Time              { return time.UnixMilli(int64(s)) }
func (s says) At(real time.Time) time.Time { return real }

// release is one releaser with a database of held events and a stream that notes
// what it is given.
type release struct {
	*releaser
	t    *testing.T
	db   *clickhouse.DB
	sent []schema.Message
	fail func(m *schema.Message) error
}

const firstDue = "2026-03-01T12:11:00Z"

// holding sets n events aside, the first due at firstDue, each a minute later.
func holding(t *testing.T, name string, n int) *release {
	t.Helper()
	r := &release{t: t, db: testkit.DB(t, testkit.Engine(t), name), fail: func(*schema.Message) error { return nil }}
	r.releaser = &releaser{store: r.db, publish: r.take, log: testkit.Logger(t), at: func(string) {}}
	b := r.db.NewBatch()
	for i := range n {
		b.Quarantine(&schema.Position{Tenant: "default", Stream: "USAGE_0", Epoch: 7, StreamSequence: uint64(i), StoredAtNs: testkit.At("2026-03-01T12:01:00Z") * 1e6},
			fmt.Sprint("subject.", i), schema.ContentTypeEvent, &schema.Reject{
				Raw: fmt.Appendf(nil, "event %d", i), Err: &schema.Error{Kind: schema.KindFuture},
				Held: &schema.Held{Source: "agent/1", DueMs: testkit.At(firstDue) + int64(i)*schema.MinuteMs},
			})
	}
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) take(_ context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, len(messages))
	for i := range messages {
		if receipts[i].Err = r.fail(&messages[i]); receipts[i].Err == nil {
			r.sent = append(r.sent, messages[i])
		}
	}
	return receipts, nil
}

// pass runs one pass at an instant and returns what it sent.
func (r *release) passAt(ms int64) (sent []string, more bool, err error) {
	r.clock, r.sent = says(ms), nil
	more, err = r.pass(r.t.Context())
	for _, m := range r.sent {
		sent = append(sent, m.Subject+" "+string(m.Payload))
	}
	return sent, more, err
}

// An event is released once, from its end on and not before.
func TestReleasesWhatIsDue(t *testing.T) {
	r := holding(t, "release", 3)
	first := testkit.At(firstDue)
	for _, step := range []struct {
		at       int64
		want     []string
		held     int64
		released int64
	}{
		{first - 1, nil, 3, 0},
		{first, []string{"subject.0 event 0"}, 2, 1},
		{first, nil, 2, 1},
		{first + schema.MinuteMs - 1, nil, 2, 1},
		{first + schema.HourMs, []string{"subject.1 event 1", "subject.2 event 2"}, 0, 3},
		{first + 2*schema.HourMs, nil, 0, 3},
		{first - schema.HourMs, nil, 0, 3}, // the clock goes back
	} {
		sent, more, err := r.passAt(step.at)
		if err != nil || more || !slices.Equal(sent, step.want) || r.held.Load() != step.held || r.released.Load() != step.released {
			t.Errorf("at %s: sent %q, more %v, %d held, %d released, %v; want %+v", schema.FormatTime(step.at), sent, more, r.held.Load(), r.released.Load(), err, step)
		}
		for _, m := range r.sent {
			if m.ContentType != schema.ContentTypeEvent || m.ID == "" {
				t.Errorf("sent as %+v", m)
			}
		}
	}
	items, err := r.db.Quarantine(t.Context(), "default", 10, false)
	if err != nil || len(items) != 3 || items[2].RedrivenAt != schema.FormatTime(first) || items[0].RedrivenAt != schema.FormatTime(first+schema.HourMs) {
		t.Errorf("noted: %+v, %v", items, err)
	}
}

// Dying between the stream and the note sends the same messages again, under the
// same ids, and the next process notes them.
func TestReleaseDiesBeforeTheNote(t *testing.T) {
	r := holding(t, "dies", 2)
	at := testkit.At(firstDue) + schema.HourMs
	r.at = func(point string) {
		if point == atReleased {
			panic("killed")
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _, _ = r.passAt(at)
	}()
	first := r.sent
	r.at = func(string) {}
	again, _, err := r.passAt(at + 1000)
	if err != nil || len(first) != 2 || len(again) != 2 {
		t.Fatalf("sent %v, then %v, %v", first, again, err)
	}
	for i := range first {
		if first[i].ID != r.sent[i].ID || first[i].ID == first[1-i].ID {
			t.Errorf("ids %s and %s", first[i].ID, r.sent[i].ID)
		}
	}
	if last, _, err := r.passAt(at + 2000); err != nil || len(last) != 0 {
		t.Errorf("noted, and sent again: %v, %v", last, err)
	}
}

// What the stream does not take stays held, and keeps nothing else back.
func TestReleaseIsRefused(t *testing.T) {
	r := holding(t, "refused", 3)
	at := testkit.At(firstDue) + schema.HourMs
	full := errors.New("the stream is full")
	r.fail = func(m *schema.Message) error {
		if m.Subject == "subject.1" {
			return full
		}
		return nil
	}
	sent, more, err := r.passAt(at)
	if !errors.Is(err, full) || !slices.Equal(sent, []string{"subject.0 event 0", "subject.2 event 2"}) || r.held.Load() != 1 || r.released.Load() != 2 {
		t.Errorf("sent %q, more %v, %d held, %v", sent, more, r.held.Load(), err)
	}
	r.publish = func(context.Context, []schema.Message) ([]schema.Receipt, error) { return nil, full }
	if _, _, err := r.passAt(at); !errors.Is(err, full) || r.held.Load() != 1 {
		t.Errorf("no connection: %d held, %v", r.held.Load(), err)
	}
	r.publish, r.fail = r.take, func(*schema.Message) error { return nil }
	if sent, _, err := r.passAt(at); err != nil || !slices.Equal(sent, []string{"subject.1 event 1"}) || r.held.Load() != 0 {
		t.Errorf("then %q, %d held, %v", sent, r.held.Load(), err)
	}
}

// More than one round is released without waiting in between.
func TestReleasesInRounds(t *testing.T) {
	r := holding(t, "rounds", 2*againItems+1)
	at := testkit.At(firstDue) + 100*24*schema.HourMs
	for _, want := range []int{againItems, againItems, 1, 0} {
		sent, more, err := r.passAt(at)
		if err != nil || len(sent) != want || more != (want == againItems) {
			t.Fatalf("sent %d, more %v, %v; want %d", len(sent), more, err, want)
		}
	}
}

func TestGrace(t *testing.T) {
	g := Grace{Tenant: map[string]time.Duration{"a": 72 * time.Hour, "b": 0}}
	for tenant, want := range map[string]time.Duration{"a": 72 * time.Hour, "b": 0, "c": DefaultGrace} {
		if got := g.Of(tenant); got != want {
			t.Errorf("%s: %v, want %v", tenant, got, want)
		}
	}
	if g.Default = time.Hour; g.Of("c") != time.Hour {
		t.Error("the default is not the one given")
	}
	for want, o := range map[string]Options{
		"--future-tolerance": {FutureTolerance: -1}, "--grace": {Grace: Grace{Default: -1}}, "--grace-for a": {Grace: Grace{Tenant: map[string]time.Duration{"a": -1}}},
	} {
		o.Data = t.TempDir()
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
