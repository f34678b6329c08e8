package consumer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// storage is what a consumer writes to. It notes every step in order, and fails
// as many calls as it is told to.
type storage struct {
	mu        sync.Mutex
	steps     []string
	rows      []string // that are on disk
	attempts  [][]string
	marks     []schema.Mark
	rejects   []schema.Reject
	settled   []string
	failRaw   int
	failMarks int
	// block, when set, makes WriteRaw wait for it or for the end of the context.
	block chan struct{}
}

func (s *storage) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step)
}

func (s *storage) state() (rows, settled []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rows), slices.Clone(s.settled)
}

type batch struct {
	s    *storage
	rows []string
}

func (b *batch) Usage(at *schema.Position, u *schema.Usage) {
	b.rows = append(b.rows, fmt.Sprintf("%s usage %s/%s @%d.%d", at.Tenant, u.Source, u.ID, at.StreamSequence, at.Place))
}

func (b *batch) Other(at *schema.Position, e *schema.Event) {
	b.rows = append(b.rows, fmt.Sprintf("%s %s %s/%s @%d.%d", at.Tenant, schema.Kinds[e.Type()], e.Header().Source, e.Header().ID, at.StreamSequence, at.Place))
}

func (b *batch) Quarantine(at *schema.Position, subject, contentType string, r *schema.Reject) {
	row := fmt.Sprintf("%s quarantine %s %s @%d.%d %s", at.Tenant, schema.KindOf(r.Err), subject, at.StreamSequence, r.Place, contentType)
	if r.Held != nil {
		row += fmt.Sprint(" until ", r.Held.DueMs)
	}
	b.rows = append(b.rows, row)
	b.s.rejects = append(b.s.rejects, *r)
}

func (b *batch) Rows() int { return len(b.rows) }
func (b *batch) Reset()    { b.rows = b.rows[:0] }

func (b *batch) WriteRaw(ctx context.Context) error {
	if b.s.block != nil {
		select {
		case <-b.s.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.attempts = append(b.s.attempts, slices.Clone(b.rows))
	if b.s.failRaw > 0 {
		b.s.failRaw--
		b.s.steps = append(b.s.steps, "raw failed")
		return errors.New("storage is away")
	}
	b.s.steps = append(b.s.steps, fmt.Sprintf("raw %d", len(b.rows)))
	b.s.rows = append(b.s.rows, b.rows...)
	return nil
}

func (s *storage) WriteMarks(_ context.Context, marks []schema.Mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failMarks > 0 {
		s.failMarks--
		s.steps = append(s.steps, "marks failed")
		return errors.New("storage is away")
	}
	s.steps = append(s.steps, fmt.Sprintf("marks %d", len(marks)))
	s.marks = append(s.marks, marks...)
	return nil
}

// stage is a running consumer in virtual time.
type stage struct {
	*testing.T
	*storage
	c    *Consumer
	in   chan schema.Delivery
	stop func() error
	sent uint64
}

func start(t *testing.T, s *storage, o Options) *stage {
	t.Helper()
	in := make(chan schema.Delivery)
	o.Deliveries, o.Marks, o.NewBatch = in, s, func() Batch { return &batch{s: s} }
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return &stage{T: t, storage: s, c: c, in: in, stop: func() error { cancel(); return <-done }}
}

func (s *stage) delivery(subject, contentType string, payload []byte) schema.Delivery {
	s.sent++
	n := s.sent
	return schema.Delivery{
		Subject: subject, ContentType: contentType, Payload: payload,
		Position: schema.Position{Stream: "USAGE_0", StreamSequence: n, StoredAtNs: storedNs + int64(n)},
		Settle: func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.steps = append(s.steps, fmt.Sprint("settle ", n))
			s.settled = append(s.settled, fmt.Sprint(n))
			return nil
		},
	}
}

func (s *stage) send(events ...schema.Usage) {
	s.Helper()
	payload, err := schema.EncodeCompact(events)
	if err != nil {
		s.Fatal(err)
	}
	a := schema.Address{Tenant: "default", Source: events[0].Source, Kind: "usage"}
	s.in <- s.delivery(a.Subject(), schema.ContentTypeCompact, payload)
}

// storedNs is when the stream stored the messages: just after their minute.
const storedNs = 1_772_359_260_000 * int64(time.Millisecond)

// usage is the event of a minute; n tells them apart.
func usage(n int) schema.Usage {
	u := schema.Usage{Unit: fmt.Sprint("GPU-", n), StartMs: 1_772_359_200_000, EndMs: 1_772_359_260_000}
	u.Source, u.ID = "agent/1", fmt.Sprint(n)
	return u
}

// The guarantee, read off what happened: rows, then marks, then settling.
func TestSettlesOnlyAfterRowsAndMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storage{}
		s := start(t, store, Options{At: store.note})
		s.send(usage(1), usage(2))
		s.send(usage(3))
		time.Sleep(time.Second)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		want := []string{AtBeforeInsert, "raw 3", AtRawBeforeDirty, "marks 1", AtDirtyBeforeAck, "settle 1", AtDuringAck, "settle 2", AtSettled}
		if !slices.Equal(s.steps, want) {
			t.Errorf("steps %q, want %q", s.steps, want)
		}
		st := s.c.Stats()
		if st.Messages != 2 || st.Events != 3 || st.Batches != 1 || st.Quarantined != 0 || st.Failures != 0 || st.LastSettled.IsZero() {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestNothingIsSettledWhileStorageFails(t *testing.T) {
	for name, c := range map[string]struct {
		failRaw, failMarks int
		steps              []string
	}{
		"raw rows": {3, 0, []string{"raw failed", "raw failed", "raw failed", "raw 1", "marks 1", "settle 1"}},
		// The raw rows are on disk by then and are not sent again.
		"marks": {0, 3, []string{"raw 1", "marks failed", "marks failed", "marks failed", "marks 1", "settle 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &storage{failRaw: c.failRaw, failMarks: c.failMarks}
				s := start(t, store, Options{MaxRows: 1})
				s.send(usage(1))
				synctest.Wait() // the first attempt has failed and the second waits
				if _, settled := s.state(); len(settled) != 0 {
					t.Errorf("settled %v before storing", settled)
				}
				if st := s.c.Stats(); st.Failures != 1 || st.Waiting == nil || st.Messages != 0 {
					t.Errorf("stats while it waits: %+v", st)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if st := s.c.Stats(); st.Failures != 3 || st.Waiting != nil || st.Messages != 1 {
					t.Errorf("stats after it was stored: %+v", st)
				}
				s.stop()
				if !slices.Equal(s.steps, c.steps) {
					t.Errorf("steps %q, want %q", s.steps, c.steps)
				}
				for _, rows := range s.attempts {
					if !slices.Equal(rows, s.attempts[0]) {
						t.Errorf("the rows of two attempts differ: %q", s.attempts)
					}
				}
			})
		})
	}
}

// An outage of any length only makes the messages wait, and the consumer takes
// no more of them than the two batches that it has.
func TestTakesNoMoreWhileStorageIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storage{failRaw: 1 << 30}
		s := start(t, store, Options{MaxRows: 1})
		taken := 0
		for range 10 {
			d := schema.MessageOf("default", &schema.Event{Usage: ptr(usage(taken))})
			select {
			case s.in <- s.delivery(d.Subject, d.ContentType, d.Payload):
				taken++
			case <-time.After(time.Hour):
			}
		}
		if taken != 2 {
			t.Errorf("%d messages were taken", taken)
		}
		s.mu.Lock()
		s.failRaw = 0
		s.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if rows, settled := s.state(); len(rows) != 2 || len(settled) != 2 {
			t.Errorf("after the outage rows %q, settled %q", rows, settled)
		}
		s.stop()
	})
}

func ptr[T any](v T) *T { return &v }

func TestBatchIsWrittenWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{MaxRows: 3, MaxAge: time.Hour})
		s.send(usage(1), usage(2))
		synctest.Wait()
		if rows, _ := s.state(); len(rows) != 0 {
			t.Errorf("2 rows of 3 were written: %q", rows)
		}
		s.send(usage(3), usage(4)) // a message is never divided
		s.send(usage(5), usage(6), usage(7))
		synctest.Wait()
		if want := []string{"raw 4", "marks 1", "settle 1", "settle 2", "raw 3", "marks 1", "settle 3"}; !slices.Equal(s.steps, want) {
			t.Errorf("steps %q, want %q", s.steps, want)
		}
		s.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		payload, _ := schema.EncodeCompact([]schema.Usage{usage(1)})
		s := start(t, &storage{}, Options{MaxBytes: 2 * len(payload), MaxAge: time.Hour})
		s.send(usage(1))
		synctest.Wait()
		if rows, _ := s.state(); len(rows) != 0 {
			t.Errorf("written at half of the bytes: %q", rows)
		}
		s.send(usage(2))
		synctest.Wait()
		if want := []string{"raw 2", "marks 1", "settle 1", "settle 2"}; !slices.Equal(s.steps, want) {
			t.Errorf("steps %q, want %q", s.steps, want)
		}
		s.stop()
	})
}

func TestBatchIsWrittenWhenOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{MaxAge: 500 * time.Millisecond, MaxRows: 3})
		s.send(usage(1))
		time.Sleep(400 * time.Millisecond)
		s.send(usage(2)) // later messages do not put it off
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if rows, _ := s.state(); len(rows) != 0 {
			t.Errorf("written before its age: %q", rows)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if rows, settled := s.state(); len(rows) != 2 || len(settled) != 2 {
			t.Errorf("at its age rows %q, settled %q", rows, settled)
		}
		// A full batch leaves no running timer to its successor.
		s.send(usage(3), usage(4), usage(5))
		time.Sleep(400 * time.Millisecond)
		s.send(usage(6))
		time.Sleep(499 * time.Millisecond)
		synctest.Wait()
		if rows, _ := s.state(); len(rows) != 5 {
			t.Errorf("the timer of an earlier batch wrote a later one: %q", rows)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if rows, _ := s.state(); len(rows) != 6 {
			t.Errorf("rows %q", rows)
		}
		// And nothing is written when nothing came.
		n := len(s.steps)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.steps) != n {
			t.Errorf("an idle consumer did %q", s.steps[n:])
		}
		s.stop()
	})
}

func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{})
		good := func(n int) string { return string(schema.EncodeEvent(&schema.Event{Usage: ptr(usage(n))})) }
		foreign := usage(7)
		foreign.Source = "agent/2"
		lease := &schema.Event{Lease: &schema.Lease{Instance: "i1", AtMs: usage(1).StartMs, State: "running"}}
		lease.Lease.Source, lease.Lease.ID = "agent/1", "l1"
		foreignLease := &schema.Event{Lease: ptr(*lease.Lease)}
		foreignLease.Lease.Source = "agent/3"
		const subject = "gpumeter.v1.t~2F1.agent~2F1.mixed"
		foreignBatch, _ := schema.EncodeCompact([]schema.Usage{foreign, foreign})
		for _, d := range []schema.Delivery{
			s.delivery(subject, schema.ContentTypeEvent, []byte("{")),
			s.delivery("other.subject", schema.ContentTypeEvent, []byte(good(1))),
			s.delivery(subject, schema.ContentTypeBatch, []byte("["+strings.Join([]string{
				good(1), "5", string(schema.EncodeEvent(&schema.Event{Usage: &foreign})), string(schema.EncodeEvent(lease)),
				string(schema.EncodeEvent(foreignLease)), good(2)}, ",")+"]")),
			s.delivery(subject, schema.ContentTypeCompact, foreignBatch),
			s.delivery(subject, "image/png", []byte("x")),
			s.delivery(subject, "", nil),
			s.delivery(subject, "", []byte(good(3))),
		} {
			s.in <- d
		}
		time.Sleep(time.Second)
		s.stop()
		rows, settled := s.state()
		want := []string{
			"t/1 quarantine malformed " + subject + " @1.0 " + schema.ContentTypeEvent,
			" quarantine misdirected other.subject @2.-1 " + schema.ContentTypeEvent,
			"t/1 usage agent/1/1 @3.0",
			"t/1 quarantine misdirected " + subject + " @3.2 " + schema.ContentTypeEvent,
			"t/1 usage agent/1/2 @3.5",
			"t/1 lease agent/1/l1 @3.3",
			"t/1 quarantine misdirected " + subject + " @3.4 " + schema.ContentTypeEvent,
			"t/1 quarantine invalid_value " + subject + " @3.1 " + schema.ContentTypeEvent,
			"t/1 quarantine misdirected " + subject + " @4.0 " + schema.ContentTypeEvent,
			"t/1 quarantine misdirected " + subject + " @4.1 " + schema.ContentTypeEvent,
			"t/1 quarantine malformed " + subject + " @5.-1 image/png",
			"t/1 quarantine malformed " + subject + " @6.0 " + schema.ContentTypeEvent,
			"t/1 usage agent/1/3 @7.0",
		}
		if !slices.Equal(rows, want) {
			t.Errorf("rows\n  %s\nwant\n  %s", strings.Join(rows, "\n  "), strings.Join(want, "\n  "))
		}
		if len(settled) != 7 {
			t.Errorf("settled %v of 7", settled)
		}
		if st := s.c.Stats(); st.Events != 4 || st.Quarantined != 9 {
			t.Errorf("stats %+v", st)
		}
		// What was not taken touches no window.
		for _, m := range s.marks {
			if m.Tenant != "t/1" || len(m.Units) != 3 {
				t.Errorf("mark %+v", m)
			}
		}
	})
}

func TestNothingIsSettledAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{MaxAge: time.Hour})
		s.send(usage(1)) // collected, and not due
		synctest.Wait()
		if err := s.stop(); err != nil {
			t.Errorf("ending is no error: %v", err)
		}
		if len(s.steps) != 0 {
			t.Errorf("at the end it did %q", s.steps)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{block: make(chan struct{})}, Options{MaxRows: 1})
		s.send(usage(1)) // being written
		s.send(usage(2)) // waiting for its turn
		synctest.Wait()
		if err := s.stop(); err != nil {
			t.Errorf("ending is no error: %v", err)
		}
		if len(s.steps) != 0 {
			t.Errorf("at the end it did %q", s.steps)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{failMarks: 1 << 30}, Options{MaxRows: 1})
		s.send(usage(1)) // its rows are stored, its marks cannot be
		time.Sleep(time.Minute)
		s.stop()
		if _, settled := s.state(); len(settled) != 0 {
			t.Errorf("settled %q without marks", settled)
		}
	})
}

// A lost acknowledgement is a redelivery; the consumer goes on.
func TestSettleFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{MaxRows: 2})
		d := s.delivery("gpumeter.v1.default.agent~2F1.usage", "", schema.EncodeEvent(&schema.Event{Usage: ptr(usage(1))}))
		d.Settle = func() error { return errors.New("connection lost") }
		s.in <- d
		s.send(usage(2))
		s.send(usage(3), usage(4))
		synctest.Wait()
		if rows, settled := s.state(); len(rows) != 4 || !slices.Equal(settled, []string{"3"}) {
			t.Errorf("rows %q, settled %q", rows, settled)
		}
		s.stop()
	})
}

func TestMarksCoverWhatEventsTouch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := touched{minutes: map[minute]*units{}}
		type key struct {
			tenant string
			ms     int64
		}
		want := map[key]map[uint64]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			tenant := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			u := usage(rapid.IntRange(1, 3).Draw(t, "unit"))
			u.StartMs += rapid.Int64Range(-90_000, 90_000).Draw(t, "start")
			u.EndMs = u.StartMs + rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 200_000)).Draw(t, "length")
			set.add(tenant, &u)
			// Minute by minute over more than the whole span: does it overlap?
			for ms := int64(1_772_359_200_000 - 300_000); ms < 1_772_359_200_000+600_000; ms += 60_000 {
				if u.StartMs < ms+60_000 && u.EndMs > ms {
					if want[key{tenant, ms}] == nil {
						want[key{tenant, ms}] = map[uint64]bool{}
					}
					want[key{tenant, ms}][schema.UnitHash(u.Unit)] = true
				}
			}
		}
		calls := 0
		marks := set.marks(func() uint64 { calls++; return 77 }, 5)
		got := map[key]map[uint64]bool{}
		for i, m := range marks {
			if m.Grain != schema.GrainMinute || m.ID != 77 || m.MarkedAtMs != 5 {
				t.Fatalf("mark %+v", m)
			}
			if i > 0 && (m.Tenant < marks[i-1].Tenant || m.Tenant == marks[i-1].Tenant && m.WindowMs <= marks[i-1].WindowMs) {
				t.Fatal("marks are out of order or there twice")
			}
			got[key{m.Tenant, m.WindowMs}] = map[uint64]bool{}
			for _, u := range m.Units {
				if got[key{m.Tenant, m.WindowMs}][u] {
					t.Fatal("a unit is there twice")
				}
				got[key{m.Tenant, m.WindowMs}][u] = true
			}
		}
		if calls != 1 || !reflect.DeepEqual(got, want) {
			t.Fatalf("marks %v, want %v", got, want)
		}
	})
}

// The marks of a batch are those of its events, none left over from the batch
// that used the memory before, and every flush has an id of its own.
func TestMarksOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &storage{}, Options{MaxRows: 1})
		for n := range 4 {
			u := usage(n)
			u.StartMs += int64(n) * 60_000
			u.EndMs += int64(n) * 60_000
			s.send(u)
			synctest.Wait()
		}
		s.stop()
		ids := map[uint64]bool{}
		for n, m := range s.marks {
			ids[m.ID] = true
			if m.WindowMs != usage(0).StartMs+int64(n)*60_000 || !slices.Equal(m.Units, []uint64{schema.UnitHash(fmt.Sprint("GPU-", n))}) {
				t.Errorf("mark %d is %+v", n, m)
			}
		}
		if len(s.marks) != 4 || len(ids) != 4 {
			t.Errorf("%d marks with %d ids", len(s.marks), len(ids))
		}
	})
}

func TestNewChecks(t *testing.T) {
	in := make(chan schema.Delivery)
	ok := Options{Deliveries: in, NewBatch: func() Batch { return &batch{} }, Marks: &storage{}}
	for name, spoil := range map[string]func(*Options){
		"no deliveries": func(o *Options) { o.Deliveries = nil },
		"no batches":    func(o *Options) { o.NewBatch = nil },
		"no marks":      func(o *Options) { o.Marks = nil },
		"rows":          func(o *Options) { o.MaxRows = -1 },
		"bytes":         func(o *Options) { o.MaxBytes = -1 },
		"age":           func(o *Options) { o.MaxAge = -1 },
		"tolerance":     func(o *Options) { o.FutureTolerance = -1 },
	} {
		o := ok
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := New(ok); err != nil {
		t.Error(err)
	}
}
