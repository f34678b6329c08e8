// Package consumer turns messages of the stream into stored rows.
//
// Guarantee: at least once, never acknowledged before durable. A batch is
// settled in this order, and dying between any two steps only leads to
// redelivery, which storage makes harmless because rows are keyed by identity:
//
//  1. raw rows and quarantine are on disk;
//  2. the marks of the windows they touch are on disk;
//  3. the messages are acknowledged.
//
// What cannot be read is quarantined whole, with the reason, and acknowledged
// only then. Nothing is dropped. When storage is away the consumer waits, takes
// no more messages, and its readiness fails.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cenkalti/backoff/v5"

	"github.com/gpumeter/gpumeter/schema"
)

// Batch collects rows and stores them. It is used by one goroutine at a time,
// and keeps its rows when storing fails, so that the same rows are sent again.
type Batch interface {
	Usage(at *schema.Position, u *schema.Usage)
	Other(at *schema.Position, e *schema.Event)
	Quarantine(at *schema.Position, subject, contentType string, r *schema.Reject)
	Rows() int
	Reset()
	// WriteRaw returns nil only when all rows are on disk.
	WriteRaw(ctx context.Context) error
}

// Marks stores marks of windows to be computed again.
type Marks interface {
	WriteMarks(ctx context.Context, marks []schema.Mark) error
}

// Options configure a Consumer.
type Options struct {
	Deliveries <-chan schema.Delivery
	NewBatch   func() Batch
	Marks      Marks
	// A batch is written when it has MaxRows rows or MaxBytes bytes of messages,
	// or when its first message is MaxAge old. Defaults 50,000, 32 MiB, 500 ms.
	MaxRows  int
	MaxBytes int
	MaxAge   time.Duration
	// FutureTolerance is how much later than the stream stored it an event may
	// end; one that ends later is held. 0 is DefaultFutureTolerance.
	FutureTolerance time.Duration
	Now             func() time.Time
	Logger          *slog.Logger
	// At is called at each named point of settling; tests stop the process there.
	At func(point string)
}

// Points at which Options.At is called, in the order of settling.
const (
	AtBeforeInsert   = "before-insert"
	AtRawBeforeDirty = "raw-before-dirty"
	AtDirtyBeforeAck = "dirty-before-ack"
	AtDuringAck      = "during-ack"
	AtSettled        = "settled"
)

// Stats counts what a consumer did since it started.
type Stats struct {
	Messages    int64
	Events      int64
	Quarantined int64
	Batches     int64
	Failures    int64 // failed attempts to store
	LastSettled time.Time
	// Waiting is set while a batch cannot be stored, with the reason.
	Waiting error
}

// Consumer moves messages to storage.
type Consumer struct {
	o Options

	mu    sync.Mutex
	stats Stats
}

// maxTouched bounds the units that a batch marks, minute by minute: long events
// touch many minutes, and a few of them fill a batch.
const maxTouched = 500_000

// load is a batch with the messages that it came from: the acknowledgements
// travel with the rows, so no path can settle other messages than it stored.
type load struct {
	batch   Batch
	settle  []func() error
	touched touched
	bytes   int
	first   time.Time
	// tolerance is Options.FutureTolerance.
	tolerance time.Duration

	events, quarantined int64
}

// New checks the options and returns a consumer.
func New(o Options) (*Consumer, error) {
	if o.Deliveries == nil || o.NewBatch == nil || o.Marks == nil {
		return nil, errors.New("consumer: deliveries, batches and marks are required")
	}
	if o.MaxRows == 0 {
		o.MaxRows = 50_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 32 << 20
	}
	if o.MaxAge == 0 {
		o.MaxAge = 500 * time.Millisecond
	}
	if o.FutureTolerance == 0 {
		o.FutureTolerance = DefaultFutureTolerance
	}
	if o.FutureTolerance < 0 {
		return nil, fmt.Errorf("consumer: a tolerance of %v for events of the future; it may not be negative", o.FutureTolerance)
	}
	if o.MaxRows < 0 || o.MaxBytes < 0 || o.MaxAge < 0 {
		return nil, fmt.Errorf("consumer: bounds of a batch may not be negative: %d rows, %d bytes, %v", o.MaxRows, o.MaxBytes, o.MaxAge)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.At == nil {
		o.At = func(string) {}
	}
	return &Consumer{o: o}, nil
}

// Stats returns the counts so far.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run consumes until the context ends. What is collected and not yet stored
// then stays in the stream and is delivered again.
//
//	deliveries -> fill: decode, collect -> [full] -> write: store, mark, settle
//	                 ^                                  |
//	                 +----------------- [free] ---------+
func (c *Consumer) Run(ctx context.Context) error {
	const loads = 2 // one is filled while the other is written
	free, full := make(chan *load, loads), make(chan *load, 1)
	for range loads {
		free <- &load{batch: c.o.NewBatch(), touched: touched{minutes: map[minute]*units{}}, tolerance: c.o.FutureTolerance}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(full)
		return c.fill(ctx, free, full)
	})
	g.Go(func() error {
		for l := range full {
			if err := c.write(ctx, l); err != nil {
				return err
			}
			l.reset()
			free <- l
		}
		return nil
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (l *load) reset() {
	l.batch.Reset()
	clear(l.settle)
	l.settle, l.bytes, l.events, l.quarantined = l.settle[:0], 0, 0, 0
	l.touched.reset()
}

func (c *Consumer) fill(ctx context.Context, free <-chan *load, full chan<- *load) error {
	var l *load
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	hand := func() bool {
		select {
		case full <- l:
			l = nil
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		if l == nil {
			select {
			case l = <-free:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if len(l.settle) > 0 && !hand() {
				return nil
			}
		case d := <-c.o.Deliveries:
			if len(l.settle) == 0 {
				timer.Reset(c.o.MaxAge)
			}
			l.take(&d)
			if (l.batch.Rows() >= c.o.MaxRows || l.bytes >= c.o.MaxBytes || l.touched.n >= maxTouched) && !hand() {
				return nil
			}
		}
	}
}

// take decodes a message into the load. It never fails: what cannot be taken as
// an event is taken as quarantine.
func (l *load) take(d *schema.Delivery) {
	l.settle = append(l.settle, d.Settle)
	l.bytes += len(d.Payload)
	at := d.Position
	address, err := schema.ParseSubject(d.Subject)
	if err != nil {
		l.quarantine(&at, d, &schema.Reject{Place: -1, Raw: d.Payload, Err: err})
		return
	}
	at.Tenant = address.Tenant
	decoded := schema.Decode(d.ContentType, d.Payload)
	for i := range decoded.Usage {
		e := &decoded.Usage[i]
		if e.Event.Source != address.Source {
			l.misdirected(&at, d, e.Place, &schema.Event{Usage: &e.Event}, address)
			continue
		}
		if until := hold(&at, &schema.Event{Usage: &e.Event}, l.tolerance); until != nil {
			l.held(&at, d, e.Place, &schema.Event{Usage: &e.Event}, until)
			continue
		}
		at.Place = e.Place
		l.batch.Usage(&at, &e.Event)
		l.touched.add(address.Tenant, &e.Event)
		l.events++
	}
	for i := range decoded.Other {
		e := &decoded.Other[i]
		if e.Event.Header().Source != address.Source {
			l.misdirected(&at, d, e.Place, &e.Event, address)
			continue
		}
		if until := hold(&at, &e.Event, l.tolerance); until != nil {
			l.held(&at, d, e.Place, &e.Event, until)
			continue
		}
		at.Place = e.Place
		l.batch.Other(&at, &e.Event)
		l.events++
	}
	for i := range decoded.Rejects {
		l.quarantine(&at, d, &decoded.Rejects[i])
	}
}

// misdirected quarantines an event that claims another source than the subject
// was authorised for.
func (l *load) misdirected(at *schema.Position, d *schema.Delivery, place uint32, e *schema.Event, a schema.Address) {
	h := e.Header()
	l.quarantine(at, d, &schema.Reject{Place: int(place), Raw: schema.EncodeEvent(e), Err: &schema.Error{
		Kind: schema.KindMisdirected, Field: "source", ID: h.Source + "/" + h.ID,
		Msg: fmt.Sprintf("the event is of source %q and came on a subject of source %q", h.Source, a.Source),
	}})
}

func (l *load) quarantine(at *schema.Position, d *schema.Delivery, r *schema.Reject) {
	contentType := d.ContentType
	if r.Place >= 0 {
		contentType = schema.ContentTypeEvent // a single event out of a batch
	}
	l.batch.Quarantine(at, d.Subject, contentType, r)
	l.quarantined++
}

// write stores a load and settles its messages, however long that takes. It
// returns an error only when the context ends.
func (c *Consumer) write(ctx context.Context, l *load) error {
	marks := l.touched.marks(rand.Uint64, c.o.Now().UnixMilli())
	c.o.At(AtBeforeInsert)
	if err := c.persist(ctx, "raw rows", l.batch.WriteRaw); err != nil {
		return err
	}
	c.o.At(AtRawBeforeDirty)
	if err := c.persist(ctx, "dirty marks", func(ctx context.Context) error { return c.o.Marks.WriteMarks(ctx, marks) }); err != nil {
		return err
	}
	c.o.At(AtDirtyBeforeAck)
	for i, settle := range l.settle {
		if i == len(l.settle)/2 {
			c.o.At(AtDuringAck)
		}
		// A lost acknowledgement leads to redelivery and to nothing else.
		if err := settle(); err != nil {
			c.o.Logger.Warn("acknowledge failed, the message will come again", "err", err)
			break
		}
	}
	c.o.At(AtSettled)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Messages += int64(len(l.settle))
	c.stats.Events += l.events
	c.stats.Quarantined += l.quarantined
	c.stats.Batches++
	c.stats.LastSettled = c.o.Now()
	c.stats.Waiting = nil
	return nil
}

func (c *Consumer) persist(ctx context.Context, what string, store func(context.Context) error) error {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 3*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := store(ctx)
		if err != nil && ctx.Err() == nil {
			c.o.Logger.Error("storing failed; nothing is acknowledged and it is tried again", "what", what, "err", err)
			c.mu.Lock()
			c.stats.Failures++
			c.stats.Waiting = fmt.Errorf("storing %s: %w", what, err)
			c.mu.Unlock()
		}
		return struct{}{}, err
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0), backoff.WithMaxTries(0))
	return err
}
