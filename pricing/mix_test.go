package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// burst is the demand of V12: 20 GPUs all April, and 80 more for 72 h of it.
func burst() []*Rental {
	return []*Rental{run720("base", 20, 720), run720("burst", 80, 72)}
}

func month(perGPU string, minGpus int64) PlanPrice {
	return PlanPrice{Term: TermMonth, PerGPU: rat(perGPU), Ms: 720 * hourMs, MinGpus: minGpus}
}

func measured(t testing.TB, rentals []*Rental) PoolDemand {
	t.Helper()
	list := MeasureDemand(rentals, april, (*Terms)(nil).Wants, PoolOf)
	if len(list) != 1 {
		t.Fatalf("%d pools", len(list))
	}
	return list[0]
}

func TestMeasureDemand(t *testing.T) {
	list := MeasureDemand(burst(), april, (*Terms)(nil).Wants, PoolOf)
	if got, want := fmt.Sprint(list[0].Demand), fmt.Sprint([]Demand{{20, 648 * hourMs}, {100, 72 * hourMs}}); len(list) != 1 || got != want {
		t.Errorf("%s, want %s", got, want)
	}
	idle := run720("i", 4, 100)
	idle.Segments = append(idle.Segments, Segment{Span: Span{april.FromMs + 100*hourMs, april.ToMs}, State: "stopped_keep", Platform: "p", Model: "m", Gpus: 4})
	other := run720("j", 1, 10)
	other.Segments[0].Workload, other.Segments[0].Model = "training", "k"
	list = MeasureDemand([]*Rental{idle, other}, april, (*Terms)(nil).Wants, func(s *Segment) Pool { return Pool{Model: s.Model, Workload: s.Workload} })
	want := "[{k training} [{1 [10 h]} {0 [710 h]}]] [{m} [{4 [100 h]} {0 [620 h]}]]"
	var got []string
	for _, d := range list {
		var levels []string
		for _, l := range d.Levels {
			levels = append(levels, fmt.Sprintf("{%d [%d h]}", l.Gpus, l.Ms()/hourMs))
		}
		got = append(got, fmt.Sprintf("[{%s} [%s]]", strings.TrimSpace(d.Pool.Model+" "+d.Pool.Workload), strings.Join(levels, " ")))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What was measured is what ran, and covers the span without a gap.
func TestDemandAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms, u := anyTerms(t)
		ran := map[Pool]int64{}
		for _, r := range u.Rentals {
			s := &r.Segments[0]
			ran[PoolOf(s)] += s.Span.in(april).Ms() * s.Gpus
		}
		for _, d := range MeasureDemand(u.Rentals, april, terms.Wants, PoolOf) {
			sum, at, levels := int64(0), april.FromMs, int64(0)
			for _, m := range d.Demand {
				sum += m.Ms
			}
			for _, l := range d.Levels {
				if l.FromMs != at {
					t.Fatalf("a gap at %d", at)
				}
				at = l.ToMs
				levels += l.Ms() * l.Gpus
			}
			if sum != april.Ms() || at != april.ToMs || d.GPUMs() != ran[d.Pool] || levels != ran[d.Pool] {
				t.Fatalf("%v: %d ms of %d, %d and %d GPU-ms of %d", d.Pool, sum, april.Ms(), d.GPUMs(), levels, ran[d.Pool])
			}
		}
	})
}

func adviceText(a *Advice) string {
	if a.Best < 0 {
		return string(a.Code)
	}
	o := &a.Offers[a.Best]
	var layers []string
	for _, l := range o.Layers {
		layers = append(layers, fmt.Sprintf("%d-%d %s %s", l.From, l.To, text(l.Duty), l.Mode))
	}
	return fmt.Sprintf("%s %d by the %s at %s for %s, without %s, saves %s, threshold %s; %s", a.Code, o.Best.Reserved, o.Term, text(o.PerHour), text(o.Best.Cost), text(a.Without), text(a.Savings), text(o.Threshold), strings.Join(layers, ", "))
}

func TestAdvise(t *testing.T) {
	h100 := func() []*Rental { return []*Rental{run720("i", 1, 625)} }
	for name, c := range map[string]struct {
		rentals []*Rental
		prices  PoolPrices
		want    string
	}{
		"V12, E25: 20 by the month": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 0)}},
			"reserve 20 by the month at 625/144 for 122500, without 210000, saves 87500, threshold 5/12; 1-20 1 reserved, 21-100 0.1 on_demand",
		},
		"H100 at 25,000 against 40/h: the threshold is 0.868, and at it there is nothing to win": {
			h100(), PoolPrices{OnDemand: rat("40"), Plans: []PlanPrice{month("25000", 0)}},
			"on_demand 0 by the month at 625/18 for 25000, without 25000, saves 0, threshold 125/144; 1-1 125/144 on_demand",
		},
		"E08b: against 30/h not even all the time": {
			[]*Rental{run720("i", 1, 720)}, PoolPrices{OnDemand: rat("30"), Plans: []PlanPrice{month("25000", 0)}},
			"on_demand 0 by the month at 625/18 for 21600, without 21600, saves 0, threshold 125/108; 1-1 1 on_demand",
		},
		"nodes of 8: 24 leave 4 unused": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 0)}, Step: 8},
			"reserve 24 by the month at 625/144 for 132000, without 210000, saves 78000, threshold 5/12; 1-20 1 reserved, 21-100 0.1 on_demand",
		},
		"a cluster of at least 48": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 0)}, Step: 8, Least: 48},
			"reserve 48 by the month at 625/144 for 189000, without 210000, saves 21000, threshold 5/12; 1-20 1 reserved, 21-100 0.1 on_demand",
		},
		"F7: from 112 on a fifth of the price, so 12 more than are ever wanted": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 0), month("625", 112)}},
			"reserve 112 by the month at 125/144 for 70000, without 210000, saves 140000, threshold 1/12; 1-20 1 reserved, 21-100 0.1 on_demand",
		},
		"a plan that is sold from 10 on only": {
			[]*Rental{run720("i", 1, 720)}, PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 10)}},
			"on_demand 0 by the month at 625/144 for 7500, without 7500, saves 0, threshold 5/12; 1-1 1 reserved",
		},
		"the year is cheaper than the month": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{{Term: TermYear, PerGPU: rat("26280"), Ms: 8760 * hourMs}, month("3125", 0)}},
			"reserve 20 by the year at 3 for 103200, without 210000, saves 106800, threshold 0.288; 1-20 1 reserved, 21-100 0.1 on_demand",
		},
		"T7: spot at 4 with a tenth done again costs 4.4, more than the plan": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Spot: rat("4"), Rework: rat("0.1"), Plans: []PlanPrice{month("3125", 0)}},
			"reserve 20 by the month at 625/144 for 87844, without 88704, saves 860, threshold 3125/3168; 1-20 1 reserved, 21-100 0.1 spot",
		},
		"without rework it costs less than any plan": {
			burst(), PoolPrices{OnDemand: rat("125/12"), Spot: rat("4"), Plans: []PlanPrice{month("3125", 0)}},
			"spot 0 by the month at 625/144 for 80640, without 80640, saves 0, threshold 625/576; 1-20 1 spot, 21-100 0.1 spot",
		},
		"no plan":  {burst(), PoolPrices{OnDemand: rat("1")}, "no_plan"},
		"no price": {burst(), PoolPrices{Plans: []PlanPrice{month("1", 0)}}, "unpriced"},
	} {
		a := Advise(measured(t, c.rentals), &c.prices)
		if name == "T7: spot at 4 with a tenth done again costs 4.4, more than the plan" && text(a.Spot) != "4.4" {
			t.Errorf("T7: %s", text(a.Spot))
		}
		if got := adviceText(&a); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// The three points of the curve of 5.1.
func TestAdviseCurve(t *testing.T) {
	a := Advise(measured(t, burst()), &PoolPrices{OnDemand: rat("125/12"), Plans: []PlanPrice{month("3125", 0)}})
	curve := a.Offers[0].Curve
	for n, want := range map[int]string{0: "210000", 20: "122500", 100: "312500"} {
		if got := Exact(curve[n].Cost); got != want || curve[n].Reserved != int64(n) {
			t.Errorf("%d reserved cost %s, want %s", n, got, want)
		}
	}
}

// T7: price x (1 + lost / useful), from what spot lines cost and lost.
func TestMeasureSpot(t *testing.T) {
	if got := Exact(Effective(rat("12"), rat("1/24"))); got != "12.5" {
		t.Errorf("12 with half an hour lost of 12 is %s", got)
	}
	if got := Effective(rat("12"), nil); Exact(got) != "12" {
		t.Errorf("without rework %s", Exact(got))
	}
	r := run720("i", 2, 25)
	r.Segments[0].Plan = PlanSpot
	r.Segments = append(r.Segments, Segment{Span: Span{r.Segments[0].ToMs, r.Segments[0].ToMs}, State: "interrupted", Platform: "p", Model: "m", Plan: PlanSpot, Gpus: 2})
	terms := termsOf(t, "20", "clauses: {checkpoint: 2h}\nadjustments: [{id: spot, stage: term, discount: 40%, plan: [spot]}]")
	lines := terms.Rate(&Usage{Rentals: []*Rental{r, run720("j", 1, 5)}})
	price, rework := MeasureSpot(lines, april, Pool{Platform: "p", Model: "m"})
	if text(price) != "12" || text(rework) != text(big.NewRat(1, 24)) {
		t.Errorf("12 per hour and 1 of 24 hours, not %s and %s", text(price), text(rework))
	}
	if price, rework = MeasureSpot(lines, april, Pool{Platform: "q"}); price != nil || rework != nil {
		t.Errorf("of nothing %s and %s", text(price), text(rework))
	}
}

// T12: 500 queries a second need 10 GPUs at 50 each, and 4 at 150 each, not 3.33.
func TestWholeGPUs(t *testing.T) {
	for _, c := range [][4]string{{"500", "50", "10", "10"}, {"500", "150", "10/3", "4"}, {"0", "50", "0", "0"}, {"1", "50", "0.02", "1"}} {
		exact, whole := GPUsFor(rat(c[0]), rat(c[1]))
		if text(exact) != text(rat(c[2])) || fmt.Sprint(whole) != c[3] {
			t.Errorf("%s at %s each: %s, %d", c[0], c[1], text(exact), whole)
		}
	}
	four, ten := measured(t, []*Rental{run720("i", 4, 720)}), measured(t, []*Rental{run720("i", 10, 720)})
	saved := new(big.Rat).Sub(one, big.NewRat(four.GPUMs(), ten.GPUMs()))
	if text(saved) != "0.6" {
		t.Errorf("saves %s, want 0.6", text(saved))
	}
}

// F13: stages of 34, 33 and 33 GPUs are wanted for 804 GPU-months; all at once are 1,200.
func TestStagedPurchase(t *testing.T) {
	var rentals []*Rental
	year := Span{april.FromMs, april.FromMs + 12*720*hourMs}
	for i, n := range []int64{34, 33, 33} {
		s := Segment{Span: Span{april.FromMs + int64(i)*4*720*hourMs, year.ToMs}, State: "running", Platform: "p", Model: "m", Gpus: n}
		rentals = append(rentals, &Rental{Instance: fmt.Sprint(i), Segments: []Segment{s}})
	}
	d := MeasureDemand(rentals, year, (*Terms)(nil).Wants, PoolOf)[0]
	price := PoolPrices{OnDemand: rat("1/720"), Plans: []PlanPrice{{Term: TermYear, PerGPU: rat("12"), Ms: year.Ms()}}}
	a := Advise(d, &price)
	curve := a.Offers[0].Curve
	if text(a.Without) != "804" || text(curve[len(curve)-1].Cost) != "1200" || a.Code != CodeOnDemand {
		t.Errorf("staged %s, at once %s: %s", text(a.Without), text(curve[len(curve)-1].Cost), a.Code)
	}
}

// T19, V17: what is forgotten over a weekend of 62 h at 35 is 2,170.
func TestForgottenInstance(t *testing.T) {
	d := measured(t, []*Rental{run720("i", 1, 62)})
	for n, want := range map[int64]string{1: "2170", 8: "17360"} {
		if got := text(Cost(n*d.GPUMs(), Price{PerGPUHour: rat("35")})); got != want {
			t.Errorf("%d GPUs: %s, want %s", n, got, want)
		}
	}
}

// The cheapest mix is what a search through all feasible numbers finds, and with a
// constant price it is the layers that are reserved.
func TestCheapestIsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Demand {
			return Demand{rapid.Int64Range(0, 30).Draw(t, "gpus"), rapid.Int64Range(1, 50).Draw(t, "hours") * hourMs}
		}), 1, 6).Draw(t, "demand")
		low := big.NewRat(rapid.Int64Range(1, 20).Draw(t, "reserved"), 3)
		o := Options{
			OnDemand: big.NewRat(rapid.Int64Range(1, 30).Draw(t, "on demand"), 3), Step: rapid.Int64Range(0, 8).Draw(t, "step"),
			Least: rapid.Int64Range(0, 20).Draw(t, "least"), Also: rapid.SliceOfN(rapid.Int64Range(0, 60), 0, 2).Draw(t, "also"),
		}
		if rapid.Bool().Draw(t, "spot") {
			o.Spot = big.NewRat(rapid.Int64Range(1, 30).Draw(t, "spot price"), 4)
		}
		threshold := rapid.Int64Range(0, 40).Draw(t, "threshold")
		o.Reserved = func(n int64) *big.Rat {
			if n >= threshold && threshold > 0 {
				return new(big.Rat).Mul(low, big.NewRat(1, 2))
			}
			return low
		}
		best := Cheapest(Curve(demand, o))
		most := int64(0)
		for _, d := range demand {
			most = max(most, d.Gpus)
		}
		rest, _ := o.rest()
		for n := int64(0); n <= most; n++ {
			if n > 0 && (n%max(o.Step, 1) != 0 || n < o.Least) {
				continue
			}
			cost := new(big.Rat)
			for _, d := range demand {
				hours := big.NewRat(d.Ms, hourMs)
				if n > 0 {
					cost.Add(cost, new(big.Rat).Mul(hours, new(big.Rat).Mul(o.Reserved(n), big.NewRat(n, 1))))
				}
				cost.Add(cost, new(big.Rat).Mul(hours, new(big.Rat).Mul(rest, big.NewRat(max(0, d.Gpus-n), 1))))
			}
			if c := cost.Cmp(best.Cost); c < 0 || c == 0 && n < best.Reserved {
				t.Fatalf("%d cost %s, and %d, said to be cheapest, %s", n, Exact(cost), best.Reserved, Exact(best.Cost))
			}
		}
		o.Step, o.Least, o.Also, o.Reserved = 1, 0, nil, always(low)
		reserved := int64(0)
		for _, l := range Layers(demand, o) {
			if l.Mode == BillReserved {
				reserved = l.To
			}
		}
		if got := Cheapest(Curve(demand, o)).Reserved; got != reserved {
			t.Fatalf("the layers reserve %d, the curve %d", reserved, got)
		}
	})
}
