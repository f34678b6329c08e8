package report

import (
	"context"
	"math/big"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"pgregory.net/rapid"
)

// Every figure of an overview is that of the report over the same span.
func TestOverviewAgreesWithReports(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		now := at("2026-03-26T23:00:00Z") + rapid.Int64Range(0, 7*dayMs).Draw(rt, "now")
		w.Now = func() time.Time { return time.UnixMilli(now - now%1000) }
		p := OverviewParams{Zone: rapid.SampledFrom([]string{"UTC", "Asia/Shanghai", "America/New_York"}).Draw(rt, "zone")}
		p.Filter = rapid.SampledFrom([]map[string]string{nil, {"project": "a"}, {"plan": ""}, {"plan": "day"}, {"model": "m"}}).Draw(rt, "filter")
		if rapid.Bool().Draw(rt, "range") {
			p.From, p.To = "2026-03-27T05:00:00.001Z", rapid.SampledFrom([]string{"2026-03-28T17:17:17.017Z", "2026-03-31"}).Draw(rt, "to")
		}
		o, err := w.Overview(context.Background(), p)
		if err != nil {
			rt.Fatal(err)
		}
		same := func(what string, s SpanFigures) {
			r := ask(t, w.Service, Params{From: s.From, To: s.To, Zone: p.Zone, Filter: p.Filter})
			want := string(appendFigures([]byte("{"), &r.Totals, r.Currency))
			if got := string(appendFigures([]byte("{"), &s.Figures.Figures, s.Figures.Currency)); got != want {
				rt.Fatalf("%s from %s to %s: %s, the report says %s\n%s", what, s.From, s.To, got, want, w.textOf())
			}
		}
		for what, s := range map[string]SpanFigures{"now": o.Now.SpanFigures, "today": o.Today, "month": o.Month, "last month": o.LastMonth, "part of it": o.LastMonthToDate, "range": o.Range} {
			same(what, s)
		}
		rows := func(key string, list []KeyFigures) {
			r := ask(t, w.Service, Params{From: o.Range.From, To: o.Range.To, Zone: p.Zone, Filter: p.Filter, By: []string{key}})
			want := map[string]string{}
			for i := range r.Rows {
				want[r.Rows[i].Keys[0]] = string(appendFigures([]byte("{"), &r.Rows[i].Figures, r.Currency))
			}
			found := 0
			for _, k := range list {
				got := string(appendFigures([]byte("{"), &k.Figures.Figures, k.Figures.Currency))
				if empty := k.Figures.AllocatedMs == 0 && k.Figures.Cost == nil; empty && want[k.Key] == "" {
					continue // a step in which nothing happened
				}
				found++
				if got != want[k.Key] {
					rt.Fatalf("by %s, %q: %s, the report says %s\n%s", key, k.Key, got, want[k.Key], w.textOf())
				}
			}
			if found != len(want) {
				rt.Fatalf("by %s: %d rows, the report has %d", key, found, len(want))
			}
		}
		rows("project", o.By.Project)
		rows("model", o.By.Model)
		rows("platform", o.By.Platform)
		rows("plan", o.By.Plan)
		rows(o.Series.Step, o.Series.Points)
	})
}

// The rest of a month goes on as the last whole days went.
func TestForecast(t *testing.T) {
	book, err := pricing.Parse("prices.yaml", []byte("currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	store := &fakeStore{}
	now := at("2026-03-20T12:00:00Z")
	s, err := New(Options{Store: store, Now: func() time.Time { return time.UnixMilli(now) }, Terms: func(context.Context, string, int64) (*pricing.Terms, error) { return &pricing.Terms{Book: book}, nil },
		Budget: func(_ string, filter map[string]string) *Budget {
			if len(filter) > 0 {
				return nil
			}
			return &Budget{Amount: big.NewRat(300, 1), Currency: "CNY"}
		}})
	if err != nil {
		t.Fatal(err)
	}
	overview := func(p OverviewParams) *Overview {
		t.Helper()
		o, err := s.Overview(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	use := func(from, to string) {
		store.spans = append(store.spans, span{from: at(from), to: at(to), state: "active", util: -1, dims: map[string]string{"model": "m", "unit": "u"}})
	}
	if o := overview(OverviewParams{}); o.Forecast != nil || o.Budget != nil || o.Now.BurnPerHour != nil || o.Coverage != nil {
		t.Errorf("nothing is known: forecast %+v, budget %+v, burn %v", o.Forecast, o.Budget, o.Now.BurnPerHour)
	}
	// Used only today: it goes on as in the last minutes, 11.5 days of 24 hours.
	use("2026-03-20T11:00:00Z", "2026-03-20T12:00:00Z")
	if o := overview(OverviewParams{}); o.Forecast == nil || *o.Forecast != (Forecast{"2770.00", "2770.00", "2770.00", 0, "pace_of_now"}) || *o.Now.BurnPerHour != "10.00" || o.Now.Gpus.Active != "1" {
		t.Errorf("used for an hour: %+v, %+v", o.Forecast, o.Now)
	}
	// A whole day and a half one: 37 hours to date, and 11.5 days of 18, 12 or 24 hours.
	use("2026-03-18T00:00:00Z", "2026-03-19T12:00:00Z")
	o := overview(OverviewParams{})
	if o.Forecast == nil || *o.Forecast != (Forecast{"2440.00", "1750.00", "3130.00", 2, "mean_of_days"}) {
		t.Errorf("used for two days: %+v", o.Forecast)
	}
	if o.Budget == nil || *o.Budget != (BudgetFigures{"300.00", "370.00", "-70.00", "1.233333"}) {
		t.Errorf("budget %+v", o.Budget)
	}
	if o := overview(OverviewParams{Filter: map[string]string{"model": "m"}}); o.Budget != nil {
		t.Errorf("budget of something else: %+v", o.Budget)
	}
}
