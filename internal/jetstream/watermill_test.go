package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
)

func control(t testing.TB, nc *nats.Conn) *jetstream.Control {
	t.Helper()
	c, err := jetstream.NewControl(deadline(t), nc, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func listen(t testing.TB, c *jetstream.Control, topic string) <-chan *message.Message {
	t.Helper()
	out, err := c.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func receive(t testing.TB, out <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-out:
		if !ok {
			t.Fatal("the subscription has ended")
		}
		return m
	case <-time.After(15 * time.Second):
		t.Fatal("no message")
	}
	panic("unreachable")
}

func quiet(t testing.TB, out <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case m := <-out:
		t.Errorf("an unexpected message %s %s", m.UUID, m.Payload)
	case <-time.After(d):
	}
}

func post(t testing.TB, c *jetstream.Control, topic string, list ...*message.Message) {
	t.Helper()
	if err := c.Publish(topic, list...); err != nil {
		t.Fatal(err)
	}
}

func TestControlCarriesMessagesWhole(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	// Published before anyone listened, on a topic that is no subject token.
	const topic = "re drive.>*/ü"
	m := message.NewMessage("u1", []byte{0, 1, 2, '\n', 0xff})
	m.Metadata = message.Metadata{"a": "b", "UPPER_case": "x y", "zh": "重"}
	post(t, c, topic, m, message.NewMessage("u2", nil))
	out := listen(t, c, topic)
	got := receive(t, out)
	if got.UUID != "u1" || string(got.Payload) != string(m.Payload) {
		t.Errorf("got %q %q", got.UUID, got.Payload)
	}
	for k, v := range m.Metadata {
		if got.Metadata.Get(k) != v {
			t.Errorf("metadata %s is %q, want %q", k, got.Metadata.Get(k), v)
		}
	}
	if len(got.Metadata) != len(m.Metadata) {
		t.Errorf("metadata %v was not all published", got.Metadata)
	}
	got.Ack()
	if got := receive(t, out); got.UUID != "u2" || len(got.Payload) != 0 {
		t.Errorf("got %q %q", got.UUID, got.Payload)
	} else {
		got.Ack()
	}
	quiet(t, out, 200*time.Millisecond)
	quiet(t, listen(t, c, "other topic"), 100*time.Millisecond)
}

func TestControlNackComesAgain(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	out := listen(t, c, "jobs")
	post(t, c, "jobs", message.NewMessage("u1", []byte("1")))
	for range 2 {
		receive(t, out).Nack()
	}
	m := receive(t, out)
	if m.UUID != "u1" {
		t.Errorf("got %s", m.UUID)
	}
	m.Ack()
	quiet(t, out, 1500*time.Millisecond)
}

func TestControlSubscribersShare(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	a, b := control(t, nc), control(t, testkit.Connect(t, s))
	outA, outB := listen(t, a, "jobs"), listen(t, b, "jobs")
	const n = 60
	for i := range n {
		post(t, a, "jobs", message.NewMessage(fmt.Sprint(i), nil))
	}
	seen, from := map[string]int{}, [2]int{}
	for range n {
		var m *message.Message
		select {
		case m = <-outA:
			from[0]++
		case m = <-outB:
			from[1]++
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d messages", len(seen), n)
		}
		seen[m.UUID]++
		m.Ack()
	}
	if len(seen) != n || from[0] == 0 || from[1] == 0 {
		t.Errorf("%d different of %d messages, divided %v", len(seen), n, from)
	}
	quiet(t, outA, 100*time.Millisecond)
	quiet(t, outB, 100*time.Millisecond)
}

func TestControlGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	s, nc, dir := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	out := listen(t, c, "jobs")
	post(t, c, "jobs", message.NewMessage("1", nil))
	receive(t, out).Ack()
	restart(t, s, dir, 300*time.Millisecond)
	waitConnected(t, nc.IsConnected)
	eventually(t, "publishing after the restart", func() bool { return c.Publish("jobs", message.NewMessage("2", nil)) == nil })
	for {
		m := receive(t, out)
		m.Ack()
		if m.UUID == "2" {
			break
		}
	}
}

// A program whose stream goes away before it has subscribed is not ended by that.
func TestControlSubscribesWhileTheStreamIsAway(t *testing.T) {
	t.Parallel()
	s, nc, dir := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	out := listen(t, c, "jobs")
	again, err := jetstream.StartServer(jetstream.ServerOptions{Dir: dir, Listen: at.Host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	waitConnected(t, nc.IsConnected)
	eventually(t, "publishing after the start", func() bool { return c.Publish("jobs", message.NewMessage("1", nil)) == nil })
	m := receive(t, out)
	m.Ack()
	if m.UUID != "1" {
		t.Errorf("got message %q", m.UUID)
	}
}

// The header of a message is written by anyone who may publish on the control
// subjects. What ends a watermill-nats process has to be an ordinary message here.
func TestControlTakesAnyHeader(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	out := listen(t, c, "jobs")
	for _, h := range []nats.Header{nil, {"Watermill-Uuid": {"1", "2"}, "X": {"a", "b"}}, {"Watermill-Uuid": {}, "X": {}}, {"Watermill-Uuid": {"3"}}} {
		if err := nc.PublishMsg(&nats.Msg{Subject: "gpumeter.control.jobs", Header: h}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for range 4 {
		m := receive(t, out)
		ids = append(ids, m.UUID)
		m.Ack()
	}
	if fmt.Sprint(ids) != "[ 1  3]" {
		t.Errorf("ids %q", ids)
	}
}

// A poison queue publishes the very message, id and all, on another topic. That
// is another message of the stream and not a repetition of the first.
func TestControlPoisonQueueKeepsTheMessage(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	poison, err := middleware.PoisonQueue(c, "jobs-failed")
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(poison)
	handled := make(chan string, 10)
	router.AddConsumerHandler("jobs", "jobs", c, func(m *message.Message) error {
		handled <- m.UUID
		return errors.New("cannot be done")
	})
	failed := listen(t, c, "jobs-failed")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() { cancel(); running.Wait() }()
	<-router.Running()
	post(t, c, "jobs", message.NewMessage("u1", []byte("job")))
	m := receive(t, failed)
	if m.UUID != "u1" || string(m.Payload) != "job" || m.Metadata.Get(middleware.ReasonForPoisonedKey) != "cannot be done" {
		t.Errorf("poisoned: %q %q %v", m.UUID, m.Payload, m.Metadata)
	}
	m.Ack()
	if len(handled) != 1 {
		t.Errorf("handled %d times", len(handled))
	}
}

// A publisher that repeats a message because the answer was lost gets one.
func TestControlRepeatIsOne(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	for range 3 {
		post(t, c, "jobs", message.NewMessage("u1", nil))
	}
	out := listen(t, c, "jobs")
	receive(t, out).Ack()
	quiet(t, out, 200*time.Millisecond)
}

func TestControlClose(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	c := control(t, nc)
	out := listen(t, c, "jobs")
	post(t, c, "jobs", message.NewMessage("1", nil))
	m := receive(t, out) // neither acked nor nacked: the handler hangs
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
	if _, ok := <-out; ok {
		t.Error("a message after Close")
	}
	if m.Context().Err() == nil {
		t.Error("the handler is not told that it is over")
	}
	if _, err := c.Subscribe(t.Context(), "jobs"); err == nil {
		t.Error("subscribed after Close")
	}
	if err := c.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	// Ending the context of a subscription ends that one alone.
	d := control(t, nc)
	ctx, cancel := context.WithCancel(t.Context())
	one, err := d.Subscribe(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	two := listen(t, d, "two")
	cancel()
	eventually(t, "the subscription to end", func() bool {
		select {
		case _, ok := <-one:
			return !ok
		default:
			return false
		}
	})
	post(t, d, "two", message.NewMessage("2", nil))
	receive(t, two).Ack()
}
