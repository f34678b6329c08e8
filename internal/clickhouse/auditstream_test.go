package clickhouse_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// A message is in doubt when it left no row, or when a place among its rows is
// empty, in whatever tables they are. What another stream or epoch left under its
// number says nothing.
func TestDoubtful(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "doubtful")
	b := db.NewBatch()
	at := func(sequence uint64, place uint32) *schema.Position {
		return &schema.Position{Tenant: "default", Stream: "S", Epoch: 7, StreamSequence: sequence, Place: place, StoredAtNs: 1e18}
	}
	usage := func(p *schema.Position) {
		u := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
		u.ID = fmt.Sprint(p.Stream, p.Epoch, "/", p.StreamSequence, "/", p.Place)
		b.Usage(p, &u)
	}
	for sequence, places := range map[uint64][]uint32{
		1: {0},
		3: {0, 1, 2},
		4: {0, 2},
		5: {1, 2},
		6: {0},
		9: {0, 1},
	} {
		for _, place := range places {
			usage(at(sequence, place))
		}
	}
	b.Quarantine(at(6, 1), "s", schema.ContentTypeEvent, &schema.Reject{Place: 1, Raw: []byte("{"), Err: errors.New("broken")})
	b.Other(at(6, 2), &schema.Event{Lease: &schema.Lease{Header: schema.Header{Source: "cloud", ID: "1"}, Instance: "i1", AtMs: 1e12, State: "running"}})
	b.Quarantine(at(7, 0), "s", "", &schema.Reject{Place: -1, Raw: []byte("\xff"), Err: errors.New("broken")})
	otherStream, otherEpoch := at(8, 0), at(8, 0)
	otherStream.Stream, otherEpoch.Epoch = "T", 8
	usage(otherStream)
	usage(otherEpoch)
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to uint64
		limit    int
		want     []uint64
	}{
		{0, 9, 100, []uint64{2, 4, 5, 8}},
		{0, 9, 2, []uint64{2, 4}},
		{0, 11, 100, []uint64{2, 4, 5, 8, 10, 11}},
		{2, 8, 100, []uint64{4, 5, 8}},
		{1, 2, 100, []uint64{2}},
		{2, 3, 100, nil},
		{3, 3, 100, nil},
	} {
		got, err := db.Doubtful(t.Context(), "S", 7, c.from, c.to, c.limit)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("after %d up to %d, at most %d: %v, %v; want %v", c.from, c.to, c.limit, got, err, c.want)
		}
	}
}

// Storage has an event when it has that content of that identity, whichever message
// brought it, and a part that was set aside when it has those bytes of that subject.
func TestStoredIsByIdentityAndContent(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "stored")
	usage := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	lease := schema.Lease{Header: schema.Header{Source: "cloud", ID: "1"}, Instance: "i1", AtMs: usage.StartMs, State: "running"}
	b := db.NewBatch()
	p := &schema.Position{Tenant: "default", Stream: "S", Epoch: 7, StreamSequence: 1, StoredAtNs: 1e18}
	b.Usage(p, &usage)
	b.Other(p, &schema.Event{Lease: &lease})
	b.Quarantine(p, "s.bad", schema.ContentTypeEvent, &schema.Reject{Raw: []byte("{\xff"), Err: errors.New("broken")})
	if err := b.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	type change struct {
		name   string
		tenant string
		usage  func(*schema.Usage)
		lease  func(*schema.Lease)
		raw    string
		want   bool
	}
	var list []schema.Expected
	changes := []change{
		{name: "the same", usage: func(*schema.Usage) {}, want: true},
		{name: "another content", usage: func(u *schema.Usage) { u.Utilization = schema.Some(1) }},
		{name: "another end", usage: func(u *schema.Usage) { u.EndMs-- }},
		{name: "another id", usage: func(u *schema.Usage) { u.ID = "2" }},
		{name: "another source", usage: func(u *schema.Usage) { u.Source = "agent/node-2" }},
		{name: "another unit", usage: func(u *schema.Usage) { u.Unit = "GPU-2" }},
		{name: "another tenant", tenant: "other", usage: func(*schema.Usage) {}},
		{name: "the same lease", lease: func(*schema.Lease) {}, want: true},
		{name: "another state", lease: func(l *schema.Lease) { l.State = "released" }},
		{name: "a lease of another source", lease: func(l *schema.Lease) { l.Source = "hand" }},
		{name: "a lease of another tenant", tenant: "other", lease: func(*schema.Lease) {}},
		{name: "the same bytes", raw: "s.bad {\xff", want: true},
		{name: "other bytes", raw: "s.bad {"},
		{name: "another subject", raw: "s.worse {\xff"},
	}
	for _, c := range changes {
		x := schema.Expected{Tenant: "default"}
		if c.tenant != "" {
			x.Tenant = c.tenant
		}
		switch {
		case c.usage != nil:
			u := usage
			c.usage(&u)
			x.Event = &schema.Event{Usage: &u}
		case c.lease != nil:
			l := lease
			c.lease(&l)
			x.Event = &schema.Event{Lease: &l}
		default:
			subject, raw, _ := strings.Cut(c.raw, " ")
			x.Subject, x.Raw = subject, []byte(raw)
		}
		list = append(list, x)
	}
	got, err := db.Stored(t.Context(), list)
	if err != nil || len(got) != len(list) {
		t.Fatal(got, err)
	}
	for i, c := range changes {
		if got[i] != c.want {
			t.Errorf("%s: stored %v, want %v", c.name, got[i], c.want)
		}
	}
}
