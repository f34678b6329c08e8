package producer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Defaults of a meter.
const (
	DefaultSampleEvery = 10 * time.Second
	DefaultEmitEvery   = time.Minute
	DefaultHoldFor     = 5 * time.Minute
	DefaultThreshold   = schema.UtilizationOne / 100
)

// MeterOptions says how readings become events.
type MeterOptions struct {
	Source   string // of the events; required
	Platform string
	Region   string
	Node     string // of readings without one

	SampleEvery time.Duration // whole milliseconds, at least 1 ms; 0 = DefaultSampleEvery
	EmitEvery   time.Duration // a multiple of SampleEvery, at most an hour; 0 = DefaultEmitEvery
	// Threshold is the utilization, in millionths, from which a sample counts as
	// active; unknown = DefaultThreshold.
	Threshold schema.Maybe
	// HoldFor is how long a unit that cannot be read keeps its last owner, as
	// unknown time; 0 = DefaultHoldFor.
	HoldFor time.Duration
	// OwnerHold is how long a unit that is read without an owner may still be its
	// last owner's; see undecided. 0 = a unit without an owner is nobody's at once.
	OwnerHold time.Duration
	// LastTickMs is the end of the time that earlier events cover; 0 = none.
	LastTickMs int64
}

func (o *MeterOptions) setDefaults() {
	o.SampleEvery = cmp.Or(o.SampleEvery, DefaultSampleEvery)
	o.EmitEvery = cmp.Or(o.EmitEvery, DefaultEmitEvery)
	o.HoldFor = cmp.Or(o.HoldFor, DefaultHoldFor)
	if !o.Threshold.Known {
		o.Threshold = schema.Some(DefaultThreshold)
	}
}

func (o *MeterOptions) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(o.Source != "" && len(o.Source) <= schema.MaxNameBytes, "source: %q is not of 1 to %d bytes", o.Source, schema.MaxNameBytes)
	check(o.SampleEvery >= time.Millisecond && o.SampleEvery%time.Millisecond == 0, "sample every %s: not whole milliseconds", o.SampleEvery)
	if len(faults) == 0 {
		check(o.EmitEvery >= o.SampleEvery && o.EmitEvery <= time.Hour && o.EmitEvery%o.SampleEvery == 0,
			"emit every %s: not a multiple of the sample period of %s, or more than an hour", o.EmitEvery, o.SampleEvery)
	}
	check(o.Threshold.Value >= 0 && o.Threshold.Value <= schema.UtilizationOne, "threshold: %d millionths is not between 0 and 1", o.Threshold.Value)
	check(o.HoldFor >= 0, "hold for %s: negative", o.HoldFor)
	check(o.OwnerHold >= 0 && o.OwnerHold <= time.Hour, "owner hold of %s: negative or more than an hour", o.OwnerHold)
	return errors.Join(faults...)
}

// ErrClockBack: the tick lies before time that was metered already. Metering it
// again would make a second event for the same interval, so it waits until the
// clock has passed the last tick.
var ErrClockBack = errors.New("the clock is behind the last tick")

// Meter turns the readings of ticks into usage events: one for each unit and
// owner and emit period. It does no I/O and is not safe for concurrent use.
//
// The interval between two ticks takes the state that is read at its end. After
// a gap of more than 2.5 sample periods nobody can say what happened, so no event
// covers it. A change of owner or of any other attribute ends the event at the
// previous tick and begins another there.
//
// Energy, like active and idle time, is of the whole unit, also in the events of
// owners who share it: the share divides it downstream.
type Meter struct {
	o         MeterOptions
	sampleMs  int64
	emitMs    int64
	lastTick  int64
	holdings  []*holding // sorted by unit and instance
	baselines map[string]baseline
	undecided map[string]*undecided // by unit
	refused   uint64
	refusal   error
}

// holding is a unit in the hands of one owner.
type holding struct {
	key
	board  string
	usage  schema.Usage // attributes; identity and amounts are the span's
	seenMs int64        // last tick at which it was read
	shared bool         // several owners hold the unit
	span   *span        // nil between two events
}

type key struct{ unit, instance string }

func compareKey(a, b key) int {
	return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.instance, b.instance))
}

type baseline struct{ counter, tickMs int64 }

// NewMeter checks the options.
func NewMeter(o MeterOptions) (*Meter, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("producer: meter: %w", err)
	}
	return &Meter{
		o: o, sampleMs: o.SampleEvery.Milliseconds(), emitMs: o.EmitEvery.Milliseconds(),
		lastTick: o.LastTickMs, baselines: map[string]baseline{}, undecided: map[string]*undecided{},
	}, nil
}

// LastTick returns the end of the time that was metered; 0 before the first tick.
func (m *Meter) LastTick() int64 { return m.lastTick }

// holds says whether the meter has units to go on with.
func (m *Meter) holds() bool { return len(m.holdings) > 0 }

// Refused counts readings that could not become an event, such as one without a
// unit, and returns the latest reason.
func (m *Meter) Refused() (uint64, error) { return m.refused, m.refusal }

// Prime sets the instant from which the next tick counts, and the energy
// counters of that instant. It ends what was open before.
func (m *Meter) Prime(tickMs int64, readings []schema.Reading) []schema.Usage {
	finished := m.Close()
	m.holdings, m.lastTick = nil, tickMs
	clear(m.baselines)
	m.energy(tickMs, readings)
	return m.decide(tickMs, readings, finished)
}

// Tick meters the time since the previous tick and returns the events that are
// finished by it. readErr is the error of the read, if it failed. The first tick
// of all only sets the beginning.
//
// It returns ErrClockBack, and changes nothing, when tickMs is not after the
// previous tick.
func (m *Meter) Tick(tickMs int64, readings []schema.Reading, readErr error) ([]schema.Usage, error) {
	if readErr != nil {
		readings = nil
	}
	switch {
	case m.lastTick == 0:
		return m.Prime(tickMs, readings), nil
	case tickMs <= m.lastTick:
		return nil, fmt.Errorf("%w: %s is not after %s", ErrClockBack, schema.FormatTime(tickMs), schema.FormatTime(m.lastTick))
	case 2*(tickMs-m.lastTick) > 5*m.sampleMs:
		return m.Prime(tickMs, readings), nil
	}
	energy := m.energy(tickMs, readings)
	samples, finished := m.settle(tickMs, readings, readErr != nil)
	whole := tickMs - m.lastTick
	for from := m.lastTick; from < tickMs; {
		to := min(tickMs, schema.Floor(from, m.emitMs)+m.emitMs)
		for i, h := range m.holdings {
			if h.span == nil {
				h.span = newSpan(m.o.Source, h, from)
			}
			e := energy[h.unit]
			if e.Known {
				e.Value = e.Value*(to-m.lastTick)/whole - e.Value*(from-m.lastTick)/whole
			}
			h.span.add(to, samples[i], e, m.o.Threshold.Value)
		}
		if to%m.emitMs == 0 {
			finished = append(finished, m.Close()...)
		}
		from = to
	}
	m.lastTick = tickMs
	return finished, nil
}

// Open returns the unfinished events as they would be if they ended at the last
// tick, without those whose owner is undecided.
func (m *Meter) Open() []schema.Usage {
	var open []schema.Usage
	for _, h := range m.holdings {
		if h.span != nil && m.withheld(h) == nil {
			open = append(open, h.span.event())
		}
	}
	return open
}

// Close ends the unfinished events at the last tick and returns them. Their
// units go on in new events. What is undecided stays so.
func (m *Meter) Close() []schema.Usage {
	var closed []schema.Usage
	for _, h := range m.holdings {
		closed = m.end(h, closed)
	}
	return closed
}

// sample is what one tick says about one holding.
type sample struct{ utilization, used, total schema.Maybe }

// settle brings the holdings in line with the readings: new ones begin, changed
// and vanished ones end. It returns a sample for each holding and the events that
// have ended.
func (m *Meter) settle(tickMs int64, readings []schema.Reading, failed bool) (samples []sample, finished []schema.Usage) {
	fresh := m.accept(tickMs, readings)
	next := make([]*holding, 0, len(fresh)+len(m.holdings))
	bySample := make(map[*holding]sample, len(fresh))
	seen := make(map[string]int, len(fresh)) // owners of each unit that was read
	layouts := make(map[layout]bool, len(fresh))
	for i := range fresh {
		seen[fresh[i].Unit]++
		layouts[layoutOf(boardOf(&fresh[i]), fresh[i].Unit)] = true
	}
	m.vanish(fresh, seen)
	before := make(map[key]*holding, len(m.holdings))
	for _, h := range m.holdings {
		before[h.key] = h
		// A board that was cut up, or made whole again, has not gone silent: its
		// former units are gone for good.
		held := failed || seen[h.unit] == 0 && !layouts[layoutOf(h.board, h.unit).other()]
		if held && tickMs-h.seenMs <= m.o.HoldFor.Milliseconds() {
			next = append(next, h)
			delete(before, h.key)
		}
	}
	for i := range fresh {
		r := &fresh[i]
		h := m.hold(tickMs, r, seen[r.Unit] > 1)
		if old := before[h.key]; old != nil && old.sameAs(h) {
			old.seenMs = tickMs
			h = old
			delete(before, h.key)
		}
		next = append(next, h)
		bySample[h] = sample{r.Utilization, r.MemoryUsedBytes, r.MemoryTotalBytes}
	}
	for _, h := range m.holdings {
		if before[h.key] == h {
			finished = m.end(h, finished)
		}
	}
	finished = m.decide(tickMs, fresh, finished)
	slices.SortFunc(next, func(a, b *holding) int { return compareKey(a.key, b.key) })
	m.holdings = next
	samples = make([]sample, len(next))
	for i, h := range next {
		samples[i] = bySample[h]
	}
	return samples, finished
}

// boardOf returns the board that carries the unit.
func boardOf(r *schema.Reading) string { return cmp.Or(r.Board, r.Unit) }

// layout names how a board is used: as a whole, or cut into MIG instances.
type layout struct {
	board  string
	sliced bool
}

func layoutOf(board, unit string) layout { return layout{board, board != unit} }

// other is the layout that a board cannot have at the same time.
func (l layout) other() layout { return layout{l.board, !l.sliced} }

// accept drops what cannot become an event and what says a second time who holds
// a unit. Values out of range are unknown.
func (m *Meter) accept(tickMs int64, readings []schema.Reading) []schema.Reading {
	fresh := make([]schema.Reading, 0, len(readings))
	twice := make(map[key]bool, len(readings))
	for i := range readings {
		r := readings[i]
		k := key{r.Unit, r.Instance}
		if twice[k] {
			m.refuse(fmt.Errorf("unit %s is read twice for the owner %q", r.Unit, r.Instance))
			continue
		}
		twice[k] = true
		r.Utilization = within(r.Utilization, schema.UtilizationOne)
		r.MemoryUsedBytes = within(r.MemoryUsedBytes, 1<<44)
		r.MemoryTotalBytes = within(r.MemoryTotalBytes, 1<<44)
		h := m.hold(tickMs, &r, true)
		u := newSpan(m.o.Source, h, m.lastTick).usage
		u.EndMs = tickMs
		if err := u.Validate(); err != nil {
			m.refuse(err)
			continue
		}
		fresh = append(fresh, r)
	}
	return fresh
}

func (m *Meter) refuse(err error) { m.refused, m.refusal = m.refused+1, err }

func within(v schema.Maybe, most int64) schema.Maybe {
	if v.Known && (v.Value < 0 || v.Value > most) {
		return schema.Maybe{}
	}
	return v
}

// hold makes the holding that a reading speaks of.
func (m *Meter) hold(tickMs int64, r *schema.Reading, shared bool) *holding {
	return &holding{
		key: key{r.Unit, r.Instance}, board: boardOf(r), seenMs: tickMs, shared: shared,
		usage: schema.Usage{
			Unit: r.Unit, Instance: r.Instance, Project: r.Project, Node: cmp.Or(r.Node, m.o.Node),
			Platform: m.o.Platform, Region: m.o.Region, Model: r.Model, Share: r.Share, Labels: r.Labels,
		},
	}
}

// sameAs says whether an event of h can go on with o.
func (h *holding) sameAs(o *holding) bool {
	a, b := &h.usage, &o.usage
	return a.Project == b.Project && a.Node == b.Node && a.Model == b.Model && a.Share == b.Share && h.shared == o.shared &&
		slices.Equal(a.Labels, b.Labels)
}
