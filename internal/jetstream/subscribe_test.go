package jetstream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// subscribe runs a subscription until the test ends or stop is called.
func subscribe(t testing.TB, s *jetstream.Server, o jetstream.SubscribeOptions) (sub *jetstream.Subscription, stop func()) {
	t.Helper()
	o.Logger = testkit.Logger(t)
	sub, err := jetstream.NewSubscription(testkit.Connect(t, s), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := sub.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return sub, stop
}

func next(t testing.TB, sub *jetstream.Subscription) schema.Delivery {
	t.Helper()
	select {
	case d := <-sub.Deliveries():
		return d
	case <-time.After(15 * time.Second):
		t.Fatal("no delivery")
	}
	panic("unreachable")
}

func TestTwoSubscriptionsShareADurable(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	const n = 300
	receipts := publish(t, publisher(t, nc), messages(0, n))
	a, _ := subscribe(t, s, jetstream.SubscribeOptions{PrefetchMessages: 10})
	b, _ := subscribe(t, s, jetstream.SubscribeOptions{PrefetchMessages: 10})
	seen := map[uint64]int{}
	from := [2]int{}
	for range n {
		var d schema.Delivery
		select {
		case d = <-a.Deliveries():
			from[0]++
		case d = <-b.Deliveries():
			from[1]++
		case <-time.After(15 * time.Second):
			t.Fatalf("%d of %d were delivered", len(seen), n)
		}
		seen[d.StreamSequence]++
		if err := d.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range receipts {
		if seen[r.Sequence] != 1 {
			t.Errorf("sequence %d was delivered %d times", r.Sequence, seen[r.Sequence])
		}
	}
	if from[0] == 0 || from[1] == 0 {
		t.Errorf("one of two did all the work: %v", from)
	}
	eventually(t, "everything to be settled", func() bool {
		if err := a.Look(deadline(t)); err != nil {
			t.Fatal(err)
		}
		waiting, unsettled, err := a.Backlog()
		return waiting == 0 && unsettled == 0 && err == nil
	})
	// Settled is settled: whoever comes later gets nothing.
	c, _ := subscribe(t, s, jetstream.SubscribeOptions{})
	select {
	case d := <-c.Deliveries():
		t.Errorf("a settled message came again: %d", d.StreamSequence)
	case <-time.After(300 * time.Millisecond):
	}
}

// A message that is not settled comes again, with the same position: that is
// what makes its rows equal to those of the first delivery.
func TestUnsettledMessageComesAgain(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	publish(t, publisher(t, nc), messages(0, 2))
	sub, stop := subscribe(t, s, jetstream.SubscribeOptions{AckWait: time.Second})
	first, second := next(t, sub), next(t, sub)
	if err := second.Settle(); err != nil {
		t.Fatal(err)
	}
	_, info := streamInfo(t, nc)
	if first.Epoch != uint64(info.Created.UnixNano()) || first.Stream != jetstream.StreamName || first.StoredAtNs == 0 {
		t.Errorf("position %+v", first.Position)
	}
	begin := time.Now()
	again := next(t, sub)
	if again.Position != first.Position || again.Subject != first.Subject || again.ContentType != first.ContentType || string(again.Payload) != string(first.Payload) {
		t.Errorf("delivered %+v and then %+v", first.Position, again.Position)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v to come again", took)
	}
	// The process ends without settling; the next one gets it.
	stop()
	other, _ := subscribe(t, s, jetstream.SubscribeOptions{AckWait: time.Second})
	if last := next(t, other); last.Position != first.Position {
		t.Errorf("delivered %+v, and to the next process %+v", first.Position, last.Position)
	} else if err := last.Settle(); err != nil {
		t.Error(err)
	}
}

// Consuming goes on by itself after the broker was away, and after an operator
// deleted the durable.
func TestSubscriptionGoesOn(t *testing.T) {
	t.Parallel()
	s, nc, dir := broker(t, jetstream.StreamOptions{})
	p := publisher(t, nc)
	sub, _ := subscribe(t, s, jetstream.SubscribeOptions{AckWait: time.Second})
	publish(t, p, messages(0, 1))
	next(t, sub).Settle()
	restart(t, s, dir, 500*time.Millisecond)
	waitConnected(t, nc.IsConnected)
	publish(t, p, messages(1, 2))
	delivered := func(n int) func() bool {
		want := event(n).Payload
		return func() bool {
			d := next(t, sub)
			if err := d.Settle(); err != nil {
				t.Error(err)
			}
			return string(d.Payload) == string(want)
		}
	}
	eventually(t, "a message after the restart", delivered(1))
	stream, _ := streamInfo(t, nc)
	if err := stream.DeleteConsumer(deadline(t), "store"); err != nil {
		t.Fatal(err)
	}
	publish(t, p, messages(2, 3))
	eventually(t, "a message after the durable was deleted", delivered(2))
}

func TestWatchSaysWhenTheBacklogIsNotKnown(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	publish(t, publisher(t, nc), messages(0, 5))
	sub, _ := subscribe(t, s, jetstream.SubscribeOptions{PrefetchMessages: 2})
	next(t, sub)
	watching, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- sub.Watch(watching, 10*time.Millisecond) }()
	eventually(t, "five messages that are not settled", func() bool {
		waiting, unsettled, err := sub.Backlog()
		return waiting+unsettled == 5 && err == nil
	})
	s.Stop()
	eventually(t, "the backlog to be unknown", func() bool {
		_, _, err := sub.Backlog()
		return err != nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Anyone who may publish can send any bytes under any headers. Each such message
// is quarantined, and the good one behind them is stored.
func TestHostileMessagesDoNotStopAConsumer(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	good := event(1)
	send := func(subject string, header nats.Header, data []byte) {
		t.Helper()
		if err := nc.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	send(good.Subject, nil, []byte("{"))
	send(good.Subject, nil, nil)
	send(good.Subject, nats.Header{"Content-Type": {"text/html", "application/json"}}, []byte("x"))
	send(good.Subject, nats.Header{"Content-Type": {}}, []byte("x"))
	send(good.Subject, nats.Header{"Content-Type": {""}, "X": {"1", "2"}}, []byte("[]"))
	send(good.Subject, nats.Header{"Content-Type": {schema.ContentTypeCompact, schema.ContentTypeCompact}}, []byte{0xff})
	send("gpumeter.v1.x", nil, good.Payload)
	send("gpumeter.v1.a.b.c.d.e", nil, good.Payload)
	send("gpumeter.v1.~zz.b.usage", nil, good.Payload)
	// The same event with every header twice: the first value counts.
	send(good.Subject, nats.Header{"Content-Type": {good.ContentType, "x"}, nats.MsgIdHdr: {"1", "2"}, "X": {"1", "2"}}, good.Payload)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	sub, _ := subscribe(t, s, jetstream.SubscribeOptions{})
	kept := &recorder{}
	c, err := consumer.New(consumer.Options{Deliveries: sub.Deliveries(), Marks: kept, NewBatch: func() consumer.Batch { return &recording{r: kept} }, MaxAge: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	eventually(t, "all ten messages", func() bool { return c.Stats().Messages == 10 })
	cancel()
	<-done
	if kept.events != 1 || kept.quarantined != 9 {
		t.Errorf("%d events stored and %d quarantined", kept.events, kept.quarantined)
	}
	eventually(t, "all to be settled", func() bool {
		if err := sub.Look(deadline(t)); err != nil {
			t.Fatal(err)
		}
		waiting, unsettled, _ := sub.Backlog()
		return waiting+unsettled == 0
	})
}

// recorder counts what a consumer stores.
type recorder struct {
	mu                  sync.Mutex
	events, quarantined int
}

func (r *recorder) WriteMarks(context.Context, []schema.Mark) error { return nil }

type recording struct {
	r                   *recorder
	events, quarantined int
}

func (b *recording) Usage(*schema.Position, *schema.Usage) { b.events++ }
func (b *recording) Other(*schema.Position, *schema.Event) { b.events++ }
func (b *recording) Quarantine(*schema.Position, string, string, *schema.Reject) {
	b.quarantined++
}
func (b *recording) Rows() int { return b.events + b.quarantined }
func (b *recording) Reset()    { b.events, b.quarantined = 0, 0 }
func (b *recording) WriteRaw(context.Context) error {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.r.events += b.events
	b.r.quarantined += b.quarantined
	return nil
}

// Why messages are settled one by one. With AckAll an acknowledgement means
// "everything up to here", of all processes on the durable: the one that stored
// its batch acknowledges what the other holds in memory and has not stored.
func TestAckAllLosesWhatAnotherProcessHolds(t *testing.T) {
	t.Parallel()
	const n, each = 10, 5
	stored := func(t *testing.T, policy natsjs.AckPolicy) int {
		_, nc, _ := broker(t, jetstream.StreamOptions{})
		publish(t, publisher(t, nc), messages(0, n))
		stream, _ := streamInfo(t, nc)
		durable, err := stream.CreateConsumer(deadline(t), natsjs.ConsumerConfig{Durable: "store", AckPolicy: policy, AckWait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		rows := map[uint64]bool{}
		fetch := func(max int) (batch []natsjs.Msg) {
			got, err := durable.Fetch(max, natsjs.FetchMaxWait(3*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for m := range got.Messages() {
				batch = append(batch, m)
			}
			return batch
		}
		store := func(batch []natsjs.Msg) {
			for _, m := range batch {
				meta, err := m.Metadata()
				if err != nil {
					t.Fatal(err)
				}
				rows[meta.Sequence.Stream] = true
			}
			acknowledge := batch
			if policy == natsjs.AckAllPolicy {
				acknowledge = batch[len(batch)-1:] // one for the whole batch, which is its charm
			}
			for _, m := range acknowledge {
				if err := m.DoubleAck(deadline(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
		crashed := fetch(each) // one process takes the first five and dies before it stores them
		other := fetch(each)
		if len(crashed) != each || len(other) != each {
			t.Fatalf("fetched %d and %d", len(crashed), len(other))
		}
		store(other)
		for batch := fetch(n); len(batch) > 0; batch = fetch(n) { // what comes again after the wait
			store(batch)
			if len(rows) == n {
				break
			}
		}
		return len(rows)
	}
	t.Run("AckAll", func(t *testing.T) {
		if got := stored(t, natsjs.AckAllPolicy); got != n-each {
			t.Errorf("%d of %d were stored; this test is here because AckAll loses %d", got, n, each)
		}
	})
	t.Run("AckExplicit", func(t *testing.T) {
		if got := stored(t, natsjs.AckExplicitPolicy); got != n {
			t.Errorf("%d of %d were stored", got, n)
		}
	})
	t.Run("Subscription", func(t *testing.T) {
		s, nc, _ := broker(t, jetstream.StreamOptions{})
		publish(t, publisher(t, nc), messages(0, n))
		a, stop := subscribe(t, s, jetstream.SubscribeOptions{AckWait: time.Second, PrefetchMessages: each})
		for range each {
			next(t, a)
		}
		stop() // dies with five messages that it has not stored
		b, _ := subscribe(t, s, jetstream.SubscribeOptions{AckWait: time.Second})
		rows := map[uint64]bool{}
		for len(rows) < n {
			d := next(t, b)
			rows[d.StreamSequence] = true
			if err := d.Settle(); err != nil {
				t.Fatal(err)
			}
		}
		if slices.Contains([]bool{rows[1], rows[n]}, false) {
			t.Errorf("stored %v", fmt.Sprint(rows))
		}
	})
}

// What was confirmed to its publisher waits from that moment on, whatever the server
// has told its consumers.
func TestBacklogSeesWhatWasPublished(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	sub, stop := subscribe(t, s, jetstream.SubscribeOptions{})
	eventually(t, "the durable is there", func() bool { return sub.Look(deadline(t)) == nil })
	stop()
	p := publisher(t, nc)
	for n := range 300 {
		publish(t, p, messages(n, n+1))
		if err := sub.Look(deadline(t)); err != nil {
			t.Fatal(err)
		}
		// The stopped subscription may have asked for some that it never passed on.
		if waiting, unsettled, _ := sub.Backlog(); waiting+unsettled == 0 {
			t.Fatalf("nothing waits, and %d messages were published", n+1)
		}
	}
}
