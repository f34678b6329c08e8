package soak_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/gpumeter/gpumeter/schema"
)

// leased reports units under leases. Every instance lives for a day at most, so
// that it is over when its round is; the lease begins after its usage and ends
// before it, so that some usage is outside of it.
func (g *generator) leased(r *round, rnd *rand.Rand, day int64, n int) {
	for k := range 3 {
		instance, gpus := leasedName(r.number, k), int64(1)
		mine := []int{leasedFrom + k}
		if k == 2 {
			mine, gpus = append(mine, leasedFrom+3), 2
		}
		for _, unit := range mine {
			slot := dayMs / int64(max(n/units, 1))
			for at := day + rnd.Int64N(slot); at < day+dayMs-schema.HourMs; {
				u := g.usage(rnd, unit, at, at+length(rnd))
				u.Source = "agent/" + instance
				u.Instance, u.Project = instance, "p-leased"
				g.add(r, rnd, u, schema.UsageID(u.Unit, u.StartMs), true)
				if at = u.EndMs; rnd.IntN(3) > 0 { // or the next follows at once
					at += rnd.Int64N(2 * slot)
				}
			}
		}
		g.life(r, rnd, instance, gpus, day)
	}
	if r.number > 0 {
		g.lateLife(r, rnd)
	}
}

func leasedName(round, k int) string { return fmt.Sprintf("i-leased-%d-%d", round, k) }

// life is an instance from its beginning to its end, within one day.
func (g *generator) life(r *round, rnd *rand.Rand, instance string, gpus, day int64) {
	at := day + rnd.Int64N(3*schema.HourMs)
	step := func(longest int64) { at += 1 + rnd.Int64N(longest) }
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "provisioning", Project: "p-leased", Platform: "self", Model: "H100", Gpus: schema.Some(gpus)})
	step(40 * schema.MinuteMs)
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "running"})
	step(4 * schema.HourMs)
	switch rnd.IntN(4) {
	case 0: // grows, and shrinks later
		g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "running", Gpus: schema.Some(gpus + 1)})
		step(4 * schema.HourMs)
		g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "running", Gpus: schema.Some(gpus)})
	case 1: // is handed to another project
		g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "running", Project: "p-other"})
	case 2: // pauses
		g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "stopped_keep"})
		step(2 * schema.HourMs)
		g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "running"})
	}
	step(4 * schema.HourMs)
	// Somebody says that it is over, and takes that back.
	if rnd.IntN(2) == 0 {
		wrong := g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "released"})
		g.correct(r, rnd, wrong, nil, nil)
	}
	step(3 * schema.HourMs)
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "stopping"})
	step(20 * schema.MinuteMs)
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "released"})
}

// lateLife lets one instance of the round before turn out to have been frozen for
// a while in the middle of its life.
func (g *generator) lateLife(r *round, rnd *rand.Rand) {
	instance := leasedName(r.number-1, rnd.IntN(3))
	var life []int64
	for _, l := range g.recent[len(g.recent)-1].leases {
		if l.Instance == instance {
			life = append(life, l.AtMs)
		}
	}
	at, end := life[1], life[len(life)-2] // running, stopping
	at += rnd.Int64N(end - at - 1)
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at, State: "frozen"})
	g.lease(r, rnd, schema.Lease{Instance: instance, AtMs: at + 1 + rnd.Int64N(end-at-1), State: "running"})
}

// lease numbers a lease event and puts it into the round.
func (g *generator) lease(r *round, rnd *rand.Rand, l schema.Lease) schema.Identity {
	l.Source = "platform/leases"
	g.sequences[l.Source]++
	l.Sequence = g.sequences[l.Source]
	l.ID = fmt.Sprintf("lease-%d", l.Sequence)
	r.leases = append(r.leases, l)
	r.parcels = append(r.parcels, parcel{first: schema.Event{Lease: &l}})
	return l.Identity()
}
