package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/schema"
)

// freshness publishes at a steady rate and measures how long it takes from
// publishing an event until a report shows it. Every 100 ms a probe event of a
// unit of its own goes into the minute that is being published; one reader asks
// for the probes as a dashboard would.
func (b *bench) freshness(ctx context.Context) error {
	db, err := b.open(ctx, "bench_fresh")
	if err != nil {
		return err
	}
	defer db.Close()
	rows := b.o.Rate * int(b.o.For.Seconds())
	messages, err := b.messages(0, rows)
	if err != nil {
		return err
	}
	p, err := b.pipeline(ctx, db, "fresh")
	if err != nil {
		return err
	}
	defer p.stop()
	pr := &probes{
		pipeline: p, store: &usageStore{db: db, threshold: aggregator.DefaultThreshold}, sent: map[string]probe{}, rows: &atomic.Int64{}, units: b.o.Units,
	}
	var load errgroup.Group
	load.Go(func() error { return b.publishAt(ctx, p, messages, rows, pr.rows) })
	probing, stopProbing := context.WithCancel(ctx)
	defer stopProbing()
	var probers errgroup.Group
	probers.Go(func() error { return pr.send(probing) })
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	var readers errgroup.Group
	readers.Go(func() error { return pr.read(reading) })
	err = load.Wait()
	stopProbing()
	if err == nil {
		err = probers.Wait()
	}
	for end := time.Now().Add(time.Minute); err == nil && pr.outstanding() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	stopReading()
	if readErr := readers.Wait(); err == nil {
		err = readErr
	}
	if err != nil {
		return err
	}
	delays := pr.delays
	slices.Sort(delays)
	if len(delays) == 0 || pr.outstanding() > 0 {
		return fmt.Errorf("%d probes did not become visible within a minute", pr.outstanding())
	}
	at := func(q int) time.Duration { return delays[(len(delays)-1)*q/100].Round(time.Millisecond) }
	fmt.Fprintf(b.out, "freshness, publish to visible in a report, %d probes: p50 %v, p99 %v, most %v\n", len(delays), at(50), at(99), at(100))
	return nil
}

// publishAt publishes messages at the rate of the options.
func (b *bench) publishAt(ctx context.Context, p *pipeline, messages []schema.Message, rows int, sent *atomic.Int64) error {
	begin := time.Now()
	for len(messages) > 0 {
		due := int64(time.Since(begin).Seconds() * float64(b.o.Rate))
		if sent.Load() >= due {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		n := min(max(1, int(due-sent.Load())/b.o.PerMessage), len(messages), maxAtOnce)
		if err := p.send(ctx, messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
		sent.Add(int64(n * b.o.PerMessage))
		b.o.Progress("freshness", int(sent.Load()), rows)
	}
	took := time.Since(begin)
	fmt.Fprintf(b.out, "freshness: %d rows in %.1f s, %.0f rows/s taken\n", rows, took.Seconds(), float64(rows)/took.Seconds())
	return nil
}

type probe struct {
	begin    time.Time
	minuteMs int64
}

type probes struct {
	pipeline *pipeline
	store    *usageStore
	rows     *atomic.Int64 // published so far
	units    int

	mu     sync.Mutex
	sent   map[string]probe // not visible yet, by unit
	delays []time.Duration
}

const probeProject = "probe"

func (p *probes) outstanding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent)
}

func (p *probes) send(ctx context.Context) error {
	for k := 0; ctx.Err() == nil; k++ {
		minute := benchEpochMs + p.rows.Load()/int64(p.units)*schema.MinuteMs
		u := schema.Usage{Unit: "probe-" + strconv.Itoa(k), Project: probeProject, StartMs: minute, EndMs: minute + schema.MinuteMs, Utilization: schema.Some(schema.UtilizationOne)}
		u.Source, u.ID = probeProject, schema.UsageID(u.Unit, u.StartMs)
		p.mu.Lock()
		p.sent[u.Unit] = probe{time.Now(), minute}
		p.mu.Unlock()
		if err := p.pipeline.send(context.WithoutCancel(ctx), []schema.Message{schema.MessageOf(schema.DefaultTenant, &schema.Event{Usage: &u})}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// read asks for the probes that are not visible yet.
func (p *probes) read(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		p.mu.Lock()
		var from, to int64
		for _, s := range p.sent {
			if from == 0 || s.minuteMs < from {
				from = s.minuteMs
			}
			to = max(to, s.minuteMs+schema.MinuteMs)
		}
		p.mu.Unlock()
		if from == 0 {
			continue
		}
		rows, err := p.store.Usage(ctx, schema.UsageQuery{
			Tenant: schema.DefaultTenant, Cuts: []int64{from, to}, By: []string{"unit"}, Filter: map[string]string{"project": probeProject},
		})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		now := time.Now()
		p.mu.Lock()
		for _, r := range rows {
			if s, ok := p.sent[r.Keys[0]]; ok {
				p.delays = append(p.delays, now.Sub(s.begin))
				delete(p.sent, r.Keys[0])
			}
		}
		p.mu.Unlock()
	}
}
