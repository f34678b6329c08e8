package report

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Pages and the top of a report have the rows of the whole one, those among them that
// have amounts and no time: purchases, unused commitments, meters, credits. Each is there
// once, and totals are those of all.
func TestPagesHaveWhatBelongsToNoUnit(t *testing.T) {
	bought := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		keys := []string{"instance", "project", "model", "platform", "region", "unit", "day"}
		p := Params{Kind: rapid.SampledFrom([]string{"spend", "waste"}).Draw(rt, "kind"), From: "2026-03-01", To: "2026-05-01"}
		for _, key := range rapid.Permutation(keys).Draw(rt, "keys")[:rapid.IntRange(1, 3).Draw(rt, "by")] {
			p.By = append(p.By, key)
		}
		req, err := Parse(p, clock)
		if err != nil {
			rt.Fatal(err)
		}
		groups, totals, err := w.collect(context.Background(), &req, chargesNow(rt, w.Service, &req))
		if err != nil {
			rt.Fatal(err)
		}
		all := totals.figures()
		var want []string
		for _, g := range groups {
			g.Figures = g.figures()
			if g.AllocatedMs == 0 {
				bought++
			}
			want = append(want, rowText(&g.Row, all.largest()))
		}
		whole := ask(t, w.Service, p)
		sums := func(r *Report) string { return string(appendFigures([]byte("{"), &r.Totals, r.Currency)) }

		page := p
		page.Limit = rapid.IntRange(1, 4).Draw(rt, "limit")
		var got []string
		for len(got) <= len(want) {
			r := ask(t, w.Service, page)
			for i := range r.Rows {
				got = append(got, rowText(&r.Rows[i], all.largest()))
			}
			if sums(r) != sums(whole) {
				rt.Fatalf("totals of a page %s, of all %s\n%s", sums(r), sums(whole), w.textOf())
			}
			if page.After = r.Next; r.Next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("pages by %v:\n%s\nwant\n%s\n%s", p.By, strings.Join(got, "\n"), strings.Join(want, "\n"), w.textOf())
		}

		top := p
		top.Top = rapid.IntRange(1, 8).Draw(rt, "top")
		r := ask(t, w.Service, top)
		if r.RowCount != int64(len(want)) || len(r.Rows) != min(top.Top, len(want)) || sums(r) != sums(whole) {
			rt.Fatalf("top %d: %d rows of %d, want %d; totals %s, of all %s\n%s", top.Top, len(r.Rows), r.RowCount, len(want), sums(r), sums(whole), w.textOf())
		}
		for i := range r.Rows {
			if text := rowText(&r.Rows[i], all.largest()); !slices.Contains(want, text) {
				rt.Fatalf("top: no row of the whole is %s\n%s", text, strings.Join(want, "\n"))
			}
		}
	})
	if bought == 0 {
		t.Error("no row without time was drawn")
	}
}
