package report

import (
	"context"
	"math/big"
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
		keys := []string{"instance", "project", "model", "platform", "region", "unit", "day", "plan"}
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

// What a filter by plan lets through is the row of that plan, whatever else is asked for,
// and the explanation of it says the same.
func TestFilterByPlanIsItsRow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		p := Params{From: "2026-03-01", To: "2026-05-01", By: []string{planKey}}
		all := ask(t, w.Service, p)
		for i := range all.Rows {
			row := &all.Rows[i]
			of := p
			of.By, of.Filter = nil, map[string]string{planKey: row.Keys[0]}
			one := ask(t, w.Service, of)
			// Rows are rounded together, so the last digits of amounts may differ.
			if one.Totals.AllocatedMs != row.AllocatedMs || one.Totals.ActiveMs != row.ActiveMs || (one.Totals.Cost == nil) != (row.Cost == nil) ||
				row.Cost != nil && !near(one.Totals.Cost, row.Cost) {
				rt.Fatalf("plan %q: %s, as a row %s\n%s", row.Keys[0], appendFigures([]byte("{"), &one.Totals, one.Currency), appendFigures([]byte("{"), &row.Figures, all.Currency), w.textOf())
			}
			e, err := w.Explain(context.Background(), ExplainParams{Params: of})
			if err != nil {
				rt.Fatal(err)
			}
			if e.Total.AllocatedMs != one.Totals.AllocatedMs || text(e.Total.Cost) != amountText(one.Totals.Cost, one.Currency) {
				rt.Fatalf("plan %q: explained as %d ms, %s; the report says %s", row.Keys[0], e.Total.AllocatedMs, text(e.Total.Cost), appendFigures([]byte("{"), &one.Totals, one.Currency))
			}
		}
	})
}

// near says whether amounts differ by less than two last digits.
func near(a, b *big.Rat) bool {
	d := new(big.Rat).Sub(a, b)
	return d.Abs(d).Cmp(big.NewRat(2, 1_000_000)) < 0
}
