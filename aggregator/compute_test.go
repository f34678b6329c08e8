package aggregator

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// axisMs is how far the random events reach; the reference goes through it one
// millisecond after the other.
const axisMs = 200

// genEvents makes stored events of one unit around base. distinct gives every
// event an identity of its own; otherwise some are conflicts of one another.
func genEvents(base int64, distinct bool) *rapid.Generator[[]schema.StoredEvent] {
	one := rapid.Custom(func(t *rapid.T) schema.StoredEvent {
		var e schema.StoredEvent
		e.Unit = "GPU-1"
		e.StartMs = base + rapid.Int64Range(0, axisMs-1).Draw(t, "start")
		e.EndMs = rapid.Int64Range(e.StartMs+1, base+axisMs).Draw(t, "end")
		if rapid.IntRange(0, 3).Draw(t, "whole") == 0 {
			e.StartMs, e.EndMs = base, base+axisMs
		}
		length := e.LengthMs()
		e.Source = rapid.SampledFrom([]string{"s", "t"}).Draw(t, "source")
		e.ID = rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "id")
		e.Instance = rapid.SampledFrom([]string{"", "i1", "i2", "i3"}).Draw(t, "instance")
		e.Project = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "project")
		e.LabelsText = rapid.SampledFrom([]string{"", "", `{"k":"v"}`}).Draw(t, "labels")
		e.Share = rapid.OneOf(
			rapid.Just(schema.Maybe{}),
			rapid.Map(rapid.SampledFrom([]int64{1, 125_000_000, 250_000_000, 333_333_333, 500_000_000, 666_666_667, 999_999_999, schema.ShareOne}), schema.Some),
			rapid.Map(rapid.Int64Range(1, schema.ShareOne), schema.Some)).Draw(t, "share")
		switch rapid.IntRange(0, 3).Draw(t, "known") {
		case 0:
			e.Utilization = schema.Some(rapid.SampledFrom([]int64{0, 9_999, 10_000, 420_000}).Draw(t, "utilization"))
		case 1:
			e.ActiveMs = schema.Some(rapid.Int64Range(0, length).Draw(t, "active"))
			e.IdleMs = schema.Some(rapid.Int64Range(0, length-e.ActiveMs.Value).Draw(t, "idle"))
			e.Utilization = schema.Some(rapid.Int64Range(0, schema.UtilizationOne).Draw(t, "utilization"))
		case 2:
			e.IdleMs = schema.Some(rapid.Int64Range(0, length).Draw(t, "idle"))
		}
		if rapid.Bool().Draw(t, "memory") {
			e.MemoryUsedBytes = schema.Some(rapid.Int64Range(0, 1<<41).Draw(t, "bytes"))
		}
		if rapid.Bool().Draw(t, "energy") {
			e.EnergyMj = schema.Some(rapid.Int64Range(0, 10_000*length).Draw(t, "mj"))
		}
		e.StoredAtNs = rapid.Int64Range(1, 4).Draw(t, "stored") * 1e6
		e.StreamSequence = rapid.Uint64Range(1, 3).Draw(t, "sequence")
		e.Place = rapid.Uint32Range(0, 2).Draw(t, "place")
		return e
	})
	return rapid.Custom(func(t *rapid.T) []schema.StoredEvent {
		events := rapid.SliceOfN(one, 1, 8).Draw(t, "events")
		for i := range events {
			if distinct {
				events[i].ID = fmt.Sprintf("%s%d", events[i].ID, i)
			}
			events[i].Payload, _ = events[i].PayloadHash(nil)
		}
		// The same again, stored at another time: before or after.
		for n := rapid.IntRange(0, 2).Draw(t, "repeated"); n > 0 && !distinct; n-- {
			e := rapid.SampledFrom(events).Draw(t, "again")
			e.StoredAtNs = rapid.Int64Range(1, 4).Draw(t, "stored again") * 1e6
			events = append(events, e)
		}
		return events
	})
}

var bases = []int64{schema.MinTimeMs, 1_772_359_199_900, schema.MaxTimeMs - axisMs - 10}

func genBase() *rapid.Generator[int64] { return rapid.SampledFrom(bases) }

// genCuts divides a span that is a little longer than the events.
func genCuts(base int64) *rapid.Generator[[]Window] {
	return rapid.Custom(func(t *rapid.T) []Window {
		inner := rapid.SliceOfN(rapid.Int64Range(base-4, base+axisMs+4), 0, 6).Draw(t, "cuts")
		cuts := append(inner, base-5, base+axisMs+5)
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		var windows []Window
		for i := 1; i < len(cuts); i++ {
			windows = append(windows, Window{cuts[i-1], cuts[i]})
		}
		return windows
	})
}

// compute computes a copy, because Compute reorders what it gets.
func compute(events []schema.StoredEvent, windows []Window) []schema.Cell {
	return inOrder(Compute(slices.Clone(events), windows, DefaultThreshold, nil))
}

func TestComputeAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		events := genEvents(base, false).Draw(t, "events")
		windows := genCuts(base).Draw(t, "windows")
		got, want := compute(events, windows), reference(events, windows, DefaultThreshold)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %s\nwant %s", describe(events), describeCells(got), describeCells(want))
		}
	})
}

// The whole of a window is the most that all owners together can have of it, and
// a unit that is held without a given share is allocated whenever it is covered.
func TestComputeCountsNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		events := genEvents(base, false).Draw(t, "events")
		noShares := rapid.Bool().Draw(t, "without shares")
		if noShares {
			for i := range events {
				events[i].Share = schema.Maybe{}
			}
		}
		for _, w := range genCuts(base).Draw(t, "windows") {
			cells := compute(events, []Window{w})
			var allocated int64
			for _, c := range cells {
				for _, part := range []int64{c.ActiveMs, c.IdleMs, c.UnknownMs, c.UtilizationMs, c.MemoryMs, c.EnergyMs, c.EnergyMj, c.OverlapMs, c.OversubscribedMs} {
					if part < 0 {
						t.Fatalf("a negative part: %s", describeCells(cells))
					}
				}
				all := c.ActiveMs + c.IdleMs + c.UnknownMs
				if c.UtilizationMs > c.ActiveMs+c.IdleMs || c.MemoryMs > all || c.EnergyMs > all {
					t.Fatalf("more time with a reading than time: %s", describeCells(cells))
				}
				if c.OverlapMs > all || c.OversubscribedMs > all {
					t.Fatalf("more time overlaps or is oversubscribed than is allocated: %s", describeCells(cells))
				}
				allocated += all
			}
			if allocated > w.EndMs-w.StartMs {
				t.Fatalf("%d ms of a window of %d\n%s\n%s", allocated, w.EndMs-w.StartMs, describe(events), describeCells(cells))
			}
			if noShares {
				if want := covered(counted(events, w), w); allocated != want {
					t.Fatalf("%d ms allocated and %d covered\n%s\n%s", allocated, want, describe(events), describeCells(cells))
				}
			}
		}
	})
}

// counted returns the events of a window that are first of their identity.
func counted(events []schema.StoredEvent, w Window) []schema.StoredEvent {
	var list []schema.StoredEvent
	for _, e := range events {
		if e.EndMs <= w.StartMs || e.StartMs >= w.EndMs {
			continue
		}
		beaten := slices.ContainsFunc(events, func(o schema.StoredEvent) bool {
			return o.Source == e.Source && o.ID == e.ID && earlier(&o, &e)
		})
		if !beaten {
			list = append(list, e)
		}
	}
	return list
}

func covered(events []schema.StoredEvent, w Window) (n int64) {
	for ms := w.StartMs; ms < w.EndMs; ms++ {
		if slices.ContainsFunc(events, func(e schema.StoredEvent) bool { return e.StartMs <= ms && ms < e.EndMs }) {
			n++
		}
	}
	return n
}

// Reports answer for any instants, and add up kept minutes where they can: that
// is only the same answer when no division of a span changes its sums, conflicts
// between windows included.
func TestSplittingChangesNoSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		events := genEvents(base, false).Draw(t, "events")
		parts := genCuts(base).Draw(t, "windows")
		whole := sumByOwner(compute(events, []Window{{base - 5, base + axisMs + 5}}))
		if split := sumByOwner(compute(events, parts)); !reflect.DeepEqual(whole, split) {
			t.Fatalf("%s\nwindows %v\nwhole %v\nsplit %v", describe(events), parts, whole, split)
		}
	})
}

func TestMinutesAddUpToTheHour(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := int64(1_772_359_200_000)
		events := genEvents(base, true).Draw(t, "events")
		// The same shapes over hours: a millisecond becomes 50 s and a bit.
		for i := range events {
			e := &events[i]
			const wide = 50_021
			e.StartMs, e.EndMs = base+(e.StartMs-base)*wide, base+(e.EndMs-base)*wide
			for _, m := range []*schema.Maybe{&e.ActiveMs, &e.IdleMs} {
				m.Value *= wide
			}
		}
		const hours = 3
		var minutes []Window
		for ms := base; ms < base+hours*schema.HourMs; ms += schema.MinuteMs {
			minutes = append(minutes, Window{ms, ms + schema.MinuteMs})
		}
		a, b := sumByOwner(compute(events, minutes)), sumByOwner(compute(events, []Window{{base, base + hours*schema.HourMs}}))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%s\nminutes %v\nhours %v", describe(events), a, b)
		}
	})
}

func sumByOwner(cells []schema.Cell) map[schema.Owner]schema.Amounts {
	sums := map[schema.Owner]schema.Amounts{}
	for i := range cells {
		a := sums[cells[i].Owner]
		a.Add(&cells[i].Amounts)
		sums[cells[i].Owner] = a
	}
	return sums
}

func TestOrderAndRepetitionChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		events := genEvents(base, false).Draw(t, "events")
		windows := genCuts(base).Draw(t, "windows")
		want := compute(events, windows)
		again := append(slices.Clone(events), rapid.SliceOfN(rapid.SampledFrom(events), 0, 6).Draw(t, "copies")...)
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if got := compute(again, windows); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %s\nwant %s", describe(again), describeCells(got), describeCells(want))
		}
		// Nor does it matter whether windows are computed together or one by one.
		var single []schema.Cell
		for _, w := range windows {
			single = append(single, compute(again, []Window{w})...)
		}
		if !reflect.DeepEqual(inOrder(single), want) {
			t.Fatalf("%s\none by one %s\ntogether   %s", describe(again), describeCells(single), describeCells(want))
		}
	})
}

// What a source measured over an interval that nobody else speaks for is counted
// to the last millijoule and millisecond, whatever the windows.
func TestSoleEventsAreCountedExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		var events []schema.StoredEvent
		var want schema.Amounts
		at := base
		for i, e := range genEvents(base, true).Draw(t, "events") {
			length := e.LengthMs()
			e.StartMs, e.EndMs = at, at+length
			if e.Instance == "" {
				e.Instance = "i1"
			}
			e.Share = schema.Maybe{}
			if rapid.Bool().Draw(t, "share of one") {
				e.Share = schema.Some(schema.ShareOne)
			}
			at += length + int64(i%2)
			events = append(events, e)
			active, idle, unknown := e.Split(DefaultThreshold)
			want.Add(&schema.Amounts{ActiveMs: active, IdleMs: idle, UnknownMs: unknown, EnergyMj: e.EnergyMj.Value})
		}
		cut := rapid.Int64Range(base+1, at).Draw(t, "cut")
		var got schema.Amounts
		for _, c := range compute(events, []Window{{base, cut}, {cut, at + 1}}) {
			got.Add(&schema.Amounts{ActiveMs: c.ActiveMs, IdleMs: c.IdleMs, UnknownMs: c.UnknownMs, EnergyMj: c.EnergyMj})
		}
		if got != want {
			t.Fatalf("%s\ngot  %+v\nwant %+v", describe(events), got, want)
		}
	})
}

// Storage keeps the highest version of a cell. So a computation that saw more
// rows must have the higher one, and must have every cell that one with fewer
// rows had: otherwise an old cell would stand for ever.
func TestVersionAndCellsOnlyGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		events := genEvents(base, false).Draw(t, "events")
		n := rapid.IntRange(1, len(events)).Draw(t, "known before")
		windows := genCuts(base).Draw(t, "windows")
		before, after := compute(events[:n], windows), compute(events, windows)
		for _, c := range before {
			i := slices.IndexFunc(after, func(d schema.Cell) bool { return d.WindowMs == c.WindowMs && d.Owner == c.Owner })
			if i < 0 {
				t.Fatalf("the cell of %+v is gone with more events", c.Owner)
			}
			w := windows[slices.IndexFunc(windows, func(w Window) bool { return w.StartMs == c.WindowMs })]
			added := slices.ContainsFunc(events[n:], func(e schema.StoredEvent) bool {
				inWindow := slices.ContainsFunc(events, func(o schema.StoredEvent) bool {
					return o.Identity() == e.Identity() && o.EndMs > w.StartMs && o.StartMs < w.EndMs
				})
				return inWindow && !slices.ContainsFunc(events[:n], func(o schema.StoredEvent) bool {
					return o.Source == e.Source && o.ID == e.ID && o.Payload == e.Payload && o.StoredAtNs <= e.StoredAtNs
				})
			})
			if after[i].Version < c.Version || added != (after[i].Version > c.Version) {
				t.Fatalf("version %d became %d; a row was added: %v", c.Version, after[i].Version, added)
			}
			if !added && after[i] != c && !repeats(world{events: events}, world{events: events[:n]}) {
				t.Fatalf("one version, two amounts: %+v %+v", c, after[i])
			}
		}
		for _, w := range windows {
			for _, e := range events {
				if e.EndMs > w.StartMs && e.StartMs < w.EndMs && !slices.ContainsFunc(after, func(c schema.Cell) bool { return c.WindowMs == w.StartMs && c.Owner == ownerOf(&e) }) {
					t.Fatalf("no cell for %+v", ownerOf(&e))
				}
			}
		}
	})
}

// Of A and its rival B, stored as A, B, A, the first A may be read last. Then the
// winner changes and no content is new, and a computation that did not know it has
// to have the lower version all the same.
func TestVersionRisesWithAnEarlierCopy(t *testing.T) {
	event := func(project string, storedMs int64) schema.StoredEvent {
		var e schema.StoredEvent
		e.Unit, e.Source, e.ID, e.Instance, e.Project, e.EndMs = "GPU-1", "s", "1", "i1", project, 1000
		e.StoredAtNs = storedMs * 1e6
		e.Payload, _ = e.PayloadHash(nil)
		return e
	}
	windows := []Window{{0, 1000}}
	unknown := func(cells []schema.Cell, project string) (ms int64, version uint64) {
		for _, c := range cells {
			if c.Project == project {
				return c.UnknownMs, c.Version
			}
		}
		t.Fatalf("no cell of %s in %+v", project, cells)
		return 0, 0
	}
	before := compute([]schema.StoredEvent{event("b", 2), event("a", 3)}, windows)
	after := compute([]schema.StoredEvent{event("b", 2), event("a", 3), event("a", 1)}, windows)
	was, low := unknown(before, "b")
	is, high := unknown(after, "a")
	if was != 1000 || is != 1000 || high <= low {
		t.Errorf("b had %d ms in version %d, then a has %d ms in version %d; want all of it each, and a higher version", was, low, is, high)
	}
}

// Largest values that events may have, over the longest interval.
func TestComputeAtTheBounds(t *testing.T) {
	var e schema.StoredEvent
	e.Unit, e.Source, e.ID, e.Instance = "GPU-1", "s", "1", "i1"
	e.EndMs = schema.MaxTimeMs - 1
	e.StartMs = e.EndMs - schema.MaxIntervalMs
	e.EnergyMj, e.Utilization = schema.Some(10_000*int64(schema.MaxIntervalMs)), schema.Some(schema.UtilizationOne)
	f := e
	f.ID, f.Instance, f.Share = "2", "i2", schema.Some(1)
	var got schema.Amounts
	for _, c := range compute([]schema.StoredEvent{e, f}, []Window{{e.StartMs, e.EndMs}}) {
		got.Add(&c.Amounts)
	}
	if got.ActiveMs != schema.MaxIntervalMs || got.IdleMs != 0 || got.UnknownMs != 0 {
		t.Errorf("%+v", got)
	}
	// Two halves of one measurement, rounded down each, may lack a millijoule.
	if d := e.EnergyMj.Value - got.EnergyMj; d < 0 || d > 10_000 {
		t.Errorf("energy %d, want %d", got.EnergyMj, e.EnergyMj.Value)
	}
}

func describe(events []schema.StoredEvent) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s/%s %q [%d,%d) share %v util %v active %v idle %v stored %d\n", e.Source, e.ID, e.Instance, e.StartMs, e.EndMs,
			e.Share, e.Utilization, e.ActiveMs, e.IdleMs, e.StoredAtNs)
	}
	return b.String()
}

func describeCells(cells []schema.Cell) string {
	var b strings.Builder
	for _, c := range cells {
		fmt.Fprintf(&b, "%d %q %q %+v v%d; ", c.WindowMs, c.Instance, c.Project, c.Amounts, c.Version)
	}
	return b.String()
}

// TestScenarios reads testdata/usage.txt, whose head explains the form.
func TestScenarios(t *testing.T) {
	file, err := os.ReadFile("testdata/usage.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(file), "\n\n") {
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(block), "\n"), func(l string) bool { return strings.HasPrefix(l, "#") || l == "" })
		if len(lines) == 0 {
			continue
		}
		n++
		t.Run(lines[0], func(t *testing.T) { scenario(t, lines[1:]) })
	}
	if n < 20 {
		t.Errorf("%d scenarios were read, the file is cut", n)
	}
}

func scenario(t *testing.T, lines []string) {
	var events []schema.StoredEvent
	var windows []Window
	var want []string
	for i, line := range lines {
		f := strings.Fields(line)
		switch f[0] {
		case "event":
			events = append(events, parseEvent(t, f[1:], int64(i)))
		case "window":
			windows = append(windows, Window{clock(t, f[1]), clock(t, f[2])})
		case "=>":
			want = append(want, strings.Join(f[1:], " "))
		default:
			t.Fatalf("line %q", line)
		}
	}
	var got []string
	for _, c := range compute(events, windows) {
		s := time.UnixMilli(c.WindowMs).UTC().Format("15:04:05") + " " + c.Instance
		if c.Instance == "" {
			s += "nobody"
		}
		if c.Project != "a" {
			s += " project=" + c.Project
		}
		for _, p := range []struct {
			name string
			v    int64
		}{{"active", c.ActiveMs}, {"idle", c.IdleMs}, {"unknown", c.UnknownMs}, {"energy", c.EnergyMj}, {"overlap", c.OverlapMs}, {"oversubscribed", c.OversubscribedMs}} {
			if p.v != 0 {
				s += fmt.Sprintf(" %s=%d", p.name, p.v)
			}
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func parseEvent(t *testing.T, f []string, stored int64) schema.StoredEvent {
	t.Helper()
	var e schema.StoredEvent
	e.Unit, e.Project, e.StoredAtNs = "GPU-1", "a", stored
	e.Source, e.ID, _ = strings.Cut(f[0], "/")
	e.StartMs, e.EndMs, e.Instance = clock(t, f[1]), clock(t, f[2]), f[3]
	if e.Instance == "nobody" {
		e.Instance = ""
	}
	for _, a := range f[4:] {
		key, value, _ := strings.Cut(a, "=")
		scale := map[string]int{"util": 6, "share": 9}[key]
		v, ok := schema.ParseFixed(value, scale)
		into := map[string]*schema.Maybe{"util": &e.Utilization, "share": &e.Share, "active": &e.ActiveMs, "idle": &e.IdleMs, "energy": &e.EnergyMj}[key]
		switch {
		case key == "project":
			e.Project = value
		case key == "stored":
			e.StoredAtNs, _ = strconv.ParseInt(value, 10, 64)
		case into == nil || !ok:
			t.Fatalf("attribute %q", a)
		default:
			*into = schema.Some(v)
		}
	}
	if err := e.Usage.Validate(); err != nil {
		t.Fatal(err)
	}
	e.Payload, _ = e.PayloadHash(nil)
	return e
}

// clock reads a time of 2026-03-01, or of the day after with a leading "+".
func clock(t *testing.T, s string) int64 {
	t.Helper()
	day := "2026-03-01T"
	if rest, ok := strings.CutPrefix(s, "+"); ok {
		day, s = "2026-03-02T", rest
	}
	at, err := time.Parse(time.RFC3339Nano, day+s+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}
