package soak_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

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
	type due struct {
		at time.Duration
		u  *schema.Usage
	}
	var list []due
	for i := range r.events {
		u := &r.events[i]
		at := r.due(rnd, u, storm)
		if rnd.IntN(conflictOne) == 0 && u.LengthMs() > 1 {
			then := &schema.Event{Usage: r.contradict(rnd, u)}
			r.conflicts++
			r.ship(rnd, at, []schema.Event{{Usage: u}}, then)
		} else {
			list = append(list, due{at, u})
		}
		for rnd.IntN(10) == 0 { // and again, in another package
			list = append(list, due{min(at+time.Duration(rnd.Int64N(int64(storm)/2)), storm), u})
		}
	}
	slices.SortStableFunc(list, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	for from := 0; from < len(list); {
		to, end := from, list[from].at+time.Duration(100+rnd.IntN(600))*time.Millisecond
		bySource := map[string][]schema.Event{}
		for ; to < len(list) && list[to].at <= end; to++ {
			u := list[to].u
			bySource[u.Source] = append(bySource[u.Source], schema.Event{Usage: u})
		}
		for _, source := range sortedKeys(bySource) {
			list := bySource[source]
			rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			r.ship(rnd, end, list, nil)
		}
		from = to
	}
	for _, p := range r.parcels {
		r.ship(rnd, time.Duration(rnd.Int64N(int64(storm))), []schema.Event{p.first}, p.then)
	}
	slices.SortStableFunc(r.shipments, func(a, b shipment) int { return cmp.Compare(a.at, b.at) })
}

func (r *round) ship(rnd *rand.Rand, at time.Duration, list []schema.Event, then *schema.Event) {
	r.shipments = append(r.shipments, shipment{
		at: at, form: form(rnd.IntN(int(forms))), named: rnd.IntN(2) == 0, again: then == nil && rnd.IntN(15) == 0, list: list, then: then,
	})
}

// contradict returns another content of an event's identity, which is stored later
// and counts nothing. It lies where the event does, or in another minute, of another
// unit or in another month; or it is the event itself that does not lie where its
// id says, and the other content does.
func (r *round) contradict(rnd *rand.Rand, u *schema.Usage) *schema.Usage {
	rival := *u
	move := func(u *schema.Usage, days int) {
		length := u.LengthMs()
		u.Unit = unitName(rnd.IntN(units))
		u.StartMs = firstDay + int64(r.number-rnd.IntN(min(r.number+1, days)))*dayMs + rnd.Int64N(dayMs)
		u.EndMs = u.StartMs + length
	}
	kind := rnd.IntN(4)
	if leasedUnit(u.Unit) {
		kind = 3 // the model wants whole units under leases
	}
	switch kind {
	case 0:
		move(&rival, 1)
	case 1:
		move(&rival, 60)
	case 2:
		move(u, openDays)
	default:
		rival.EndMs -= 1 + rnd.Int64N(u.LengthMs()-1)
	}
	activity(rnd, &rival)
	for _, content := range []*schema.Usage{u, &rival} {
		r.moved = append(r.moved, moved{content.Unit, content.LengthMs()})
	}
	return &rival
}
