package report

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
	"pgregory.net/rapid"
)

// Every row of the table is that of the report by instance, in any order and in pages of
// any size each is there once, and the totals are those of the report.
func TestInstancesAreTheRowsOfTheReport(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		w.listed()
		p := Params{From: "2026-03-01", To: "2026-05-01", Filter: rapid.SampledFrom([]map[string]string{nil, nil, {"project": "a"}, {"plan": "day"}}).Draw(rt, "filter")}
		all, err := w.InstanceTable(context.Background(), p)
		if err != nil {
			rt.Fatal(err)
		}
		by := p
		by.By, by.Top = []string{"instance"}, 1000
		r := ask(t, w.Service, by)
		want := map[string]string{}
		for i := range r.Rows {
			want[r.Rows[i].Keys[0]] = shownText(&r.Rows[i].Figures, r.Currency)
		}
		page := InstancePage{Limit: rapid.IntRange(1, 3).Draw(rt, "limit")}
		page.By, page.Descending = rapid.SampledFrom(InstanceOrders).Draw(rt, "by"), rapid.Bool().Draw(rt, "descending")
		seen := map[string]bool{}
		for pages := 0; ; pages++ {
			l, err := all.Page(page)
			if err != nil {
				rt.Fatal(err)
			}
			for _, item := range l.Items {
				if seen[item.Instance] {
					rt.Fatalf("%s is there twice", item.Instance)
				}
				seen[item.Instance] = true
				got := shownText(&item.Figures.Figures, item.Figures.Currency)
				if have, ok := want[item.Instance]; got != have && (ok || item.Figures.AllocatedMs != 0 || item.Figures.Cost != nil) {
					rt.Fatalf("%s: %s, the report says %s\n%s", item.Instance, got, have, w.textOf())
				}
				delete(want, item.Instance)
			}
			if got := shownText(&l.Totals.Figures, l.Totals.Currency); got != shownText(&r.Totals, r.Currency) {
				rt.Fatalf("totals %s, the report says %s", got, shownText(&r.Totals, r.Currency))
			}
			if l.Total != len(all.rows) || pages > len(all.rows) {
				rt.Fatalf("%d rows in all, want %d; page %d", l.Total, len(all.rows), pages)
			}
			if l.Next == nil {
				if none, ok := want[""]; ok != (l.Unassigned != nil) || ok && shownText(&l.Unassigned.Figures, r.Currency) != none {
					rt.Fatalf("of no instance: %v, the report says %s", l.Unassigned, none)
				}
				break
			}
			page.After = *l.Next
		}
		if delete(want, ""); len(want) > 0 {
			rt.Fatalf("not there: %v\n%s", want, w.textOf())
		}
	})
}

// listed makes the leases of a world known to lists, too.
func (w *world) listed() {
	w.store.leases = nil
	for _, line := range w.store.timelines {
		w.store.leases = append(w.store.leases, line...)
	}
}

func shownText(f *Figures, currency string) string {
	return string(appendFigures([]byte("{"), f, currency))
}

// Rows come in the order asked for, unknown last either way.
func TestInstanceOrders(t *testing.T) {
	rat := func(n int64) *big.Rat { return big.NewRat(n, 1) }
	table := &InstanceTable{orders: map[InstanceOrder][]int32{}}
	for _, r := range []struct {
		instance string
		cost     *big.Rat
		project  string
		idle     int64
	}{{"a", rat(2), "y", 0}, {"b", nil, "x", 300}, {"c", rat(3), "", 100}, {"d", rat(-1), "x", 0}} {
		f, err := small(&Figures{Cost: r.cost})
		if err != nil {
			t.Fatal(err)
		}
		table.rows = append(table.rows, instanceRow{instance: r.instance, project: r.project, idleSinceMs: r.idle, figures: f})
	}
	for _, c := range []struct {
		by         string
		descending bool
		want       string
	}{
		{"cost", true, "cadb"}, {"cost", false, "dacb"}, {"project", false, "bdac"}, {"project", true, "abdc"}, {"idle", true, "cbad"}, {"idle", false, "bcad"}, {"instance", true, "dcba"}, {"price", true, "abcd"},
	} {
		l, err := table.Page(InstancePage{InstanceOrder: InstanceOrder{c.by, c.descending}})
		got := ""
		for _, i := range l.Items {
			got += i.Instance
		}
		if err != nil || got != c.want {
			t.Errorf("by %s, descending %v: %s, %v, want %s", c.by, c.descending, got, err, c.want)
		}
	}
	for _, p := range []InstancePage{
		{InstanceOrder: InstanceOrder{By: "coast"}}, {Limit: 501}, {Limit: -1}, {After: "x"}, {After: "eyJieSI6ImNvc3QifQ"},
		{After: writeInstanceCursor(&InstancePage{InstanceOrder: InstanceOrder{By: "cost"}}, &table.rows[0])}, // the default is the other direction
	} {
		var wrong *RequestError
		if _, err := table.Page(p); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v, want a request error", p, err)
		}
	}
	if l, err := table.Page(InstancePage{Text: "X"}); err != nil || l.Total != 2 {
		t.Errorf("with an x: %v, %v", l, err)
	}
	if l, err := table.Page(InstancePage{State: "none"}); err != nil || l.Total != 4 {
		t.Errorf("without a lease: %v, %v", l, err)
	}
}

// Small figures are the figures; what does not fit is refused.
func TestSmallFigures(t *testing.T) {
	f := Figures{AllocatedMs: 7, KnownMs: 5, ActiveMs: 2, IdleMs: 3, UnknownMs: 2, Utilization: schema.Some(5), EnergyMj: big.NewInt(9)}
	for i, column := range amountColumns {
		if i%2 == 0 {
			*column(&f) = big.NewRat(int64(i)-5, 1_000_000)
		}
	}
	s, err := small(&f)
	if err != nil {
		t.Fatal(err)
	}
	back := s.figures()
	if shownText(&back, "X") != shownText(&f, "X") {
		t.Errorf("%s\nwant %s", shownText(&back, "X"), shownText(&f, "X"))
	}
	huge := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 70))
	if _, err := small(&Figures{Cost: huge}); err == nil {
		t.Error("an amount that does not fit is taken")
	}
	if _, err := small(&Figures{EnergyMj: huge.Num()}); err == nil {
		t.Error("an energy that does not fit is taken")
	}
}

// The steps of a timeline add up to the report of the instance, and every charge of its
// bill comes once.
func TestTimelineAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		w.listed()
		p := InstanceParams{Instance: "i0", Step: rapid.SampledFrom([]string{"", "hour", "day"}).Draw(rt, "step")}
		p.From, p.To, p.Zone = "2026-03-26T07:00:00.007Z", "2026-04-08", rapid.SampledFrom([]string{"UTC", "Asia/Shanghai"}).Draw(rt, "zone")
		line, err := w.Timeline(context.Background(), p)
		if err != nil {
			rt.Fatal(err)
		}
		r := ask(t, w.Service, Params{From: p.From, To: p.To, Zone: p.Zone, Filter: map[string]string{"instance": "i0"}})
		var active, allocated int64
		cost := new(big.Rat)
		for i, point := range line.Points {
			active, allocated = active+point.ActiveMs, allocated+point.AllocatedMs
			if point.Cost != nil {
				x, _ := new(big.Rat).SetString(*point.Cost)
				cost.Add(cost, x)
			}
			if i > 0 && point.From != line.Points[i-1].To {
				rt.Fatalf("a step from %s follows one to %s", point.From, line.Points[i-1].To)
			}
		}
		if active != r.Totals.ActiveMs || allocated != r.Totals.AllocatedMs {
			rt.Fatalf("%d active of %d ms, the report says %d of %d", active, allocated, r.Totals.ActiveMs, r.Totals.AllocatedMs)
		}
		if r.Totals.EffectiveCost != nil && cost.Cmp(r.Totals.EffectiveCost) != 0 {
			rt.Fatalf("cost %s, the report says %s", cost.FloatString(6), r.Totals.EffectiveCost.FloatString(6))
		}
		p.Limit = rapid.IntRange(1, 3).Draw(rt, "limit")
		e, err := w.Explain(context.Background(), ExplainParams{Params: Params{From: p.From, To: p.To, Zone: p.Zone, Filter: map[string]string{"instance": "i0"}}})
		if err != nil {
			rt.Fatal(err)
		}
		var got, want []string
		for _, c := range e.Charges {
			want = append(want, c.ID)
		}
		for len(got) <= len(want) {
			l, err := w.Charges(context.Background(), p)
			if err != nil {
				rt.Fatal(err)
			}
			for _, c := range l.Items {
				got = append(got, c.ID)
			}
			if l.Next == nil {
				break
			}
			p.After = *l.Next
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("charges %v, want %v", got, want)
		}
	})
}

// What projects pay adds up to what was spent, however the rest is divided.
func TestChargebackAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		for i := range w.store.spans {
			if rapid.IntRange(0, 3).Draw(rt, "nobody's") == 0 {
				w.store.spans[i].dims = map[string]string{"unit": "spare", "model": "n", "platform": "p"}
			}
		}
		p := ChargebackParams{Params: Params{From: "2026-03-01", To: "2026-05-01"}, Share: rapid.SampledFrom(append(shares, "")).Draw(rt, "share")}
		c, err := w.Chargeback(context.Background(), p)
		if err != nil {
			rt.Fatal(err)
		}
		r := ask(t, w.Service, p.Params)
		if text(c.Totals.Total) != amountText(r.Totals.EffectiveCost, r.Currency) {
			rt.Fatalf("total %s, the report says %s", text(c.Totals.Total), amountText(r.Totals.EffectiveCost, r.Currency))
		}
		columns := map[string]func(ProjectAmounts) *string{
			"direct": func(a ProjectAmounts) *string { return a.Direct }, "shared": func(a ProjectAmounts) *string { return a.Shared }, "total": func(a ProjectAmounts) *string { return a.Total },
		}
		for name, column := range columns {
			sum := new(big.Rat)
			add := func(a ProjectAmounts) {
				if s := column(a); s != nil {
					x, _ := new(big.Rat).SetString(*s)
					sum.Add(sum, x)
				}
			}
			for _, row := range c.Projects {
				add(row.ProjectAmounts)
			}
			add(*c.Unallocated)
			if want := column(c.Totals); want != nil && amountText(sum, r.Currency) != *want {
				rt.Fatalf("%s: the rows add up to %s, the total is %s\n%+v", name, sum.FloatString(6), *want, c)
			}
		}
	})
}
