package soak_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
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
	openDays    = 4  // a round also reports on so many days, its own included
	secondOne   = 12 // one event of so many is reported by a second source, too
	conflictOne = 80 // one event of so many is contradicted later
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
}

// round is the load of one storm.
type round struct {
	number    int
	events    []schema.Usage // distinct, and each is to count
	conflicts int            // identities that are published with other content, too
	shipments []shipment     // in the order of their time
}

// shipment is what one producer sends at once.
type shipment struct {
	at    time.Duration // since the start of the storm
	form  form
	named bool // messages have an id
	again bool // once more after it was confirmed
	list  []schema.Usage
	rival *schema.Usage // sent when list is confirmed: the same identity with other content
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
}

// next yields the load of the next round.
func (g *generator) next(number int, w weather) *round {
	r := &round{number: number}
	n := int(time.Duration(w.rate) * w.storm / time.Second)
	for i, feature := range features {
		feature(g, r, draw(g.seed, drawLoad+uint64(i)<<8, number), firstDay+int64(number)*dayMs, n)
	}
	r.deliver(draw(g.seed, drawDelivery, number), w.storm)
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
		Unit:     fmt.Sprintf("GPU-%02d", unit),
		Instance: fmt.Sprintf("i-%d", owner), Project: fmt.Sprintf("p-%d", owner%3),
		Node: fmt.Sprintf("node-%d", unit%5), Platform: "self", Model: "H100",
		StartMs: from, EndMs: to,
	}
	activity(rnd, &u)
	return u
}

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

// due is when an event goes out first: the day passes in the time of a storm, and
// some events are late.
func (r *round) due(rnd *rand.Rand, u *schema.Usage, storm time.Duration) time.Duration {
	day := firstDay + int64(r.number)*dayMs
	at := time.Duration(u.StartMs-day) * (storm / time.Duration(dayMs))
	switch n := rnd.IntN(10); {
	case n == 0 || u.StartMs < day:
		at = time.Duration(rnd.Int64N(int64(storm)))
	case n < 3:
		at += time.Duration(rnd.Int64N(int64(storm) / 5))
	default:
		at += time.Duration(rnd.Int64N(int64(storm) / 40))
	}
	return min(at, storm)
}

// deliver plans how the events of a round go out: about in the order of time, some
// of them much later, some of them several times, in packages of all sizes.
func (r *round) deliver(rnd *rand.Rand, storm time.Duration) {
	type parcel struct {
		at time.Duration
		u  schema.Usage
	}
	var parcels []parcel
	for i, u := range r.events {
		at := r.due(rnd, &r.events[i], storm)
		if rnd.IntN(conflictOne) == 0 && u.LengthMs() > 1 {
			rival := u
			// Never longer: while only the rival is stored, reports must not show
			// more than there is.
			rival.EndMs -= 1 + rnd.Int64N(u.LengthMs()-1)
			activity(rnd, &rival)
			r.conflicts++
			r.shipments = append(r.shipments, shipment{at: at, form: form(rnd.IntN(int(forms))), named: rnd.IntN(2) == 0, list: []schema.Usage{u}, rival: &rival})
		} else {
			parcels = append(parcels, parcel{at, u})
		}
		for rnd.IntN(10) == 0 { // and again, in another package
			parcels = append(parcels, parcel{min(at+time.Duration(rnd.Int64N(int64(storm)/2)), storm), u})
		}
	}
	slices.SortStableFunc(parcels, func(a, b parcel) int { return cmp.Compare(a.at, b.at) })
	for from := 0; from < len(parcels); {
		to, end := from, parcels[from].at+time.Duration(100+rnd.IntN(600))*time.Millisecond
		bySource := map[string][]schema.Usage{}
		for ; to < len(parcels) && parcels[to].at <= end; to++ {
			u := parcels[to].u
			bySource[u.Source] = append(bySource[u.Source], u)
		}
		for _, source := range sortedKeys(bySource) {
			list := bySource[source]
			rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			r.shipments = append(r.shipments, shipment{
				at: end, form: form(rnd.IntN(int(forms))), named: rnd.IntN(2) == 0, again: rnd.IntN(15) == 0, list: list,
			})
		}
		from = to
	}
	slices.SortStableFunc(r.shipments, func(a, b shipment) int { return cmp.Compare(a.at, b.at) })
}
