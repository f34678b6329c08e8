package app

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// Of any world, the report of some projects is what the filters by each of them give,
// added up: as of now and as of an instant, whole and in pages, and explained.
func TestScopeIsTheSumOfItsProjects(t *testing.T) {
	s := newZoneStore(t, "scopes")
	store := &usageStore{db: s.db, threshold: aggregator.DefaultThreshold}
	s.reports.Rated = ratedStore{store}
	setChecks(t, "15")
	scene := newScene(3*schema.MinuteMs, schema.MinuteMs, false)
	tenants := 0
	rapid.Check(t, func(rt *rapid.T) {
		tenants++
		w, tenant := scene.draw(rt), fmt.Sprint("t", tenants)
		w.put(rt, s.db, tenant)
		if _, err := s.driver.Pass(rt.Context(), rapid.Bool().Draw(rt, "hours too")); err != nil {
			rt.Fatal(err)
		}
		q := scene.question(rt, tenant)
		p := report.Params{Kind: "usage", Tenant: tenant, From: schema.FormatTime(q.Cuts[0]), To: schema.FormatTime(q.Cuts[len(q.Cuts)-1])}
		if q.AsOfMs > 0 {
			p.AsOf = schema.FormatTime(q.AsOfMs)
		}
		p.By = rapid.SampledFrom([][]string{{"instance"}, {"unit", "project"}, {"hour", "model"}}).Draw(rt, "keys")
		ask := func(scope []string, filter map[string]string) *report.Report {
			p.Projects, p.Filter = scope, filter
			r, err := s.reports.Report(rt.Context(), p)
			if err != nil {
				rt.Fatal(err)
			}
			return r
		}
		a, b := ask(nil, map[string]string{"project": "a"}), ask(nil, map[string]string{"project": "b"})
		both := ask([]string{"a", "b"}, nil)
		if got, want := figuresText(&both.Totals), sumText([]report.Row{{Figures: a.Totals}, {Figures: b.Totals}}); got != want {
			rt.Fatalf("a and b: %s, want %s", got, want)
		}
		if one := ask([]string{"a"}, nil); rowsText(one) != rowsText(a) {
			rt.Fatalf("scope a:\n%s\nfilter a:\n%s", rowsText(one), rowsText(a))
		}
		if none := ask([]string{}, nil); len(none.Rows) != 0 || none.Totals.AllocatedMs != 0 {
			rt.Fatalf("scope of nothing: %s", rowsText(none))
		}
		if other := ask([]string{"b"}, map[string]string{"project": "a"}); len(other.Rows) != 0 {
			rt.Fatalf("project a in the scope b: %s", rowsText(other))
		}
		pages := &report.Report{}
		for p.Limit = max(1, len(both.Rows)/2); ; p.After = pages.Next {
			page := ask([]string{"a", "b"}, nil)
			pages.Rows, pages.Totals, pages.Next = append(pages.Rows, page.Rows...), page.Totals, page.Next
			if page.Next == "" {
				break
			}
		}
		if rowsText(pages) != rowsText(both) {
			rt.Fatalf("pages:\n%s\nwhole:\n%s", rowsText(pages), rowsText(both))
		}
		p.Limit, p.After = 0, ""
		e, err := s.reports.Explain(rt.Context(), report.ExplainParams{Params: p})
		if err != nil {
			rt.Fatal(err)
		}
		if e.Total.AllocatedMs != both.Totals.AllocatedMs {
			rt.Fatalf("explained %d ms, reported %d", e.Total.AllocatedMs, both.Totals.AllocatedMs)
		}
		for _, event := range e.Events {
			if event.Project != "a" && event.Project != "b" {
				rt.Fatalf("event of project %q", event.Project)
			}
		}
	})
}

func rowsText(r *report.Report) string {
	var lines []string
	for i := range r.Rows {
		lines = append(lines, strings.Join(r.Rows[i].Keys, "|")+": "+figuresText(&r.Rows[i].Figures))
	}
	return strings.Join(append(lines, "total: "+figuresText(&r.Totals)), "\n")
}
