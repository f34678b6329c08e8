package clickhouse_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

const repeatRows = 1000

// repeatMessage is 1,000 events over an hour and a half, as one message.
func repeatMessage(t *testing.T) schema.Message {
	t.Helper()
	var events []schema.Usage
	for i := range repeatRows {
		from := testkit.At("2026-03-01T10:30:00Z") + int64(i/12)*schema.MinuteMs
		u := schema.Usage{
			Unit: fmt.Sprintf("GPU-%d", i%12), Instance: fmt.Sprintf("i%d", i%5), Project: "a", Node: "n", Model: "H100",
			StartMs: from, EndMs: from + schema.MinuteMs, ActiveMs: schema.Some(int64(i * 17 % 30_000)), IdleMs: schema.Some(int64(i * 13 % 30_000)),
		}
		u.Source, u.ID = "agent/r", schema.UsageID(u.Unit, u.StartMs)
		events = append(events, u)
	}
	payload, err := schema.EncodeCompact(events)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Message{
		ID: "r", ContentType: schema.ContentTypeCompact, Payload: payload,
		Subject: schema.Address{Tenant: "default", Source: "agent/r", Kind: "usage"}.Subject(),
	}
}

// startConsumer runs a consumer that is stopped before it acknowledges, when stops
// is set, and returns when it has stored everything. release lets it go on.
func startConsumer(t *testing.T, db *clickhouse.DB, deliveries <-chan schema.Delivery, stops bool) (release func()) {
	t.Helper()
	stored, may := make(chan struct{}), make(chan struct{})
	var once sync.Once
	point := consumer.AtSettled
	if stops {
		point = consumer.AtDirtyBeforeAck
	}
	c, err := consumer.New(consumer.Options{
		Deliveries: deliveries, NewBatch: func() consumer.Batch { return db.NewBatch() }, Marks: db, MaxRows: repeatRows, Logger: testkit.Logger(t),
		At: func(at string) {
			if at == point {
				once.Do(func() { close(stored) })
				<-may
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	release = sync.OnceFunc(func() { close(may) })
	t.Cleanup(func() { release(); cancel(); running.Wait() })
	select {
	case <-stored:
	case <-time.After(time.Minute):
		t.Fatal("the consumer stored nothing")
	}
	return release
}

// hourly is the hourly usage of the database, after everything was computed.
func hourly(t *testing.T, db *clickhouse.DB) string {
	t.Helper()
	d, err := aggregator.NewDriver(aggregator.Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := schema.UsageQuery{Tenant: "default", By: []string{"unit", "instance"}}
	for at := testkit.At("2026-03-01T10:00:00Z"); at <= testkit.At("2026-03-01T13:00:00Z"); at += schema.HourMs {
		q.Cuts = append(q.Cuts, at)
	}
	rows, err := db.Usage(t.Context(), &q, clickhouse.Hours, clickhouse.Windows{FromMs: q.Cuts[0], ToMs: q.Cuts[len(q.Cuts)-1]})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, r := range rows {
		text += fmt.Sprintln(r.Piece, r.Keys, r.ActiveMs, r.IdleMs, r.UnknownMs, r.UtilizationSum)
	}
	return text
}

// repeatDB opens a database whose statements carry other settings and whose tables
// remember that many inserted blocks.
func repeatDB(t *testing.T, e *engine.Engine, name string, settings map[string]string, window int) *clickhouse.DB {
	t.Helper()
	db, err := clickhouse.OpenWith(t.Context(), "http://"+e.HTTPAddr()+"/"+name, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"raw_usage", "dirty", "usage_minute", "usage_hour"} {
		if err := db.Exec(t.Context(), fmt.Sprintf("ALTER TABLE %s MODIFY SETTING non_replicated_deduplication_window = %d", table, window)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Exec(t.Context(), "SYSTEM STOP MERGES "+name+".raw_usage"); err != nil {
		t.Fatal(err)
	}
	return db
}

// Whether the database drops repeated inserts or keeps them, 1,000 events stored
// four times count as stored once (A8).
func TestRepeatedInsertsCountOnce(t *testing.T) {
	e := testkit.Engine(t)
	m := repeatMessage(t)
	want := ""
	for i, c := range []struct {
		name     string
		settings map[string]string
		window   int
		rows     uint64 // in the table when nothing was merged; 0 = whatever the queue makes of it
		times    int
	}{
		{"once", nil, 0, repeatRows, 1},
		{"as shipped", nil, 0, 4 * repeatRows, 4},
		// Where deduplicate_insert is at its default, this engine does not heed
		// insert_deduplicate=0 in a table with a window.
		{"no deduplication, with a window", map[string]string{"insert_deduplicate": "0"}, 100, repeatRows, 4},
		{"deduplication, no window", map[string]string{"insert_deduplicate": "1"}, 0, 4 * repeatRows, 4},
		{"deduplication", map[string]string{"insert_deduplicate": "1"}, 100, repeatRows, 4},
		{"deduplication under its new name", map[string]string{"insert_deduplicate": "1", "deduplicate_insert": "enable"}, 100, repeatRows, 4},
		{"no deduplication under its new name", map[string]string{"insert_deduplicate": "1", "deduplicate_insert": "disable"}, 100, 4 * repeatRows, 4},
		{"asynchronous", map[string]string{"async_insert": "1", "wait_for_async_insert": "1"}, 100, 0, 4},
		{"asynchronous with deduplication", map[string]string{"async_insert": "1", "wait_for_async_insert": "1", "insert_deduplicate": "1", "async_insert_deduplicate": "1"}, 100, 0, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := repeatDB(t, e, fmt.Sprintf("repeat%d", i), c.settings, c.window)
			settled := 0
			for range c.times {
				deliveries := make(chan schema.Delivery, 1)
				deliveries <- schema.Delivery{
					Subject: m.Subject, ContentType: m.ContentType, Payload: m.Payload, Settle: func() error { settled++; return nil },
					Position: schema.Position{Stream: "S", Epoch: 1, StreamSequence: 7, StoredAtNs: testkit.At("2026-03-01T13:00:00Z") * 1e6},
				}
				startConsumer(t, db, deliveries, false)()
			}
			got := hourly(t, db)
			if c.times == 1 {
				want = got
			}
			checkRepeated(t, db, c.rows)
			if got != want || want == "" {
				t.Errorf("hourly usage:\n%s\nof the one batch:\n%s", got, want)
			}
			if settled != c.times {
				t.Errorf("%d of %d deliveries were settled", settled, c.times)
			}
		})
	}
}

func checkRepeated(t *testing.T, db *clickhouse.DB, rows uint64) {
	t.Helper()
	distinct, stored, err := db.CountRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if distinct != repeatRows || rows != 0 && stored != rows {
		t.Errorf("%d distinct rows, %d stored; want %d and %d", distinct, stored, repeatRows, rows)
	}
}

// Consumers that get the same message, because those before them were stopped
// between storing and acknowledging, store it as often and count it once. Late
// acknowledgements change nothing.
func TestTwoConsumersOfTheSameMessagesCountOnce(t *testing.T) {
	e := testkit.Engine(t)
	for dedup, rows := range map[string]uint64{"disable": 3 * repeatRows, "enable": repeatRows} {
		t.Run("deduplicate_insert="+dedup, func(t *testing.T) {
			server, nc := testkit.Broker(t)
			once := repeatDB(t, e, "once"+dedup, nil, 0)
			db := repeatDB(t, e, "twice"+dedup, map[string]string{"insert_deduplicate": "1", "deduplicate_insert": dedup}, 100)
			publisher, err := jetstream.NewPublisher(nc)
			if err != nil {
				t.Fatal(err)
			}
			if receipts, err := publisher.Publish(t.Context(), []schema.Message{repeatMessage(t)}); err != nil || receipts[0].Err != nil {
				t.Fatal(receipts, err)
			}
			consume := func(db *clickhouse.DB, durable string, stops bool) (release func()) {
				sub, err := jetstream.NewSubscription(testkit.Connect(t, server), jetstream.SubscribeOptions{Durable: durable, AckWait: time.Second, Logger: testkit.Logger(t)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = sub.Run(ctx) })
				defer running.Wait()
				defer cancel() // it asks for no more, and its consumer stands still
				return startConsumer(t, db, sub.Deliveries(), stops)
			}
			consume(once, "once", false)()
			releases := []func(){consume(db, "store", true), consume(db, "store", true), consume(db, "store", false)}
			for _, release := range releases {
				release()
			}
			checkRepeated(t, db, rows)
			if got, want := hourly(t, db), hourly(t, once); got != want || want == "" {
				t.Errorf("hourly usage:\n%s\nof one consumer:\n%s", got, want)
			}
		})
	}
}
