package jetstream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillmsg "github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// BenchmarkDelivery compares two ways from the stream to stored rows and marks:
// ours, and a Watermill router. It is the measurement behind ADR 1.
//
// All read the same messages and do the same for an event: decode, insert into
// raw_usage, write the marks, acknowledge after both.
//
//	fetch          Subscription and consumer.Consumer: the messages of a batch
//	               share one insert and are acknowledged together
//	router-single  a Watermill handler that inserts its message
//	router-batch   a Watermill handler that adds its message to a batch and
//	               returns when that is stored, with as many messages in flight
//	               as the batch needs
//
// Run it with -benchtime 1x. events/s includes the wait for the last batch.
func BenchmarkDelivery(b *testing.B) {
	e := testkit.Engine(b)
	for _, per := range []int{1, 50} {
		n := 60_000
		if per > 1 {
			n = 400_000
		}
		s, nc := testkit.Broker(b)
		publishMany(b, nc, n, per)
		db := testkit.DB(b, e, fmt.Sprint("delivery_", per))
		for _, v := range []struct {
			name string
			n    int
			run  func(b *testing.B, d *delivery)
		}{
			{"fetch", n, func(b *testing.B, d *delivery) { d.fetch(b) }},
			{"router-batch", n, func(b *testing.B, d *delivery) { d.router(b, batchMessages(per), d.batched(per)) }},
			{"router-single", 300 * per, func(b *testing.B, d *delivery) { d.router(b, 8, d.single) }},
		} {
			b.Run(fmt.Sprintf("%s/per-message-%d", v.name, per), func(b *testing.B) {
				var cpu time.Duration
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					for _, table := range []string{"raw_usage", "dirty"} {
						if err := db.Exec(b.Context(), "TRUNCATE TABLE "+table); err != nil {
							b.Fatal(err)
						}
					}
					d := &delivery{s: s, db: db, n: v.n, durable: fmt.Sprintf("%s_%d_%d", v.name, per, i)}
					before := processorTime()
					b.StartTimer()
					v.run(b, d)
					b.StopTimer()
					cpu += processorTime() - before
					check := "SELECT throwIf(uniqExact(source, id) < ?) FROM raw_usage"
					if err := db.Exec(b.Context(), check, v.n); err != nil {
						b.Fatalf("not all events are stored: %v", err)
					}
					b.StartTimer()
				}
				events := float64(b.N * v.n)
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(cpu.Seconds()/events*1e6, "cpu-s/million")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// batchMessages is how many messages a batch of the consumer's size holds.
func batchMessages(per int) int { return batchRows / per }

const (
	batchRows = 50_000 // the consumer's default
	batchAge  = 500 * time.Millisecond
)

func publishMany(b *testing.B, nc *nats.Conn, n, per int) {
	b.Helper()
	p := publisher(b, nc)
	list := make([]schema.Message, 0, 1000)
	for from := 0; from < n; from += per {
		events := make([]schema.Usage, per)
		for i := range events {
			at := int64(from + i)
			u := &events[i]
			*u = schema.Usage{
				Unit: fmt.Sprintf("GPU-5f3c9d1e-0000-4000-8000-%012d", at%2000), Instance: fmt.Sprint("i", at%2000), Project: "a", Node: "node-7",
				Platform: "self", Model: "NVIDIA H100 80GB HBM3", Utilization: schema.Some(420_000), ActiveMs: schema.Some(60_000), IdleMs: schema.Some(0),
				MemoryUsedBytes: schema.Some(1 << 35), EnergyMj: schema.Some(42_000_000), StartMs: 1_772_359_200_000 + at/2000*schema.MinuteMs,
			}
			u.EndMs = u.StartMs + schema.MinuteMs
			u.Source, u.ID, u.TimeMs = "agent/node-7", schema.UsageID(u.Unit, u.StartMs), u.EndMs
		}
		payload, err := schema.EncodeCompact(events)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, schema.Message{
			Subject: schema.Address{Tenant: "default", Source: events[0].Source, Kind: "usage"}.Subject(),
			ID:      fmt.Sprint(from), ContentType: schema.ContentTypeCompact, Payload: payload,
		})
		if len(list) == cap(list) || from+per >= n {
			publish(b, p, list)
			list = list[:0]
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// delivery is one run of one variant.
type delivery struct {
	s       *jetstream.Server
	db      *clickhouse.DB
	n       int
	durable string
	done    atomic.Int64 // events stored and acknowledged
}

func (d *delivery) wait(b *testing.B) {
	for end := time.Now().Add(2 * time.Minute); d.done.Load() < int64(d.n); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d of %d events after 2 minutes", d.done.Load(), d.n)
		}
	}
}

func (d *delivery) fetch(b *testing.B) {
	sub, stop := subscribe(b, d.s, jetstream.SubscribeOptions{Durable: d.durable})
	defer stop()
	c, err := consumer.New(consumer.Options{
		Deliveries: sub.Deliveries(), Marks: d.db, NewBatch: func() consumer.Batch { return d.db.NewBatch() }, MaxRows: batchRows, MaxAge: batchAge,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	defer func() { cancel(); running.Wait() }()
	running.Go(func() {
		for ctx.Err() == nil {
			d.done.Store(c.Stats().Events)
			time.Sleep(time.Millisecond)
		}
	})
	d.wait(b)
}

// router consumes through a Watermill router with so many messages in flight.
func (d *delivery) router(b *testing.B, inFlight int, handle watermillmsg.NoPublishHandlerFunc) {
	router, err := watermillmsg.NewRouter(watermillmsg.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	router.AddConsumerHandler("store", jetstream.StreamName, &wide{nc: testkit.Connect(b, d.s), durable: d.durable, inFlight: inFlight}, handle)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	d.wait(b)
	cancel()
	running.Wait()
}

// wide is the control path's subscriber with more than one message in flight,
// on the stream of events.
type wide struct {
	nc       *nats.Conn
	durable  string
	inFlight int
}

func (w *wide) Close() error { return nil }

func (w *wide) Subscribe(ctx context.Context, stream string) (<-chan *watermillmsg.Message, error) {
	js, err := natsjs.New(w.nc)
	if err != nil {
		return nil, err
	}
	c, err := js.CreateOrUpdateConsumer(ctx, stream, natsjs.ConsumerConfig{
		Durable: w.durable, AckPolicy: natsjs.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: 2 * w.inFlight,
	})
	if err != nil {
		return nil, err
	}
	it, err := c.Messages(natsjs.PullMaxMessages(w.inFlight))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, it.Stop)
	out, slots := make(chan *watermillmsg.Message), make(chan struct{}, w.inFlight)
	go func() {
		defer close(out)
		for {
			m, err := it.Next()
			if err != nil {
				return
			}
			v := watermillmsg.NewMessage("", m.Data())
			v.Metadata.Set("Content-Type", m.Headers().Get("Content-Type"))
			if meta, err := m.Metadata(); err == nil {
				v.Metadata.Set("sequence", fmt.Sprint(meta.Sequence.Stream))
			}
			v.SetContext(ctx)
			slots <- struct{}{}
			select {
			case out <- v:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-slots }()
				select {
				case <-v.Acked():
					_ = m.Ack()
				case <-v.Nacked():
					_ = m.Nak()
				case <-ctx.Done():
				}
			}()
		}
	}()
	return out, nil
}

// rows is a batch and its marks.
type rows struct {
	batch  *clickhouse.Batch
	minute map[int64]map[uint64]struct{}
	full   chan struct{} // closed when stored; err is then set
	err    error
	events int64
}

func newRows(db *clickhouse.DB) *rows {
	return &rows{batch: db.NewBatch(), minute: map[int64]map[uint64]struct{}{}, full: make(chan struct{})}
}

func (r *rows) add(m *watermillmsg.Message) {
	at := schema.Position{Tenant: "default", Stream: jetstream.StreamName, StoredAtNs: 1}
	for _, e := range schema.Decode(m.Metadata.Get("Content-Type"), m.Payload).Usage {
		r.batch.Usage(&at, &e.Event)
		ms := schema.Floor(e.Event.StartMs, schema.MinuteMs)
		if r.minute[ms] == nil {
			r.minute[ms] = map[uint64]struct{}{}
		}
		r.minute[ms][schema.UnitHash(e.Event.Unit)] = struct{}{}
		r.events++
	}
}

func (r *rows) store(ctx context.Context, db *clickhouse.DB) error {
	if err := r.batch.WriteRaw(ctx); err != nil {
		return err
	}
	id := rand.Uint64()
	marks := make([]schema.Mark, 0, len(r.minute))
	for ms, units := range r.minute {
		mark := schema.Mark{Grain: schema.GrainMinute, Tenant: "default", WindowMs: ms, ID: id, MarkedAtMs: 1}
		for u := range units {
			mark.Units = append(mark.Units, u)
		}
		marks = append(marks, mark)
	}
	return db.WriteMarks(ctx, marks)
}

func (d *delivery) single(m *watermillmsg.Message) error {
	r := newRows(d.db)
	r.add(m)
	if err := r.store(m.Context(), d.db); err != nil {
		return err
	}
	d.done.Add(r.events)
	return nil
}

// batched returns a handler that waits for its batch. Whoever fills the batch,
// or finds it old, stores it for all.
func (d *delivery) batched(per int) watermillmsg.NoPublishHandlerFunc {
	var mu sync.Mutex
	current := newRows(d.db)
	take := func(r *rows) { // with mu held
		if current != r {
			return
		}
		current = newRows(d.db)
		go func() {
			r.err = r.store(context.Background(), d.db)
			close(r.full)
			if r.err == nil {
				d.done.Add(r.events)
			}
		}()
	}
	return func(m *watermillmsg.Message) error {
		mu.Lock()
		r := current
		if r.batch.Rows() == 0 {
			time.AfterFunc(batchAge, func() { mu.Lock(); defer mu.Unlock(); take(r) })
		}
		r.add(m)
		if r.batch.Rows() >= batchMessages(per)*per {
			take(r)
		}
		mu.Unlock()
		<-r.full
		return r.err
	}
}
