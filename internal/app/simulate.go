package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/gpu"
	"github.com/gpumeter/gpumeter/schema"
)

// SimulateOptions say which past is made up.
type SimulateOptions struct {
	Instances int
	Gpus      int // of each instance
	Seed      uint64
	History   time.Duration // whole hours
	Until     time.Time     // zero: the last whole hour that is over; else cut down to an hour
	// Minutes is of how much of the end usage is kept per minute as well.
	Minutes time.Duration
}

// SimulatedStream names the stream that the events of a simulated past came by. The
// auditor looks at the real one only.
const SimulatedStream = "SIMULATED"

const (
	// Events are stored so long after they end, or after a lease changed.
	simulatedUsageLagMs, simulatedLeaseLagMs = 5_000, 1_000
	// An hour is only made when all of it would have been stored by now.
	simulatedSettleMs = schema.MinuteMs

	simulatedChunk = 50_000  // events stored at once
	simulatedCells = 200_000 // cells stored at once
)

// span returns the whole hours that are to be made.
func (o *SimulateOptions) span(now time.Time) (schema.Interval, error) {
	last := schema.Floor(now.UnixMilli()-simulatedSettleMs, schema.HourMs)
	to := last
	if !o.Until.IsZero() {
		if to = schema.Floor(o.Until.UnixMilli(), schema.HourMs); to > last {
			return schema.Interval{}, fmt.Errorf("--until %s: what happens after %s is not over yet", schema.FormatTime(o.Until.UnixMilli()), schema.FormatTime(last))
		}
	}
	if o.History < time.Hour || o.History%time.Hour != 0 {
		return schema.Interval{}, fmt.Errorf("--history %v is not a number of whole hours", o.History)
	}
	if o.Minutes < 0 || o.Minutes%time.Hour != 0 {
		return schema.Interval{}, fmt.Errorf("--minutes %v is not a number of whole hours", o.Minutes)
	}
	return schema.Interval{FromMs: to - o.History.Milliseconds(), ToMs: to}, nil
}

// Simulate fills an empty data directory with the past of an invented fleet, and
// applies the price files of the options. progress gets the hours done.
func Simulate(ctx context.Context, o Options, s SimulateOptions, progress func(what string, done, total int)) error {
	prices, err := readPriceFiles(o.priceFiles())
	if err != nil {
		return err
	}
	return withDB(ctx, o, func(a *app) error {
		span, err := s.span(a.o.Clock.Now())
		if err != nil {
			return err
		}
		fleet, err := gpu.NewFleet(gpu.FleetOptions{Seed: s.Seed, Instances: s.Instances, Gpus: s.Gpus, FromMs: span.FromMs, ToMs: span.ToMs})
		if err != nil {
			return err
		}
		if _, err := a.db.Migrate(ctx); err != nil {
			return err
		}
		if full, err := a.db.HasEvents(ctx); err != nil {
			return fmt.Errorf("look for events: %w", err)
		} else if full {
			return fmt.Errorf("%s holds events already, and a simulated past would mix with them: name another --data, or remove this one", a.o.Data)
		}
		begin := time.Now()
		m := &simulation{db: a.db, tenant: a.o.Tenant, threshold: a.o.Threshold, fleet: fleet, span: span, fineMs: max(span.FromMs, span.ToMs-s.Minutes.Milliseconds())}
		if err := m.run(ctx, progress); err != nil {
			if errors.Is(err, context.Canceled) {
				err = errors.New("interrupted")
			}
			return fmt.Errorf("%w; %s holds a part of the fleet: remove it before another try", err, a.o.Data)
		}
		if a.prices = prices; len(prices) > 0 {
			if _, _, err := a.buildReports(); err != nil {
				return err
			}
			if err := a.applyPriceFiles(ctx); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		_, err = fmt.Fprintf(a.o.Out, "simulated %d instances from %s to %s: %d events, %d rows of hours, %d of minutes in %s, %d rows/s\n",
			s.Instances, schema.FormatTime(span.FromMs), schema.FormatTime(span.ToMs), m.events, m.hours.Load(), m.minutes.Load(),
			took.Round(time.Millisecond), (m.events+m.hours.Load()+m.minutes.Load())*1000/max(took.Milliseconds(), 1))
		return err
	})
}

// simulation writes a fleet's past as the stream, the consumer and the aggregator
// would have left it.
type simulation struct {
	db        *clickhouse.DB
	tenant    string
	threshold int64
	fleet     *gpu.Fleet
	span      schema.Interval
	fineMs    int64 // from here on there are minutes

	at             schema.Position // of the last message
	events         int64           // rows, like the two below
	hours, minutes atomic.Int64
}

// run makes events in the order of the stream, and stores chunks of them two at a
// time: one is computed here while the other is written by the database.
func (m *simulation) run(ctx context.Context, progress func(what string, done, total int)) error {
	finish, err := m.db.Unfinished(ctx)
	if err != nil {
		return err
	}
	if err := m.db.PutCoarse(ctx, m.tenant, schema.Interval{FromMs: m.span.FromMs, ToMs: m.fineMs}); err != nil {
		return err
	}
	m.at = schema.Position{Tenant: m.tenant, Stream: SimulatedStream, Epoch: uint64(m.span.FromMs) * 1e6}
	leases := m.fleet.Leases()
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(2)
	var usage []schema.Usage
	batch, chunk := m.db.NewBatch(), []schema.StoredEvent(nil)
	for hour := m.span.FromMs; hour < m.span.ToMs && within.Err() == nil; hour += schema.HourMs {
		var due []schema.Lease
		due, leases = before(leases, hour+schema.HourMs+simulatedUsageLagMs-simulatedLeaseLagMs)
		if err := m.addLeases(batch, due); err != nil {
			return errors.Join(err, g.Wait())
		}
		usage = m.fleet.Hour(hour, usage[:0])
		if chunk = m.message(chunk, usage, hour+schema.HourMs+simulatedUsageLagMs); len(chunk) >= simulatedChunk || hour+schema.HourMs == m.span.ToMs {
			fullBatch, full := batch, chunk
			batch, chunk = m.db.NewBatch(), nil
			g.Go(func() error { return m.store(within, fullBatch, full) })
		}
		progress("simulating hours", int((hour-m.span.FromMs)/schema.HourMs)+1, int((m.span.ToMs-m.span.FromMs)/schema.HourMs))
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return err
	}
	return finish(ctx)
}

// before splits lease events at an instant.
func before(leases []schema.Lease, ms int64) (due, rest []schema.Lease) {
	n := slices.IndexFunc(leases, func(l schema.Lease) bool { return l.AtMs >= ms })
	if n < 0 {
		return leases, nil
	}
	return leases[:n], leases[n:]
}

// next moves on to the next message of the stream, stored at an instant or as soon
// as the stream could after the one before.
func (m *simulation) next(storedMs int64) schema.Position {
	m.at.StreamSequence++
	m.at.StoredAtNs = max(m.at.StoredAtNs+1, storedMs*1e6)
	return m.at
}

// addLeases adds lease events to a batch, a message each.
func (m *simulation) addLeases(batch *clickhouse.Batch, leases []schema.Lease) error {
	for i := range leases {
		e := schema.Event{Lease: &leases[i]}
		if err := e.Validate(); err != nil {
			return fmt.Errorf("simulated lease event: %w", err)
		}
		at := m.next(leases[i].AtMs + simulatedLeaseLagMs)
		batch.Other(&at, &e)
		m.events++
	}
	return nil
}

// message appends the events of an hour, those of a source in one message.
func (m *simulation) message(list []schema.StoredEvent, usage []schema.Usage, storedMs int64) []schema.StoredEvent {
	var at schema.Position
	for i := range usage {
		if i == 0 || usage[i].Source != usage[i-1].Source {
			at = m.next(storedMs)
		} else {
			at.Place++
		}
		list = append(list, schema.StoredEvent{Usage: usage[i], Position: at})
	}
	m.events += int64(len(usage))
	return list
}

// store writes usage events with what the batch has already, and what is computed
// from them. Of a unit and hour there is one event at most.
func (m *simulation) store(ctx context.Context, batch *clickhouse.Batch, events []schema.StoredEvent) error {
	for i := range events {
		e := &events[i]
		if err := e.Usage.Validate(); err != nil {
			return fmt.Errorf("simulated usage event: %w", err)
		}
		batch.Usage(&e.Position, &e.Usage)
		e.LabelsText = schema.LabelsJSON(e.Labels)
	}
	if err := batch.WriteRaw(ctx); err != nil {
		return err
	}
	var cells []schema.Cell
	for i := range events {
		cells = append(cells, m.hour(events[i:i+1])...)
	}
	if err := m.db.PutHourCells(ctx, m.tenant, cells); err != nil {
		return err
	}
	m.hours.Add(int64(len(cells)))
	cells = cells[:0]
	for i := range events {
		if events[i].StartMs >= m.fineMs {
			cells = append(cells, aggregator.Compute(events[i:i+1], minutesOf(&events[i]), m.threshold, nil)...)
		}
		if len(cells) > simulatedCells || i == len(events)-1 {
			if err := m.db.PutMinutes(ctx, m.tenant, cells); err != nil {
				return err
			}
			m.minutes.Add(int64(len(cells)))
			cells = cells[:0]
		}
	}
	return nil
}

// hour computes the hour of a unit from its only event. Its version is the sum of
// those of the minutes that the event touches.
func (m *simulation) hour(event []schema.StoredEvent) []schema.Cell {
	start := schema.Floor(event[0].StartMs, schema.HourMs)
	cells := aggregator.Compute(event, []aggregator.Window{{StartMs: start, EndMs: start + schema.HourMs}}, m.threshold, nil)
	for i := range cells {
		cells[i].Version *= uint64(len(minutesOf(&event[0])))
	}
	return cells
}

// minutesOf returns the minutes that an event touches.
func minutesOf(e *schema.StoredEvent) []aggregator.Window {
	var list []aggregator.Window
	for at := schema.Floor(e.StartMs, schema.MinuteMs); at < e.EndMs; at += schema.MinuteMs {
		list = append(list, aggregator.Window{StartMs: at, EndMs: at + schema.MinuteMs})
	}
	return list
}
