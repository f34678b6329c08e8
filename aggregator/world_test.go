package aggregator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// world is all that is stored, of all units and windows. Its methods settle
// identities the way the rules are written, one question at a time.
type world struct {
	events      []schema.StoredEvent
	corrections []schema.StoredCorrection
}

// counts says whether an event has the content of its identity that was stored
// first, of all that are anywhere, and no correction takes that identity out.
func (w world) counts(e *schema.StoredEvent) bool {
	for i := range w.events {
		if o := &w.events[i]; o.Identity() == e.Identity() && earlier(o, e) && o.Payload != e.Payload && !w.storedBefore(e, o) {
			return false
		}
	}
	return w.effective(e.Identity()) == nil && w.alive(e.Identity(), nil)
}

// storedBefore says whether any copy of e's content was stored before o.
func (w world) storedBefore(e, o *schema.StoredEvent) bool {
	return slices.ContainsFunc(w.events, func(c schema.StoredEvent) bool {
		return c.Identity() == e.Identity() && c.Payload == e.Payload && earlier(&c, o)
	})
}

// effective returns the correction of an identity that takes effect.
func (w world) effective(id schema.Identity) *schema.StoredCorrection {
	var first *schema.StoredCorrection
	for i := range w.corrections {
		c := &w.corrections[i]
		if c.Target == id && w.valid(c) && (first == nil || replaces(c) && !replaces(first) || replaces(c) == replaces(first) && c.Order().Compare(first.Order()) < 0) {
			first = c
		}
	}
	return first
}

func replaces(c *schema.StoredCorrection) bool { return c.Action == "replace" }

// valid says whether no other content of the correction was stored before it.
func (w world) valid(c *schema.StoredCorrection) bool {
	before := func(payload schema.Hash) (at schema.Order, found bool) {
		for i := range w.corrections {
			if o := &w.corrections[i]; o.By == c.By && o.Payload == payload && (!found || o.Order().Compare(at) < 0) {
				at, found = o.Order(), true
			}
		}
		return at, found
	}
	mine, _ := before(c.Payload)
	for i := range w.corrections {
		if o := &w.corrections[i]; o.By == c.By && o.Payload != c.Payload {
			if other, _ := before(o.Payload); other.Compare(mine) < 0 {
				return false
			}
		}
	}
	return true
}

// alive says whether an identity is no replacement, or one that takes effect.
func (w world) alive(id schema.Identity, path []schema.Identity) bool {
	named := false
	for i := range w.corrections {
		c := &w.corrections[i]
		if c.Replacement != id {
			continue
		}
		named = true
		e := w.effective(c.Target)
		if e != nil && e.By == c.By && e.Payload == c.Payload && !slices.Contains(path, c.Target) && w.alive(c.Target, append(slices.Clone(path), id)) {
			return true
		}
	}
	return !named
}

// version adds up the credits of the contents of all identities that the window has
// events of, and of the corrections that anything leads to from there.
func (w world) version(unit string, window Window) uint64 {
	here := map[schema.Identity]bool{}
	for i := range w.events {
		if e := &w.events[i]; e.Unit == unit && e.EndMs > window.StartMs && e.StartMs < window.EndMs {
			here[e.Identity()] = true
		}
	}
	facts := map[string]uint64{}
	add := func(key string, storedAtNs int64) { facts[key] = max(facts[key], schema.Credit(storedAtNs)) }
	for i := range w.events {
		if e := &w.events[i]; here[e.Identity()] {
			add(fmt.Sprint("event", e.Identity(), e.Payload), e.StoredAtNs)
		}
	}
	for {
		n := maps.Clone(facts)
		for i := range w.corrections {
			c := &w.corrections[i]
			by := schema.Identity{Source: "by " + c.By.Source, ID: c.By.ID}
			if here[c.Target] || here[by] || c.Replacement != (schema.Identity{}) && here[c.Replacement] {
				here[c.Target], here[by], here[c.Replacement] = true, true, true
				delete(here, schema.Identity{})
				add(fmt.Sprint("correction", c.By, c.Payload), c.StoredAtNs)
			}
		}
		if maps.Equal(n, facts) {
			sum := uint64(0)
			for _, credit := range facts {
				sum += credit
			}
			return sum
		}
	}
}

// genWorld makes events of two units and corrections of them, of one another's
// replacements, and of nothing.
func genWorld(base int64) *rapid.Generator[world] {
	return rapid.Custom(func(t *rapid.T) world {
		var w world
		w.events = genEvents(base, false).Draw(t, "events")
		for i := range w.events {
			e := &w.events[i]
			e.Unit = rapid.SampledFrom([]string{"GPU-1", "GPU-1", "GPU-2"}).Draw(t, "unit")
			e.Payload, _ = e.PayloadHash(nil)
		}
		id := rapid.Custom(func(t *rapid.T) schema.Identity {
			return schema.Identity{Source: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "source"), ID: rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(t, "id")}
		})
		for range rapid.IntRange(0, 6).Draw(t, "corrections") {
			c := schema.StoredCorrection{
				By: schema.Identity{Source: "f", ID: rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "by")}, Target: id.Draw(t, "target"), Action: "retract",
			}
			if rapid.IntRange(0, 2).Draw(t, "replace") > 0 {
				c.Action, c.Replacement = "replace", id.Draw(t, "replacement")
			}
			c.Payload = schema.Hash{rapid.ByteRange(0, 1).Draw(t, "reason")}
			copy(c.Payload[1:], c.Target.Source+c.Target.ID+c.Replacement.Source+c.Replacement.ID)
			c.StoredAtNs, c.StreamSequence = rapid.Int64Range(1, 4).Draw(t, "stored")*1e6, rapid.Uint64Range(1, 3).Draw(t, "sequence")
			w.corrections = append(w.corrections, c)
		}
		return w
	})
}

// facts is what a store gives beside the events of one unit in some windows: all
// copies of their identities, or those elsewhere only, and all corrections.
func (w world) facts(t *rapid.T, here []schema.StoredEvent) *schema.Settlement {
	f := schema.Facts{Corrections: slices.Clone(w.corrections)}
	all := rapid.Bool().Draw(t, "copies that are here too")
	for i := range w.events {
		e := &w.events[i]
		at := func(o schema.StoredEvent) bool { return reflect.DeepEqual(o, *e) }
		if all || !slices.ContainsFunc(here, at) {
			f.Copies = append(f.Copies, schema.Copy{Identity: e.Identity(), Unit: e.Unit, StartMs: e.StartMs, EndMs: e.EndMs, Payload: e.Payload, Position: e.Position})
		}
	}
	if len(f.Copies) > 0 {
		f.Copies = append(f.Copies, rapid.SliceOfN(rapid.SampledFrom(f.Copies), 0, 3).Draw(t, "again")...)
	}
	if len(f.Corrections) > 0 {
		f.Corrections = append(f.Corrections, rapid.SliceOfN(rapid.SampledFrom(f.Corrections), 0, 3).Draw(t, "corrections again")...)
	}
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 2))
	random.Shuffle(len(f.Copies), func(i, j int) { f.Copies[i], f.Copies[j] = f.Copies[j], f.Copies[i] })
	random.Shuffle(len(f.Corrections), func(i, j int) { f.Corrections[i], f.Corrections[j] = f.Corrections[j], f.Corrections[i] })
	return f.Settle()
}

// However the windows are divided among computations, each of which is given only
// its own events and what is known of their identities, together they give what a
// settlement of everything at once gives.
func TestComputeSettlesAcrossWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		w := genWorld(base).Draw(t, "world")
		windows := genCuts(base).Draw(t, "windows")
		for _, unit := range []string{"GPU-1", "GPU-2"} {
			var got []schema.Cell
			for rest := windows; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "windows at once")
				var here []schema.StoredEvent
				for _, e := range w.events {
					if e.Unit == unit && e.StartMs < rest[n-1].EndMs && e.EndMs > rest[0].StartMs {
						here = append(here, e)
					}
				}
				got = append(got, Compute(slices.Clone(here), rest[:n], DefaultThreshold, w.facts(t, here))...)
				rest = rest[n:]
			}
			if want := w.reference(unit, windows, DefaultThreshold); !reflect.DeepEqual(inOrder(got), want) {
				t.Fatalf("%s\ncorrections %+v\ngot  %s\nwant %s", describe(w.events), w.corrections, describeCells(got), describeCells(want))
			}
		}
	})
}

// The settlement of claims is the same rule for events of any type.
func TestSettlementOfClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := genWorld(0).Draw(t, "world")
		n := rapid.IntRange(0, len(w.events)).Draw(t, "events at hand")
		claims := make([]schema.Claim, n)
		for i := range claims {
			claims[i] = schema.Claim{Identity: w.events[i].Identity(), Order: orderOf(&w.events[i])}
		}
		for i, got := range w.facts(t, w.events[:n]).Counted(claims) {
			if want := w.counts(&w.events[i]); got != want {
				t.Fatalf("%s\ncorrections %+v\nevent %d counts: %v, want %v", describe(w.events), w.corrections, i, got, want)
			}
		}
	})
}

// Whoever knows all facts has a version that nobody else has: fewer facts give a
// lower one, unless they leave nothing out that bears on the window.
func TestVersionTellsWhoKnowsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := genBase().Draw(t, "base")
		w := genWorld(base).Draw(t, "world")
		part := world{
			events:      w.events[:rapid.IntRange(0, len(w.events)).Draw(t, "events known")],
			corrections: w.corrections[:rapid.IntRange(0, len(w.corrections)).Draw(t, "corrections known")],
		}
		windows := genCuts(base).Draw(t, "windows")
		all, some := w.reference("GPU-1", windows, DefaultThreshold), part.reference("GPU-1", windows, DefaultThreshold)
		for _, c := range some {
			i := slices.IndexFunc(all, func(d schema.Cell) bool { return d.WindowMs == c.WindowMs && d.Owner == c.Owner })
			if i < 0 {
				t.Fatalf("the cell of %+v is gone with more facts", c.Owner)
			}
			if c.Version > all[i].Version || c.Version == all[i].Version && c != all[i] && !repeats(w, part) {
				t.Fatalf("%s\ncorrections %+v\nsome %+v\nall  %+v", describe(w.events), w.corrections, c, all[i])
			}
		}
	})
}

// repeats says whether the facts that are left out have contents that are known,
// stored again in the same millisecond: an order that versions do not tell.
func repeats(w, part world) bool {
	for _, e := range w.events[len(part.events):] {
		if slices.ContainsFunc(part.events, func(o schema.StoredEvent) bool {
			return o.Identity() == e.Identity() && o.Payload == e.Payload && o.StoredAtNs == e.StoredAtNs
		}) {
			return true
		}
	}
	for _, c := range w.corrections[len(part.corrections):] {
		if slices.ContainsFunc(part.corrections, func(o schema.StoredCorrection) bool {
			return o.By == c.By && o.Payload == c.Payload && o.StoredAtNs == c.StoredAtNs
		}) {
			return true
		}
	}
	return false
}
