package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/schema"
)

// Defaults of a producer.
const (
	DefaultFlushWithin = 5 * time.Second
	DefaultStallAfter  = time.Minute
)

// Options wires a producer. Source, SourceName, Stream and Spool are required.
type Options struct {
	Tenant     string // in the subject; empty = schema.DefaultTenant
	SourceName string // of the events, such as agent/node-7; unique in the tenant
	Source     Source
	Stream     Stream
	// Spool is this producer's own. Two producers with one spool would send
	// everything twice.
	Spool *Spool

	SampleEvery time.Duration // as in MeterOptions
	EmitEvery   time.Duration
	Threshold   schema.Maybe
	HoldFor     time.Duration
	OwnerHold   time.Duration
	Platform    string
	Region      string
	Node        string

	// FlushWithin bounds the last attempt to empty the spool at a stop; 0 =
	// DefaultFlushWithin. What is left is sent after the next start.
	FlushWithin time.Duration
	// StallAfter is how long a backlog may go without a confirmation before
	// Ready reports it; 0 = DefaultStallAfter.
	StallAfter time.Duration

	Clock  Clock          // nil = SystemClock
	Jitter func() float64 // in [0, 1), spreads retries of many agents; nil = 0.5 always
	Logger *slog.Logger   // nil = silent
	// Registerer takes the metrics; nil = none. Where several producers share a
	// registry, each needs its own wrapped with a label, such as source.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	o.Tenant = cmp.Or(o.Tenant, schema.DefaultTenant)
	o.SampleEvery = cmp.Or(o.SampleEvery, DefaultSampleEvery)
	o.EmitEvery = cmp.Or(o.EmitEvery, DefaultEmitEvery)
	o.FlushWithin = cmp.Or(o.FlushWithin, DefaultFlushWithin)
	o.StallAfter = cmp.Or(o.StallAfter, DefaultStallAfter)
	if o.Clock == nil {
		o.Clock = SystemClock{}
	}
	if o.Jitter == nil {
		o.Jitter = func() float64 { return 0.5 }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	var faults []error
	for name, missing := range map[string]bool{"source": o.Source == nil, "stream": o.Stream == nil, "spool": o.Spool == nil} {
		if missing {
			faults = append(faults, fmt.Errorf("no %s", name))
		}
	}
	if o.FlushWithin < 0 || o.StallAfter < 0 {
		faults = append(faults, fmt.Errorf("flush within %s, stall after %s: negative", o.FlushWithin, o.StallAfter))
	}
	return errors.Join(faults...)
}

// Producer reads a source, keeps what it read on disk, and sends it. Make one
// with New; call Backfill and then Run, each once at a time.
type Producer struct {
	o       Options
	meter   *Meter
	sender  *sender
	metrics *metrics
	running atomic.Bool
	started time.Time

	mu          sync.Mutex
	readFailure error // of the latest reads, nil after a good one
	failures    int   // reads failed in a row
	blocked     error // why the spool does not take a tick
	behind      error // the clock is behind what is stored
	refused     uint64
}

// New checks the options and takes up where the spool's last process ended.
func New(o Options) (*Producer, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	last, err := o.Spool.LastTick(o.SourceName)
	if err != nil {
		return nil, err
	}
	meter, err := NewMeter(MeterOptions{
		Source: o.SourceName, Platform: o.Platform, Region: o.Region, Node: o.Node,
		SampleEvery: o.SampleEvery, EmitEvery: o.EmitEvery, Threshold: o.Threshold, HoldFor: o.HoldFor, OwnerHold: o.OwnerHold, LastTickMs: last,
	})
	if err != nil {
		return nil, err
	}
	undecided, err := o.Spool.Undecided(o.SourceName)
	if err != nil {
		return nil, err
	}
	meter.Restore(undecided)
	p := &Producer{o: o, meter: meter, started: o.Clock.Now()}
	p.o.Logger = o.Logger.With("source", o.SourceName)
	if p.metrics, err = newMetrics(p, o.Registerer); err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p.sender = &sender{
		tenant: o.Tenant, stream: o.Stream, spool: o.Spool, clock: o.Clock, jitter: o.Jitter, log: p.o.Logger, metrics: p.metrics,
	}
	p.sender.init()
	return p, nil
}

// ErrRunning: Run or Backfill is at work already.
var ErrRunning = errors.New("the producer is running")

// Run samples and sends until the context ends. Then it stops in two steps: it
// ends the unfinished events, tries for FlushWithin to send everything, and
// returns. What is not confirmed by then stays in the spool.
//
// It returns an error only when the spool cannot be read or written; an
// unreachable source or stream is reported by Ready and waited for.
func (p *Producer) Run(ctx context.Context) error {
	return p.work(ctx, p.sampleUntilDone)
}

// work runs the sender beside a sampling function, and stops both in two steps.
func (p *Producer) work(ctx context.Context, sampling func(context.Context) error) error {
	if !p.running.CompareAndSwap(false, true) {
		return fmt.Errorf("producer: %w", ErrRunning)
	}
	defer p.running.Store(false)
	// The sender outlives ctx: it has to send what the stop itself produces.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, sending := errgroup.WithContext(sending)
	g.Go(func() error { return p.sender.run(sending) })
	g.Go(func() error {
		defer stop()
		// A sender that failed ends the sampling too.
		sampled, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(sending, cancel)()
		if err := sampling(sampled); err != nil {
			return err
		}
		return p.drain(sending)
	})
	return g.Wait()
}

// drain waits until the spool is empty or the time for that is over.
func (p *Producer) drain(sending context.Context) error {
	deadline := p.o.Clock.After(p.o.FlushWithin)
	p.sender.wake()
	for p.o.Spool.Stats().Events > 0 {
		select {
		case <-sending.Done():
			return nil
		case <-deadline:
			_, err := p.sender.progress()
			p.o.Logger.Warn("stopped with events in the spool; they are sent after the next start", "events", p.o.Spool.Stats().Events, "error", err)
			return nil
		case <-p.o.Clock.After(20 * time.Millisecond):
		}
	}
	return nil
}

// sampleUntilDone reads the source at every tick of the wall clock's grid.
func (p *Producer) sampleUntilDone(ctx context.Context) error {
	for {
		now := p.o.Clock.Now()
		next := now.Truncate(p.o.SampleEvery).Add(p.o.SampleEvery)
		select {
		case <-ctx.Done():
			// The spool has the unfinished events as of the last stored tick. The
			// meter must not go on with them: their identities are spent.
			p.meter.Close()
			return p.o.Spool.CloseOpen(p.o.SourceName)
		case <-p.o.Clock.After(next.Sub(now)):
		}
		// The nominal instant bounds the interval, so that jitter neither loses nor
		// adds time. It is taken anew because the clock may have been set meanwhile.
		tick := p.o.Clock.Now().Truncate(p.o.SampleEvery)
		if err := p.sample(ctx, tick); err != nil {
			return err
		}
	}
}

// sample reads the source for one tick and stores what it finishes.
func (p *Producer) sample(ctx context.Context, tick time.Time) error {
	tickMs := tick.UnixMilli()
	if tickMs <= p.meter.LastTick() {
		p.clockBack(tickMs)
		return nil
	}
	readings, readErr := p.read(ctx, tick)
	if ctx.Err() != nil {
		return nil // stopped in the middle of a read, which says nothing of the source
	}
	finished, err := p.meter.Tick(tickMs, readings, readErr)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	p.sampled(len(readings), readErr)
	p.store(ctx, tickMs, finished)
	return nil
}

// read asks the source. A source slower than its period is late for every tick,
// so it fails the tick instead of delaying the next.
func (p *Producer) read(ctx context.Context, tick time.Time) ([]schema.Reading, error) {
	if h, ok := p.o.Source.(History); ok {
		return h.ReadAt(tick), nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.SampleEvery)
	defer cancel()
	return p.o.Source.Read(ctx)
}

// store writes one tick to the spool. When the spool does not take it, it waits
// and tries again: the time that passes is unknown by absence, and what was
// measured is kept. Only a stop ends the waiting, with false; the spool then
// still has the tick before.
func (p *Producer) store(ctx context.Context, tickMs int64, finished []schema.Usage) bool {
	open, undecided := p.meter.Open(), p.meter.Undecided()
	made := p.o.Clock.Now().UnixMilli()
	for i := range finished {
		finished[i].TimeMs = made
	}
	for i := range open {
		open[i].TimeMs = made
	}
	for i := range undecided {
		undecided[i].TimeMs = made
	}
	var said time.Time
	for {
		err := p.o.Spool.AdvanceUndecided(p.o.SourceName, tickMs, finished, open, undecided)
		p.setBlocked(err)
		if err == nil {
			p.metrics.appended.Add(float64(len(finished)))
			return true
		}
		p.metrics.blocked.Inc()
		if now := p.o.Clock.Now(); now.Sub(said) >= time.Minute {
			said = now
			p.o.Logger.Error("the spool does not take events; sampling waits and the time is lost to unknown", "events", len(finished), "error", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-p.o.Clock.After(time.Second):
		}
	}
}

func (p *Producer) setBlocked(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = err
}

func (p *Producer) clockBack(tickMs int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind == nil {
		p.behind = fmt.Errorf("%w: %s is not after %s", ErrClockBack, schema.FormatTime(tickMs), schema.FormatTime(p.meter.LastTick()))
		p.o.Logger.Error("sampling waits for the clock", "error", p.behind)
	}
}

func (p *Producer) sampled(readings int, readErr error) {
	p.metrics.samples.Inc()
	refused, refusal := p.meter.Refused()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind = nil
	if refused > p.refused {
		p.o.Logger.Warn("a reading cannot become an event", "refused", refused, "error", refusal)
		p.refused = refused
	}
	if readErr == nil && readings == 0 {
		readErr = errors.New("the source reports no unit")
	}
	if readErr == nil {
		if p.failures > 0 {
			p.o.Logger.Info("the source is read again", "failures", p.failures)
		}
		p.readFailure, p.failures = nil, 0
		return
	}
	p.metrics.samplesFailed.Inc()
	if p.failures++; p.failures == 1 {
		p.o.Logger.Warn("the source cannot be read; the time is unknown", "error", readErr)
	}
	p.readFailure = readErr
}
