package soak_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// One milliyuan per GPU and second: a cost is its milliseconds, moved by six
// digits, and nothing is left to round.
const priceList = `currency: CNY
prices:
  - model: H100
    per_gpu_hour: "3.60"
`

const (
	units       = 20
	sharedFrom  = 14 // units from here on are held by several instances at once
	uncounted   = units - 1
	openDays    = 4     // a round also reports on so many days, its own included
	secondOne   = 12    // one event of so many is reported by a second source, too
	conflictOne = 80    // one event of so many is contradicted later
	correctOne  = 25    // one event of so many is corrected
	leasedFrom  = units // units that are held under a lease, and by nobody else
)

// firstDay is the day of the first round. Every round has a day of its own, long
// past, so that no event ever lies in the future whatever the clock does.
var firstDay = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

const dayMs = 24 * schema.HourMs

// generator invents the load. What it yields is a function of the seed, of how
// rough a round is and of the number of the round, and of nothing that happens.
type generator struct {
	seed      uint64
	sequences map[string]uint64
	recent    []*round // whose days are still open, the last one last
}

// round is the load of one storm.
type round struct {
	number      int
	events      []schema.Usage      // distinct; they count unless a correction says otherwise
	corrections []schema.Correction // with those that they replace as well as take back
	leases      []schema.Lease
	corrected   map[schema.Identity]bool
	conflicts   int        // identities of which something is set aside for another content
	moved       []moved    // where contents lie for a while that will not count in the end
	parcels     []parcel   // events of other types than usage, in what belongs together
	shipments   []shipment // in the order of their time
}

// moved is time of a unit that may be reported before all is known.
type moved struct {
	unit string
	ms   int64
}

// parcel is an event that is published some time after another, if after is given.
type parcel struct {
	first schema.Event
	then  *schema.Event
}

// shipment is what one producer sends at once.
type shipment struct {
	at    time.Duration // since the start of the storm
	form  form
	named bool // messages have an id
	again bool // once more after it was confirmed
	list  []schema.Event
	then  *schema.Event // sent when list is confirmed: its order of storing decides
}

// form is how events are packed and which way they go.
type form int

const (
	formSingle  form = iota // one JSON event a message, together an atomic batch
	formBatch               // a message with a JSON array
	formCompact             // a message in the compact form
	formHTTP                // a request to the server
	forms
)

// Every purpose draws from a sequence of its own: more faults do not change the
// load.
const (
	drawLoad uint64 = iota + 1
	drawDelivery
	drawFaults
	drawChecks
)

func draw(seed uint64, purpose uint64, round int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose<<32|uint64(round)))
}

// features are what a round is put together from. Each draws from a sequence of its
// own, so that another one in the list leaves the load of the others as it is; its
// events are put into the round by [generator.add], and it may only use the round's
// own day and the openDays-1 days before.
var features = []func(g *generator, r *round, rnd *rand.Rand, day int64, n int){
	(*generator).whole,
	(*generator).shared,
	(*generator).late,
	(*generator).leased,
	(*generator).corrected, // last: it corrects what the others made
}

// next yields the load of the next round.
func (g *generator) next(number int, w weather) *round {
	r := &round{number: number, corrected: map[schema.Identity]bool{}}
	n := int(time.Duration(w.rate) * w.storm / time.Second)
	for i, feature := range features {
		feature(g, r, draw(g.seed, drawLoad+uint64(i)<<8, number), firstDay+int64(number)*dayMs, n)
	}
	r.deliver(draw(g.seed, drawDelivery, number), w.storm)
	if g.recent = append(g.recent, r); len(g.recent) > openDays-1 {
		g.recent = g.recent[1:]
	}
	return r
}

// whole reports units that one instance or nobody holds at a time.
func (g *generator) whole(r *round, rnd *rand.Rand, day int64, n int) {
	for unit := range units {
		if unit < sharedFrom || unit == uncounted {
			g.walk(r, rnd, unit, day, n/units, -1)
		}
	}
}

// shared reports units that several instances hold at the same time.
func (g *generator) shared(r *round, rnd *rand.Rand, day int64, n int) {
	for unit := sharedFrom; unit < uncounted; unit++ {
		holders := 2 + rnd.IntN(2)
		for h := range holders {
			g.walk(r, rnd, unit, day, n/units/holders, h)
		}
	}
}

// walk reports one unit over a day, n times or a little less. A holder of at least
// 0 is one of several that hold the unit at the same time.
func (g *generator) walk(r *round, rnd *rand.Rand, unit int, day int64, n, holder int) {
	slot := dayMs / int64(max(n, 1))
	for at := day + rnd.Int64N(slot); at < day+dayMs; {
		u := g.usage(rnd, unit, at, at+length(rnd))
		u.Source = fmt.Sprintf("agent/node-%d", unit%5)
		switch {
		case holder >= 0:
			// The last one is nobody at times: it gets what the others leave.
			u.Instance = fmt.Sprintf("i-shared-%d-%d", unit, holder)
			u.Project = fmt.Sprintf("p-%d", holder)
			if holder == 2 && unit%2 == 0 {
				u.Instance, u.Project = "", ""
			}
			u.Source = fmt.Sprintf("agent/holder-%d", holder)
			// One unit of three has shares, one has none, one has both.
			if share := []int64{500_000_000, 250_000_000, 333_333_333}[(unit+holder)%3]; unit%3 == 0 || unit%3 == 1 && holder == 0 {
				u.Share = schema.Some(share)
			}
		case rnd.IntN(10) == 0:
			u.Instance, u.Project = "", ""
		}
		counts := true
		if unit == uncounted {
			u.Source, counts = "manual/import", false
		}
		g.add(r, rnd, u, schema.UsageID(u.Unit, u.StartMs), counts)
		if holder < 0 && rnd.IntN(secondOne) == 0 {
			g.second(r, rnd, u)
		}
		if at = u.EndMs; rnd.IntN(4) > 0 { // or the next follows at once
			at += rnd.Int64N(2 * slot)
		}
	}
}

// second reports what an event reports once more: by another source, with other
// borders and another opinion. Time that both cover counts once.
func (g *generator) second(r *round, rnd *rand.Rand, first schema.Usage) {
	u := first
	u.StartMs += rnd.Int64N(20_000) - 10_000
	u.EndMs = max(u.StartMs+1, u.EndMs+rnd.Int64N(20_000)-10_000)
	activity(rnd, &u)
	u.Source = "exporter/" + u.Node
	g.add(r, rnd, u, "again/"+schema.UsageID(first.Unit, first.StartMs), true)
}

// late reports something of earlier days, wherever it falls.
func (g *generator) late(r *round, rnd *rand.Rand, day int64, n int) {
	days := int64(min(r.number, openDays-1))
	for i := range n / 20 {
		if days == 0 {
			return
		}
		at := day - 1 - rnd.Int64N(days*dayMs-schema.HourMs)
		u := g.usage(rnd, rnd.IntN(units), at, min(at+1+rnd.Int64N(10*schema.MinuteMs), day))
		u.Source = fmt.Sprintf("late/%d", rnd.IntN(2))
		g.add(r, rnd, u, fmt.Sprintf("late-%d-%d", r.number, i), true)
	}
}

func (g *generator) usage(rnd *rand.Rand, unit int, from, to int64) schema.Usage {
	owner := (unit + int(from/(4*schema.HourMs))) % 7
	u := schema.Usage{
		Unit:     unitName(unit),
		Instance: fmt.Sprintf("i-%d", owner), Project: fmt.Sprintf("p-%d", owner%3),
		Node: fmt.Sprintf("node-%d", unit%5), Platform: "self", Model: "H100",
		StartMs: from, EndMs: to,
	}
	activity(rnd, &u)
	return u
}

func unitName(unit int) string { return fmt.Sprintf("GPU-%02d", unit) }

// add numbers an event and puts it into the round.
func (g *generator) add(r *round, rnd *rand.Rand, u schema.Usage, id string, counts bool) {
	u.ID = id
	if counts {
		g.sequences[u.Source]++
		u.Sequence = g.sequences[u.Source]
	}
	if rnd.IntN(3) > 0 {
		u.TimeMs = u.EndMs
	}
	r.events = append(r.events, u)
}

func length(rnd *rand.Rand) int64 {
	switch rnd.IntN(30) {
	case 0:
		return 5*schema.MinuteMs + rnd.Int64N(40*schema.MinuteMs)
	case 1, 2:
		return 1 + rnd.Int64N(999)
	}
	return schema.MinuteMs + rnd.Int64N(schema.MinuteMs)
}

// activity says what the unit did in one of the forms that the format allows.
func activity(rnd *rand.Rand, u *schema.Usage) {
	u.ActiveMs, u.IdleMs, u.Utilization, u.EnergyMj = schema.Maybe{}, schema.Maybe{}, schema.Maybe{}, schema.Maybe{}
	if rnd.IntN(2) == 0 {
		u.EnergyMj = schema.Some(rnd.Int64N(700*u.LengthMs() + 1)) // up to 700 W
	}
	switch length := u.LengthMs(); rnd.IntN(5) {
	case 0: // unknown
	case 1:
		u.Utilization = schema.Some(9_999) // just below the threshold: idle
	case 2:
		u.Utilization = schema.Some(10_000 + rnd.Int64N(990_000)) // active
	default:
		active := rnd.Int64N(length + 1)
		u.ActiveMs, u.IdleMs = schema.Some(active), schema.Some(rnd.Int64N(length-active+1))
		if rnd.IntN(4) > 0 {
			u.Utilization = schema.Some(rnd.Int64N(schema.UtilizationOne + 1))
		}
	}
}
