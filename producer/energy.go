package producer

import (
	"maps"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// maxWatts is the most power of a board that is believed, far above anything
// built. A watt is a millijoule in a millisecond.
const maxWatts = 10_000

// energy returns what each unit used since the counters' last reading. A board's
// counter is counted once and divided among the units that were read on it by
// their weight, in whole millijoules that add up to the board's.
//
// A counter that fell was reset, one that jumped is a fault, and one that was not
// read for more than 2.5 periods covers time that belongs to other events: each
// is a new baseline and no amount.
func (m *Meter) energy(tickMs int64, readings []schema.Reading) map[string]schema.Maybe {
	type board struct {
		counter schema.Maybe
		weights map[string]int64
	}
	boards := map[string]*board{}
	for i := range readings {
		r := &readings[i]
		name := boardOf(r)
		b := boards[name]
		if b == nil {
			b = &board{weights: map[string]int64{}}
			boards[name] = b
		}
		b.weights[r.Unit] = min(max(r.EnergyWeight, 1), 1000)
		if !b.counter.Known && r.BoardEnergyMj.Value >= 0 {
			b.counter = r.BoardEnergyMj
		}
	}
	units := map[string]schema.Maybe{}
	for name, b := range boards {
		if !b.counter.Known {
			continue
		}
		last, ok := m.baselines[name]
		m.baselines[name] = baseline{b.counter.Value, tickMs}
		delta, since := b.counter.Value-last.counter, tickMs-last.tickMs
		if ok && delta >= 0 && 2*since <= 5*m.sampleMs && delta <= maxWatts*since {
			divide(delta, b.weights, units)
		}
	}
	// A board that has not been heard of for long has left, and its name may
	// never come back; without this the map would only grow.
	maps.DeleteFunc(m.baselines, func(_ string, b baseline) bool { return tickMs-b.tickMs > m.o.HoldFor.Milliseconds() })
	return units
}

// divide gives every unit its part of the whole. Cutting a growing sum keeps the
// parts within one of their exact size and their total equal to the whole.
func divide(whole int64, weights map[string]int64, into map[string]schema.Maybe) {
	var sum, total, given int64
	for _, w := range weights {
		total += w
	}
	for _, unit := range slices.Sorted(maps.Keys(weights)) {
		sum += weights[unit]
		upTo := whole * sum / total
		into[unit] = schema.Some(upTo - given)
		given = upTo
	}
}
