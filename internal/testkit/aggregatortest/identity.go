package aggregatortest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/schema"
)

// named makes an event as [fixture.event] does, under an id that tells nothing.
func (f *fixture) named(id, unit, instance string, from, to int64) schema.StoredEvent {
	e := f.event(unit, instance, from, to)
	e.Source, e.ID = "app", id
	return e
}

// correction makes a correction of an event. replacement may be nil.
func correction(id string, of schema.Identity, replacement *schema.Usage) *schema.Correction {
	c := &schema.Correction{CorrectsSource: of.Source, CorrectsID: of.ID, Action: "retract", Actor: "ann", Reason: "because"}
	c.Source, c.ID = "finance/li", id
	if replacement != nil {
		c.Action, c.Replacement = "replace", &schema.Event{Usage: replacement}
	}
	return c
}

// replacing makes the event of a correction.
func (f *fixture) replacing(id, unit, instance string, from, to int64) *schema.Usage {
	e := f.named(id, unit, instance, from, to)
	e.Source = "finance/li"
	return &e.Usage
}

// correct does what a consumer does with a correction. at is 0 for the next place
// in the stream.
func (f *fixture) correct(c *schema.Correction, at uint64) {
	f.Helper()
	f.sequence++
	if at == 0 {
		at = f.sequence
	}
	f.correctAt(c, schema.Position{Tenant: tenant, Stream: "USAGE_0", StreamSequence: at, StoredAtNs: int64(1e18 + at)})
}

func (f *fixture) correctAt(c *schema.Correction, at schema.Position) {
	f.Helper()
	if err := (&schema.Event{Correction: c}).Validate(); err != nil {
		f.Fatal(err)
	}
	if err := f.AddCorrection(f.ctx, at, c); err != nil {
		f.Fatal(err)
	}
	marks := []schema.Mark{{
		Grain: schema.GrainIdentity, Tenant: at.Tenant, ID: rand.Uint64(), MarkedAtMs: f.now.UnixMilli(),
		Units: []uint64{schema.IdentityHash(schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID})},
	}}
	if c.Replacement != nil {
		marks = append(marks, MarksOf([]schema.StoredEvent{{Usage: *c.Replacement.Usage, Position: at}}, f.now.UnixMilli())...)
	}
	if err := f.WriteMarks(f.ctx, marks); err != nil {
		f.Fatal(err)
	}
}

// copiesElsewhere has the copies of one identity in other minutes, hours, units
// and days; they come in every order, and with and without work in between.
func copiesElsewhere(f *fixture) {
	orders := [][]int{{3, 1, 0, 2}, {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}}
	if f.Slow {
		orders = orders[:1]
	}
	for n, order := range orders {
		for _, between := range []bool{false, true} {
			id, base := fmt.Sprint("e", n, between), int64(100+10*n)
			if between {
				base += 5
			}
			copies := []schema.StoredEvent{
				f.named(id, id, id, 0, 60), f.named(id, id, id, 0, 60), f.named(id, "GPU-2", id, 7200, 7260), f.named(id, id, id, 80_000, 80_060),
			}
			copies[1].StartMs, copies[1].EndMs = copies[1].StartMs+1, copies[1].EndMs+1
			for i := range copies {
				at := uint64(base + int64(i))
				copies[i].Stream, copies[i].StreamSequence, copies[i].StoredAtNs = "USAGE_0", at, int64(1e18+at)
			}
			for _, i := range order {
				f.add(copies[i])
				if between {
					f.drain()
				}
			}
			f.drain()
			f.only(id, map[Key]Times{{id, id}: active(60)})
		}
	}
}

// only checks what an instance has, in both grains.
func (f *fixture) only(instance string, want map[Key]Times) {
	f.Helper()
	for _, grain := range []string{schema.GrainMinute, schema.GrainHour} {
		got, err := f.Amounts(f.ctx, tenant, grain, start-24*hour, start+24*hour)
		if err != nil {
			f.Fatal(err)
		}
		var times Times
		for k, v := range got {
			if k.Instance != instance {
				continue
			}
			if v != want[k] && len(want) > 0 {
				f.Errorf("%ss of %v: %v, want %v", grain, k, v, want[k])
			}
			times.ActiveMs += v.ActiveMs
		}
		var sum Times
		for _, v := range want {
			sum.ActiveMs += v.ActiveMs
		}
		if times != sum {
			f.Errorf("%ss of %s are %v together, want %v", grain, instance, times, sum)
		}
	}
}

// toldElsewhere has a copy that lies where the id says and one that does not. The
// first kind has no entry of its own among identities.
func toldElsewhere(f *fixture) {
	for n := range 4 {
		told := f.event("GPU-1", fmt.Sprint("i", n), int64(n)*600, int64(n)*600+60)
		told.Source = "agent/x"
		other := told
		other.Unit, other.StartMs, other.EndMs = "GPU-2", told.StartMs+3*hour, told.EndMs+3*hour
		// Which was stored first, and which arrives first.
		told.StreamSequence, told.StoredAtNs = uint64(1000+10*n), int64(1e18+1000+10*n)
		other.StreamSequence, other.StoredAtNs = told.StreamSequence+1, told.StoredAtNs+1
		want := Key{"GPU-1", told.Instance}
		if n%2 == 1 {
			other.StreamSequence, other.StoredAtNs = told.StreamSequence-1, told.StoredAtNs-1
			want = Key{"GPU-2", told.Instance}
		}
		if n < 2 {
			f.add(told)
			f.drain()
			f.add(other)
		} else {
			f.add(other)
			f.drain()
			f.add(told)
		}
		f.drain()
		f.only(told.Instance, map[Key]Times{want: active(60)})
	}
}

// beginTogether has copies that tell the same place and end in different minutes:
// the longer one reaches into minutes that the shorter one is not in.
func beginTogether(f *fixture) {
	short, long := f.event("GPU-1", "i1", 0, 60), f.event("GPU-1", "i1", 0, 300)
	f.add(short)
	f.drain()
	f.add(long)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60)})
	// Only later minutes are computed again, because of another event.
	f.add(f.event("GPU-1", "i1", 180, 190))
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(70)})
	// The shorter one turns up last and was stored first.
	late, before := f.event("GPU-2", "i1", 0, 300), f.event("GPU-2", "i1", 0, 60)
	f.add(late)
	f.drain()
	before.Stream, before.StreamSequence, before.StoredAtNs = "USAGE_0", 1, 1
	f.add(before)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(70), {"GPU-2", "i1"}: active(60)})
}

func corrections(f *fixture) {
	e := f.event("GPU-1", "i1", 0, 3600)
	f.add(e, f.event("GPU-2", "i1", 0, 60))
	f.drain()
	// Replaced by half of it, elsewhere.
	f.correct(correction("c1", e.Identity(), f.replacing("r1", "GPU-1", "i2", 7200, 9000)), 0)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i2"}: active(1800), {"GPU-2", "i1"}: active(60)})
	// A second correction of the same is set aside, its replacement too.
	f.correct(correction("c2", e.Identity(), f.replacing("r2", "GPU-1", "i3", 0, 60)), 0)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i2"}: active(1800), {"GPU-2", "i1"}: active(60)})
	// Unless it was stored first.
	f.correct(correction("c0", e.Identity(), f.replacing("r0", "GPU-1", "i4", 0, 120)), 1)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i4"}: active(120), {"GPU-2", "i1"}: active(60)})
	// Before the event that it is about, which comes in two copies.
	late := f.named("late", "GPU-3", "i1", 600, 660)
	f.correct(correction("c3", late.Identity(), f.replacing("r3", "GPU-3", "i5", 600, 630)), 0)
	f.drain()
	again := late
	again.StartMs, again.EndMs = again.StartMs+hour, again.EndMs+hour
	f.add(late)
	f.add(again)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i4"}: active(120), {"GPU-2", "i1"}: active(60), {"GPU-3", "i5"}: active(30)})
	// One correction with two contents: the first one stands.
	x, y := f.event("GPU-4", "i1", 0, 60), f.event("GPU-5", "i1", 0, 60)
	f.add(x, y)
	f.correct(correction("c4", x.Identity(), nil), 0)
	f.correct(correction("c4", y.Identity(), nil), 0)
	f.drain()
	f.only("i1", map[Key]Times{{"GPU-2", "i1"}: active(60), {"GPU-5", "i1"}: active(60)})
	// And the other way round, when it turns out to have been stored first.
	f.correct(correction("c4", y.Identity(), nil), 2)
	f.drain()
	f.only("i1", map[Key]Times{{"GPU-2", "i1"}: active(60), {"GPU-4", "i1"}: active(60)})
}

func correctionChain(f *fixture) {
	e := f.event("GPU-1", "i1", 0, 60)
	f.add(e)
	// A long one, from the far end: every replacement is replaced by a longer one.
	const links = 12
	chain := []schema.Identity{e.Identity()}
	for n := range int64(links) {
		chain = append(chain, f.replacing(fmt.Sprint("r", n), "GPU-1", "i1", n*3600, n*3600+61+n).Identity())
	}
	for n := int64(links - 1); n >= 0; n-- {
		f.correct(correction(fmt.Sprint("c", n), chain[n], f.replacing(chain[n+1].ID, "GPU-1", "i1", n*3600, n*3600+61+n)), 0)
		if n%5 == 0 {
			f.drain()
		}
	}
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60 + links)})
	// A retraction beside a replacement changes nothing, whenever it was stored.
	f.correct(correction("retraction", e.Identity(), nil), 1)
	f.drain()
	f.is(map[Key]Times{{"GPU-1", "i1"}: active(60 + links)})
	// The first link is replaced by one that was stored before: all that hung on it
	// is void.
	f.correct(correction("before", e.Identity(), f.replacing("other", "GPU-4", "i1", 0, 60)), 2)
	f.drain()
	f.is(map[Key]Times{{"GPU-4", "i1"}: active(60)})
	// A circle counts nothing.
	a, b := f.replacing("a", "GPU-2", "i1", 0, 60), f.replacing("b", "GPU-3", "i1", 0, 60)
	f.correct(correction("ab", a.Identity(), b), 0)
	f.drain()
	f.is(map[Key]Times{{"GPU-3", "i1"}: active(60), {"GPU-4", "i1"}: active(60)})
	f.correct(correction("ba", b.Identity(), a), 0)
	f.drain()
	f.is(map[Key]Times{{"GPU-4", "i1"}: active(60)})
}

// failingConflict fails each step of a pass that finds a conflict and a
// correction; whoever passes next finds what was left.
func failingConflict(f *fixture) {
	steps := []string{
		"marks-identity", "affected", "mark-copy", "clear-identity", "marks-minute", "events", "put-minutes", "mark-hours", "clear-minute", "marks-copy", "clear-copy",
	}
	want := map[Key]Times{}
	for n, step := range steps {
		for _, after := range []bool{false, true} {
			if f.Slow && after == (n%2 == 0) {
				continue
			}
			unit, id := fmt.Sprint("GPU-", n, after), fmt.Sprint("e", n, after)
			first, second, fixed := f.named(id, unit, "i1", 0, 60), f.named(id, unit, "i1", 36_000, 36_060), f.named("fix"+id, unit, "i1", 3600, 3660)
			first.Stream, first.StreamSequence, first.StoredAtNs = "USAGE_0", 1, 1
			f.add(second, fixed, first)
			f.correct(correction("c"+id, fixed.Identity(), nil), 0)
			want[Key{unit, "i1"}] = active(60)
			s := &faulty{Store: f.Store, method: step, after: after}
			if _, err := f.driver(s, nil).Pass(f.ctx, true); !errors.Is(err, errInjected) {
				f.Fatalf("failing %s: the pass says %v", step, err)
			}
			f.drain()
			f.only("i1", want)
		}
	}
	// The places elsewhere are marked before the marks that led there are cleared.
	first, second := f.named("order", "GPU-order", "i1", 0, 60), f.named("order", "GPU-order", "i1", 36_000, 36_060)
	f.add(first)
	f.drain()
	f.add(second)
	f.correct(correction("c-order", first.Identity(), nil), 0)
	s := &faulty{Store: f.Store}
	if _, err := f.driver(s, nil).Pass(f.ctx, true); err != nil {
		f.Fatal(err)
	}
	calls := strings.Join(s.calls, " ")
	for _, part := range []string{"affected mark-copy clear-identity", "mark-hours mark-copy clear-minute"} {
		if !strings.Contains(calls, part) {
			f.Errorf("a pass did %s, which has no %q", calls, part)
		}
	}
}

// conflictMeanwhile: of two drivers one sees one copy and one the other, and
// neither sees both.
func conflictMeanwhile(f *fixture) {
	for n := range 3 {
		id := fmt.Sprint("e", n)
		first, second := f.named(id, "GPU-1", id, int64(n)*60, int64(n)*60+60), f.named(id, "GPU-2", id, 36_000, 36_060)
		f.add(first)
		stopped := f.driver(f.Store, func(point string) {
			if point != "mid-recompute" || second.StreamSequence != 0 {
				return
			}
			events := []schema.StoredEvent{second}
			f.add(events...)
			second = events[0]
			if n > 0 {
				if _, err := f.driver(f.Store, nil).Pass(f.ctx, n > 1); err != nil {
					f.Error(err)
				}
			}
		})
		if _, err := stopped.Pass(f.ctx, false); err != nil {
			f.Fatal(err)
		}
		f.drain()
		f.only(id, map[Key]Times{{"GPU-1", id}: active(60)})
	}
}

// correctionMeanwhile: a driver has computed without the correction and writes
// when another has done all the work of it.
func correctionMeanwhile(f *fixture) {
	e := f.event("GPU-1", "i1", 0, 60)
	f.add(e)
	done := false
	old := f.driver(f.Store, func(point string) {
		if point == "mid-recompute" && !done {
			done = true
			f.correct(correction("c1", e.Identity(), f.replacing("r1", "GPU-1", "i2", 0, 30)), 0)
			f.drain()
		}
	})
	if _, err := old.Pass(f.ctx, true); err != nil {
		f.Fatal(err)
	}
	want := map[Key]Times{{"GPU-1", "i2"}: active(30)}
	f.is(want)
	f.drain()
	f.is(want)
}

// anyArrival stores random events and corrections in random order and portions,
// some twice, with drivers at work in between, alone and two at a time. What is
// kept in the end is what a computation from all of them at once gives.
func anyArrival(f *fixture) {
	rounds := 30
	if f.Slow {
		rounds = 3
	}
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 7))
		tenant := fmt.Sprint("tenant-", round)
		events, fixes, at := randomWorld(f, random, tenant)
		var steps []func()
		for i := range events {
			steps = append(steps, func() { f.addAt(events[i]) })
		}
		for i := range fixes {
			steps = append(steps, func() { f.correctAt(fixes[i], at[i]) })
		}
		steps = append(steps, steps[:len(steps)/3]...)
		random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			step()
			switch random.IntN(8) {
			case 0:
				f.drain()
			case 1:
				var both sync.WaitGroup
				for range 2 {
					d := f.driver(f.Store, nil)
					both.Go(func() {
						if _, err := d.Pass(f.ctx, false); err != nil {
							f.Error(err)
						}
					})
				}
				both.Wait()
			}
		}
		f.drain()
		want := settledAtOnce(events, fixes, at)
		for _, grain := range []string{schema.GrainMinute, schema.GrainHour} {
			f.grainIs(grain, tenant, want)
		}
		if f.Failed() {
			for _, e := range events {
				f.Logf("%s/%s %s %d-%d %s stored %d", e.Source, e.ID, e.Unit, (e.StartMs-start)/1000, (e.EndMs-start)/1000, e.Instance, e.StoredAtNs)
			}
			for i, c := range fixes {
				f.Logf("%s corrects %s/%s: %s %+v stored %d", c.ID, c.CorrectsSource, c.CorrectsID, c.Action, c.Replacement, at[i].StoredAtNs)
			}
			f.Fatalf("round %d", round)
		}
	}
}

// addAt stores an event that has its position already.
func (f *fixture) addAt(e schema.StoredEvent) {
	f.Helper()
	if err := f.AddRaw(f.ctx, []schema.StoredEvent{e}); err != nil {
		f.Fatal(err)
	}
	if err := f.WriteMarks(f.ctx, MarksOf([]schema.StoredEvent{e}, f.now.UnixMilli())); err != nil {
		f.Fatal(err)
	}
}

func randomWorld(f *fixture, random *rand.Rand, tenant string) (events []schema.StoredEvent, fixes []*schema.Correction, at []schema.Position) {
	position := func() schema.Position {
		n := uint64(1 + random.IntN(1_000_000))
		return schema.Position{Tenant: tenant, Stream: "USAGE_0", StreamSequence: n, StoredAtNs: int64(1e18 + n)}
	}
	var ids []schema.Identity
	for range 4 + random.IntN(8) {
		from := int64(random.IntN(6)*60 + random.IntN(3)*3600 + random.IntN(2)*17)
		e := f.event(fmt.Sprint("GPU-", random.IntN(2)), fmt.Sprint("i", random.IntN(3)), from, from+[]int64{60, 60, 60, 150, 4000}[random.IntN(5)])
		switch random.IntN(4) {
		case 0: // as it is, telling
			e.Source = "app"
		case 1: // the id of another place
			e.Source, e.ID = "app", schema.UsageID("GPU-0", start+int64(random.IntN(6))*minute)
		default:
			e.Source, e.ID = "app", fmt.Sprint("e", random.IntN(4))
		}
		e.Position = position()
		e.Payload, _ = e.PayloadHash(nil)
		events, ids = append(events, e), append(ids, e.Identity())
	}
	for n := range 4 {
		ids = append(ids, schema.Identity{Source: "finance/li", ID: fmt.Sprint("r", n)})
	}
	for range random.IntN(7) {
		var replacement *schema.Usage
		if random.IntN(3) > 0 {
			from := int64(random.IntN(6) * 60)
			replacement = f.replacing(fmt.Sprint("r", random.IntN(4)), fmt.Sprint("GPU-", random.IntN(2)), fmt.Sprint("i", random.IntN(3)), from, from+60)
		}
		c := correction(fmt.Sprint("c", random.IntN(6)), ids[random.IntN(len(ids))], replacement)
		if replacement != nil && replacement.Identity() == (schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID}) {
			continue
		}
		fixes, at = append(fixes, c), append(at, position())
	}
	return events, fixes, at
}

// settledAtOnce computes everything from everything.
func settledAtOnce(events []schema.StoredEvent, fixes []*schema.Correction, at []schema.Position) map[Key]Times {
	var f schema.Facts
	all := slices.Clone(events)
	for i, c := range fixes {
		fix := schema.StoredCorrection{
			By: c.Identity(), Payload: (&schema.Event{Correction: c}).PayloadHash(), Position: at[i],
			Target: schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID}, Action: c.Action,
		}
		if c.Replacement != nil {
			fix.Replacement = c.Replacement.Header().Identity()
			e := schema.StoredEvent{Usage: *c.Replacement.Usage, Position: at[i]}
			e.Payload, _ = e.PayloadHash(nil)
			all = append(all, e)
		}
		f.Corrections = append(f.Corrections, fix)
	}
	byUnit := map[string][]schema.StoredEvent{}
	for _, e := range all {
		f.Copies = append(f.Copies, schema.Copy{Identity: e.Identity(), Unit: e.Unit, StartMs: e.StartMs, EndMs: e.EndMs, Payload: e.Payload, Position: e.Position})
		byUnit[e.Unit] = append(byUnit[e.Unit], e)
	}
	sums := map[Key]Times{}
	for unit, list := range byUnit {
		for _, c := range aggregator.Compute(list, []aggregator.Window{{StartMs: start - 24*hour, EndMs: start + 24*hour}}, aggregator.DefaultThreshold, f.Settle()) {
			if c.ActiveMs+c.IdleMs+c.UnknownMs > 0 {
				k := Key{unit, c.Instance}
				sums[k] = sums[k].Add(TimesOf(&c.Amounts))
			}
		}
	}
	return sums
}
