package pricing

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// M12 and T20: what is sporadic goes by the hour, what comes in days by the day, what
// goes on by the month, and prices draw the lines.
func TestModes(t *testing.T) {
	prices := PoolPrices{OnDemand: rat("30"), Plans: []PlanPrice{
		month("14400", 0), {Term: TermDay, PerGPU: rat("600"), Ms: dayMs}, {Term: TermWeek, PerGPU: rat("3780"), Ms: 7 * dayMs},
	}}
	// every returns an instance that runs for some hours of every so many days.
	every := func(days, hours int64) (list []*Rental) {
		for day := int64(0); day < 30; day += days {
			s := Segment{Span: Span{april.FromMs + day*dayMs, april.FromMs + day*dayMs + hours*hourMs}, State: "running", Platform: "p", Model: "m", Gpus: 2}
			list = append(list, &Rental{Instance: fmt.Sprint(day), Segments: []Segment{s}})
		}
		return list
	}
	spot := prices
	spot.Spot, spot.Rework = rat("10"), rat("0.5")
	for name, c := range map[string]struct {
		rentals []*Rental
		prices  *PoolPrices
		want    string
	}{
		"sporadic: 2 h a day":       {every(1, 2), &prices, "duty 1/12, on_demand 3600, day 36000, week 32400, month 28800: on_demand saves 0"},
		"phased: a day in three":    {every(3, 24), &prices, "duty 1/3, on_demand 14400, day 12000, week 25920, month 28800: day saves 2400"},
		"steady":                    {every(1, 24), &prices, "duty 1, on_demand 43200, day 36000, week 32400, month 28800: month saves 14400"},
		"dense, 15 h a day":         {every(1, 15), &prices, "duty 5/8, on_demand 27000, day 36000, week 32400, month 28800: on_demand saves 0"},
		"16 h a day are a tie":      {every(1, 16), &prices, "duty 2/3, on_demand 28800, day 36000, week 32400, month 28800: on_demand saves 0"},
		"denser, 17 h a day":        {every(1, 17), &prices, "duty 17/24, on_demand 30600, day 36000, week 32400, month 28800: month saves 1800"},
		"spot with half of it lost": {every(1, 24), &spot, "duty 1, on_demand 43200, spot 21600, day 36000, week 32400, month 28800: spot saves 21600"},
		"no price on demand":        {every(1, 24), &PoolPrices{Plans: prices.Plans[:1]}, "duty 1, month 28800: month saves unknown"},
		"no price at all":           {every(1, 24), &PoolPrices{}, "duty 1: - saves unknown"},
		"a year counts with its part": {
			every(15, 1), &PoolPrices{OnDemand: rat("30"), Plans: []PlanPrice{{Term: TermYear, PerGPU: rat("8760"), Ms: 8760 * hourMs}}},
			"duty 1/360, on_demand 120, year 1440: on_demand saves 0",
		},
	} {
		d := measured(t, c.rentals)
		a := Modes(&d, c.prices)
		costs := []string{"duty " + a.Duty.RatString()}
		for _, m := range a.Costs {
			costs = append(costs, fmt.Sprintf("%s %s", m.Mode, text(m.Cost)))
		}
		best := string(a.Best)
		if best == "" {
			best = "-"
		}
		if got := fmt.Sprintf("%s: %s saves %s", strings.Join(costs, ", "), best, text(a.Saving)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// Whatever is wanted is paid for: no mode buys less time than was used, nor more than a
// cycle for every start.
func TestModesBuyWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms, u := anyTerms(t)
		for _, d := range MeasureDemand(u.Rentals, april, terms.Wants, PoolOf) {
			length := rapid.Int64Range(1, 900).Draw(t, "term") * hourMs
			bought := new(PlanPrice)
			bought.PerGPU, bought.Ms = rat("1"), length
			got := d.planned(bought)
			if got.Cmp(ratio(d.GPUMs(), length)) < 0 || got.Cmp(ratio(d.Peak()*april.Ms(), length)) > 0 {
				t.Fatalf("%s terms of %d h for %d GPU-h", Exact(got), length/hourMs, d.GPUMs()/hourMs)
			}
		}
	})
}
