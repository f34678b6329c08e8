package jetstream_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// event is the n-th message of a test: small, and with an id of its own.
func event(n int) schema.Message {
	u := testkit.Usage(fmt.Sprint("GPU-", n), "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	return schema.MessageOf("default", &schema.Event{Usage: &u})
}

func messages(from, to int) (list []schema.Message) {
	for n := from; n < to; n++ {
		list = append(list, event(n))
	}
	return list
}

func publisher(t testing.TB, nc *nats.Conn) *jetstream.Publisher {
	t.Helper()
	p, err := jetstream.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// publish wants every message to be taken.
func publish(t testing.TB, p *jetstream.Publisher, list []schema.Message) []schema.Receipt {
	t.Helper()
	receipts, err := p.Publish(deadline(t), list)
	if err != nil {
		t.Fatal(err)
	}
	if len(receipts) != len(list) {
		t.Fatalf("%d receipts for %d messages", len(receipts), len(list))
	}
	for i, r := range receipts {
		if r.Err != nil || r.Sequence == 0 {
			t.Fatalf("message %d: %+v", i, r)
		}
	}
	return receipts
}

func streamInfo(t testing.TB, nc *nats.Conn) (natsjs.Stream, *natsjs.StreamInfo) {
	t.Helper()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(deadline(t), jetstream.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.CachedInfo()
}

// holds checks that the stream has exactly these message ids, each once.
func holds(t testing.TB, nc *nats.Conn, list []schema.Message) {
	t.Helper()
	s, info := streamInfo(t, nc)
	have := map[string]int{}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(deadline(t), seq)
		if err != nil {
			t.Fatal(err)
		}
		have[m.Header.Get(nats.MsgIdHdr)]++
	}
	for i := range list {
		if n := have[list[i].ID]; n != 1 {
			t.Errorf("message %d is in the stream %d times", i, n)
		}
		delete(have, list[i].ID)
	}
	if len(have) > 0 {
		t.Errorf("%d messages in the stream that nobody published", len(have))
	}
}

// restart stops the server and starts it again on the same port and folder.
func restart(t testing.TB, s *jetstream.Server, dir string, away time.Duration) *jetstream.Server {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	time.Sleep(away)
	again, err := jetstream.StartServer(jetstream.ServerOptions{Dir: dir, Listen: u.Host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	return again
}

// broker is testkit.Broker with a folder that the test knows.
func broker(t testing.TB, o jetstream.StreamOptions) (*jetstream.Server, *nats.Conn, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := jetstream.StartServer(jetstream.ServerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	nc := testkit.Connect(t, s)
	if err := jetstream.EnsureStream(deadline(t), nc, o); err != nil {
		t.Fatal(err)
	}
	return s, nc, dir
}
