package pricing

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func always(price *big.Rat) func(int64) *big.Rat { return func(int64) *big.Rat { return price } }

// The vectors of pricing.md 5.1 and V12: 20 GPUs for 648 h and 100 for 72 h.
func TestMixOfBaseAndBurst(t *testing.T) {
	demand := []Demand{{100, 72 * hourMs}, {20, 648 * hourMs}}
	o := Options{Reserved: always(rat("3125/720")), OnDemand: rat("125/12")}
	curve := Curve(demand, o)
	best := Cheapest(curve)
	for _, c := range []struct {
		m    Mix
		want string
	}{{curve[0], "210000"}, {best, "122500"}, {curve[100], "312500"}} {
		if got := Exact(c.m.Cost); got != c.want {
			t.Errorf("%d reserved cost %s, want %s", c.m.Reserved, got, c.want)
		}
	}
	if best.Reserved != 20 || Exact(best.ReservedCost) != "62500" || Exact(best.RestCost) != "60000" || best.UnusedMs != 0 || best.RestMs != 80*72*hourMs {
		t.Errorf("the best is %+v", best)
	}
	// Nodes of 8: 16 leave 4 to pay for on demand all month, 24 leave 4 unused.
	o.Step = 8
	if got := Cheapest(Curve(demand, o)); got.Reserved != 24 || got.UnusedMs != 4*648*hourMs {
		t.Errorf("in nodes: %+v", got)
	}
	// From 100 on at half the price: more than is needed, and cheaper.
	o.Reserved = func(n int64) *big.Rat {
		if n >= 96 {
			return rat("1")
		}
		return rat("3125/720")
	}
	if got := Cheapest(Curve(demand, o)); got.Reserved != 96 {
		t.Errorf("with a volume discount: %+v", got)
	}
	o.Spot = rat("0.5")
	if got := Cheapest(Curve(demand, o)); got.Reserved != 0 || Exact(got.Cost) != "10080" {
		t.Errorf("with spot: %+v", got)
	}
	if got := Cheapest(Curve(nil, o)); got.Reserved != 0 || got.Cost.Sign() != 0 {
		t.Errorf("nothing wanted: %+v", got)
	}
}

// The cheapest mix is what the rule of the layers says, and the curve is the sum
// over every hour.
func TestCurveIsTheSumOfItsHours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demand := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Demand {
			return Demand{rapid.Int64Range(0, 12).Draw(t, "gpus"), rapid.Int64Range(1, 50).Draw(t, "hours") * hourMs}
		}), 1, 6).Draw(t, "demand")
		o := Options{Reserved: always(big.NewRat(rapid.Int64Range(1, 20).Draw(t, "reserved"), 3)), OnDemand: big.NewRat(rapid.Int64Range(1, 30).Draw(t, "on demand"), 3)}
		curve := Curve(demand, o)
		term := int64(0)
		for _, d := range demand {
			term += d.Ms
		}
		for _, m := range curve {
			sum := new(big.Rat)
			for _, d := range demand {
				hours := big.NewRat(d.Ms, hourMs)
				for k := int64(1); k <= max(d.Gpus, m.Reserved); k++ {
					price := o.OnDemand
					if k <= m.Reserved {
						price = o.Reserved(m.Reserved)
					}
					sum.Add(sum, new(big.Rat).Mul(hours, price))
				}
			}
			if sum.Cmp(m.Cost) != 0 || m.UsedMs+m.UnusedMs != m.Reserved*term {
				t.Fatalf("%d reserved: %s, the hours say %s", m.Reserved, Exact(m.Cost), Exact(sum))
			}
		}
		layers := int64(0)
		for k := int64(1); k < int64(len(curve)); k++ {
			wanted := int64(0)
			for _, d := range demand {
				if d.Gpus >= k {
					wanted += d.Ms
				}
			}
			if u := big.NewRat(wanted, term); u.Cmp(new(big.Rat).Quo(o.Reserved(1), o.OnDemand)) > 0 {
				layers = k
			}
		}
		if got := Cheapest(curve).Reserved; got != layers {
			t.Fatalf("cheapest with %d, the layers say %d", got, layers)
		}
	})
}

func TestBreakEven(t *testing.T) {
	for _, c := range []struct {
		plan, hourly string
		hours        string
		never        bool
	}{
		{"25000", "30", "2500/3", true},  // V14, E08b: more than any month has
		{"25000", "40", "625", false},    // threshold 0.868 of 720 h
		{"3125", "125/12", "300", false}, // E25
		{"2500", "125/12", "240", false},
		{"100", "0", "", true},
	} {
		hours, never := BreakEven(rat(c.plan), rat(c.hourly), 720)
		if never != c.never || hours != nil && hours.RatString() != rat(c.hours).RatString() {
			t.Errorf("%s against %s: %v %v", c.plan, c.hourly, hours, never)
		}
	}
}

func TestMonthPart(t *testing.T) {
	shanghai := zone(t, "Asia/Shanghai")
	at := func(text string) int64 { return ms(text + "T00:00:00+08:00") }
	rest := Span{at("2026-06-19"), at("2026-07-09")} // 12 of 30 and 8 of 31 days
	part := MonthOfCalendar.Part(rest, Span{}, shanghai)
	if part.Cmp(new(big.Rat).Add(big.NewRat(12, 30), big.NewRat(8, 31))) != 0 {
		t.Errorf("V06: %s", part.RatString())
	}
	money := Rounding{Mode: HalfUp, Decimals: 2}
	if got := Exact(money.Round(new(big.Rat).Mul(part, rat("1750")))); got != "1151.61" { // the platform's page says 1151.67
		t.Errorf("V06: %s", got)
	}
	day := Span{at("2026-02-10"), at("2026-02-11")}
	for rule, want := range map[MonthRule]string{MonthOfCalendar: "1/28", MonthOfCycle: "1/31", MonthOf30Days: "1/30", MonthOf730Hours: "12/365"} {
		if got := rule.Part(day, Span{at("2026-01-15"), at("2026-02-15")}, shanghai); got.RatString() != want {
			t.Errorf("%s: %s, want %s", rule, got.RatString(), want)
		}
	}
}

func TestCycles(t *testing.T) {
	shanghai := zone(t, "Asia/Shanghai")
	at := func(text string) int64 { return ms(text + "+08:00") }
	for _, c := range []struct {
		term        Term
		day         DayCycle
		start, stop string
		want        []string
	}{
		{TermDay, RollingDay, "2026-03-01T20:00:00", "2026-03-03T08:00:00", []string{"03-02 20:00", "03-03 20:00"}},                 // 36 h are two days
		{TermDay, CalendarDay, "2026-03-01T20:00:00", "2026-03-03T08:00:00", []string{"03-02 00:00", "03-03 00:00", "03-04 00:00"}}, // or three
		{TermMonth, "", "2026-01-31T10:00:00", "2026-03-31T10:00:00", []string{"02-28 10:00", "03-31 10:00"}},
		{TermMonth, "", "2026-01-31T10:00:00", "2026-03-31T10:00:01", []string{"02-28 10:00", "03-31 10:00", "04-30 10:00"}},
		{TermQuarter, "", "2025-11-30T00:00:00", "2026-03-01T00:00:00", []string{"02-28 00:00", "05-30 00:00"}},
		{TermYear, "", "2024-02-29T00:00:00", "2025-02-01T00:00:00", []string{"02-28 00:00"}},
		{TermWeek, "", "2026-03-01T00:00:00", "2026-03-09T00:00:00", []string{"03-08 00:00", "03-15 00:00"}},
	} {
		var got []string
		last := at(c.start)
		for _, s := range c.term.Cycles(at(c.start), at(c.stop), c.day, shanghai) {
			if s.FromMs != last || s.Ms() <= 0 {
				t.Errorf("%s: %+v does not follow", c.term, s)
			}
			last = s.ToMs
			got = append(got, time.UnixMilli(s.ToMs).In(shanghai).Format("01-02 15:04"))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s from %s until %s: %v, want %v", c.term, c.day, c.start, c.stop, got, c.want)
		}
	}
}
