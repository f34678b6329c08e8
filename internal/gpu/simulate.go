package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// MaxSimulatedNodes bounds a simulation: a node keeps about 100 KB of tables.
const MaxSimulatedNodes = 1000

// SimOptions sizes a simulation.
type SimOptions struct {
	Nodes int    // 1 to MaxSimulatedNodes
	Seed  uint64 // the same seed gives the same fleet and the same history
	// Clock says when [SimNode.Read] reads; nil = the system's.
	Clock func() time.Time
}

// Simulation is an invented fleet. What a unit reads at an instant is a function
// of seed, unit and instant alone: any past can be asked for, in any order, and
// a second run over the same time says the same.
type Simulation struct{ nodes []SimNode }

// NewSimulation builds the fleet.
func NewSimulation(o SimOptions) (*Simulation, error) {
	if o.Nodes < 1 || o.Nodes > MaxSimulatedNodes {
		return nil, fmt.Errorf("gpu: simulated nodes: %d is not between 1 and %d", o.Nodes, MaxSimulatedNodes)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	s := &Simulation{}
	for i := range o.Nodes {
		s.nodes = append(s.nodes, buildNode(i, o))
	}
	return s, nil
}

// Nodes returns the nodes, each a source of its own.
func (s *Simulation) Nodes() []SimNode { return slices.Clone(s.nodes) }

// SimNode is one simulated machine. Readings do not carry a platform and a
// region; the producer of the node gets them from here.
type SimNode struct {
	Name     string
	Platform string
	Region   string

	clock func() time.Time
	units []*simUnit
}

// Read returns the readings of this instant.
func (n SimNode) Read(ctx context.Context) ([]schema.Reading, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return n.ReadAt(n.clock()), nil
}

// ReadAt returns the readings of any instant, to the millisecond. Units that are
// silent at that time are absent.
func (n SimNode) ReadAt(t time.Time) []schema.Reading {
	ms := t.UnixMilli()
	all := make([]schema.Reading, 0, len(n.units)+2)
	for _, u := range n.units {
		all = u.readAt(all, n.Name, ms)
	}
	return all
}

// Lengths of the simulation's clockwork, in milliseconds.
const (
	simStepMs  = 10 * schema.MinuteMs // a unit keeps its pace for that long
	simWeekMs  = 7 * 24 * schema.HourMs
	simSteps   = simWeekMs / simStepMs
	simMonday  = 4 * 24 * schema.HourMs // 1970-01-05
	simReload  = 26 * simWeekMs         // the driver reloads and energy counters restart
	simRestart = 6 * schema.HourMs      // life of an instance that keeps restarting
	simSilence = 30 * schema.MinuteMs   // a silent unit decides anew that often
	simLocalMs = 8 * schema.HourMs      // office hours are China's
	simJitter  = 10_000                 // finest change of a busy unit's utilization
)

// simBoard is the part that draws power. Its weekly course is a table, so that
// the energy counter of any instant is a sum of three terms and needs no history.
type simBoard struct {
	uuid     string
	metered  bool // has an energy counter
	watts    [simSteps]int32
	energyMj [simSteps + 1]int64 // at the start of each step of the week
}

// sum fills the energy table once the power is known.
func (b *simBoard) sum() {
	for i, w := range b.watts {
		b.energyMj[i+1] = b.energyMj[i] + int64(w)*simStepMs // watts x milliseconds = millijoules
	}
}

func (b *simBoard) energyAt(ms int64) schema.Maybe {
	if !b.metered {
		return schema.Maybe{}
	}
	since := (ms - simMonday) % simReload
	if since < 0 {
		return schema.Maybe{}
	}
	weeks, into := since/simWeekMs, since%simWeekMs
	step := into / simStepMs
	return schema.Some(weeks*b.energyMj[simSteps] + b.energyMj[step] + int64(b.watts[step])*(into%simStepMs))
}

// simUnit is one accounting unit with its job.
type simUnit struct {
	unit   string
	board  *simBoard
	model  string
	weight int64
	key    uint64 // seeds everything that is particular to the unit
	job    *simJob
	holder string // instance id without its restart number
	labels schema.Labels
	total  int64 // memory, bytes
	pace   [simSteps]int32
}

func (u *simUnit) readAt(all []schema.Reading, node string, ms int64) []schema.Reading {
	if u.job.kind == simSilent && mix(u.key, uint64(ms/simSilence))%4 == 0 {
		return all
	}
	r := schema.Reading{
		Unit: u.unit, Board: u.board.uuid, Model: u.model, Node: node, Labels: u.labels,
		Utilization: schema.Some(u.utilizationAt(ms)), MemoryTotalBytes: schema.Some(u.total),
		MemoryUsedBytes: schema.Some(u.memoryAt(ms)), BoardEnergyMj: u.board.energyAt(ms), EnergyWeight: u.weight,
	}
	switch u.job.kind {
	case simFree:
		return append(all, r)
	case simBlind:
		r.Utilization, r.Reason = schema.Maybe{}, "GPU utilization blank"
	case simShared:
		const owners = 3
		for i := range int64(owners) {
			r.Instance = fmt.Sprintf("%s-%d", u.holder, i)
			r.Project = u.job.sharers[i%int64(len(u.job.sharers))]
			r.Share = schema.Some(part(schema.ShareOne, i, owners))
			all = append(all, r)
		}
		return all
	}
	r.Instance, r.Project = u.holder, u.job.project
	if u.job.kind == simRestarting {
		// A restart is a new instance: its id never comes back.
		r.Instance = fmt.Sprintf("%s-%x", u.holder, mix(u.key, uint64(ms/simRestart))&0xffffff)
	}
	return append(all, r)
}

func (u *simUnit) utilizationAt(ms int64) int64 {
	pace := int64(u.pace[stepOf(ms)])
	if pace == 0 {
		return 0
	}
	jitter := int64(mix(u.key, uint64(ms/simJitter))%41) - 20 // within 2% either way
	return min(pace+pace*jitter/1000, schema.UtilizationOne)
}

// memoryAt: a held unit keeps what its job loaded, busy or not; a free one has
// what the driver takes.
func (u *simUnit) memoryAt(ms int64) int64 {
	if u.job.kind == simFree {
		return u.total / 200
	}
	held := 300 + int64(u.key%500) // thousandths
	if u.pace[stepOf(ms)] > 0 {
		held += 150
	}
	return u.total / 1000 * held
}

func stepOf(ms int64) int64 {
	since := (ms - simMonday) % simWeekMs
	if since < 0 {
		since += simWeekMs
	}
	return since / simStepMs
}
