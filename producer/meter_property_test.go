package producer

import (
	"errors"
	"fmt"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// model says, without any events, what has to come out: how long each unit is
// covered and how much energy each board's counter gained in countable steps.
type model struct {
	last     int64
	hold     int64
	seen     map[string]int64 // unit -> last tick read
	covered  map[string]int64
	energy   map[string]int64
	counters map[string]baseline
}

func (m *model) tick(at int64, readings []schema.Reading) {
	gap := m.last == 0 || 2*(at-m.last) > 5*10_000
	if gap {
		clear(m.seen)
		clear(m.counters)
	}
	read, boards := map[string]bool{}, map[string]int64{}
	for _, r := range readings {
		read[r.Unit] = true
		if r.BoardEnergyMj.Known {
			boards[r.Board] = r.BoardEnergyMj.Value
		}
	}
	if !gap {
		for unit, seen := range m.seen {
			if !read[unit] && at-seen <= m.hold {
				m.covered[unit] += at - m.last
			} else if !read[unit] {
				delete(m.seen, unit)
			}
		}
		for unit := range read {
			m.covered[unit] += at - m.last
		}
		for board, counter := range boards {
			if b, ok := m.counters[board]; ok && counter >= b.counter && 2*(at-b.tickMs) <= 5*10_000 {
				m.energy[board] += counter - b.counter
			}
		}
		for unit := range read {
			m.seen[unit] = at
		}
	}
	for board, counter := range boards {
		m.counters[board] = baseline{counter, at}
	}
	m.last = at
}

// Whatever is read, and however unevenly: active, idle and unknown fill exactly
// the covered time, events of a unit and owner never overlap, no identity is used
// twice, and the boards' energy is all there and counted once.
func TestMeterProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := NewMeter(MeterOptions{Source: "s", HoldFor: 40 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		want := model{hold: 40_000, seen: map[string]int64{}, covered: map[string]int64{}, energy: map[string]int64{}, counters: map[string]baseline{}}
		counters := map[string]int64{"a": 0, "b": 1 << 40}
		var events []schema.Usage
		at := testDay + 10_000*rapid.Int64Range(0, 6).Draw(t, "start")
		for i := range rapid.IntRange(1, 60).Draw(t, "ticks") {
			at += 10_000 * rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 2, 3, 12}).Draw(t, "periods")
			for _, board := range []string{"a", "b"} {
				counters[board] += rapid.Int64Range(0, 7_000_000).Draw(t, "joule")
				if rapid.IntRange(0, 30).Draw(t, "reset") == 0 {
					counters[board] = 0
				}
			}
			readings := drawReadings(t, counters)
			var failure error
			if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
				readings, failure = nil, errors.New("no answer")
			}
			finished, err := m.Tick(at, readings, failure)
			if err != nil {
				t.Fatalf("tick %d: %v", i, err)
			}
			events = append(events, finished...)
			want.tick(at, readings)
		}
		compareWithModel(t, append(events, m.Close()...), &want)
	})
}

// drawReadings reads up to four units: two slices of board a, and b whole, each
// with nobody, one owner or several.
func drawReadings(t *rapid.T, counters map[string]int64) (readings []schema.Reading) {
	known := rapid.IntRange(0, 9).Draw(t, "counter") > 0
	for i, u := range []schema.Reading{{Unit: "a/gi/1", Board: "a", EnergyWeight: 3}, {Unit: "a/gi/2", Board: "a"}, {Unit: "b", Board: "b"}} {
		if rapid.IntRange(0, 9).Draw(t, "silent") == 0 {
			continue
		}
		if rapid.IntRange(0, 9).Draw(t, "blind") > 0 {
			u.Utilization = schema.Some(rapid.SampledFrom([]int64{0, 9_999, 10_000, 500_000, 1_000_000}).Draw(t, "utilization"))
		}
		if known {
			u.BoardEnergyMj = schema.Some(counters[u.Board])
		}
		owners := rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2}).Draw(t, "owners")
		for o := range max(owners, 1) {
			r := u
			if owners > 0 {
				r.Instance, r.Project = fmt.Sprintf("i%d%d", i, o), "p"
			}
			if owners == 1 {
				// One of several owners alone would cut his events elsewhere than
				// the others, and their energy could no longer be told apart.
				r.Project = rapid.SampledFrom([]string{"p", "p", "p", "q"}).Draw(t, "project")
			}
			if owners > 1 {
				r.Share = schema.Some(schema.ShareOne / int64(owners))
			}
			readings = append(readings, r)
		}
	}
	return readings
}

func compareWithModel(t *rapid.T, events []schema.Usage, want *model) {
	ids := map[string]bool{}
	type stretch struct{ from, to, energy int64 }
	byOwner := map[key][]stretch{}
	byUnit := map[string]map[int64]int64{} // start -> end, over all owners
	energy := map[string]map[string]int64{}
	for i := range events {
		u := &events[i]
		if err := u.Validate(); err != nil {
			t.Fatal(err)
		}
		if ids[u.ID] {
			t.Fatalf("identity %s twice", u.ID)
		}
		ids[u.ID] = true
		if active, idle, unknown := u.Split(0); active+idle+unknown != u.LengthMs() || active < 0 || idle < 0 || unknown < 0 {
			t.Fatalf("%s: %d + %d + %d in %d ms", u.ID, active, idle, unknown, u.LengthMs())
		}
		if schema.Floor(u.StartMs, 60_000) != schema.Floor(u.EndMs-1, 60_000) {
			t.Fatalf("%s spans two minutes", u.ID)
		}
		k := key{u.Unit, u.Instance}
		byOwner[k] = append(byOwner[k], stretch{u.StartMs, u.EndMs, u.EnergyMj.Value})
		for ms := u.StartMs; ms < u.EndMs; ms += 10_000 {
			if byUnit[u.Unit] == nil {
				byUnit[u.Unit] = map[int64]int64{}
			}
			byUnit[u.Unit][ms] = ms + 10_000
		}
		// Owners of a shared unit each carry its whole energy: count one of them.
		at := fmt.Sprint(u.Unit, u.StartMs)
		board := u.Unit[:1]
		if energy[board] == nil {
			energy[board] = map[string]int64{}
		}
		energy[board][at] = max(energy[board][at], u.EnergyMj.Value)
	}
	for k, all := range byOwner {
		sort.Slice(all, func(i, j int) bool { return all[i].from < all[j].from })
		for i := 1; i < len(all); i++ {
			if all[i].from < all[i-1].to {
				t.Fatalf("%v: %v overlaps %v", k, all[i], all[i-1])
			}
		}
	}
	for unit, covered := range want.covered {
		if got := int64(len(byUnit[unit])) * 10_000; got != covered {
			t.Fatalf("unit %s is covered for %d ms, want %d", unit, got, covered)
		}
	}
	for board, sum := range want.energy {
		got := int64(0)
		for _, mj := range energy[board] {
			got += mj
		}
		if got != sum {
			t.Fatalf("board %s: %d mJ in the events, %d on the counter", board, got, sum)
		}
	}
}
