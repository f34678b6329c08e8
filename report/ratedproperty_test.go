package report

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
	"pgregory.net/rapid"
)

// fakeRated answers with what it has.
type fakeRated struct{ usage *pricing.Usage }

func (f fakeRated) Usage(context.Context, string, int64, int64) (*pricing.Usage, error) {
	return f.usage, nil
}

// world is a tenant: leases with what their units did, other usage, and what all of it
// is paid by.
type world struct {
	*Service
	store *fakeStore
	terms *pricing.Terms
	usage *pricing.Usage
}

const worldPrices = `currency: USD
prices:
  - {model: m, per_gpu_hour: "3.1", valid_to: 2026-03-28T11:17:00.003Z}
  - {model: m, per_gpu_hour: "0.7", valid_from: 2026-03-28T11:17:00.003Z}
  - {model: n, platform: p, per_gpu_hour: "12.34567"}
  - {model: n, plan: day, per_gpu: "50"}
meters:
  - {meter: egress_bytes, per: GB, price: "0.5"}
`

// drawWorld makes usage that never exceeds the leased GPUs. Model x has no price.
func drawWorld(t *rapid.T) *world {
	one := func(name string, list ...string) string { return rapid.SampledFrom(list).Draw(t, name) }
	base := at("2026-03-27T00:00:00Z")
	instant := func(name string) int64 { return base + rapid.Int64Range(0, 5*dayMs).Draw(t, name) }
	w := &world{store: &fakeStore{timelines: map[string][]schema.LeaseSegment{}}, usage: &pricing.Usage{NowMs: clock.UnixMilli()}}
	for i := range rapid.IntRange(1, 3).Draw(t, "instances") {
		w.lease(t, fmt.Sprint("i", i), instant("start"), one)
	}
	if rapid.Bool().Draw(t, "egress") {
		from := instant("egress")
		w.usage.Readings = []pricing.Reading{{Span: pricing.Span{FromMs: from, ToMs: from + 1000}, Meter: one("meter", "egress_bytes", "requests"), Quantity: big.NewRat(3_000_000_001, 1), Platform: "p", Project: "a"}}
	}
	if rapid.Bool().Draw(t, "outage") {
		from := instant("outage")
		w.usage.Outages = []pricing.Outage{{Span: pricing.Span{FromMs: from, ToMs: from + rapid.Int64Range(1, dayMs).Draw(t, "outage ms")}, Reason: "power"}}
	}
	w.terms = drawTerms(t, one)
	s, err := New(Options{Store: w.store, Now: func() time.Time { return clock }, Settled: settledUntil(1 << 62), Rated: fakeRated{w.usage},
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) { return w.terms, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w.Service = s
	return w
}

// lease draws an instance, and what its units did in that time and a little around it.
func (w *world) lease(t *rapid.T, instance string, start int64, one func(name string, list ...string) string) {
	gpus := rapid.Int64Range(1, 3).Draw(t, "gpus")
	owner := schema.Owner{Instance: instance, Model: one("model", "m", "m", "n", "x"), Platform: one("platform", "p", "p", "q"), Region: one("region", "", "r")}
	plan := one("plan", "", "", "day", "spot")
	at := start
	rental := &pricing.Rental{Instance: instance}
	for range rapid.IntRange(1, 4).Draw(t, "segments") {
		owner.Project = one("project", "a", "b")
		end := at + rapid.Int64Range(1, dayMs).Draw(t, "length")
		s := schema.LeaseSegment{Owner: owner, FromMs: at, ToMs: end, State: one("state", "running", "running", "provisioning", "stopping", "stopped_keep", "stopped_free"), Gpus: gpus, Plan: plan}
		w.store.timelines[instance] = append(w.store.timelines[instance], s)
		rental.Segments = append(rental.Segments, pricing.Segment{Span: pricing.Span{FromMs: at, ToMs: end}, State: s.State, Project: s.Project, Platform: s.Platform, Region: s.Region, Model: s.Model, Plan: plan, Gpus: gpus})
		at = end
	}
	state := one("end", "released", "interrupted")
	w.store.timelines[instance] = append(w.store.timelines[instance], schema.LeaseSegment{Owner: owner, FromMs: at, ToMs: schema.LeaseOpen, State: state})
	rental.Segments = append(rental.Segments, pricing.Segment{Span: pricing.Span{FromMs: at, ToMs: clock.UnixMilli()}, State: state, Project: owner.Project, Platform: owner.Platform, Region: owner.Region, Model: owner.Model, Plan: plan})
	w.usage.Rentals = append(w.usage.Rentals, rental)
	for unit := range gpus {
		from := start - 1000
		for range rapid.IntRange(0, 3).Draw(t, "reports") {
			from += rapid.Int64Range(0, dayMs).Draw(t, "pause")
			to := from + rapid.Int64Range(1, dayMs).Draw(t, "ms")
			w.store.spans = append(w.store.spans, span{from: from, to: to, state: one("did", "active", "active", "idle", "unknown"), util: rapid.Int64Range(-1, 1_000_000).Draw(t, "util"),
				dims: map[string]string{"instance": instance, "unit": fmt.Sprint(instance, "-", unit), "project": one("reported", "a", "b"), "model": owner.Model, "platform": owner.Platform, "region": owner.Region}})
			from = to
		}
	}
}

func drawTerms(t *rapid.T, one func(name string, list ...string) string) *pricing.Terms {
	book, err := pricing.Parse("prices.yaml", []byte(worldPrices))
	if err != nil {
		t.Fatal(err)
	}
	profile, err := pricing.ParseProfile("p.yaml", []byte("platform: p\nzone: "+one("zone", "UTC", "Asia/Shanghai")+"\nbilled: {compute: ["+one("billed", "running", "running, stopped_keep", "provisioning, running, stopping, stopped_keep")+"], storage: []}\n"+
		one("time", "", "time: {minimum: 1h, minimum_per: start}\n", "time: {granularity: 1m, rounding: down}\n", "time: {granularity: 1h, rounding: up}\n")+
		one("amount", "", "settle: hour\namount: {rounding: half_up, decimals: 2, per: line}\n")+one("spot", "", "spot: {refund: hour}\n")+one("refund", "", "plan: {refund: prorated}\n")))
	if err != nil {
		t.Fatal(err)
	}
	terms := &pricing.Terms{Book: book, Profiles: []*pricing.Profile{profile}}
	text := "contract: c\nplatform: p\ncurrency: USD\nvalid_from: 2026-03-20\nvalid_to: 2026-04-20\n" +
		one("commitments", "", "commitments: [{id: base, model: m, project: a, gpus: 2, term: day, per_gpu: \"60.01\", from: 2026-03-28, to: 2026-03-30}]\n", "commitments: [{id: other, model: x, gpus: 1, term: week, per_gpu: 70, from: 2026-03-27, to: 2026-04-03}]\n") +
		one("quotes", "", "quotes: [{id: job, project: b, fee: 100, gpu_hours: \"7.77\"}]\n") +
		one("rules", "", "adjustments: [{id: two, stage: volume, discount: 20%, min_gpus: 2}]\n") +
		one("sla", "", "sla: {target: 99.9%, credit_ratio: 2, trigger: any, at_most: 10%}\n") +
		one("credits", "", "credits: [{id: green, project: a, amount: \"10.01\", reason: r}]\n", "credits: [{id: once, amount: 3, at: 2026-03-29, reason: r}]\n") +
		one("clauses", "", "clauses: {checkpoint: 1h}\n")
	contract, err := pricing.ParseContract("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "contract") {
		terms.Contracts = []*pricing.Contract{contract}
	}
	return terms
}

// textOf writes a world so that a person can redo it.
func (w *world) textOf() string {
	var b strings.Builder
	for _, s := range w.store.spans {
		fmt.Fprintf(&b, "%d-%d %s %v\n", s.from, s.to, s.state, s.dims)
	}
	for _, l := range w.terms.Rate(w.usage) {
		billed, effective := "-", "-"
		if l.Billed != nil {
			billed, effective = pricing.Exact(l.Billed), pricing.Exact(l.Effective)
		}
		fmt.Fprintf(&b, "%s %s %s %s %s %d-%d %s %dx metered %d excluded %d minimum %d rounding %d billable %d billed %s effective %s\n", l.Category, l.Status, l.Meter, l.Instance, l.Commitment, l.FromMs, l.ToMs,
			l.Segment.State, l.Segment.Gpus, l.MeteredMs, l.ExcludedMs, l.MinimumMs, l.RoundingMs, l.BillableMs, billed, effective)
	}
	return b.String()
}

func classesOf(f *Figures) *big.Rat {
	sum := new(big.Rat)
	for _, column := range classColumns {
		sum.Add(sum, *column(f))
	}
	return sum
}

// What is shown of rows adds up to the totals in every column, under any keys, and the
// classes of each row to its effective cost.
func TestRatedRowsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		p := drawParams(rt)
		p.From, p.To = "2026-03-01", "2026-06-01"
		r := ask(t, w.Service, p)
		sum, totals := addUp(r.Rows), r.Totals
		if totals.ListCost == nil { // of a part it is not known
			sum.ListCost = nil
		}
		if got, want := comparable(sum), comparable(totals); got != want {
			rt.Fatalf("by %v rows add up to\n%s, totals are\n%s\n%s", p.By, got, want, w.textOf())
		}
		all := p
		all.By = nil
		if got, want := comparable(totals), comparable(ask(t, w.Service, all).Totals); got != want {
			rt.Fatalf("totals by %v are\n%s, without keys\n%s\n%s", p.By, got, want, w.textOf())
		}
		for _, row := range append(r.Rows, Row{Figures: totals}) {
			f := &row.Figures
			switch {
			case f.Cost == nil:
				if f.EffectiveCost != nil || f.ListCost != nil || f.UsefulCost != nil || f.UnpricedMs < f.AllocatedMs {
					rt.Fatalf("%v is without a price: %+v", row.Keys, f)
				}
			case classesOf(f).Cmp(f.EffectiveCost) != 0:
				rt.Fatalf("%v: classes add up to %s, effective %s\n%s", row.Keys, classesOf(f), f.EffectiveCost, w.textOf())
			}
		}
	})
}

// Before anything is rounded the days of a question are the question, in every amount.
func TestRatedDaysAreTheirMonth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		zone := rapid.SampledFrom(zones).Draw(rt, "zone")
		exact := func(by ...string) string {
			req, err := Parse(Params{Kind: "spend", By: by, From: "2026-03-01", To: "2026-06-01", Zone: zone}, clock)
			if err != nil {
				rt.Fatal(err)
			}
			groups, err := w.cost(context.Background(), &req)
			if err != nil {
				rt.Fatal(err)
			}
			rows := make([]Row, len(groups))
			unpriced := new(big.Rat)
			for i, g := range groups {
				rows[i].Figures = g.figures()
				if f := &rows[i].Figures; f.Cost != nil && classesOf(f).Cmp(f.EffectiveCost) != 0 {
					rt.Fatalf("classes of %v", g.Keys)
				}
				if f := &rows[i].Figures; f.unpriced != nil {
					unpriced.Add(unpriced, f.unpriced)
				} else {
					unpriced.Add(unpriced, big.NewRat(f.UnpricedMs, 1))
				}
				rows[i].UnpricedMs = 0
			}
			sum := addUp(rows)
			for i := range rows {
				if rows[i].Cost != nil && rows[i].ListCost == nil {
					sum.ListCost = nil
				}
			}
			return unpriced.RatString() + " " + comparable(sum)
		}
		want := exact()
		for _, by := range [][]string{{"month"}, {"day"}, {"hour", "project"}, {"instance", "day", "model"}} {
			if got := exact(by...); got != want {
				rt.Fatalf("by %v\n%s, in all\n%s\n%s", by, got, want, w.textOf())
			}
		}
	})
}

// A question that holds all lines costs what the bill says, and is worth what it says.
func TestRatedTotalsAreTheBill(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		billed, effective, list := new(big.Rat), new(big.Rat), new(big.Rat)
		priced := false
		for _, l := range w.terms.Rate(w.usage) {
			if l.Billed != nil {
				priced = priced || l.Billed.Sign() != 0 || l.Effective.Sign() != 0
				billed.Add(billed, l.Billed)
				effective.Add(effective, l.Effective)
				if l.ListCost == nil {
					list = nil
				} else if list != nil {
					list.Add(list, l.ListCost)
				}
			}
		}
		req, err := Parse(Params{Kind: "spend", From: "2026-03-01", To: "2027-01-01"}, clock)
		if err != nil {
			rt.Fatal(err)
		}
		ch := chargesNow(rt, w.Service, &req)
		_, totals, err := w.collect(context.Background(), &req, ch)
		if err != nil {
			rt.Fatal(err)
		}
		f := totals.figures()
		switch {
		case f.Cost == nil && priced:
			rt.Fatalf("nothing has a price, and the bill is %s\n%s", billed, w.textOf())
		case f.Cost != nil && (f.Cost.Cmp(billed) != 0 || f.EffectiveCost.Cmp(effective) != 0):
			rt.Fatalf("cost %s, the bill is %s; effective %s, of the bill %s\n%s", f.Cost, billed, f.EffectiveCost, effective, w.textOf())
		}
		if f.Cost != nil && (f.ListCost == nil) != (list == nil) || list != nil && f.ListCost != nil && list.Cmp(f.ListCost) != 0 {
			rt.Fatalf("list cost %v, of the bill %v\n%s", f.ListCost, list, w.textOf())
		}
		if shown := ask(t, w.Service, Params{Kind: "spend", From: "2026-03-01", To: "2027-01-01"}).JSON(); !json.Valid(shown) {
			rt.Fatal("JSON")
		}
	})
}

// What has no price is unknown, and never 0: 0 costs only what nobody bills.
func TestRatedWithoutAPrice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		w.terms.Book, w.terms.Contracts = nil, nil
		free := map[string]bool{} // instances with time that is not billed
		for _, l := range w.terms.Rate(w.usage) {
			free[l.Instance] = free[l.Instance] || l.Billed != nil
		}
		r := ask(t, w.Service, Params{Kind: "spend", By: []string{"instance"}, From: "2026-03-01", To: "2026-06-01"})
		for _, row := range r.Rows {
			if f := row.Figures; f.Cost != nil && (f.Cost.Sign() != 0 || !free[row.Keys[0]]) {
				rt.Fatalf("%v costs %s\n%s", row.Keys, f.Cost, w.textOf())
			}
		}
	})
}

// What usage says of its unit prices nothing that the lease says is another one: what
// the bill has no price for is unpriced, and an explanation says so.
func TestLeasedWithoutAPrice(t *testing.T) {
	owner := schema.Owner{Instance: "i1", Project: "a", Platform: "p", Model: "x"}
	lease := schema.LeaseSegment{Owner: owner, FromMs: at("2026-03-02"), ToMs: at("2026-03-03"), State: "running", Gpus: 1}
	store := &fakeStore{
		timelines: map[string][]schema.LeaseSegment{"i1": {lease}}, spans: []span{gpu("2026-03-02T00:00:00Z", "2026-03-02T01:00:00Z")},
		events: []schema.StoredEvent{stored("e1", "2026-03-02T00:00:00Z", "2026-03-02T01:00:00Z", 1)},
	}
	usage := &pricing.Usage{NowMs: clock.UnixMilli(), Rentals: []*pricing.Rental{{Instance: "i1", Segments: []pricing.Segment{
		{Span: pricing.Span{FromMs: lease.FromMs, ToMs: lease.ToMs}, State: "running", Project: "a", Platform: "p", Model: "x", Gpus: 1},
	}}}}
	book := bookOf(t, p360)
	s, err := New(Options{Store: store, Now: func() time.Time { return clock }, Settled: settledUntil(1 << 62), Rated: fakeRated{usage}, Terms: fixed(book)})
	if err != nil {
		t.Fatal(err)
	}
	p := Params{Kind: "spend", From: "2026-03-02", To: "2026-03-03"}
	if f := ask(t, s, p).Totals; f.Cost != nil || f.UnpricedMs != dayMs || f.AllocatedMs != dayMs {
		t.Errorf("%+v", f)
	}
	e, err := s.Explain(t.Context(), ExplainParams{Params: p})
	if err != nil {
		t.Fatal(err)
	}
	const want = "3600000 ms, no price by the charges of its lease"
	if pieces := e.Events[0].Pieces; len(pieces) != 1 || pieces[0].Arithmetic != want || pieces[0].Amount != nil || e.Lines[0].Amount != nil || e.Lines[0].Arithmetic != want {
		t.Errorf("%+v %+v", e.Lines, pieces)
	}
}

// A commitment may cover some GPUs of an instance whose others have no price: what has
// one is in the amounts, and of the time as much is unpriced as GPUs are.
func TestPricedInPart(t *testing.T) {
	contract, err := pricing.ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: USD\nvalid_from: 2026-03-01\nvalid_to: 2026-04-01\ncommitments: [{id: base, model: x, gpus: 1, term: day, per_gpu: 24, from: 2026-03-02, to: 2026-03-03}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	owner := schema.Owner{Instance: "i", Project: "a", Platform: "p", Model: "x"}
	store := &fakeStore{timelines: map[string][]schema.LeaseSegment{"i": {
		{Owner: owner, FromMs: at("2026-03-02"), ToMs: at("2026-03-03"), State: "running", Gpus: 3}, {Owner: owner, FromMs: at("2026-03-03"), ToMs: schema.LeaseOpen, State: "released"},
	}}}
	usage := &pricing.Usage{NowMs: clock.UnixMilli(), Rentals: []*pricing.Rental{{Instance: "i", Segments: []pricing.Segment{
		{Span: pricing.Span{FromMs: at("2026-03-02"), ToMs: at("2026-03-03")}, State: "running", Project: "a", Platform: "p", Model: "x", Gpus: 3},
	}}}}
	s, err := New(Options{Store: store, Now: func() time.Time { return clock }, Settled: settledUntil(1 << 62), Rated: fakeRated{usage},
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) {
			return &pricing.Terms{Contracts: []*pricing.Contract{contract}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	r := ask(t, s, Params{Kind: "spend", By: []string{"hour"}, From: "2026-03-02", To: "2026-03-02T10:00:00.001Z"})
	f := &r.Totals
	if amountText(f.Cost, "USD") != "24.00" || amountText(f.EffectiveCost, "USD") != "10.00" || amountText(f.UnknownCost, "USD") != "10.00" || f.ListCost != nil || f.AllocatedMs != 3*36_000_001 || f.UnpricedMs != 2*36_000_001 {
		t.Errorf("%+v", f)
	}
	for _, row := range r.Rows[:10] {
		if row.UnpricedMs != 2*3_600_000 || amountText(row.EffectiveCost, "USD") != "1.00" {
			t.Errorf("%v: %+v", row.Keys, row.Figures)
		}
	}
}

// The lines of an explanation add up to its total, and charges name every line of it.
func TestRatedExplanationAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		e, err := w.Explain(context.Background(), ExplainParams{Params: Params{From: "2026-03-27T10:00:00Z", To: "2026-03-30"}})
		if err != nil {
			rt.Fatal(err)
		}
		sum := new(big.Rat)
		for _, l := range e.Lines {
			if l.Amount != nil {
				amount, _ := new(big.Rat).SetString(*l.Amount)
				sum.Add(sum, amount)
			}
		}
		if total, ok := new(big.Rat).SetString(text(e.Total.Cost)); ok && total.Cmp(sum) != 0 {
			rt.Fatalf("lines add up to %s, the total is %s\n%s", sum.FloatString(2), *e.Total.Cost, w.textOf())
		}
		var b strings.Builder
		if err := e.Table(&b); err != nil || strings.Count(b.String(), "\ncharge ") != len(e.Charges) {
			rt.Fatalf("%v\n%s", err, b.String())
		}
	})
}
