package app

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// Over the real store too, pages put together are the whole report, whether hours
// are summed up or not, as of now and as of an instant, by any keys.
func TestPagesAreTheWholeReport(t *testing.T) {
	s := newZoneStore(t, "pages")
	setChecks(t, "6")
	tenants := 0
	rapid.Check(t, func(rt *rapid.T) {
		tenants++
		tenant := "t" + strconv.Itoa(tenants)
		day := testkit.At("2026-03-14T20:00:00Z")
		var events []schema.Usage
		for i := range rapid.IntRange(1, 25).Draw(rt, "events") {
			from := day + rapid.Int64Range(0, 30*schema.HourMs).Draw(rt, "from")
			pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(rt, name) }
			u := schema.Usage{
				Unit: "GPU-" + strconv.Itoa(i%7), Instance: pick("instance", "", "a", "aa", "b'\\", "ü", "Z"), Project: pick("project", "p", "q"), Node: "n",
				Model: pick("model", "H100", "A100", "none"), StartMs: from, EndMs: from + 1 + spread(rt, "length", 23), Utilization: schema.Some(rapid.Int64Range(0, 20_000).Draw(rt, "utilization")),
			}
			if team := pick("team", "", "x", "y"); team != "" {
				u.Labels = schema.Labels{{Key: "team", Value: team}}
			}
			u.Source, u.ID = "s", "e"+strconv.Itoa(i)
			events = append(events, u)
		}
		s.put(rt.Context(), rt, tenant, events, rapid.Bool().Draw(rt, "hours summed up"))
		p := report.Params{
			Kind: "usage", Tenant: tenant, Zone: rapid.SampledFrom([]string{"UTC", "Asia/Kolkata"}).Draw(rt, "zone"),
			From: rapid.SampledFrom([]string{"2026-03-14", "2026-03-14T21:30:15.001Z", "2026-03-15T01:00:00Z"}).Draw(rt, "span from"), To: "2026-03-16T06:00:00Z",
		}
		keys := rapid.Permutation([]string{"instance", "project", "day", "hour", "model", "label:team", "unit"}).Draw(rt, "keys")
		p.By = keys[:rapid.IntRange(1, 4).Draw(rt, "number of keys")]
		if rapid.IntRange(0, 3).Draw(rt, "as of") == 0 {
			p.AsOf = time.Now().UTC().Format("2006-01-02T15:04:05Z")
		}
		full, err := s.reports.Report(rt.Context(), p)
		if err != nil {
			rt.Fatal(err)
		}
		var want []string
		for i := range full.Rows {
			want = append(want, strings.Join(full.Rows[i].Keys, "|")+": "+figuresText(&full.Rows[i].Figures))
		}
		p.Limit = max(1, len(want)/rapid.IntRange(1, 4).Draw(rt, "pages"))
		var got []string
		for {
			page, err := s.reports.Report(rt.Context(), p)
			if err != nil {
				rt.Fatal(err)
			}
			for i := range page.Rows {
				got = append(got, strings.Join(page.Rows[i].Keys, "|")+": "+figuresText(&page.Rows[i].Figures))
			}
			if figuresText(&page.Totals) != figuresText(&full.Totals) {
				rt.Fatalf("totals of a page: %s, of all: %s", figuresText(&page.Totals), figuresText(&full.Totals))
			}
			if p.After = page.Next; page.Next == "" || len(got) > len(want) {
				break
			}
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			rt.Fatalf("pages by %v:\n%s\nwant\n%s", p.By, g, w)
		}
		p.Limit, p.After, p.Top = 0, "", 1+len(want)/2
		top, err := s.reports.Report(rt.Context(), p)
		if err != nil {
			rt.Fatal(err)
		}
		if top.RowCount != int64(len(want)) || len(top.Rows) != min(p.Top, len(want)) || figuresText(&top.Totals) != figuresText(&full.Totals) {
			rt.Fatalf("top %d: %d rows of %d, want of %d; totals %s, of all %s", p.Top, len(top.Rows), top.RowCount, len(want), figuresText(&top.Totals), figuresText(&full.Totals))
		}
	})
}
