package report

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana", "Asia/Shanghai"}

// drawStore makes a few spans around a change of the clock in most of the zones.
func drawStore(t *rapid.T) *fakeStore {
	base := at(rapid.SampledFrom([]string{"2026-03-06T17:00:00Z", "2026-03-27T00:00:00Z", "2026-10-30T00:00:00Z", "2026-04-03T00:00:00Z"}).Draw(t, "base"))
	store := &fakeStore{}
	for range rapid.IntRange(1, 6).Draw(t, "spans") {
		from := base + rapid.Int64Range(0, 3*dayMs).Draw(t, "from")
		pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
		store.spans = append(store.spans, span{
			from: from, to: from + rapid.Int64Range(1, 2*dayMs).Draw(t, "length"), state: pick("state", "active", "idle", "free", "unknown"),
			util: rapid.Int64Range(-1, 1_000_000).Draw(t, "util"), energyMj: rapid.Int64Range(0, 700).Draw(t, "energy"),
			twice: rapid.Bool().Draw(t, "twice"), crowded: rapid.Bool().Draw(t, "crowded"),
			dims: map[string]string{
				"project": pick("project", "a", "b", "", "ü"), "instance": pick("instance", "i1", "i2"), "unit": pick("unit", "u1", "u2", "u3"),
				"model": pick("model", "m", "n", "x"), "platform": pick("platform", "p", ""), "label:team": pick("team", "", "t"),
			},
		})
	}
	return store
}

const propertyPrices = `currency: USD
prices:
  - {model: m, per_gpu_hour: "3.1", valid_to: 2026-03-28T11:17:00.003Z}
  - {model: m, per_gpu_hour: "0.7", valid_from: 2026-03-28T11:17:00.003Z}
  - {model: m, platform: p, per_gpu_hour: 29.99, valid_from: 2026-03-07, valid_to: 2026-04-04T15:30:00Z}
  - {model: n, per_gpu_hour: 1.23456789}
`

func drawParams(t *rapid.T) Params {
	p := Params{
		Kind: rapid.SampledFrom(Kinds[:4]).Draw(t, "kind"), Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
		From: "2026-03-06T11:00:00.007Z", To: "2026-11-05",
	}
	keys := []string{"project", "instance", "unit", "model", "platform", "label:team", "hour", "day", "month"}
	for _, key := range keys {
		if rapid.IntRange(0, 3).Draw(t, key) == 0 {
			p.By = append(p.By, key)
		}
	}
	return p
}

// add sums what can be summed of figures; the mean of utilization is left out.
func addUp(rows []Row) (sum Figures) {
	sum.EnergyMj = new(big.Int)
	for _, column := range amountColumns {
		*column(&sum) = new(big.Rat)
	}
	for i := range rows {
		f := &rows[i].Figures
		sum.AllocatedMs += f.AllocatedMs
		sum.KnownMs += f.KnownMs
		sum.ActiveMs += f.ActiveMs
		sum.IdleMs += f.IdleMs
		sum.UnknownMs += f.UnknownMs
		sum.UnpricedMs += f.UnpricedMs
		sum.FreeMs += f.FreeMs
		sum.OverlapMs += f.OverlapMs
		sum.OversubscribedMs += f.OversubscribedMs
		for _, column := range amountColumns {
			if part := *column(f); part != nil {
				total := *column(&sum)
				total.Add(total, part)
			}
		}
		if f.EnergyMj != nil {
			sum.EnergyMj.Add(sum.EnergyMj, f.EnergyMj)
		}
	}
	return sum
}

func (f Figures) withoutAmounts() Figures {
	for _, column := range amountColumns {
		*column(&f) = nil
	}
	return f
}

func comparable(f Figures) string {
	text := fmt.Sprint(f.AllocatedMs, f.KnownMs, f.ActiveMs, f.IdleMs, f.UnknownMs, f.UnpricedMs, f.FreeMs, f.OverlapMs, f.OversubscribedMs)
	for _, column := range amountColumns {
		if amount := *column(&f); amount != nil && amount.Sign() != 0 {
			text += " " + amount.RatString()
		} else {
			text += " 0"
		}
	}
	if f.EnergyMj == nil {
		return text + " 0"
	}
	return text + " " + f.EnergyMj.String()
}

func TestRowsAddUpUnderAnyKeys(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := service(t, drawStore(rt), propertyPrices)
		p := drawParams(rt)
		r := ask(t, s, p)
		if got, want := comparable(addUp(r.Rows)), comparable(r.Totals); got != want {
			rt.Fatalf("by %v rows add up to %s, totals are %s", p.By, got, want)
		}
		all := p
		all.By = nil
		if got, want := comparable(r.Totals), comparable(ask(t, s, all).Totals); got != want {
			rt.Fatalf("totals by %v are %s, without keys %s", p.By, got, want)
		}
		for i := range r.Rows {
			f := &r.Rows[i].Figures
			if f.KnownMs+f.UnknownMs != f.AllocatedMs || f.ActiveMs+f.IdleMs != f.KnownMs || f.AllocatedMs <= 0 || (f.Cost == nil) != (f.UnpricedMs == f.AllocatedMs) ||
				max(f.OverlapMs, f.OversubscribedMs) > f.AllocatedMs || (f.UsedCost == nil) != (f.Cost == nil) || (f.UnusedCost == nil) != (f.Cost == nil) {
				rt.Fatalf("row %+v", f)
			}
		}
	})
}

// The store answers in random order, so equal bytes also mean an own order.
func TestJSONIsValidAndStable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store := drawStore(rt)
		p := drawParams(rt)
		s := service(t, store, propertyPrices)
		first := ask(t, s, p).JSON()
		slices.Reverse(store.spans)
		if again := ask(t, s, p).JSON(); string(again) != string(first) || !json.Valid(first) {
			rt.Fatalf("not stable or not valid:\n%s\n%s", first, again)
		}
	})
}

func TestMonthsAreTheirDaysAreTheirHours(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := service(t, drawStore(rt), propertyPrices)
		p := Params{Zone: rapid.SampledFrom(zones).Draw(rt, "zone"), From: "2026-03-01", To: "2026-12-01"}
		byMonth := map[string]string{}
		for _, key := range []string{"month", "day", "hour"} {
			p.By = []string{key}
			months := map[string][]Row{}
			for _, row := range ask(t, s, p).Rows {
				month := row.Keys[0][:7] // of a month, a day and a local hour alike
				months[month] = append(months[month], row)
			}
			for month, rows := range months {
				f := addUp(rows)
				f = f.withoutAmounts() // rounded among other rows
				if key == "month" {
					byMonth[month] = comparable(f)
				}
				if got := comparable(f); got != byMonth[month] {
					rt.Fatalf("%s in %s: month %s, by %s %s", month, p.Zone, byMonth[month], key, got)
				}
			}
			if len(months) != len(byMonth) {
				rt.Fatalf("by %s there are %d months, not %d", key, len(months), len(byMonth))
			}
		}
	})
}

func TestAllReportsOfATimeCostTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := service(t, drawStore(rt), propertyPrices)
		p := Params{Zone: rapid.SampledFrom(zones).Draw(rt, "zone"), From: "2026-03-01", To: "2026-12-01"}
		var texts []string
		for _, by := range [][]string{nil, {"month"}, {"day"}, {"hour", "project"}} {
			p.By = by
			texts = append(texts, comparable(ask(t, s, p).Totals))
		}
		if len(slices.Compact(texts)) != 1 {
			rt.Fatalf("totals differ:\n%s", strings.Join(texts, "\n"))
		}
	})
}

func TestPriceChangesDoNotMoveTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store, p := drawStore(rt), drawParams(rt)
		with, without := ask(t, service(t, store, propertyPrices), p), ask(t, service(t, store, ""), p)
		timesOf := func(r *Report) (texts []string) {
			for _, row := range append(r.Rows, Row{Figures: r.Totals}) {
				f := row.Figures
				f = f.withoutAmounts()
				f.UnpricedMs = 0
				texts = append(texts, strings.Join(row.Keys, "|")+" "+comparable(f)+" "+f.Utilization.String())
			}
			slices.Sort(texts) // a waste report is in the order of amounts
			return texts
		}
		if a, b := timesOf(with), timesOf(without); !slices.Equal(a, b) {
			rt.Fatalf("times with prices\n%s\nwithout\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
	})
}
