package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// keptWorld computes answers that say how often they were computed, of data whose state a
// test sets.
type keptWorld struct {
	*kept
	state    atomic.Int64
	computed atomic.Int64
	takes    atomic.Int64 // nanoseconds
	fails    atomic.Bool
}

func newKeptWorld(most int) *keptWorld {
	w := &keptWorld{}
	w.kept = newKept(func(context.Context) (string, error) { return fmt.Sprint(w.state.Load()), nil }, slog.New(slog.DiscardHandler), most)
	return w
}

func (w *keptWorld) compute(context.Context) (any, error) {
	time.Sleep(time.Duration(w.takes.Load()))
	if w.fails.Load() {
		return nil, errors.New("away")
	}
	return w.computed.Add(1), nil
}

func (w *keptWorld) ask(t *testing.T, name string, moving bool) any {
	t.Helper()
	v, err := w.get(t.Context(), name, moving, w.compute)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Five hundred who ask at once, and go on asking, cost what one does.
func TestManyAskOneComputes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(10)
		w.takes.Store(int64(time.Second))
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { w.ask(t, "q", true) })
		}
		all.Wait()
		if n := w.computed.Load(); n != 1 {
			t.Errorf("computed %d times for 500 who asked at once", n)
		}
		time.Sleep(3 * time.Second) // nothing has changed
		if v := w.ask(t, "q", true); v != int64(1) || w.computed.Load() != 1 {
			t.Errorf("%v, computed %d times though nothing has changed", v, w.computed.Load())
		}
	})
}

// What has changed is computed again in the background; whoever asks meanwhile gets the
// answer before, and whoever asks later the new one. An old one nobody gets.
func TestChangedIsComputedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(10)
		w.takes.Store(int64(100 * time.Millisecond))
		w.ask(t, "q", false)
		w.state.Add(1)
		if v := w.ask(t, "q", false); v != int64(1) {
			t.Errorf("%v at once after a change, want the answer before: there is time between two", v)
		}
		time.Sleep(2 * calmFor)
		if v := w.ask(t, "q", false); v != int64(1) {
			t.Errorf("%v, want the answer before while the new one is computed", v)
		}
		time.Sleep(time.Second)
		if v := w.ask(t, "q", false); v != int64(2) {
			t.Errorf("%v, want the new answer", v)
		}
		w.state.Add(1)
		time.Sleep(staleFor + time.Minute)
		if v := w.ask(t, "q", false); v != int64(3) {
			t.Errorf("%v, want one that is waited for: the one before is too old", v)
		}
		// One that depends on the time is computed again though nothing has changed; one
		// that does not is not.
		w.ask(t, "moving", true)
		time.Sleep(movingFor + time.Second)
		w.ask(t, "moving", true)
		w.ask(t, "q", false)
		time.Sleep(time.Second)
		if v, still := w.ask(t, "moving", true), w.ask(t, "q", false); v != int64(5) || still != int64(3) {
			t.Errorf("of now %v, of a fixed span %v, want 5 and 3", v, still)
		}
	})
}

// An error is told, and not kept.
func TestErrorsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(10)
		w.fails.Store(true)
		if _, err := w.get(t.Context(), "q", false, w.compute); err == nil {
			t.Error("no error")
		}
		w.fails.Store(false)
		if v := w.ask(t, "q", false); v != int64(1) {
			t.Errorf("%v after the error", v)
		}
		if _, err := w.get(t.Context(), "panic", false, func(context.Context) (any, error) { panic("x") }); err == nil {
			t.Error("a panic is no error")
		}
		// Somebody who does not wait does not stop what others wait for.
		w.takes.Store(int64(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.get(ctx, "slow", false, w.compute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that it took too long", err)
		}
		time.Sleep(2 * time.Second)
		before := w.computed.Load()
		w.ask(t, "slow", false)
		if w.computed.Load() != before {
			t.Error("computed again, though it was there")
		}
	})
}

// Watchers get every change, each once, and cost one computation together; without any,
// and when nobody has asked for long, nothing is computed.
func TestWatchersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(10)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = w.run(ctx) }()
		watching, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var shown, alive atomic.Int64
		for range 500 {
			all.Go(func() {
				var last int64
				_ = w.watch(watching, "q", heartbeatEvery, w.compute, func(v any) error {
					if v.(int64) <= last {
						t.Errorf("%d after %d", v, last)
					}
					last = v.(int64)
					shown.Add(1)
					return nil
				}, func() error { alive.Add(1); return nil })
			})
		}
		synctest.Wait()
		if shown.Load() != 500 || w.computed.Load() != 1 {
			t.Errorf("%d shown and %d computed at first", shown.Load(), w.computed.Load())
		}
		for range 3 {
			w.state.Add(1)
			time.Sleep(5 * time.Second)
		}
		if shown.Load() != 4*500 || w.computed.Load() != 4 {
			t.Errorf("%d shown and %d computed after three changes", shown.Load(), w.computed.Load())
		}
		if alive.Load() == 0 {
			t.Error("no sign of life in between")
		}
		leave()
		all.Wait()
		time.Sleep(2 * warmFor)
		before := w.computed.Load()
		time.Sleep(2 * warmFor)
		if w.computed.Load() != before || w.wanted() {
			t.Errorf("%d computations, entries left: %v, and nobody asks", w.computed.Load()-before, w.wanted())
		}
	})
}

// No more answers are kept than there may be, and those that are watched stay.
func TestKeptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKeptWorld(3)
		watching, leave := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			_ = w.watch(watching, "watched", time.Minute, w.compute, func(any) error { return nil }, func() error { return nil })
		})
		synctest.Wait()
		for i := range 20 {
			time.Sleep(time.Millisecond)
			w.ask(t, fmt.Sprint("q", i), false)
		}
		w.mu.Lock()
		n, watched := len(w.entries), w.entries["watched"] != nil
		w.mu.Unlock()
		if n > 3 || !watched {
			t.Errorf("%d entries, the watched one among them: %v", n, watched)
		}
		leave()
		done.Wait()
	})
}
