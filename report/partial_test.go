package report

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// exact returns the rows of a question, unrounded and in key order, and the class that
// what rounding leaves over goes to.
func exact(t *rapid.T, s *Service, p Params) ([]*collected, class) {
	req, err := Parse(p, s.Now())
	if err != nil {
		t.Fatal(err)
	}
	cal := newCalendar(&req)
	cuts, err := allCuts(&req, cal, chargesNow(t, s, &req))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.Store.Usage(t.Context(), schema.UsageQuery{Tenant: req.Tenant, Cuts: cuts, By: storedKeys(req.By), Filter: req.Filter})
	if err != nil {
		t.Fatal(err)
	}
	groups, totals, err := group(&req, cal, cuts, rows, chargesNow(t, s, &req))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		g.Figures = g.figures()
	}
	all := totals.figures()
	return groups, all.largest()
}

func rowText(r *Row, rest class) string {
	f := r.Figures
	for _, column := range amountColumns {
		if x := column(&f); *x != nil {
			_, *x = pricing.RoundParts([]*big.Rat{*x}, pricing.Decimals)
		}
	}
	f.balance(rest)
	return strings.Join(r.Keys, "|") + string(appendFigures([]byte("{"), &f, "USD"))
}

// Pages put together are all rows in key order, each once; the top are the rows
// that sorting all of them puts first; and totals are those of the whole report.
func TestPartsOfAReport(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := service(t, drawStore(rt), propertyPrices)
		t := rt
		p := drawParams(t)
		if len(p.By) == 0 {
			p.By = []string{"instance"}
		}
		full, err := s.Report(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		totals := func(r *Report) string { return string(appendFigures([]byte("{"), &r.Totals, "USD")) }
		all, rest := exact(t, s, p)
		var want, got []string
		for _, g := range all {
			want = append(want, rowText(&g.Row, rest))
		}
		page := p
		page.Limit = rapid.IntRange(1, 5).Draw(t, "limit")
		for {
			r, err := s.Report(t.Context(), page)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Rows) > page.Limit || totals(r) != totals(full) || r.Next != "" && len(r.Rows) < page.Limit {
				t.Fatalf("a page of %d rows, at most %d, next %q, totals %s, want %s", len(r.Rows), page.Limit, r.Next, totals(r), totals(full))
			}
			for i := range r.Rows {
				got = append(got, rowText(&r.Rows[i], rest))
			}
			if page.After = r.Next; r.Next == "" || len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pages by %v:\n%s\nwant\n%s", p.By, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		top := p
		top.Top = rapid.IntRange(1, 8).Draw(t, "top")
		r, err := s.Report(t.Context(), top)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(all, func(a, b *collected) int { return -bySize(p.Kind, a, b) })
		want, got = nil, nil
		for _, g := range all[:min(len(all), top.Top)] {
			want = append(want, rowText(&g.Row, rest))
		}
		for i := range r.Rows {
			got = append(got, rowText(&r.Rows[i], rest))
		}
		if !slices.Equal(got, want) || r.RowCount != int64(len(all)) || totals(r) != totals(full) {
			t.Fatalf("top %d of %d rows, totals %s:\n%s\nwant %d, %s\n%s", top.Top, r.RowCount, totals(r), strings.Join(got, "\n"), len(all), totals(full), strings.Join(want, "\n"))
		}
	})
}

// bySize says it again: dearest first, unknown last, then longest.
func bySize(kind string, a, b *collected) int {
	value := func(c *collected) *big.Rat {
		x := c.Cost
		if kind == "waste" {
			x = c.IdleWaste
		}
		if x == nil {
			return big.NewRat(-1, 1)
		}
		return x
	}
	if c := value(a).Cmp(value(b)); c != 0 {
		return c
	}
	return big.NewInt(a.AllocatedMs).Cmp(big.NewInt(b.AllocatedMs))
}

// A page goes on after its last row though rows come and go in between.
func TestACursorSurvivesOtherRows(t *testing.T) {
	store := &fakeStore{spans: []span{
		gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=b"), gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=d"),
		gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=f"),
	}}
	s := service(t, store, p360)
	p := Params{From: "2026-03-01", To: "2026-03-02", By: []string{"instance"}, Limit: 1}
	first := ask(t, s, p)
	store.spans = append(store.spans[1:], gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=a"), gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=c"))
	p.After, p.Limit = first.Next, 2
	next := ask(t, s, p)
	if len(next.Rows) != 2 || next.Rows[0].Keys[0] != "c" || next.Rows[1].Keys[0] != "d" {
		t.Errorf("after b come %+v", next.Rows)
	}
}

func TestPartsInJSONAndTable(t *testing.T) {
	s := service(t, &fakeStore{spans: []span{
		gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=A"), gpu("2026-03-01T01:00:00Z", "2026-03-01T03:00:00Z", "instance=B"),
	}}, p360)
	for _, c := range []struct {
		p         Params
		rows      int
		count     string
		next      any
		tableLine string
	}{
		{Params{Top: 1}, 1, "2", "absent", "1 of 2 rows; the total is of all"},
		{Params{Limit: 1}, 1, "absent", "cursor", "go on with --after "},
		{Params{Limit: 2}, 2, "absent", nil, "the last page"},
		{Params{}, 2, "absent", "absent", ""},
	} {
		c.p.From, c.p.To, c.p.By = "2026-03-01", "2026-03-02", []string{"instance"}
		r := ask(t, s, c.p)
		var got map[string]any
		if err := json.Unmarshal(r.JSON(), &got); err != nil {
			t.Fatal(err)
		}
		count, next := "absent", any("absent")
		if _, ok := got["row_count"]; ok {
			raw, _ := json.Marshal(got["row_count"])
			count = string(raw)
		}
		if v, ok := got["next"]; ok {
			if next = v; v == r.Next {
				next = "cursor"
			}
		}
		if count != c.count || next != c.next || len(got["rows"].([]any)) != c.rows {
			t.Errorf("%+v: row_count %s, next %v in %s", c.p, count, next, r.JSON())
		}
		var table strings.Builder
		if err := r.Table(&table); err != nil || !strings.Contains(table.String(), c.tableLine) {
			t.Errorf("%+v: %v in\n%s", c.p, err, table.String())
		}
	}
}

func TestPartsAreRefused(t *testing.T) {
	s := service(t, &fakeStore{}, p360)
	ofOthers := writeCursor([]string{"project"}, []string{"a"})
	for _, c := range []struct {
		param string
		p     Params
	}{
		{"top", Params{Top: -1, By: []string{"instance"}}},
		{"top", Params{Top: MaxRows + 1, By: []string{"instance"}}},
		{"limit", Params{Limit: MaxRows + 1, By: []string{"instance"}}},
		{"top", Params{Top: 1, Limit: 1, By: []string{"instance"}}},
		{"by", Params{Top: 1}},
		{"kind", Params{Kind: "quality", Top: 1, By: []string{"instance"}}},
		{"after", Params{After: ofOthers, By: []string{"project"}}},
		{"after", Params{After: ofOthers, Limit: 1, By: []string{"instance"}}},
		{"after", Params{After: "!", Limit: 1, By: []string{"instance"}}},
		{"after", Params{After: "e30x", Limit: 1, By: []string{"instance"}}},
	} {
		var wrong *RequestError
		if _, err := s.Report(t.Context(), c.p); !errors.As(err, &wrong) || wrong.Param != c.param {
			t.Errorf("%+v: %v, want an error about %s", c.p, err, c.param)
		}
	}
}

// A store that breaks its promise must not show one group as two rows.
func TestAStoreOutOfOrderIsAnError(t *testing.T) {
	w := &walk{r: &Report{Request: Request{By: []string{"instance"}, Top: 5}}, cal: &calendar{}, cuts: []int64{0, 10}, ch: &charges{}, stored: []string{"instance"}, totals: &collector{}}
	for i, instance := range []string{"a", "b", "a"} {
		err := w.row(&schema.UsageRow{Keys: []string{instance}, Sums: schema.Sums{ActiveMs: 1}})
		if (err != nil) != (i == 2) {
			t.Fatalf("row %d: %v", i, err)
		}
	}
}
