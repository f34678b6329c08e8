package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// FleetOptions say which fleet is invented.
type FleetOptions struct {
	Seed         uint64
	Instances    int   // 1 to MaxFleet
	Gpus         int   // of each instance, 1 to 16
	FromMs, ToMs int64 // whole hours; usage is of this span, leases may begin before
}

// MaxFleet bounds the instances of an invented fleet: all of them are held in memory.
const MaxFleet = 1_000_000

// Fleet is an invented fleet with its past: who rented what, and what it did in
// every hour. All of it is a function of the options alone.
type Fleet struct {
	o     FleetOptions
	hosts []fleetInstance
}

// fleetInstance is one instance and its past.
type fleetInstance struct {
	key     uint64
	kind    simKind
	rack    *simRack
	name    string
	project string
	region  string
	node    string
	plan    string
	load    string
	labels  schema.Labels
	units   []string
	states  []fleetState // in order
}

// fleetState is a state from an instant until the next one.
type fleetState struct {
	atMs  int64
	state string
}

// fleetShare is how many of hundred hosts a rack has, and where they may stand.
type fleetShare struct {
	rack    string
	percent int
	regions []string
}

var fleetShares = []fleetShare{
	{"h100", 22, []string{"cn-beijing", "cn-hangzhou", "cn-shanghai"}},
	{"a100", 22, []string{"us-east-1", "us-west-2"}},
	{"rtx4090", 22, []string{"bj-b", "nm-a"}},
	{"l40s", 12, []string{"sh-dc1"}},
	{"h20", 16, []string{"ap-shanghai", "ap-guangzhou"}},
	{"ascend", 6, []string{"cn-north-4"}},
}

// fleetUse is a pattern of use, how many of hundred instances follow it, and what
// for.
type fleetUse struct {
	kind    simKind
	percent int
	load    string
}

var fleetUses = []fleetUse{
	{simSteady, 34, "training"}, {simBursty, 18, "training"}, {simNight, 24, "inference"},
	{simLow, 10, "inference"}, {simForgotten, 9, "test"}, {simSilent, 3, "inference"}, {simBlind, 2, "inference"},
}

var fleetProjects = []string{
	"llm-train", "llm-serve", "vision", "ads", "search", "speech", "maps", "video", "robotics", "biology", "finance", "games", "music",
	"translation", "security", "support", "recommend", "weather", "chip-design", "agents", "data-platform", "research", "education", "sandbox", "ops",
}

const (
	hostInstances = 8
	fleetOwners   = 60
)

// NewFleet checks the options and invents the fleet.
func NewFleet(o FleetOptions) (*Fleet, error) {
	switch {
	case o.Instances < 1 || o.Instances > MaxFleet:
		return nil, fmt.Errorf("a fleet of %d instances: 1 to %d are possible", o.Instances, MaxFleet)
	case o.Gpus < 1 || o.Gpus > 16:
		return nil, fmt.Errorf("%d GPUs of an instance: 1 to 16 are possible", o.Gpus)
	case o.FromMs%schema.HourMs != 0 || o.ToMs%schema.HourMs != 0 || o.FromMs >= o.ToMs:
		return nil, fmt.Errorf("the span from %s to %s is not one of whole hours", schema.FormatTime(o.FromMs), schema.FormatTime(o.ToMs))
	case o.FromMs-fleetEarliest < schema.MinTimeMs || o.ToMs > schema.MaxTimeMs:
		return nil, fmt.Errorf("the span from %s to %s is beyond what events may have", schema.FormatTime(o.FromMs), schema.FormatTime(o.ToMs))
	}
	f := &Fleet{o: o, hosts: make([]fleetInstance, o.Instances)}
	for i := range f.hosts {
		f.hosts[i] = f.invent(i)
	}
	return f, nil
}

// fleetEarliest is how long before the span a lease begins at most, and a day.
const fleetEarliest = 41 * 24 * schema.HourMs

func (f *Fleet) invent(i int) fleetInstance {
	key := mix(f.o.Seed, 1<<56+uint64(i))
	r := rand.New(rand.NewPCG(key, 1))
	host := rand.New(rand.NewPCG(mix(f.o.Seed, 1<<57+uint64(i/hostInstances)), 1))
	share := pick(fleetShares, host.IntN(100), func(s fleetShare) int { return s.percent })
	rack := &simRacks[slices.IndexFunc(simRacks, func(r simRack) bool { return r.name == share.rack })]
	use := pick(fleetUses, r.IntN(100), func(u fleetUse) int { return u.percent })
	project := min(r.IntN(len(fleetProjects)), r.IntN(len(fleetProjects))) // some are larger than others
	n := fleetInstance{
		key: key, kind: use.kind, load: use.load, rack: rack,
		name: fmt.Sprintf("i-%06d", i), node: fmt.Sprintf("%s-%05d", rack.name, i/hostInstances),
		region: share.regions[host.IntN(len(share.regions))], project: fleetProjects[project],
		labels: schema.Labels{{Key: "owner", Value: fmt.Sprintf("user-%02d", r.IntN(fleetOwners))}, {Key: "team", Value: "team-" + fleetProjects[project][:2]}},
	}
	if r.IntN(33) == 0 {
		n.project = ""
	}
	switch p := r.IntN(100); {
	case p < 15:
		n.plan = "spot"
	case p < 35:
		n.plan = "month"
	}
	for g := range f.o.Gpus {
		k, k2 := mix(key, uint64(g)<<8+1), mix(key, uint64(g)<<8+2)
		n.units = append(n.units, fmt.Sprintf("%s%08x-%04x-%04x-%04x-%012x", rack.prefix, k>>32, k>>16&0xffff, k&0xffff, k2>>48, k2&0xffffffffffff))
	}
	n.states = f.past(i, n.plan, r)
	return n
}

// pick returns the element at a place of hundred.
func pick[T any](list []T, place int, percent func(T) int) T {
	for _, x := range list {
		if place -= percent(x); place < 0 {
			return x
		}
	}
	panic("the shares do not add up to 100")
}

// past invents the states of an instance. No state that can be metered, and none
// between two of those, is shorter than an hour: so an hour holds one span at most
// in which the instance runs.
func (f *Fleet) past(i int, plan string, r *rand.Rand) []fleetState {
	span := f.o.ToMs - f.o.FromMs
	at := f.o.FromMs - schema.HourMs - r.Int64N(40*24*schema.HourMs)
	if i%3 != 0 { // two thirds begin within the span, most of them early
		early := span
		for range 7 {
			early = min(early, r.Int64N(span))
		}
		at = f.o.FromMs + early
	}
	at = schema.Floor(at, 1000)
	hours := func(low, high int64) int64 {
		return schema.Floor(low*schema.HourMs+r.Int64N((high-low)*schema.HourMs), 1000)
	}
	states := []fleetState{{at, "provisioning"}}
	at += 60_000 + schema.Floor(r.Int64N(240_000), 1000)
	fate := r.IntN(100)
	for at < f.o.ToMs {
		states = append(states, fleetState{at, "running"})
		switch {
		case plan == "spot":
			at += hours(24, 24*20)
			states = append(states, fleetState{at, "interrupted"})
			at += hours(1, 12)
		case fate < 20:
			at += hours(24, 24*60)
			states = append(states, fleetState{at, "released"})
			at = f.o.ToMs
		case fate < 35:
			at += hours(12, 24*12)
			states = append(states, fleetState{at, []string{"stopped_keep", "stopped_free"}[fate%2]})
			at += hours(2, 60)
		default:
			at = f.o.ToMs
		}
	}
	return slices.DeleteFunc(states, func(s fleetState) bool { return s.atMs >= f.o.ToMs })
}

// Leases returns all lease events, in order of time.
func (f *Fleet) Leases() []schema.Lease {
	var list []schema.Lease
	for i := range f.hosts {
		n := &f.hosts[i]
		for k, s := range n.states {
			l := schema.Lease{
				Header:   schema.Header{Source: "rentals/" + n.rack.platform, ID: n.name + "/" + s.state + "/" + schema.FormatTime(s.atMs), TimeMs: s.atMs},
				Instance: n.name, AtMs: s.atMs, State: s.state,
			}
			if k == 0 { // what later events leave out carries over
				l.Project, l.Platform, l.Region, l.Model, l.Plan, l.Workload, l.Labels = n.project, n.rack.platform, n.region, n.rack.model, n.plan, n.load, n.labels
				l.Gpus, l.SKU = schema.Some(int64(f.o.Gpus)), fmt.Sprintf("%s.%dx", n.rack.name, f.o.Gpus)
			}
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(a, b schema.Lease) int {
		if a.AtMs != b.AtMs {
			return int(a.AtMs - b.AtMs)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Hour appends the usage events of the hour that begins at hourMs, those of a node
// one after the other. A unit has one event at most.
func (f *Fleet) Hour(hourMs int64, list []schema.Usage) []schema.Usage {
	for i := range f.hosts {
		n := &f.hosts[i]
		from, to := n.running(hourMs)
		if from >= to {
			continue
		}
		for g, unit := range n.units {
			r := rand.New(rand.NewPCG(n.key, uint64(hourMs)<<8+uint64(g)))
			if n.lost(r) {
				continue
			}
			u := schema.Usage{
				Header: schema.Header{Source: "agent/" + n.node, ID: schema.UsageID(unit, from), TimeMs: to},
				Unit:   unit, StartMs: from, EndMs: to, Instance: n.name, Project: n.project, Node: n.node,
				Platform: n.rack.platform, Region: n.region, Model: n.rack.model, Labels: n.labels,
			}
			n.measure(&u, hourMs, r)
			list = append(list, u)
		}
	}
	return list
}

// running returns the part of an hour in which the instance runs.
func (n *fleetInstance) running(hourMs int64) (from, to int64) {
	at, found := slices.BinarySearchFunc(n.states, hourMs, func(s fleetState, ms int64) int { return int(s.atMs - ms) })
	if !found {
		at = max(at-1, 0)
	}
	for ; at < len(n.states) && n.states[at].atMs < hourMs+schema.HourMs; at++ {
		if n.states[at].state != "running" {
			continue
		}
		from, to = max(n.states[at].atMs, hourMs), hourMs+schema.HourMs
		if at+1 < len(n.states) {
			to = min(to, n.states[at+1].atMs)
		}
		if from < to {
			return from, to
		}
	}
	return 0, 0
}

// lost says whether nothing was heard of an hour.
func (n *fleetInstance) lost(r *rand.Rand) bool {
	if n.kind == simSilent {
		return r.IntN(8) == 0
	}
	return r.IntN(500) == 0
}

// measure fills in what the unit did.
func (n *fleetInstance) measure(u *schema.Usage, hourMs int64, r *rand.Rand) {
	u.MemoryTotalBytes = schema.Some(n.rack.memoryGiB << 30)
	if n.kind == simBlind || r.IntN(300) == 0 {
		return // held, and nothing could be read
	}
	duty, level := n.pace(hourMs, r)
	length := u.LengthMs()
	active := length / 1000 * duty
	idle := length - active
	if r.IntN(40) == 0 { // some readings of the hour failed
		lost := r.Int64N(idle/2 + 1)
		idle -= lost
	}
	use := int64(0)
	if active > 0 {
		use = level * active / (active + idle)
	}
	u.ActiveMs, u.IdleMs, u.Utilization = schema.Some(active), schema.Some(idle), schema.Some(use)
	u.MemoryUsedBytes = schema.Some((n.rack.memoryGiB << 20) * (20 + duty*9/10))
	if n.rack.metered {
		idleW, maxW := int64(n.rack.idleW), int64(n.rack.maxW)
		u.EnergyMj = schema.Some(length*idleW + length*(maxW-idleW)/1000*use/1000)
	}
}

// pace returns which part of an hour the unit is active, in thousandths, and how
// busy it is then, in millionths.
func (n *fleetInstance) pace(hourMs int64, r *rand.Rand) (duty, level int64) {
	between := func(low, high int64) int64 { return low + r.Int64N(high-low) }
	switch n.kind {
	case simLow:
		return between(900, 1000), between(20_000, 90_000)
	case simForgotten:
		return 0, 0
	case simBursty:
		if mix(n.key, uint64(hourMs/(5*schema.HourMs)))%2 == 0 {
			return 0, 0
		}
		return between(500, 1000), between(550_000, 970_000)
	case simNight:
		local := hourMs + simLocalMs
		hour, day := local/schema.HourMs%24, (local/(24*schema.HourMs)+3)%7 // 1970 began on a Thursday
		if hour < 9 || hour >= 21 || day >= 5 {
			return 0, 0
		}
		return between(600, 1000), between(250_000, 800_000)
	}
	return between(900, 1000), between(830_000, 990_000)
}
