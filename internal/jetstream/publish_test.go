package jetstream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	// What is published before, what then, and which of that are duplicates.
	for _, c := range []struct {
		name       string
		before     []schema.Message
		list       []schema.Message
		duplicates map[int]int // place in list: place in before or list where it came first
	}{
		{"one", nil, messages(0, 1), nil},
		{"one again: its acknowledgement was lost", messages(0, 1), messages(0, 1), map[int]int{0: 0}},
		{"a batch", nil, messages(0, 50), nil},
		{"a batch again: its acknowledgement was lost", messages(0, 3), messages(0, 3), map[int]int{0: 0, 1: 1, 2: 2}},
		// The server refuses the whole batch (10201) and does not say which
		// message it has.
		{"a batch with one stray duplicate", messages(7, 8), messages(5, 10), map[int]int{2: 0}},
		{"a batch that repeats itself", nil, append(messages(0, 3), event(1)), map[int]int{3: 1}},
		{"more than an atomic batch may hold", nil, messages(0, 1002), nil},
		{"nothing", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, nc := testkit.Broker(t)
			p := publisher(t, nc)
			before := publish(t, p, c.before)
			receipts := publish(t, p, c.list)
			union := append([]schema.Message(nil), c.before...)
			seen := map[uint64]bool{}
			for i, r := range receipts {
				first, isDuplicate := c.duplicates[i]
				if r.Duplicate != isDuplicate {
					t.Errorf("message %d: duplicate %v, want %v", i, r.Duplicate, isDuplicate)
				}
				if !isDuplicate {
					union = append(union, c.list[i])
					if seen[r.Sequence] {
						t.Errorf("message %d has the sequence %d of another", i, r.Sequence)
					}
					seen[r.Sequence] = true
					continue
				}
				want := receipts[first].Sequence
				if len(before) > 0 {
					want = before[first].Sequence
				}
				if r.Sequence != want {
					t.Errorf("message %d: sequence %d, the first time it was %d", i, r.Sequence, want)
				}
			}
			holds(t, nc, union)
			// A receipt names the message that is stored under its sequence.
			s, _ := streamInfo(t, nc)
			for i, r := range receipts {
				if i%101 != 0 {
					continue
				}
				m, err := s.GetMsg(deadline(t), r.Sequence)
				if err != nil || string(m.Data) != string(c.list[i].Payload) || m.Subject != c.list[i].Subject || m.Header.Get("Content-Type") != c.list[i].ContentType {
					t.Errorf("message %d is not at its sequence %d: %v", i, r.Sequence, err)
				}
			}
		})
	}
}

// Two tenants may send the same event; the stream they share must keep both.
func TestTenantsDoNotShareMessageIDs(t *testing.T) {
	t.Parallel()
	_, nc := testkit.Broker(t)
	u := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	e := &schema.Event{Usage: &u}
	for _, r := range publish(t, publisher(t, nc), []schema.Message{schema.MessageOf("a", e), schema.MessageOf("b", e)}) {
		if r.Duplicate {
			t.Error("the event of one tenant was dropped as the other's duplicate")
		}
	}
}

// A full stream refuses what is new. It never makes room by forgetting what
// nobody may have read, and the sender learns which messages it has to keep.
func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{MaxBytes: 20_000})
	p := publisher(t, nc)
	var taken []schema.Message
	refused := 0
	for from := 0; from < 60; from += 5 {
		list := messages(from, from+5)
		receipts, err := p.Publish(deadline(t), list)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range receipts {
			if r.Err == nil {
				taken = append(taken, list[i])
			} else {
				refused++
			}
		}
	}
	if len(taken) < 10 || refused < 10 {
		t.Errorf("%d taken and %d refused", len(taken), refused)
	}
	holds(t, nc, taken)
	// Room is made by an operator; then the same messages are taken.
	if err := jetstream.EnsureStream(deadline(t), nc, jetstream.StreamOptions{MaxBytes: 200_000}); err != nil {
		t.Fatal(err)
	}
	publish(t, p, messages(0, 60))
	holds(t, nc, messages(0, 60))
}

func TestEnsureStreamTwice(t *testing.T) {
	t.Parallel()
	_, nc, _ := broker(t, jetstream.StreamOptions{})
	publish(t, publisher(t, nc), messages(0, 5))
	_, before := streamInfo(t, nc)
	for range 2 {
		if err := jetstream.EnsureStream(deadline(t), nc, jetstream.StreamOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, after := streamInfo(t, nc)
	if !before.Created.Equal(after.Created) || after.State.Msgs != 5 {
		t.Errorf("the stream was made anew: created %v and %v, %d messages", before.Created, after.Created, after.State.Msgs)
	}
	c := after.Config
	if !c.DenyDelete || !c.DenyPurge || !c.AllowAtomicPublish || c.Discard.String() != "DiscardNew" || c.MaxAge != 72*time.Hour || c.MaxBytes != 12<<30 {
		t.Errorf("configuration %+v", c)
	}
}

func TestStreamSurvivesARestart(t *testing.T) {
	t.Parallel()
	s, nc, dir := broker(t, jetstream.StreamOptions{})
	p := publisher(t, nc)
	first := publish(t, p, messages(0, 20))
	restart(t, s, dir, 0)
	waitConnected(t, nc.IsConnected)
	// Nothing is gone, and the memory of message ids is as long as before.
	holds(t, nc, messages(0, 20))
	for i, r := range publish(t, p, messages(0, 21)) {
		if i < 20 && (!r.Duplicate || r.Sequence != first[i].Sequence) || i == 20 && r.Duplicate {
			t.Errorf("message %d after the restart: %+v, before %+v", i, r, first[i%20])
		}
	}
	holds(t, nc, messages(0, 21))
}

func waitConnected(t testing.TB, connected func() bool) {
	t.Helper()
	eventually(t, "the connection to come back", connected)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// With the stream away a publisher says so, and does not say that anything is
// durable.
func TestPublishWithoutAStream(t *testing.T) {
	t.Parallel()
	s, nc, _ := broker(t, jetstream.StreamOptions{})
	p := publisher(t, nc)
	p.Timeout = time.Second
	s.Stop()
	eventually(t, "the connection to be seen as lost", func() bool { return !nc.IsConnected() })
	for _, n := range []int{1, 3} {
		receipts, err := p.Publish(deadline(t), messages(0, n))
		if err == nil {
			for _, r := range receipts {
				if r.Err == nil {
					t.Errorf("%d messages: a receipt without a stream: %+v", n, r)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if receipts, err := p.Publish(ctx, messages(0, 3)); err == nil || len(receipts) != 0 {
		t.Errorf("a cancelled publish: %v %v", receipts, err)
	}
}

func TestStartServerRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]jetstream.ServerOptions{
		"no folder":  {},
		"no port":    {Dir: t.TempDir(), Listen: "127.0.0.1"},
		"bad port":   {Dir: t.TempDir(), Listen: "127.0.0.1:http"},
		"large port": {Dir: t.TempDir(), Listen: "127.0.0.1:70000"},
	} {
		if s, err := jetstream.StartServer(o); err == nil {
			s.Stop()
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := jetstream.Connect("nats://[::bad", "x", testkit.Logger(t)); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("a bad URL: %v", err)
	}
}
