package soak_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

// The load is what the model believes it to be: every event has an identity of its
// own, every form of it says the same and is accepted, and contradictions are where
// they are counted. The same seed gives the same load and faults, another one
// others.
func TestLoad(t *testing.T) {
	const rounds = 3
	make := func(seed uint64) (list []*round, faults [][]fault) {
		g := &generator{seed: seed, sequences: map[string]uint64{}}
		for n := range rounds {
			list, faults = append(list, g.next(n, short)), append(faults, planFaults(seed, n, short))
		}
		return list, faults
	}
	list, faults := make(3)
	if again, faultsAgain := make(3); !reflect.DeepEqual(list, again) || !reflect.DeepEqual(faults, faultsAgain) {
		t.Error("one seed gives two loads or two plans")
	}
	if other, faultsOther := make(4); reflect.DeepEqual(list, other) || reflect.DeepEqual(faults, faultsOther) {
		t.Error("two seeds give the same")
	}
	hashes := map[string]schema.Hash{}
	for _, r := range list {
		for _, u := range r.events {
			key := u.Source + " " + u.ID
			if _, twice := hashes[key]; twice {
				t.Errorf("%s is there twice", key)
			}
			hashes[key] = (&schema.Event{Usage: &u}).PayloadHash()
		}
		rivals := 0
		for i := range r.shipments {
			s := &r.shipments[i]
			checkForms(t, s.list, hashes)
			if s.rival == nil {
				continue
			}
			rivals++
			first := s.list[0]
			if v := s.rival; v.Source != first.Source || v.ID != first.ID || v.StartMs != first.StartMs || v.EndMs >= first.EndMs ||
				(&schema.Event{Usage: v}).PayloadHash() == hashes[v.Source+" "+v.ID] {
				t.Errorf("%+v is no rival of %+v", v, first)
			}
		}
		if rivals == 0 || rivals != r.conflicts {
			t.Errorf("%d contradictions, %d are counted", rivals, r.conflicts)
		}
	}
}

func checkForms(t *testing.T, list []schema.Usage, hashes map[string]schema.Hash) {
	t.Helper()
	for f := range forms {
		messages, err := pack(list, f, f%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, m := range messages {
			d := schema.Decode(m.ContentType, m.Payload)
			for _, r := range d.Rejects {
				t.Errorf("form %d: %v", f, r.Err)
			}
			for i := range d.Usage {
				u := &d.Usage[i].Event
				if (&schema.Event{Usage: u}).PayloadHash() != hashes[u.Source+" "+u.ID] {
					t.Errorf("form %d of %s says something else", f, u.ID)
				}
			}
			n += len(d.Usage)
		}
		if n != len(list) {
			t.Errorf("form %d: %d events became %d", f, len(list), n)
		}
	}
}

// The model itself, on cases that can be summed up by hand.
func TestModel(t *testing.T) {
	const minute = schema.MinuteMs
	at := firstDay + 5*schema.HourMs
	event := func(source, instance string, from, to int64, share int64, u schema.Maybe) schema.Usage {
		e := schema.Usage{Unit: "u", Instance: instance, Project: "p" + instance, StartMs: at + from, EndMs: at + to, Utilization: u}
		e.Source, e.ID = source, fmt.Sprint(from)
		if share > 0 {
			e.Share = schema.Some(share)
		}
		return e
	}
	busy, idle := schema.Some(1_000_000), schema.Some(0)
	for name, c := range map[string]struct {
		events []schema.Usage
		want   map[string]string // allocated, active, idle, free by instance
	}{
		"union": {[]schema.Usage{event("a", "1", 0, 2*minute, 0, busy), event("b", "1", minute, 3*minute, 0, schema.Maybe{})},
			map[string]string{"1": "180000 120000 0 0"}},
		"equal parts": {[]schema.Usage{event("a", "1", 0, minute, 0, busy), event("a2", "2", 0, minute, 0, idle)},
			map[string]string{"1": "30000 30000 0 0", "2": "30000 0 30000 0"}},
		"a share, and nobody has the rest": {[]schema.Usage{event("a", "1", 0, minute, 250_000_000, idle), event("b", "", 0, minute, 0, idle)},
			map[string]string{"1": "15000 0 15000 0", "": "45000 0 45000 45000"}},
		"across a border": {[]schema.Usage{event("a", "1", 20*minute, 50*minute, 0, busy)},
			map[string]string{"1": "1800000 1800000 0 0"}},
	} {
		m := newModel()
		m.publish(&round{events: c.events})
		got := map[string]string{}
		for place, f := range m.sums[firstDay] {
			sum := f
			for other, g := range m.sums[firstDay] {
				if other.instance == place.instance && other != place {
					sum.add(g)
				}
			}
			got[place.instance] = fmt.Sprint(sum.allocated(), sum.active, sum.idle, sum.free)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := money(1_230_000) + " " + money(5) + " " + money(2_000_000); got != "1.23 0.000005 2.00" {
		t.Errorf("money is %s", got)
	}
}
