package aggregator

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

func TestChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var marks []schema.Mark
		for _, tenant := range []string{"a", "b"} {
			window := int64(0)
			for range rapid.IntRange(0, 30).Draw(t, "windows") {
				window += rapid.SampledFrom([]int64{1, 1, 60, 24 * 60}).Draw(t, "step") * schema.MinuteMs
				for id := range rapid.IntRange(1, 4).Draw(t, "marks") {
					count := rapid.SampledFrom([]int{1, 100, 6_000, 50_000, 90_000}).Draw(t, "units")
					marks = append(marks, schema.Mark{Tenant: tenant, WindowMs: window, ID: uint64(id), Count: count})
				}
			}
		}
		parts := chunks(marks)
		if len(slices.Concat(parts...)) != len(marks) || !slices.EqualFunc(slices.Concat(parts...), marks, func(a, b schema.Mark) bool {
			return a.Tenant == b.Tenant && a.WindowMs == b.WindowMs && a.ID == b.ID
		}) {
			t.Fatal("the parts are not the marks")
		}
		for i, part := range parts {
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			first, last := part[0], part[len(part)-1]
			if first.Tenant != last.Tenant {
				t.Fatal("a part of two tenants")
			}
			if i > 0 {
				before := parts[i-1][len(parts[i-1])-1]
				if before.Tenant == first.Tenant && before.WindowMs == first.WindowMs {
					t.Fatal("a window in two parts: two computations of it would have to agree")
				}
			}
			// Only the marks of one window may lie above a bound, and those of
			// the window that reached it.
			units, n := 0, 0
			for _, m := range part {
				if m.WindowMs != last.WindowMs {
					units, n = units+m.Count, n+1
				}
			}
			if units > maxChunkUnits || n > maxChunkMarks {
				t.Fatalf("a part of %d units and %d marks before its last window", units, n)
			}
			if units > fewUnits && last.WindowMs-first.WindowMs > maxChunkMs {
				t.Fatalf("%d units over %d ms in one part", units, last.WindowMs-first.WindowMs)
			}
		}
	})
	var many []schema.Mark
	for i := range 3*maxChunkMarks + 1 {
		many = append(many, schema.Mark{WindowMs: int64(i) * schema.MinuteMs, Count: 1})
	}
	if n := len(chunks(many)); n != 4 {
		t.Errorf("%d marks of small windows made %d parts", len(many), n)
	}
}

func TestDue(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	d, err := NewDriver(Options{Store: nothing{}, HourEvery: time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	marks := []schema.Mark{
		{Tenant: "a", WindowMs: 0, ID: 1, MarkedAtMs: 940_001}, // too young
		{Tenant: "a", WindowMs: 1, ID: 2, MarkedAtMs: 940_000}, // just ripe
		{Tenant: "a", WindowMs: 1, ID: 3, MarkedAtMs: 999_999}, // young, of a ripe hour
		{Tenant: "b", WindowMs: 1, ID: 4, MarkedAtMs: 999_999}, // the same hour of another tenant
	}
	ids := func(marks []schema.Mark) (list []uint64) {
		for _, m := range marks {
			list = append(list, m.ID)
		}
		return list
	}
	if got := ids(d.due(marks, false)); !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("due are %v", got)
	}
	if got := ids(d.due(marks, true)); !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Errorf("due by force are %v", got)
	}
}

func TestTouched(t *testing.T) {
	windows := []int64{0, 60_000, 180_000, 240_000, 600_000}
	event := func(start, end int64) schema.StoredEvent {
		var e schema.StoredEvent
		e.StartMs, e.EndMs = start, end
		return e
	}
	for _, c := range []struct {
		events []schema.StoredEvent
		want   []int64
	}{
		{[]schema.StoredEvent{event(0, 60_000)}, []int64{0}},
		{[]schema.StoredEvent{event(59_999, 60_001)}, []int64{0, 60_000}},
		{[]schema.StoredEvent{event(130_000, 170_000)}, nil},
		{[]schema.StoredEvent{event(200_000, 240_001), event(60_000, 60_001)}, []int64{60_000, 180_000, 240_000}},
		{[]schema.StoredEvent{event(-5, 900_000)}, windows},
		{[]schema.StoredEvent{event(700_000, 900_000)}, nil},
	} {
		var got []int64
		for _, w := range touched(windows, c.events) {
			if w.EndMs != w.StartMs+schema.MinuteMs {
				t.Errorf("window %+v is no minute", w)
			}
			got = append(got, w.StartMs)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v touches %v, want %v", c.events[0].StartMs, got, c.want)
		}
	}
}

func TestNewDriverChecks(t *testing.T) {
	for name, o := range map[string]Options{
		"no store":           {},
		"negative interval":  {Store: nothing{}, Every: -1},
		"negative rest":      {Store: nothing{}, HourEvery: -1},
		"negative threshold": {Store: nothing{}, Threshold: -1},
		"a percentage":       {Store: nothing{}, Threshold: schema.UtilizationOne + 1},
	} {
		if _, err := NewDriver(o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A failed pass is tried again after the usual time, and Run ends with its
// context only.
func TestRunGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{failures: 3}
		d, err := NewDriver(Options{Store: s, Every: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		if s.calls.Load() != 3 || d.Status().Err == nil || !d.Status().Last.IsZero() {
			t.Errorf("after 2 s: %d passes, status %+v", s.calls.Load(), d.Status())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d.Status().Err != nil || d.Status().Last.IsZero() {
			t.Errorf("after the failures: status %+v", d.Status())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// nothing is a store with no marks.
type nothing struct{}

func (nothing) Marks(context.Context, string, int) ([]schema.Mark, error)      { return nil, nil }
func (nothing) WriteMarks(context.Context, []schema.Mark) error                { return nil }
func (nothing) Affected(context.Context, []schema.Mark) ([]schema.Copy, error) { return nil, nil }
func (nothing) UnitEvents(context.Context, []schema.Mark, func([]schema.StoredEvent, *schema.Settlement) error) error {
	return nil
}
func (nothing) CoarseSpans(context.Context, string, int64, int64) ([]schema.Interval, error) {
	return nil, nil
}
func (nothing) PutMinutes(context.Context, string, []schema.Cell) error       { return nil }
func (nothing) MarkHours(context.Context, []schema.Mark, uint64, int64) error { return nil }
func (nothing) PutHours(context.Context, []schema.Mark) error                 { return nil }
func (nothing) ClearMarks(context.Context, []schema.Mark) error               { return nil }

type flaky struct {
	nothing
	failures int32
	calls    atomic.Int32
}

func (s *flaky) Marks(_ context.Context, grain string, _ int) ([]schema.Mark, error) {
	if grain == schema.GrainHour {
		return nil, nil
	}
	if s.calls.Add(1) <= s.failures {
		return nil, errors.New("away")
	}
	return nil, nil
}

// youngHours is a store whose only marks are of hours that must still rest, more
// than are read at once.
type youngHours struct{ Store }

func (youngHours) Marks(_ context.Context, grain string, limit int) ([]schema.Mark, error) {
	if grain != schema.GrainHour {
		return nil, nil
	}
	marks := make([]schema.Mark, limit)
	for i := range marks {
		marks[i] = schema.Mark{Grain: grain, Tenant: "a", WindowMs: int64(i) * schema.HourMs, ID: uint64(i), MarkedAtMs: time.Now().UnixMilli()}
	}
	return marks, nil
}

// Waiting for hours to ripen is not a reason to look again at once.
func TestPassDoesNotSpinOnYoungHours(t *testing.T) {
	d, err := NewDriver(Options{Store: youngHours{}, HourEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	more, err := d.Pass(t.Context(), false)
	if err != nil || more {
		t.Fatalf("more = %v, err = %v, want to rest", more, err)
	}
	if pending := d.Status().Pending; pending != maxMarks {
		t.Errorf("%d hours pending, want %d", pending, maxMarks)
	}
}
