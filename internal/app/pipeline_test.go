package app

import (
	"context"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestOneEventToOneReport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	e := testkit.Engine(t)
	db := testkit.DB(t, e, "one")
	server, nc := testkit.Broker(t)

	publisher, err := jetstream.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	var messages []schema.Message
	u := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	edge := testkit.Usage("GPU-2", "i1", "2026-03-01T10:59:30Z", "2026-03-01T11:00:30Z")
	messages = append(messages, schema.MessageOf("default", &schema.Event{Usage: &u}), schema.MessageOf("default", &schema.Event{Usage: &edge}))
	for range 3 {
		receipts, err := publisher.Publish(ctx, messages)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(receipts)
	}
	sub, err := jetstream.NewSubscription(testkit.Connect(t, server), jetstream.SubscribeOptions{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	go sub.Run(ctx)
	c, err := consumer.New(consumer.Options{
		Deliveries: sub.Deliveries(), Marks: db, Logger: testkit.Logger(t),
		NewBatch: func() consumer.Batch { return db.NewBatch() },
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.Run(ctx)
	for c.Stats().Events < 2 {
		if ctx.Err() != nil {
			t.Fatal(c.Stats())
		}
		time.Sleep(20 * time.Millisecond)
	}
	d, err := aggregator.NewDriver(aggregator.Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pass(ctx, false); err != nil {
		t.Fatal(err)
	}
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	for range 2 {
		rows, err := s.Usage(ctx, schema.UsageQuery{Tenant: "default", By: []string{"unit"}, Cuts: []int64{
			testkit.At("2026-03-01T10:00:00Z"), testkit.At("2026-03-01T11:00:00Z"), testkit.At("2026-03-01T11:00:10.5Z"), testkit.At("2026-03-01T12:00:00Z")}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			t.Logf("%+v", r)
		}
		if err := d.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	evs, next, err := s.Events(ctx, schema.EventQuery{Tenant: "default", FromMs: testkit.At("2026-03-01T10:00:00Z"), ToMs: testkit.At("2026-03-01T12:00:00Z"), Limit: 1})
	t.Logf("%+v %v %v", evs, next, err)
	evs, next, err = s.Events(ctx, schema.EventQuery{Tenant: "default", FromMs: testkit.At("2026-03-01T10:00:00Z"), ToMs: testkit.At("2026-03-01T12:00:00Z"), Limit: 1, After: next})
	t.Logf("%+v %v %v", evs, next, err)
	qq, err := s.Quality(ctx, "default", testkit.At("2026-03-01T10:00:00Z"), testkit.At("2026-03-01T12:00:00Z"), 0)
	t.Log(qq, err)
}
