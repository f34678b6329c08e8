package jetstream_test

import (
	"context"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
)

// What is settled ends before the first message that is not acknowledged, and
// otherwise goes on with the server's clock.
func TestSettled(t *testing.T) {
	_, nc := testkit.Broker(t)
	p := publisher(t, nc)
	look := func() jetstream.Settlement {
		t.Helper()
		s, err := jetstream.Settled(deadline(t), nc, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	stamp := func(seq uint64) time.Time {
		t.Helper()
		stream, _ := streamInfo(t, nc)
		m, err := stream.GetMsg(deadline(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		return m.Time
	}
	before := time.Now()
	if s := look(); s.Waiting != 0 || s.Until.Before(before.Add(-jetstream.SettleMargin)) || s.Until.After(time.Now().Add(-jetstream.SettleMargin)) {
		t.Errorf("an empty stream without a durable: %+v", s)
	}
	publish(t, p, messages(0, 5))
	waits := func(what string, seq uint64, waiting uint64) {
		t.Helper()
		if s := look(); s.Waiting != waiting || !s.Until.Equal(stamp(seq).Add(-jetstream.SettleMargin)) {
			t.Errorf("%s: %+v, message %d is of %v", what, s, seq, stamp(seq))
		}
	}
	waits("without a durable", 1, 5)

	sub, err := jetstream.NewSubscription(nc, jetstream.SubscribeOptions{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sub.Run(ctx) }()
	var settle []func() error
	for range 5 {
		select {
		case d := <-sub.Deliveries():
			settle = append(settle, d.Settle)
		case <-time.After(time.Minute):
			t.Fatal("no delivery")
		}
	}
	waits("delivered", 1, 5)
	acknowledge := func(list ...int) {
		t.Helper()
		js, err := natsjs.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if err := settle[i](); err != nil {
				t.Fatal(err)
			}
		}
		for n := len(list); ; {
			c, err := js.Consumer(deadline(t), jetstream.StreamName, "store")
			if err != nil {
				t.Fatal(err)
			}
			if c.CachedInfo().NumAckPending == len(settle)-n {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	acknowledge(0, 1, 3) // out of order: the third still waits
	waits("the first two and the fourth", 3, 3)
	for _, i := range []int{2, 4} {
		if err := settle[i](); err != nil {
			t.Fatal(err)
		}
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if s := look(); s.Waiting == 0 && s.Until.After(stamp(5).Add(-jetstream.SettleMargin)) {
			break
		} else if time.Since(begin) > time.Minute {
			t.Fatalf("all acknowledged: %+v", s)
		}
	}
	cancel()
	<-done
	publish(t, p, messages(5, 6))
	waits("one more, nobody consumes", 6, 1)
	nc.Close()
	if _, err := jetstream.Settled(deadline(t), nc, ""); err == nil {
		t.Error("without a connection something is settled")
	}
}
