package soak_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/gpumeter/gpumeter/schema"
)

// corrected takes back and replaces some of what was reported, of this round and of
// those before.
func (g *generator) corrected(r *round, rnd *rand.Rand, day int64, n int) {
	for range n / correctOne {
		of := r
		if len(g.recent) > 0 && rnd.IntN(5) == 0 {
			of = g.recent[rnd.IntN(len(g.recent))]
		}
		target := of.events[rnd.IntN(len(of.events))]
		id := target.Identity()
		if of.corrected[id] || dayOf(target.StartMs) <= day-(openDays-1)*dayMs {
			continue
		}
		of.corrected[id] = true
		r.moved = append(r.moved, moved{target.Unit, target.LengthMs()})
		switch rnd.IntN(6) {
		case 0, 1:
			g.correct(r, rnd, id, nil, nil)
		case 2, 3:
			g.correct(r, rnd, id, g.instead(r, rnd, &target), nil)
		case 4: // replaced after it was taken back: both are there, the second takes effect
			g.correct(r, rnd, id, nil, g.instead(r, rnd, &target))
		case 5: // the replacement is corrected in its turn
			first := g.instead(r, rnd, &target)
			g.correct(r, rnd, id, first, nil)
			next := first.Identity()
			if rnd.IntN(2) == 0 {
				g.correct(r, rnd, next, nil, nil)
			} else {
				g.correct(r, rnd, next, g.instead(r, rnd, first), nil)
			}
		}
	}
}

// corrector is who corrects: only the source of a correction may give what is to
// count instead.
const corrector = "finance/desk"

// correct puts a correction into the round: with then as well, one that takes back
// and a second one that replaces.
func (g *generator) correct(r *round, rnd *rand.Rand, target schema.Identity, instead, then *schema.Usage) {
	make := func(instead *schema.Usage) *schema.Event {
		g.sequences[corrector]++
		c := schema.Correction{CorrectsSource: target.Source, CorrectsID: target.ID, Action: "retract", Actor: "li", Reason: "was reported wrongly"}
		c.Source, c.Sequence = corrector, g.sequences[corrector]
		c.ID = fmt.Sprintf("correction-%d", c.Sequence)
		if instead != nil {
			c.Action, c.Replacement = "replace", &schema.Event{Usage: instead}
		}
		r.corrections = append(r.corrections, c)
		return &schema.Event{Correction: &c}
	}
	p := parcel{first: *make(instead)}
	if then != nil {
		p.then = make(then)
	}
	r.parcels = append(r.parcels, p)
}

// instead is what counts in the place of an event: of the same unit and holder,
// for some of the events with an id that tells where it lies.
func (g *generator) instead(r *round, rnd *rand.Rand, of *schema.Usage) *schema.Usage {
	u := *of
	g.sequences["replacements"]++
	u.StartMs += rnd.Int64N(20_000) - 10_000
	u.EndMs = max(u.StartMs+1, u.EndMs+rnd.Int64N(20_000)-10_000)
	u.Source, u.Sequence, u.TimeMs = corrector, 0, 0
	u.ID = fmt.Sprintf("instead-%d", g.sequences["replacements"])
	if rnd.IntN(2) == 0 {
		// Of two replacements in one second the milliseconds tell, or they would be one
		// identity.
		u.StartMs = schema.Floor(u.StartMs, 1000) + int64(g.sequences["replacements"]%1000)
		u.EndMs = max(u.EndMs, u.StartMs+1)
		u.ID = schema.UsageID(u.Unit, u.StartMs)
	}
	activity(rnd, &u)
	r.moved = append(r.moved, moved{u.Unit, u.LengthMs()})
	return &u
}
