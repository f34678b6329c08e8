package producer

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// fakeStream keeps what it is given. fault decides about each attempt: the error
// to return, and whether the messages are stored all the same.
type fakeStream struct {
	mu       sync.Mutex
	fault    func(messages []schema.Message) (err error, stored bool)
	refuse   func(events []schema.Usage) error // for a receipt
	events   []schema.Usage                    // first arrivals, in order
	byID     map[string]schema.Hash
	payloads map[string][]byte // by message id
	attempts int
	repeats  int
	faults   []string
}

func (f *fakeStream) Publish(_ context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts++
	var failure error
	if f.fault != nil {
		err, stored := f.fault(messages)
		if err != nil && !stored {
			return nil, err
		}
		failure = err
	}
	receipts := make([]schema.Receipt, len(messages))
	for i, m := range messages {
		receipts[i] = f.take(m)
	}
	if failure != nil {
		return nil, failure
	}
	return receipts, nil
}

func (f *fakeStream) take(m schema.Message) schema.Receipt {
	if f.byID == nil {
		f.byID, f.payloads = map[string]schema.Hash{}, map[string][]byte{}
	}
	if old, ok := f.payloads[m.ID]; ok {
		if !bytes.Equal(old, m.Payload) {
			f.faults = append(f.faults, "two contents of message "+m.ID)
		}
		f.repeats++
		return schema.Receipt{Sequence: uint64(len(f.events)), Duplicate: true}
	}
	d := schema.Decode(m.ContentType, m.Payload)
	if len(d.Rejects) > 0 || len(m.Payload) > schema.MaxMessageBytes {
		f.faults = append(f.faults, fmt.Sprintf("%d bytes: %v", len(m.Payload), d.Rejects))
	}
	var events []schema.Usage
	for _, p := range d.Usage {
		events = append(events, p.Event)
		if want := (schema.Address{Tenant: "t", Source: p.Event.Source, Kind: "usage"}).Subject(); m.Subject != want {
			f.faults = append(f.faults, "subject "+m.Subject)
		}
	}
	if f.refuse != nil {
		if err := f.refuse(events); err != nil {
			return schema.Receipt{Err: err}
		}
	}
	f.payloads[m.ID] = m.Payload
	for i := range events {
		hash, _ := events[i].PayloadHash(nil)
		id := events[i].Source + "/" + events[i].ID
		if old, ok := f.byID[id]; ok {
			f.repeats++
			if old != hash {
				f.faults = append(f.faults, "two contents of "+id)
			}
			continue
		}
		f.byID[id] = hash
		f.events = append(f.events, events[i])
	}
	return schema.Receipt{Sequence: uint64(len(f.events))}
}

// check verifies that the first arrivals are the source's numbers from 1 on, in
// order and without a hole, and returns them.
func (f *fakeStream) check(t *testing.T) []schema.Usage {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		t.Error(fault)
	}
	for i := range f.events {
		if f.events[i].Sequence != uint64(i+1) {
			t.Fatalf("event %d has the number %d", i+1, f.events[i].Sequence)
		}
	}
	return f.events
}

// boards is a source of n busy units at any time.
type boards struct {
	n    int
	fail func() error
}

func (b boards) Read(context.Context) ([]schema.Reading, error) {
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return nil, err
		}
	}
	return b.ReadAt(time.Now()), nil
}

func (b boards) ReadAt(t time.Time) []schema.Reading {
	var all []schema.Reading
	for i := range b.n {
		unit := fmt.Sprint("GPU-", i)
		all = append(all, schema.Reading{Unit: unit, Board: unit, Instance: "i", Project: "p",
			Utilization: schema.Some(500_000), BoardEnergyMj: schema.Some(t.UnixMilli() * 300)})
	}
	return all
}

// present hides the history of a source.
type present struct{ Source }

func newProducer(t testing.TB, o Options) *Producer {
	t.Helper()
	o.Tenant, o.SourceName = "t", "agent/test"
	if o.Spool == nil {
		o.Spool = openSpool(t, SpoolOptions{})
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
