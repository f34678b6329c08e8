package pricing

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Settlements that come together are the same as one after the other, where clocks
// change by an hour or by half of one, too, and however they are cut.
func TestStretchesAreSettlements(t *testing.T) {
	zones := []string{"UTC", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca"}
	rapid.Check(t, func(t *rapid.T) {
		in := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		every := rapid.SampledFrom([]Every{EveryHour, EveryDay, EveryMonth}).Draw(t, "every")
		from := ms("2026-01-01T00:00:00Z") + rapid.Int64Range(0, 365*dayMs).Draw(t, "from")
		if rapid.Bool().Draw(t, "whole") {
			from -= from % hourMs
		}
		run := Span{from, from + rapid.Int64Range(1, 100*dayMs).Draw(t, "length")}
		want := Cut(run.FromMs, run.ToMs, every.Boundaries(run.FromMs, run.ToMs, in))
		var cuts []int64
		for range rapid.IntRange(0, 4).Draw(t, "cuts") {
			at := want[rapid.IntRange(0, len(want)-1).Draw(t, "settlement")].FromMs
			cuts = append(cuts, at+rapid.SampledFrom([]int64{0, 0, 1, hourMs / 2}).Draw(t, "within"))
		}
		slices.Sort(cuts)
		cuts = slices.DeleteFunc(slices.Compact(cuts), func(at int64) bool { return at <= run.FromMs || at >= run.ToMs })
		want = Cut(run.FromMs, run.ToMs, every.Boundaries(run.FromMs, run.ToMs, in), cuts)
		var got []Span
		for _, s := range every.stretches(run, in) {
			inside := slices.DeleteFunc(slices.Clone(cuts), func(at int64) bool { return at <= s.FromMs || at >= s.ToMs })
			for _, piece := range s.cut(inside) {
				unit := piece.Ms() / piece.n
				for k := range piece.n {
					part := Span{piece.FromMs + k*unit, piece.FromMs + (k+1)*unit}
					if ends := piece.ends + k*unit; ends != every.next(part.FromMs, in) {
						t.Fatalf("%v of %v ends at %d, its settlement at %d", part, piece, ends, every.next(part.FromMs, in))
					}
					got = append(got, part)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d settlements, want %d", len(got), len(want))
		}
	})
}
