package pricing

import (
	"fmt"
	"math/big"
	"time"
)

func vectorRows() []row {
	return []row{
		{
			id: "V01", what: "exact seconds, settled per clock hour", inputs: "35/h, 08:45:30 to 09:30:00; half up to 0.01 per settlement", by: "Tariff.Rate",
			check: func(c *checker) {
				tariff := &Tariff{Profile: profileOf(c.t, "settle: hour\namount: {rounding: half_up, decimals: 2, per: line}\n"), Book: bookOf(rat("35"))}
				got := tariff.Rate(lease("", 1, "running 08:45:30", "released 09:30:00"))
				if len(got) != 2 {
					c.t.Fatalf("V01 has %d lines", len(got))
				}
				c.says("time", fmt.Sprint(got[0].BillableMs/1000, " + ", got[1].BillableMs/1000, " s"), "870 + 1800 s")
				c.is("exact", got[0].Cost, "203/24")
				c.is("and", got[1].Cost, "17.5")
				c.is("together", costOf(got), "623/24")
				c.is("billed", got[0].Billed, "8.46")
				c.is("and", got[1].Billed, "17.5")
				c.is("together", billedOf(got), "25.96")
			},
		},
		{
			id: "V02", what: "a started hour counts whole", inputs: "35/h, 08:45:30 to 09:30:00; granularity 1 h, up", by: "Tariff.Rate",
			check: func(c *checker) {
				tariff := &Tariff{Profile: profileOf(c.t, "time: {granularity: 1h, rounding: up}\n"), Book: bookOf(rat("35"))}
				got := tariff.Rate(lease("", 1, "running 08:45:30", "released 09:30:00"))
				c.is("hours", big.NewRat(got[0].BillableMs, hourMs), "1")
				c.is("cost", costOf(got), "35")
			},
		},
		{
			id: "V04", what: "a tiny charge under both rules", inputs: "2/h, 1 s; half up to 0.01", by: "Tariff.Rate",
			check: func(c *checker) {
				for _, v := range []struct{ what, rule, want string }{
					{"below 0.005 is free:", "free_below: \"0.005\"", "0"}, {"at least 0.01:", "minimum: \"0.01\"", "0.01"},
				} {
					tariff := &Tariff{Profile: profileOf(c.t, "amount: {rounding: half_up, decimals: 2, "+v.rule+"}\n"), Book: bookOf(rat("2"))}
					got := tariff.Rate(lease("", 1, "running 08:00:00", "released 08:00:01"))
					if len(c.values) == 0 {
						c.is("exact", costOf(got), "1/1800")
					}
					c.is(v.what, billedOf(got), v.want)
				}
			},
		},
		{
			id: "V06", what: "a month by parts of the calendar", inputs: "1,750 per month, 12 of 30 and 8 of 31 days left", by: "MonthRule.Part Rounding.Round",
			check: func(c *checker) {
				shanghai := zone(c.t, "Asia/Shanghai")
				left := Span{ms("2026-06-19T00:00:00+08:00"), ms("2026-07-09T00:00:00+08:00")}
				part := MonthOfCalendar.Part(left, left, shanghai)
				c.is("factor", part, "102/155")
				round := Rounding{Mode: HalfUp, Decimals: 2}
				c.is("amount", round.Round(new(big.Rat).Mul(part, rat("1750"))), "1151.61")
				early := Rounding{Mode: HalfUp, Decimals: 4}
				c.is("with the factor rounded to 4 decimals first (a platform's page does, and prints 1,151.67):", new(big.Rat).Mul(early.Round(part), rat("1750")), "1151.675")
			},
		},
		{
			id: "V07", what: "spot", inputs: "20/h, −40 %, 10 h", by: "Tariff.Rate Adjust",
			check: func(c *checker) { c.is("cost", c.cost("20", 1, 10, rule(StageTerm, Discount, "0.4")), "120") },
		},
		{
			id: "V08", what: "factors", inputs: "30 × 1.15 × 1.10 × 1.25", by: "Adjust",
			check: func(c *checker) {
				c.is("per hour", adjusted(rat("30"), rule(StageTenancy, Uplift, "0.25"), rule(StageRegion, Uplift, "0.15"), rule(StageTier, Uplift, "0.1")), "47.4375")
			},
		},
		{
			id: "V11", what: "SLA", inputs: "1 h outage in a month of 720 h, 35/h, ratio 2", by: "SLA.Credit Tariff.Rate",
			check: func(c *checker) {
				sla := SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}
				c.is("credit", sla.Credit(hours(720), []Span{{monthStart + 100*hourMs, monthStart + 101*hourMs}}, c.charges("35", 1, 720)).Money, "-70")
			},
		},
		{
			id: "V12", what: "mix of base and burst", inputs: "20 GPUs at 3,125 a month, 80 for 72 h at 125/12 per hour", by: "Commitment.Cover Tariff.Rate Curve",
			check: func(c *checker) { mix(c) },
		},
		{
			id: "V14", what: "a plan that never breaks even", inputs: "25,000 a month, 30/h, month of 744 h", by: "BreakEven",
			check: func(c *checker) {
				h, text := pays(rat("25000"), "30", 744)
				c.is("hours", h, "2500/3")
				c.says("breaks even:", text, "never")
			},
		},
		{
			id: "V15", what: "a quote for a task", inputs: "fee 50,000, 1,600 GPU-hours metered", by: "Quote.PerHour",
			check: func(c *checker) { c.is("per GPU-hour", perHour("50000", 1600), "31.25") },
		},
		{
			id: "V17", what: "idle time at its price", inputs: "8 GPUs at 35/h, 62 h below the threshold", by: "Tariff.Rate",
			check: func(c *checker) { c.is("cost", c.cost("35", 8, 62), "17360") },
		},
	}
}

// mix bills V12: what a plan covers, the rest by the hour, and every other plan.
func mix(c *checker) {
	burst := Span{monthStart + 100*hourMs, monthStart + 172*hourMs}
	rentals := []*Rental{
		{Instance: "base", Segments: []Segment{{Span: hours(720), State: "running", Model: "m", Gpus: 20}}},
		{Instance: "burst", Segments: []Segment{{Span: burst, State: "running", Model: "m", Gpus: 80}}},
	}
	plan := &Commitment{Gpus: 20, Span: hours(720), Term: TermMonth, Price: rat("3125")}
	covered := plan.Cover(rentals, running, time.UTC)
	tariff := &Tariff{Profile: profileOf(c.t, ""), Book: bookOf(rat("125/12"))}
	rest := new(big.Rat)
	for _, r := range covered.Rest {
		rest.Add(rest, costOf(tariff.Rate(r)))
	}
	c.is("base", covered.Purchases[0].Cost, "62500")
	c.is("burst", rest, "60000")
	c.is("together", new(big.Rat).Add(covered.Purchases[0].Cost, rest), "122500")
	curve := Curve([]Demand{{20, 648 * hourMs}, {100, 72 * hourMs}}, Options{Reserved: always(rat("3125/720")), OnDemand: rat("125/12")})
	best := Cheapest(curve)
	c.is("cheapest with reserved GPUs:", big.NewRat(best.Reserved, 1), "20")
	c.is("all by the hour", curve[0].Cost, "210000")
	c.is("all by the month", curve[100].Cost, "312500")
}

func factorRows() []row {
	return []row{
		{
			id: "F1", what: "coast over mid-west, +10 to 15 %", inputs: "list 30, uplift 15 %", by: "Adjust Spread",
			check: func(c *checker) {
				coast := adjusted(rat("30"), rule(StageRegion, Uplift, "0.15"))
				c.is("coast", coast, "34.5")
				c.part("moving west saves", cheaper(coast, rat("30")), "3/23")
			},
		},
		{
			id: "F2", what: "data centre of tier 3 and up, +5 to 10 %", inputs: "list 30, uplift 10 %", by: "Adjust",
			check: func(c *checker) { c.is("price", adjusted(rat("30"), rule(StageTier, Uplift, "0.1")), "33") },
		},
		{
			id: "F3", what: "dedicated over shared, +20 to 30 %", inputs: "list 30, uplift 25 %; with F1 and F2", by: "Adjust",
			check: func(c *checker) {
				c.is("price", adjusted(rat("30"), rule(StageTenancy, Uplift, "0.25")), "37.5")
				c.is("F1 to F3", adjusted(rat("30"), rule(StageTenancy, Uplift, "0.25"), rule(StageRegion, Uplift, "0.15"), rule(StageTier, Uplift, "0.1")), "47.4375")
			},
		},
		{
			id: "F4", what: "monthly and yearly factor, 0.60 to 0.70", inputs: "list 30, factor 0.65", by: "Adjust",
			check: func(c *checker) { c.is("price", adjusted(rat("30"), rule(StageTerm, Factor, "0.65")), "19.5") },
		},
		{
			id: "F5", what: "weekly or monthly saving, 20 to 30 %", inputs: "12,000, discount 25 %", by: "Adjust",
			check: func(c *checker) { c.is("price", adjusted(rat("12000"), rule(StageTerm, Discount, "0.25")), "9000") },
		},
		{
			id: "F6", what: "spot, −30 to 50 %", inputs: "20, discount 40 %", by: "Adjust",
			check: func(c *checker) { c.is("price", adjusted(rat("20"), rule(StageTerm, Discount, "0.4")), "12") },
		},
		{
			id: "F7", what: "10 or more on a monthly plan at 0.80", inputs: "20,000 a month each; 10 and 9 GPUs; rule with min_gpus 10", by: "Contract.Adjustments Adjust Commitment.Cover",
			check: func(c *checker) {
				c.is("10 GPUs", bulk(c, 10, false, false), "160000")
				c.is("9 GPUs", bulk(c, 9, false, false), "180000")
			},
		},
		{
			id: "F8", what: "bundle of GPUs with storage, 5 % more", inputs: "F7 with 10 GPUs, and a storage meter", by: "Contract.Adjustments Adjust Commitment.Cover",
			check: func(c *checker) {
				c.is("multiplied", bulk(c, 10, true, false), "152000")
				c.is("additive", bulk(c, 10, true, true), "150000")
			},
		},
		{
			id: "F9", what: "spread between platforms, up to 30 %", inputs: "the guide's list prices per hour: A100 20 to 30, H100 30 to 40", by: "Spread",
			check: func(c *checker) {
				c.part("A100", Spread(rats("20", "24", "30")), "1/3")
				c.part("H100", Spread(rats("40", "30", "35")), "1/4")
			},
		},
		{
			id: "F10", what: "transfer between regions, 0.5 to 1 per GB", inputs: "1 TB (10^12 bytes) and 1 TiB (2^40), priced per GB (10^9)", by: "MeterPrice.Cost",
			check: func(c *checker) {
				for _, v := range []struct{ what, price, bytes, want string }{
					{"TB at 0.5:", "0.5", "1000000000000", "500"}, {"at 1:", "1", "1000000000000", "1000"},
					{"TiB at 0.5:", "0.5", "1099511627776", "549.755813888"}, {"at 1:", "1", "1099511627776", "1099.511627776"},
				} {
					m := MeterPrice{Meter: "egress_bytes", Per: UnitGB, Price: rat(v.price)}
					c.is(v.what, m.Cost(rat(v.bytes)), v.want)
				}
			},
		},
		{
			id: "F11", what: "a shock of 20 % within a rental", inputs: "2 h, 1 h before and 1 h after; 30 and 40 per hour; cap 30", by: "Tariff.Rate Book.Price Adjust",
			check: func(c *checker) {
				c.is("30, then 36:", shock(c, "30", "36"), "66")
				c.is("40, then 48:", shock(c, "40", "48"), "88")
				c.is("30, then 36 with a cap of 30:", shock(c, "30", "36", rule(StageCap, Cap, "30")), "60")
			},
		},
		{id: "F12"},
		{
			id: "F13", what: "buying in three stages", inputs: "34, 33, 33 GPUs from months 0, 4, 8 of 12 on; at 1 per GPU-month, so amounts are GPU-months", by: "Commitment.Cover Spread",
			check: func(c *checker) {
				staged, atOnce := stages()
				c.is("staged", staged, "804")
				c.is("at once", atOnce, "1200")
				c.part("less", cheaper(staged, atOnce), "0.33")
			},
		},
		{id: "F14", what: "entry GPU at a third of a traditional server", waits: "benchmark results per platform: it is a ratio of performance, not of prices"},
	}
}

// bulk is what so many GPUs cost a month under the contract of F7 and F8.
func bulk(c *checker, gpus int64, storage, additive bool) *big.Rat {
	text := `contract: c
platform: p
currency: CNY
valid_from: 2026-01-01
valid_to: 2027-01-01
adjustments:
  - {id: ten, stage: volume, discount: 20%, min_gpus: 10, plan: [month]}
  - {id: storage, stage: bundle, discount: 5%, additive: ` + fmt.Sprint(additive) + `, with: [storage_byte_seconds]}
`
	contract, err := ParseContract("c.yaml", []byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	s := Segment{Platform: "p", Model: "A100", Plan: "month", Gpus: gpus}
	rules := contract.Adjustments(&s, monthStart, Active{
		Enough: func(r *Rule, _ int64) bool { return gpus >= r.MinGpus },
		Meter:  func(string, int64) bool { return storage },
	})
	return monthly(Exact(adjusted(rat("20000"), rules...)), gpus)
}

// shock is what two hours cost across a new price version.
func shock(c *checker, before, after string, rules ...Adjustment) *big.Rat {
	noon := monthStart + hourMs
	book, faults := newBook("CNY", []Entry{
		{Model: "m", PerGPUHour: rat(before), FromMs: Always, ToMs: noon}, {Model: "m", PerGPUHour: rat(after), FromMs: noon, ToMs: Forever},
	})
	if len(faults) > 0 {
		c.t.Fatal(faults)
	}
	tariff := &Tariff{Profile: profileOf(c.t, ""), Book: book, Adjust: func(*Segment, int64) []Adjustment { return rules }}
	return costOf(tariff.Rate(&Rental{Segments: []Segment{{Span: hours(2), State: "running", Model: "m", Gpus: 1}}}))
}

// stages are the GPU-months of a purchase in three steps and of one at once.
func stages() (staged, atOnce *big.Rat) {
	buy := func(month int, gpus int64) *big.Rat {
		start := AddMonths(monthStart, month, time.UTC)
		c := &Commitment{Gpus: gpus, Span: Span{start, AddMonths(monthStart, 12, time.UTC)}, Term: TermMonth, Price: rat("1")}
		sum := new(big.Rat)
		for _, p := range c.Cover(nil, running, time.UTC).Purchases {
			sum.Add(sum, p.Cost)
		}
		return sum
	}
	staged = buy(0, 34)
	staged.Add(staged, buy(4, 33))
	staged.Add(staged, buy(8, 33))
	return staged, buy(0, 100)
}
