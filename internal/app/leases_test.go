package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// world is everything that was ever sent, with copies and conflicts.
type world struct {
	usage  []schema.StoredEvent
	leases []schema.StoredLease
}

// expected goes through time as plainly as can be and says what a question's rows
// are, as text, and how much usage lies outside of leases. Steps are instants
// between which nothing changes: all that is in the world, or every millisecond.
func (w *world) expected(q *schema.UsageQuery, steps []int64) (rows map[string][4]int64, outside int64) {
	rows = map[string][4]int64{}
	add := func(piece int, c *schema.Cell, sums [4]int64) {
		if !matches(c, q.Filter) || q.Projects != nil && !slices.Contains(q.Projects, c.Project) || q.Instances != nil && !slices.Contains(q.Instances, c.Instance) {
			return
		}
		key := fmt.Sprintf("%d %q %q %q", piece, rowOf(c, 0, q.By).Keys, c.Model, c.Platform)
		have := rows[key]
		for i := range sums {
			have[i] += sums[i]
		}
		rows[key] = have
	}
	clip := q.Cuts[len(q.Cuts)-1]
	for _, limit := range []int64{q.NowMs, q.AsOfMs} {
		if limit > 0 {
			clip = min(clip, limit)
		}
	}
	events, leases := w.known(q.AsOfMs)
	var windows []aggregator.Window
	for i := 1; i < len(steps); i++ {
		windows = append(windows, aggregator.Window{StartMs: steps[i-1], EndMs: steps[i]})
	}
	// Who has which unit when is the core's affair, and tested there.
	cells := map[int64][]schema.Cell{}
	for _, unit := range events {
		for _, c := range aggregator.Compute(unit, windows, aggregator.DefaultThreshold, nil) {
			cells[c.WindowMs] = append(cells[c.WindowMs], c)
		}
	}
	for _, win := range windows {
		piece := 0
		for q.Cuts[piece+1] <= win.StartMs {
			piece++
		}
		reported := map[string]int64{}
		for _, c := range cells[win.StartMs] {
			ms := c.ActiveMs + c.IdleMs + c.UnknownMs
			reported[c.Instance] += ms
			if state, leased := stateAt(leases, c.Instance, win.StartMs); leased && !held(state.State) {
				outside += ms
				continue
			}
			sums := [4]int64{c.ActiveMs, c.IdleMs, c.UnknownMs, 0}
			if c.Instance == "" {
				sums[3] = c.IdleMs
			}
			add(piece, &c, sums)
		}
		for _, instance := range instancesOf(leases) {
			state, _ := stateAt(leases, instance, win.StartMs)
			if !held(state.State) || win.StartMs >= clip {
				continue
			}
			units := int64(0)
			for _, unit := range events {
				if slices.ContainsFunc(unit, func(e schema.StoredEvent) bool {
					return e.Instance == instance && e.StartMs <= win.StartMs && e.EndMs >= win.EndMs
				}) {
					units++
				}
			}
			gpus := int64(1)
			if state.Gpus.Known {
				gpus = state.Gpus.Value
			}
			if units > gpus {
				continue
			}
			missing := gpus*(win.EndMs-win.StartMs) - reported[instance]
			c := schema.Cell{Owner: schema.Owner{Instance: instance, Project: state.Project, Model: state.Model, Platform: state.Platform, Labels: schema.LabelsJSON(state.Labels)}}
			if state.State == "provisioning" {
				add(piece, &c, [4]int64{0, missing, 0, 0})
			} else {
				add(piece, &c, [4]int64{0, 0, missing, 0})
			}
		}
	}
	maps.DeleteFunc(rows, func(_ string, sums [4]int64) bool { return sums == [4]int64{} })
	return rows, outside
}

func held(state string) bool {
	return state == "provisioning" || state == "running" || state == "stopping"
}

// known returns what counts of what was stored by an instant: of every identity
// the copy stored first.
func (w *world) known(asOfMs int64) (units map[string][]schema.StoredEvent, leases []schema.StoredLease) {
	units = map[string][]schema.StoredEvent{}
	first := map[string]schema.StoredLease{}
	for _, l := range w.leases {
		key := l.Source + " " + l.ID
		if have, ok := first[key]; asOfMs > 0 && l.StoredAtNs > asOfMs*1e6 || ok && have.StoredAtNs < l.StoredAtNs {
			continue
		}
		first[key] = l
	}
	for _, l := range first {
		leases = append(leases, l)
	}
	for _, e := range w.usage {
		if asOfMs == 0 || e.StoredAtNs <= asOfMs*1e6 {
			units[e.Unit] = append(units[e.Unit], e)
		}
	}
	return units, leases
}

func instancesOf(leases []schema.StoredLease) []string {
	names := map[string]bool{}
	for _, l := range leases {
		names[l.Instance] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// stateAt puts together what the events of an instance say at an instant.
func stateAt(leases []schema.StoredLease, instance string, ms int64) (s schema.Lease, leased bool) {
	var own []schema.StoredLease
	for _, l := range leases {
		if l.Instance == instance {
			own = append(own, l)
		}
	}
	slices.SortFunc(own, func(a, b schema.StoredLease) int {
		return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.ID, b.ID))
	})
	for _, l := range own {
		if l.AtMs > ms {
			break
		}
		s.State = l.State
		if l.Project != "" {
			s.Project = l.Project
		}
		if l.Model != "" {
			s.Model = l.Model
		}
		if l.Platform != "" {
			s.Platform = l.Platform
		}
		if len(l.Labels) > 0 {
			s.Labels = l.Labels
		}
		if l.Gpus.Known {
			s.Gpus = l.Gpus
		}
	}
	return s, len(own) > 0
}

// scene draws worlds around 11:00, reaching so far on both sides.
type scene struct {
	reachMs  int64
	longest  int64 // usage event
	everyMs  bool
	crowd    bool
	universe *rapid.Generator[int64]
}

// newCrowd draws worlds of one instance that is reported on more units than it
// leases, each for a part of the hour or minute: how much is missing then depends
// on who reported at the same time as whom.
func newCrowd(window int64) scene {
	noon, part := testkit.At("2026-03-01T11:00:00Z"), window/4
	return scene{reachMs: 3 * window, longest: 3 * part, crowd: true, universe: rapid.Map(rapid.Int64Range(-12, 12), func(k int64) int64 { return noon + k*part })}
}

func newScene(reachMs, longest int64, everyMs bool) scene {
	noon := testkit.At("2026-03-01T11:00:00Z")
	grains := []*rapid.Generator[int64]{rapid.Int64Range(noon-reachMs, noon+reachMs), rapid.Just(noon)}
	for _, grain := range []int64{schema.HourMs, schema.MinuteMs, 1000} {
		if n := reachMs / grain; n > 0 {
			grains = append(grains, rapid.Map(rapid.Int64Range(-n, n), func(k int64) int64 { return noon + k*grain }))
		}
	}
	return scene{reachMs: reachMs, longest: longest, everyMs: everyMs, universe: rapid.OneOf(grains...)}
}

func (s scene) draw(t *rapid.T) *world {
	if s.crowd {
		return s.drawCrowd(t)
	}
	w := &world{}
	// Identities are first stored at different instants, as a stream does.
	stored := map[int64]bool{}
	storedAt := func() int64 {
		for {
			ns := s.universe.Draw(t, "stored")*1e6 + rapid.Int64Range(0, 999_999).Draw(t, "ns")
			if !stored[ns] {
				stored[ns] = true
				return ns
			}
		}
	}
	for i := range rapid.IntRange(0, 10).Draw(t, "usage events") {
		var e schema.StoredEvent
		e.Source, e.ID = "agent", fmt.Sprint("u", i)
		e.Unit = rapid.SampledFrom([]string{"GPU-1", "GPU-2", "GPU-3"}).Draw(t, "unit")
		e.Instance = rapid.SampledFrom([]string{"i1", "i1", "i2", "it's\t\\3", "never", ""}).Draw(t, "instance")
		e.Project, e.Model = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "project"), "H100"
		e.StartMs = s.universe.Draw(t, "start")
		e.EndMs = e.StartMs + rapid.OneOf(rapid.Int64Range(1, s.longest), rapid.Just(s.longest)).Draw(t, "length")
		e.Utilization = rapid.SampledFrom([]schema.Maybe{{}, schema.Some(0), schema.Some(500_000)}).Draw(t, "utilization")
		e.Share = rapid.SampledFrom([]schema.Maybe{{}, {}, {}, schema.Some(333_333_333), schema.Some(schema.ShareOne)}).Draw(t, "share")
		e.StoredAtNs = storedAt()
		w.usage = append(w.usage, e)
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "lease events") {
		var l schema.StoredLease
		l.Source, l.ID, l.Sequence = rapid.SampledFrom([]string{"cloud", "hand"}).Draw(t, "source"), fmt.Sprint("l", i), uint64(rapid.IntRange(0, 2).Draw(t, "sequence"))
		l.Instance = rapid.SampledFrom([]string{"i1", "i1", "i2", "it's\t\\3"}).Draw(t, "lease instance")
		s.say(t, &l.Lease)
		l.StoredAtNs = storedAt()
		w.leases = append(w.leases, l)
		if rapid.IntRange(0, 4).Draw(t, "conflict") == 0 {
			s.say(t, &l.Lease)
			l.Instance = rapid.SampledFrom([]string{"i1", "i2"}).Draw(t, "conflicting instance")
			l.StoredAtNs = storedAt()
			w.leases = append(w.leases, l)
		}
	}
	return w
}

func (s scene) drawCrowd(t *rapid.T) *world {
	begin := testkit.At("2026-03-01T11:00:00Z") - s.reachMs
	lease := schema.StoredLease{Lease: schema.Lease{
		Header: schema.Header{Source: "cloud", ID: "l"}, Instance: "i1", AtMs: begin, State: "running", Project: "a", Gpus: schema.Some(rapid.Int64Range(1, 2).Draw(t, "gpus")),
	}}
	lease.StoredAtNs = begin * 1e6
	w := &world{leases: []schema.StoredLease{lease}}
	for i := range rapid.IntRange(2, 10).Draw(t, "usage events") {
		e := schema.StoredEvent{Usage: testkit.Usage(rapid.SampledFrom([]string{"GPU-1", "GPU-2", "GPU-3"}).Draw(t, "unit"), "i1", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z")}
		e.ID = fmt.Sprint("u", i)
		e.StartMs = s.universe.Draw(t, "start")
		e.EndMs = e.StartMs + s.longest/3*rapid.Int64Range(1, 3).Draw(t, "quarters")
		e.StoredAtNs = begin*1e6 + int64(i) + 1
		w.usage = append(w.usage, e)
	}
	return w
}

func (s scene) say(t *rapid.T, l *schema.Lease) {
	l.AtMs = s.universe.Draw(t, "at")
	l.State = rapid.OneOf(rapid.SampledFrom([]string{"provisioning", "running", "running", "stopping", "released"}), rapid.SampledFrom(schema.LeaseStates)).Draw(t, "state")
	l.Gpus = rapid.SampledFrom([]schema.Maybe{{}, {}, schema.Some(0), schema.Some(1), schema.Some(2), schema.Some(3)}).Draw(t, "gpus")
	l.Project = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "lease project")
	l.Model = rapid.SampledFrom([]string{"", "H100", "A100"}).Draw(t, "model")
	l.Platform = rapid.SampledFrom([]string{"", "cloud"}).Draw(t, "platform")
	l.Labels = rapid.SampledFrom([]schema.Labels{nil, {{Key: "team", Value: "x/y"}}, {{Key: "team", Value: "z"}}}).Draw(t, "labels")
}

func (s scene) question(t *rapid.T, tenant string) *schema.UsageQuery {
	q := &schema.UsageQuery{Tenant: tenant}
	q.Cuts = rapid.SliceOfN(s.universe, 2, 5).Draw(t, "cuts")
	slices.Sort(q.Cuts)
	if q.Cuts = slices.Compact(q.Cuts); len(q.Cuts) < 2 {
		q.Cuts = append(q.Cuts, q.Cuts[0]+s.longest)
	}
	q.By = rapid.SampledFrom([][]string{nil, {"project"}, {"instance", "unit"}, {"label:team", "instance"}, {"platform"}}).Draw(t, "by")
	q.Filter = rapid.SampledFrom([]map[string]string{
		nil, nil, nil, {"project": "a"}, {"instance": "i1"}, {"unit": "GPU-1"}, {"unit": ""}, {"label:team": "x/y"}, {"model": "A100", "instance": "it's\t\\3"},
	}).Draw(t, "filter")
	q.Projects = rapid.SampledFrom([][]string{nil, nil, {}, {"a"}, {"b", "it's\\"}, {"a", "b"}}).Draw(t, "scope")
	q.Instances = rapid.SampledFrom([][]string{nil, nil, nil, {}, {"i1"}, {"i1", "it's\t\\3"}}).Draw(t, "instances")
	q.Activity = rapid.Bool().Draw(t, "activity")
	if rapid.Bool().Draw(t, "as of") {
		q.AsOfMs = s.universe.Draw(t, "as of")
	}
	if rapid.Bool().Draw(t, "now") {
		q.NowMs = s.universe.Draw(t, "now")
	}
	return q
}

// steps are the instants of the question at which anything changes.
func (s scene) steps(w *world, q *schema.UsageQuery) []int64 {
	from, to := q.Cuts[0], q.Cuts[len(q.Cuts)-1]
	all := append([]int64{q.NowMs, q.AsOfMs}, q.Cuts...)
	for _, e := range w.usage {
		all = append(all, e.StartMs, e.EndMs)
	}
	for _, l := range w.leases {
		all = append(all, l.AtMs)
	}
	for ms := from; s.everyMs && ms < to; ms++ {
		all = append(all, ms)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(ms int64) bool { return ms < from || ms > to })
}

// put stores a world in any order, some of it twice, in several batches.
func (w *world) put(t *rapid.T, db *clickhouse.DB, tenant string) {
	type item struct {
		usage *schema.StoredEvent
		lease *schema.StoredLease
	}
	var items []item
	for i := range w.usage {
		items = append(items, item{usage: &w.usage[i]})
	}
	for i := range w.leases {
		items = append(items, item{lease: &w.leases[i]})
	}
	if len(items) == 0 {
		return
	}
	items = append(items, rapid.SliceOf(rapid.SampledFrom(items)).Draw(t, "again")...)
	batch := db.NewBatch()
	var marks []schema.Mark
	for i, it := range rapid.Permutation(items).Draw(t, "order") {
		// A copy that is stored again is stored later.
		at := schema.Position{Tenant: tenant, Stream: "S", Epoch: 1, StreamSequence: uint64(i + 1)}
		if it.lease != nil {
			at.StoredAtNs = it.lease.StoredAtNs
			batch.Other(&at, &schema.Event{Lease: &it.lease.Lease})
		} else {
			at.StoredAtNs = it.usage.StoredAtNs
			batch.Usage(&at, &it.usage.Usage)
			for ms := schema.Floor(it.usage.StartMs, schema.MinuteMs); ms < it.usage.EndMs; ms += schema.MinuteMs {
				marks = append(marks, schema.Mark{Grain: schema.GrainMinute, Tenant: tenant, WindowMs: ms, ID: uint64(i + 1), Units: []uint64{schema.UnitHash(it.usage.Unit)}})
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "flush") == 0 {
			if err := batch.WriteRaw(context.Background()); err != nil {
				t.Fatal(err)
			}
			batch.Reset()
		}
	}
	if err := batch.WriteRaw(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := db.WriteMarks(context.Background(), marks); err != nil {
		t.Fatal(err)
	}
}

// Whatever leases, usage and questions come together, an answer is what going
// through time one step after the other gives: allocated while held, missing
// where nothing was reported, nothing else.
func TestLeasesDecideWhatIsAllocated(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "leases")
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	d, err := aggregator.NewDriver(aggregator.Options{Store: db, HourEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tenant := 0
	for name, scene := range map[string]scene{
		"every millisecond": newScene(900, 700, true),
		"hours":             newScene(3*schema.HourMs, 2*schema.HourMs, false),
		"minutes":           newScene(3*schema.MinuteMs, schema.MinuteMs, false),
		"crowded hours":     newCrowd(schema.HourMs),
		"crowded minutes":   newCrowd(schema.MinuteMs),
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ctx := context.Background()
				tenant++
				w, name := scene.draw(t), fmt.Sprint("t", tenant)
				w.put(t, db, name)
				if _, err := d.Pass(ctx, rapid.Bool().Draw(t, "hours too")); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					q := scene.question(t, name)
					got, err := s.Usage(ctx, *q)
					if err != nil {
						t.Fatal(err)
					}
					want, outside := w.expected(q, scene.steps(w, q))
					sameRows(t, q, got, want)
					have, err := s.outsideLease(ctx, name, q.Cuts[0], q.Cuts[len(q.Cuts)-1], q.AsOfMs)
					if err != nil || have != outside {
						t.Fatalf("outside of leases %d ms, %v, want %d", have, err, outside)
					}
				}
			})
		})
	}
}

func sameRows(t *rapid.T, q *schema.UsageQuery, rows []schema.UsageRow, want map[string][4]int64) {
	t.Helper()
	got := map[string][4]int64{}
	for _, r := range rows {
		if r.AllocatedMs() > 0 {
			key := fmt.Sprintf("%d %q %q %q", r.Piece, r.Keys, r.Model, r.Platform)
			if _, twice := got[key]; twice {
				t.Fatalf("two rows of %s", key)
			}
			for _, last := range []struct{ ms, end int64 }{{r.ActiveMs, r.LastActiveMs}, {r.ActiveMs + r.IdleMs, r.LastKnownMs}} {
				// Idle time of a lease that nobody reported is known and was not seen.
				if reported := q.Activity && last.ms > 0 && (r.ActiveMs > 0 || r.LastKnownMs > 0); reported != (last.end > 0) ||
					last.end > 0 && (last.end <= q.Cuts[r.Piece] || last.end > q.Cuts[r.Piece+1]) {
					t.Fatalf("%s: %d ms, the last of them before %s", key, last.ms, schema.FormatTime(last.end))
				}
			}
			got[key] = [4]int64{r.ActiveMs, r.IdleMs, r.UnknownMs, r.FreeMs}
		}
	}
	if maps.Equal(got, want) {
		return
	}
	text := func(m map[string][4]int64) string {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "  %s: active %d, idle %d, unknown %d, free %d\n", k, m[k][0], m[k][1], m[k][2], m[k][3])
		}
		return b.String()
	}
	cuts := make([]string, len(q.Cuts))
	for i, c := range q.Cuts {
		cuts[i] = schema.FormatTime(c)
	}
	t.Fatalf("by %v, filter %v, scope %q, cuts %v, as of %s, now %s: got\n%swant\n%s", q.By, q.Filter, q.Projects, cuts, schema.FormatTime(q.AsOfMs), schema.FormatTime(q.NowMs), text(got), text(want))
}

// What is not held of an event is every millisecond of it in which the state of its
// instance does not hold, and nothing of an instance without a lease.
func TestMarkNotHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line []schema.LeaseSegment
		cuts := rapid.SliceOfNDistinct(rapid.Int64Range(0, 40), 1, 8, rapid.ID).Draw(t, "changes")
		slices.Sort(cuts)
		for i, at := range cuts {
			s := schema.LeaseSegment{Owner: schema.Owner{Instance: "i"}, FromMs: at, ToMs: schema.LeaseOpen, State: rapid.SampledFrom(schema.LeaseStates).Draw(t, "state")}
			if i+1 < len(cuts) {
				s.ToMs = cuts[i+1]
			}
			line = append(line, s)
		}
		from := rapid.Int64Range(0, 45).Draw(t, "from")
		e := schema.StoredEvent{Usage: schema.Usage{Instance: "i", StartMs: from, EndMs: from + rapid.Int64Range(1, 30).Draw(t, "length")}}
		other := e
		other.Instance = "without"
		events := []schema.StoredEvent{e, other}
		markNotHeld(events, [][]schema.LeaseSegment{line})
		if events[1].NotHeld != nil {
			t.Fatal("an instance without a lease is not held")
		}
		for ms := int64(0); ms < 80; ms++ {
			held := slices.ContainsFunc(line, func(s schema.LeaseSegment) bool { return s.Held() && s.FromMs <= ms && ms < s.ToMs })
			in := slices.ContainsFunc(events[0].NotHeld, func(n schema.Interval) bool { return n.FromMs <= ms && ms < n.ToMs })
			if want := ms >= e.StartMs && ms < e.EndMs && !held; in != want {
				t.Fatalf("%d is not held: %v, want %v, in %+v of %+v", ms, in, want, events[0].NotHeld, line)
			}
		}
	})
}
