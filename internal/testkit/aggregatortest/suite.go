// Package aggregatortest is the conformance suite of aggregator.Store: every
// implementation runs it, and a fake that passes it can be trusted elsewhere.
package aggregatortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/schema"
)

// Subject is a store under test, empty, with what the suite needs besides.
type Subject struct {
	Store aggregator.Store
	// AddRaw stores events, AddCorrection a correction with its replacement,
	// WriteMarks marks, as a consumer does.
	AddRaw        func(ctx context.Context, events []schema.StoredEvent) error
	AddCorrection func(ctx context.Context, at schema.Position, c *schema.Correction) error
	WriteMarks    func(ctx context.Context, marks []schema.Mark) error
	// Slow says that every step takes milliseconds; the suite then takes fewer.
	Slow bool
	// Amounts returns what is kept of a grain in [fromMs, toMs): the sums over
	// all windows by unit and instance, without those that are zero.
	Amounts func(ctx context.Context, tenant, grain string, fromMs, toMs int64) (map[Key]Times, error)
}

// Key says whose amounts.
type Key struct{ Unit, Instance string }

// Times are the parts of the allocated time, and what of it was reported by
// several events of its owner or claimed by too many.
type Times struct {
	ActiveMs, IdleMs, UnknownMs int64
	OverlapMs, OversubscribedMs int64
}

// TimesOf takes the times out of amounts.
func TimesOf(a *schema.Amounts) Times {
	return Times{a.ActiveMs, a.IdleMs, a.UnknownMs, a.OverlapMs, a.OversubscribedMs}
}

// Add adds b to t.
func (t Times) Add(b Times) Times {
	return Times{
		t.ActiveMs + b.ActiveMs, t.IdleMs + b.IdleMs, t.UnknownMs + b.UnknownMs,
		t.OverlapMs + b.OverlapMs, t.OversubscribedMs + b.OversubscribedMs,
	}
}

const (
	tenant = "default"
	start  = int64(1_772_359_200_000) // 2026-03-01T10:00:00Z
	minute = int64(schema.MinuteMs)
	hour   = int64(schema.HourMs)
)

// Run runs the suite; open gives a new empty store for each test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(*fixture)
	}{
		{"minutes and hours", minutesAndHours},
		{"overlaps and claims", overlapsAndClaims},
		{"copies and conflicts", copiesAndConflicts},
		{"late and long events", lateAndLong},
		{"tenants are apart", tenantsApart},
		{"a failing step keeps its marks", failingStep},
		{"amounts come before clearing", orderOfSteps},
		{"rows that arrive meanwhile", rowsMeanwhile},
		{"a stale writer does not win", staleWriter},
		{"two drivers agree", twoDrivers},
		{"a mark written twice", markTwice},
		{"hours rest", hoursRest},
		{"many units and minutes", manyUnits},
		{"copies elsewhere", copiesElsewhere},
		{"copies elsewhere, one of which tells where it lies", toldElsewhere},
		{"copies that begin together", beginTogether},
		{"corrections", corrections},
		{"corrections of corrections", correctionChain},
		{"a failing step of a conflict keeps its marks", failingConflict},
		{"a conflict seen by one of two drivers", conflictMeanwhile},
		{"a correction that arrives meanwhile", correctionMeanwhile},
		{"any arrival of events and corrections", anyArrival},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			t.Cleanup(cancel)
			f := &fixture{T: t, ctx: ctx, Subject: open(t), now: time.UnixMilli(start + 24*hour)}
			test.run(f)
		})
	}
}

type fixture struct {
	*testing.T
	Subject
	ctx      context.Context
	now      time.Time
	sequence uint64
}

// event makes an event of a busy unit; from and to are in seconds after start.
func (f *fixture) event(unit, instance string, from, to int64) schema.StoredEvent {
	var e schema.StoredEvent
	e.Tenant, e.Unit, e.Instance, e.Project = tenant, unit, instance, "a"
	e.StartMs, e.EndMs = start+from*1000, start+to*1000
	e.Source, e.ID = "agent/"+instance, schema.UsageID(unit, e.StartMs)
	e.Utilization = schema.Some(500_000)
	return e
}

// add does what a consumer does: raw rows, then marks.
func (f *fixture) add(events ...schema.StoredEvent) []schema.Mark {
	f.Helper()
	for i := range events {
		f.sequence++
		e := &events[i]
		e.Payload, _ = e.PayloadHash(nil)
		if e.StreamSequence == 0 {
			e.Stream, e.StreamSequence, e.StoredAtNs = "USAGE_0", f.sequence, int64(1e18+f.sequence)
		}
	}
	if err := f.AddRaw(f.ctx, events); err != nil {
		f.Fatal(err)
	}
	marks := MarksOf(events, f.now.UnixMilli())
	if err := f.WriteMarks(f.ctx, marks); err != nil {
		f.Fatal(err)
	}
	return marks
}

// MarksOf makes one mark for every minute of a tenant that any event overlaps.
func MarksOf(events []schema.StoredEvent, nowMs int64) []schema.Mark {
	var marks []schema.Mark
	flush := rand.Uint64()
	for _, e := range events {
		for ms := schema.Floor(e.StartMs, minute); ms < e.EndMs; ms += minute {
			i := slices.IndexFunc(marks, func(m schema.Mark) bool { return m.Tenant == e.Tenant && m.WindowMs == ms })
			if i < 0 {
				i = len(marks)
				marks = append(marks, schema.Mark{Grain: schema.GrainMinute, Tenant: e.Tenant, WindowMs: ms, ID: flush, MarkedAtMs: nowMs})
			}
			if h := schema.UnitHash(e.Unit); !slices.Contains(marks[i].Units, h) {
				marks[i].Units = append(marks[i].Units, h)
			}
		}
	}
	return marks
}

func (f *fixture) driver(store aggregator.Store, at func(string)) *aggregator.Driver {
	f.Helper()
	d, err := aggregator.NewDriver(aggregator.Options{Store: store, Now: func() time.Time { return f.now }, At: at, HourEvery: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	return d
}

func (f *fixture) drain() {
	f.Helper()
	if err := f.driver(f.Store, nil).Drain(f.ctx); err != nil {
		f.Fatal(err)
	}
	f.marksLeft(0, 0)
}

func (f *fixture) marksLeft(minutes, hours int) {
	f.Helper()
	for grain, want := range map[string]int{schema.GrainMinute: minutes, schema.GrainHour: hours, schema.GrainCopy: 0, schema.GrainIdentity: 0} {
		marks, err := f.Store.Marks(f.ctx, grain, 1000)
		if err != nil || len(marks) != want {
			f.Fatalf("%d marks of %ss left, want %d (%v)", len(marks), grain, want, err)
		}
	}
}

// is checks both grains over the first day. Pairs of key and active seconds.
func (f *fixture) is(want map[Key]Times) {
	f.Helper()
	for _, grain := range []string{schema.GrainMinute, schema.GrainHour} {
		f.grainIs(grain, tenant, want)
	}
}

func (f *fixture) grainIs(grain, tenant string, want map[Key]Times) {
	f.Helper()
	got, err := f.Amounts(f.ctx, tenant, grain, start-24*hour, start+24*hour)
	if err != nil {
		f.Fatal(err)
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		f.Errorf("%ss are %v, want %v", grain, got, want)
	}
}

func active(seconds int64) Times { return Times{ActiveMs: seconds * 1000} }

func minutesAndHours(f *fixture) {
	idle := f.event("GPU-2", "i1", 60, 120)
	idle.Utilization = schema.Some(0)
	unknown := f.event("GPU-3", "", 120, 180)
	unknown.Utilization = schema.Maybe{}
	f.add(f.event("GPU-1", "i1", 0, 60), f.event("GPU-1", "i1", 3570, 3630), idle, unknown)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(120), {"GPU-2", "i1"}: {IdleMs: 60_000}, {"GPU-3", ""}: {UnknownMs: 60_000}})
	// The event over the full hour lies half in each.
	for _, grain := range []string{schema.GrainMinute, schema.GrainHour} {
		got, err := f.Amounts(f.ctx, tenant, grain, start+hour, start+2*hour)
		if err != nil || got[Key{"GPU-1", "i1"}] != active(30) || len(got) != 1 {
			f.Errorf("%ss after the full hour: %v (%v)", grain, got, err)
		}
	}
}

// overlapsAndClaims has what is told twice and what is claimed by too many reach
// over minutes and an hour.
func overlapsAndClaims(f *fixture) {
	again := f.event("GPU-1", "i1", 3540, 3660)
	again.Source = "agent/new"
	f.add(f.event("GPU-1", "i1", 3480, 3630), again)
	f.add(f.event("GPU-2", "i1", 3540, 3660), f.event("GPU-2", "i2", 3570, 3630))
	half, rest := f.event("GPU-3", "i1", 0, 60), f.event("GPU-3", "i2", 0, 60)
	half.Share, rest.Share = schema.Some(schema.ShareOne/2), schema.Some(schema.ShareOne/2)
	f.add(half, rest)
	f.drain()
	f.is(map[Key]Times{
		{"GPU-1", "i1"}: {ActiveMs: 180_000, OverlapMs: 90_000},
		{"GPU-2", "i1"}: {ActiveMs: 90_000, OversubscribedMs: 30_000}, {"GPU-2", "i2"}: {ActiveMs: 30_000, OversubscribedMs: 30_000},
		{"GPU-3", "i1"}: active(30), {"GPU-3", "i2"}: active(30),
	})
	// What takes the other copy back takes the overlap back.
	f.correct(correction("c1", again.Identity(), nil), 0)
	f.drain()
	f.only("i1", map[Key]Times{
		{"GPU-1", "i1"}: active(150), {"GPU-2", "i1"}: {ActiveMs: 90_000, OversubscribedMs: 30_000}, {"GPU-3", "i1"}: active(30),
	})
}

func copiesAndConflicts(f *fixture) {
	e := f.event("GPU-1", "i1", 0, 60)
	f.add(e)
	f.add(e) // redelivered to another flush
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
	// Another content under the identity, stored later: it counts nothing. Its
	// owner is another, which must not keep anything.
	conflict := e
	conflict.Instance, conflict.StreamSequence = "i2", 0
	f.add(conflict)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
	// And one that turns out to have been stored first: it counts instead.
	first := e
	first.Instance, first.StreamSequence, first.StoredAtNs = "i3", 1, 1
	f.add(first)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i3"}: active(60)})
}

func lateAndLong(f *fixture) {
	f.add(f.event("GPU-1", "i1", 0, 60))
	f.drain()
	// A long event over what is there already: the union, in another owner's
	// favour nowhere. It begins hours before, so it has to be looked back for.
	f.add(f.event("GPU-1", "i1", -7200, 7200))
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: {ActiveMs: 4 * hour, OverlapMs: minute}})
	// A short one in the middle of the long one, by another owner: shared.
	f.add(f.event("GPU-1", "i2", 600, 660))
	f.drain()
	f.is(map[Key]Times{
		{"GPU-1", "i1"}: {ActiveMs: 4*hour - 30_000, OverlapMs: minute, OversubscribedMs: 30_000},
		{"GPU-1", "i2"}: {ActiveMs: 30_000, OversubscribedMs: 30_000},
	})
}

func tenantsApart(f *fixture) {
	other := f.event("GPU-1", "i9", 0, 60)
	other.Tenant = "it's"
	f.add(f.event("GPU-1", "i1", 0, 60), other)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
	f.grainIs(schema.GrainHour, "it's", map[Key]Times{{"GPU-1", "i9"}: active(60)})
}

var errInjected = errors.New("injected fault")

// faulty fails one call of a method, before or after it did its work, and
// remembers the order of all.
type faulty struct {
	aggregator.Store
	method string
	after  bool
	calls  []string
}

func (s *faulty) call(name string, do func() error) error {
	s.calls = append(s.calls, name)
	if s.method == name {
		s.method = ""
		if s.after {
			if err := do(); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s: %w", name, errInjected)
	}
	return do()
}

func (s *faulty) Marks(ctx context.Context, grain string, limit int) (marks []schema.Mark, err error) {
	err = s.call("marks-"+grain, func() (err error) { marks, err = s.Store.Marks(ctx, grain, limit); return err })
	return marks, err
}

func (s *faulty) UnitEvents(ctx context.Context, marks []schema.Mark, visit func([]schema.StoredEvent, *schema.Settlement) error) error {
	return s.call("events", func() error { return s.Store.UnitEvents(ctx, marks, visit) })
}

func (s *faulty) Affected(ctx context.Context, marks []schema.Mark) (copies []schema.Copy, err error) {
	err = s.call("affected", func() (err error) { copies, err = s.Store.Affected(ctx, marks); return err })
	return copies, err
}

func (s *faulty) WriteMarks(ctx context.Context, marks []schema.Mark) error {
	return s.call("mark-"+marks[0].Grain, func() error { return s.Store.WriteMarks(ctx, marks) })
}

func (s *faulty) PutMinutes(ctx context.Context, tenant string, cells []schema.Cell) error {
	return s.call("put-minutes", func() error { return s.Store.PutMinutes(ctx, tenant, cells) })
}

func (s *faulty) MarkHours(ctx context.Context, marks []schema.Mark, id uint64, nowMs int64) error {
	return s.call("mark-hours", func() error { return s.Store.MarkHours(ctx, marks, id, nowMs) })
}

func (s *faulty) PutHours(ctx context.Context, marks []schema.Mark) error {
	return s.call("put-hours", func() error { return s.Store.PutHours(ctx, marks) })
}

func (s *faulty) ClearMarks(ctx context.Context, marks []schema.Mark) error {
	return s.call("clear-"+marks[0].Grain, func() error { return s.Store.ClearMarks(ctx, marks) })
}

var steps = []string{"marks-identity", "marks-minute", "events", "put-minutes", "mark-hours", "clear-minute", "marks-copy", "marks-hour", "put-hours", "clear-hour"}

func failingStep(f *fixture) {
	var want int64
	for i, step := range steps {
		for _, after := range []bool{false, true} {
			from := int64(60 * want)
			want++
			f.add(f.event("GPU-1", "i1", from, from+60))
			s := &faulty{Store: f.Store, method: step, after: after}
			d := f.driver(s, nil)
			if _, err := d.Pass(f.ctx, true); !errors.Is(err, errInjected) {
				f.Fatalf("failing %s: the pass says %v", step, err)
			}
			if d.Status().Err == nil {
				f.Errorf("failing %s: the status knows nothing of it", step)
			}
			minutes, hours := 1, 0
			switch {
			case step == "mark-hours" && after: // marked, and the minute is not cleared
				hours = 1
			case i > slices.Index(steps, "mark-hours"):
				minutes, hours = 0, 1
				if step == "clear-minute" && !after {
					minutes = 1
				}
				if step == "clear-hour" && after {
					hours = 0
				}
			}
			f.marksLeft(minutes, hours)
			f.drain()
			f.is(map[Key]Times{{"GPU-1", "i1"}: active(60 * want)})
		}
	}
}

func orderOfSteps(f *fixture) {
	f.add(f.event("GPU-1", "i1", 0, 60))
	s := &faulty{Store: f.Store}
	if _, err := f.driver(s, nil).Pass(f.ctx, true); err != nil {
		f.Fatal(err)
	}
	if !slices.Equal(s.calls, steps) {
		f.Errorf("a pass did %v, want %v", s.calls, steps)
	}
}

func rowsMeanwhile(f *fixture) {
	f.add(f.event("GPU-1", "i1", 0, 30))
	// A row that arrives after the events were read and before the mark is
	// cleared: its own mark must be left.
	d := f.driver(f.Store, func(point string) {
		if point == "mid-recompute" && f.sequence == 1 {
			f.add(f.event("GPU-1", "i1", 30, 60))
		}
	})
	if _, err := d.Pass(f.ctx, false); err != nil {
		f.Fatal(err)
	}
	f.grainIs(schema.GrainMinute, tenant, map[Key]Times{{"GPU-1", "i1"}: active(30)})
	f.marksLeft(1, 1)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
}

func staleWriter(f *fixture) {
	f.add(f.event("GPU-1", "i1", 0, 30), f.event("GPU-2", "i1", 0, 60))
	// One driver stops after reading; another does all the work of a time with
	// more events; then the first goes on and writes what it computed long ago.
	old := f.driver(f.Store, func(point string) {
		if point == "mid-recompute" {
			f.add(f.event("GPU-1", "i1", 30, 60), f.event("GPU-2", "i2", 0, 60))
			f.drain()
		}
	})
	if _, err := old.Pass(f.ctx, true); err != nil {
		f.Fatal(err)
	}
	half := Times{ActiveMs: 30_000, OversubscribedMs: 30_000}
	want := map[Key]Times{{"GPU-1", "i1"}: active(60), {"GPU-2", "i1"}: half, {"GPU-2", "i2"}: half}
	f.is(want)
	f.drain()
	f.is(want)
}

func twoDrivers(f *fixture) {
	want := map[Key]Times{}
	for round := range int64(4) {
		var events []schema.StoredEvent
		for u := range int64(5) {
			unit := fmt.Sprint("GPU-", u)
			from := round*90 + u*7
			events = append(events, f.event(unit, "i1", from, from+90))
		}
		f.add(events...)
		var drivers sync.WaitGroup
		for range 2 {
			d := f.driver(f.Store, nil)
			drivers.Go(func() {
				if err := d.Drain(f.ctx); err != nil {
					f.Error(err)
				}
			})
		}
		drivers.Wait()
		for u := range int64(5) {
			want[Key{fmt.Sprint("GPU-", u), "i1"}] = active((round + 1) * 90)
		}
		f.is(want)
		f.marksLeft(0, 0)
	}
}

func markTwice(f *fixture) {
	marks := f.add(f.event("GPU-1", "i1", 0, 60))
	if err := f.WriteMarks(f.ctx, marks); err != nil { // its first answer was lost
		f.Fatal(err)
	}
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
	// Two drivers may clear one mark; a new mark must not vanish by that.
	if err := f.Store.ClearMarks(f.ctx, marks); err != nil {
		f.Fatal(err)
	}
	f.marksLeft(0, 0)
	f.add(f.event("GPU-1", "i1", 60, 120), f.event("GPU-1", "i1", 30, 45))
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: {ActiveMs: 120_000, OverlapMs: 15_000}})
}

func hoursRest(f *fixture) {
	e := f.event("GPU-1", "i1", 0, 30)
	f.add(e)
	d := f.driver(f.Store, nil)
	pass := func(force bool) {
		f.Helper()
		if _, err := d.Pass(f.ctx, force); err != nil {
			f.Fatal(err)
		}
	}
	pass(false)
	f.grainIs(schema.GrainMinute, tenant, map[Key]Times{{"GPU-1", "i1"}: active(30)})
	f.grainIs(schema.GrainHour, tenant, nil)
	if s := d.Status(); s.Pending != 1 || s.Windows != 1 {
		f.Errorf("status %+v, want one hour that is pending", s)
	}
	// A second, younger mark of the same hour is done by the same sum; one of
	// another hour goes on resting.
	f.now = f.now.Add(59 * time.Second)
	f.add(f.event("GPU-1", "i1", 30, 60), f.event("GPU-1", "i1", 3600, 3660))
	pass(false)
	f.grainIs(schema.GrainHour, tenant, nil)
	f.marksLeft(0, 3)
	f.now = f.now.Add(time.Second)
	pass(false)
	f.grainIs(schema.GrainHour, tenant, map[Key]Times{{"GPU-1", "i1"}: active(60)})
	f.marksLeft(0, 1)
	if s := d.Status(); s.Pending != 1 {
		f.Errorf("%d pending, want the younger hour", s.Pending)
	}
	f.now = f.now.Add(time.Minute)
	pass(false)
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(120)})
	f.marksLeft(0, 0)
}

func manyUnits(f *fixture) {
	want := map[Key]Times{}
	var events []schema.StoredEvent
	for u := range 60 {
		unit, instance := fmt.Sprintf("GPU-%04d", u), fmt.Sprint("i", u%7)
		for m := range int64(10) {
			events = append(events, f.event(unit, instance, m*600, m*600+60))
		}
		want[Key{unit, instance}] = active(600)
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for part := range slices.Chunk(events, 170) {
		f.add(slices.Clone(part)...)
	}
	f.drain()
	f.is(want)
}
