package soak_test

import (
	"fmt"
	"reflect"
	"slices"
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
	hashes := map[schema.Identity]schema.Hash{}
	note := func(e schema.Event) {
		id := e.Header().Identity()
		if _, twice := hashes[id]; twice {
			t.Errorf("%v is there twice", id)
		}
		hashes[id] = e.PayloadHash()
	}
	kinds := map[string]int{}
	for _, r := range list {
		for i := range r.events {
			note(schema.Event{Usage: &r.events[i]})
		}
		for i := range r.leases {
			note(schema.Event{Lease: &r.leases[i]})
			kinds["leases"]++
		}
		for i := range r.corrections {
			c := &r.corrections[i]
			note(schema.Event{Correction: c})
			kinds[c.Action]++
			if c.Replacement != nil {
				note(*c.Replacement)
			}
		}
		conflicts := 0
		for i := range r.shipments {
			s := &r.shipments[i]
			checkForms(t, s.list, hashes)
			switch {
			case s.then == nil:
			case s.then.Correction != nil:
				checkForms(t, []schema.Event{*s.then}, hashes)
				kinds["second thoughts"]++
			default:
				conflicts++
				checkForms(t, []schema.Event{*s.then}, map[schema.Identity]schema.Hash{s.then.Usage.Identity(): s.then.PayloadHash()})
				first, then := s.list[0].Usage, s.then.Usage
				if then.Identity() != first.Identity() || s.then.PayloadHash() == s.list[0].PayloadHash() {
					t.Errorf("%+v does not contradict %+v", then, first)
				}
				switch day := dayOf(then.StartMs); {
				case first.ID == schema.UsageID(then.Unit, then.StartMs) && then.StartMs != first.StartMs:
					kinds["misplaced first"]++
				case then.Unit != first.Unit:
					kinds["other unit"]++
				case then.StartMs == first.StartMs:
					kinds["same place"]++
				case day != dayOf(first.StartMs):
					kinds["other day"]++
				}
			}
		}
		if conflicts != r.conflicts {
			t.Errorf("%d contradictions, %d are counted", conflicts, r.conflicts)
		}
	}
	for _, kind := range []string{"leases", "retract", "replace", "second thoughts", "misplaced first", "other unit", "same place"} {
		if kinds[kind] == 0 {
			t.Errorf("the load has no %s: %v", kind, kinds)
		}
	}
}

// Whatever hours of load hold is valid and is told apart: a fault of the generator
// would end a long run.
func TestLongLoad(t *testing.T) {
	g := &generator{seed: 2027, sequences: map[string]uint64{}}
	seen := map[schema.Identity]bool{}
	m := newModel()
	for n := range 60 {
		r := g.next(n, weather{storm: long.storm, rate: 10})
		m.publish(r)
		for i := range r.shipments {
			for _, e := range append(slices.Clip(r.shipments[i].list), orNone(r.shipments[i].then)...) {
				if err := e.Validate(); err != nil {
					t.Fatalf("round %d: %v", n, err)
				}
			}
		}
		for _, c := range r.corrections {
			if c.Replacement != nil {
				r.events = append(r.events, *c.Replacement.Usage)
			}
		}
		for i := range r.events {
			if id := r.events[i].Identity(); seen[id] {
				t.Fatalf("round %d: %v is there twice", n, id)
			} else {
				seen[id] = true
			}
		}
	}
}

func orNone(e *schema.Event) []schema.Event {
	if e == nil {
		return nil
	}
	return []schema.Event{*e}
}

func checkForms(t *testing.T, list []schema.Event, hashes map[schema.Identity]schema.Hash) {
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
			all := make([]schema.Event, 0, len(list))
			for i := range d.Usage {
				all = append(all, schema.Event{Usage: &d.Usage[i].Event})
			}
			for i := range d.Other {
				all = append(all, d.Other[i].Event)
			}
			for i := range all {
				if h := all[i].Header(); all[i].PayloadHash() != hashes[h.Identity()] {
					t.Errorf("form %d of %v says something else", f, h.Identity())
				}
			}
			n += len(all)
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
