package web

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// kept keeps what is costly to compute and is asked for again and again, such as the
// overview that every open page shows. However many ask, an answer is computed once at a
// time, and again only when what it was computed from has changed. Whoever asks meanwhile
// gets the one before, which says of what instant it is.
type kept struct {
	// changed returns a text that differs when anything that is stored does.
	changed func(ctx context.Context) (string, error)
	now     func() time.Time
	log     *slog.Logger
	most    int // entries kept

	mu      sync.Mutex
	entries map[string]*answer
	state   string // what changed returned last
	looked  time.Time
}

// answer is one entry. Its fields are guarded by kept.mu.
type answer struct {
	compute func(ctx context.Context) (any, error)
	moving  bool // it depends on what time it is

	value    any
	err      error
	begun    time.Time // when the value was begun to be computed
	tried    time.Time // when anything was
	took     time.Duration
	state    string        // of what is stored, then
	done     chan struct{} // closed when what is being computed is there; nil = nothing is
	next     chan struct{} // closed when there is another value
	used     time.Time
	watchers int
}

// How old answers may get.
const (
	lookEvery    = time.Second      // between two looks for changes
	calmFor      = 2 * time.Second  // at least between two computations of an answer
	calmShare    = 4                // and as many times as long as computing it took
	movingFor    = 15 * time.Second // an answer that depends on the time, though nothing has changed
	staleFor     = time.Minute      // beyond that, whoever asks waits for the new one
	warmFor      = 15 * time.Minute // an answer is kept up to date after it was asked for
	computeLimit = ReportTimeout
)

func newKept(changed func(ctx context.Context) (string, error), log *slog.Logger, most int) *kept {
	if changed == nil {
		changed = func(context.Context) (string, error) { return "", nil }
	}
	return &kept{changed: changed, now: time.Now, log: log, most: most, entries: map[string]*answer{}}
}

// get returns the answer of that name, computing it if need be. Errors of computing are
// not kept.
func (a *kept) get(ctx context.Context, name string, moving bool, compute func(ctx context.Context) (any, error)) (any, error) {
	state := a.look(ctx)
	a.mu.Lock()
	e := a.entry(name, moving, compute)
	e.used = a.now()
	if e.value != nil && e.err == nil {
		age := e.used.Sub(e.begun)
		if a.fresh(e, state) || age < staleFor+calmShare*e.took {
			if !a.fresh(e, state) {
				a.begin(e, state)
			}
			defer a.mu.Unlock()
			return e.value, nil
		}
	}
	done := a.begin(e, state)
	a.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.value, e.err
}

// watch calls show with the answer of that name, and with every one that follows, until
// the context ends or show fails. In between it calls idle once in a while.
func (a *kept) watch(ctx context.Context, name string, idleEvery time.Duration, compute func(ctx context.Context) (any, error), show func(any) error, idle func() error) error {
	value, err := a.get(ctx, name, true, compute)
	if err != nil {
		return err
	}
	a.mu.Lock()
	e := a.entry(name, true, compute)
	e.watchers++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		e.watchers--
		a.mu.Unlock()
	}()
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for {
		if err := show(value); err != nil {
			return err
		}
		a.mu.Lock()
		next := e.next
		if e.err == nil && e.value != value {
			value = e.value
			a.mu.Unlock()
			continue
		}
		a.mu.Unlock()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-next:
				waiting = false
			case <-tick.C:
				if err := idle(); err != nil {
					return err
				}
			}
		}
		a.mu.Lock()
		if e.err == nil {
			value = e.value
		}
		a.mu.Unlock()
	}
}

// run keeps up to date what is watched, or was asked for not long ago.
func (a *kept) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !a.wanted() {
			continue
		}
		state := a.look(ctx)
		a.mu.Lock()
		for name, e := range a.entries {
			idle := a.now().Sub(e.used)
			switch {
			case e.watchers > 0 || idle < warmFor:
				if !a.fresh(e, state) && a.now().Sub(e.tried) >= calmFor { // it may fail at once
					a.begin(e, state)
				}
			case e.done == nil:
				delete(a.entries, name)
			}
		}
		a.mu.Unlock()
	}
}

func (a *kept) wanted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.entries) > 0
}

// look returns the state of what is stored, as it was at most lookEvery ago.
func (a *kept) look(ctx context.Context) string {
	a.mu.Lock()
	state, old := a.state, a.now().Sub(a.looked) >= lookEvery
	if old {
		a.looked = a.now() // others go on with what is known
	}
	a.mu.Unlock()
	if !old {
		return state
	}
	now, err := a.changed(context.WithoutCancel(ctx))
	if err != nil {
		a.log.Warn("it was not found out whether anything has changed", "err", err)
		now = fmt.Sprint("unknown at ", a.now().UnixNano()) // so everything may have
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = now
	return now
}

// fresh says whether a value need not be computed again yet.
func (a *kept) fresh(e *answer, state string) bool {
	if e.value == nil || e.err != nil {
		return false
	}
	age := a.now().Sub(e.begun)
	return age < max(calmFor, calmShare*e.took) || e.state == state && (!e.moving || age < movingFor)
}

// entry returns the entry of that name. When there are too many, the one that was not
// used for longest goes.
func (a *kept) entry(name string, moving bool, compute func(ctx context.Context) (any, error)) *answer {
	e := a.entries[name]
	if e == nil {
		if len(a.entries) >= a.most {
			oldest := ""
			for other, o := range a.entries {
				if o.watchers == 0 && o.done == nil && (oldest == "" || o.used.Before(a.entries[oldest].used)) {
					oldest = other
				}
			}
			delete(a.entries, oldest)
		}
		e = &answer{next: make(chan struct{})}
		a.entries[name] = e
	}
	e.moving, e.compute = moving, compute
	return e
}

// begin computes the value unless that is under way already.
func (a *kept) begin(e *answer, state string) <-chan struct{} {
	if e.done != nil {
		return e.done
	}
	e.done, e.tried = make(chan struct{}), a.now()
	done, compute, begun := e.done, e.compute, a.now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), computeLimit)
		defer cancel()
		value, err := protected(ctx, compute)
		a.mu.Lock()
		defer a.mu.Unlock()
		if e.err = err; err == nil {
			e.value, e.begun, e.took, e.state = value, begun, a.now().Sub(begun), state
			close(e.next)
			e.next = make(chan struct{})
		}
		e.done = nil
		close(done)
	}()
	return done
}

// protected turns a panic into an error: it happens in no request, so nothing else would
// stop it from ending the program.
func protected(ctx context.Context, compute func(ctx context.Context) (any, error)) (value any, err error) {
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, fmt.Errorf("panic: %v", v)
		}
	}()
	return compute(ctx)
}
