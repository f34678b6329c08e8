package pricing

import "math/big"

func laterExampleRows() []row {
	return []row{
		{id: "E21b"},
		{
			id: "E22a", what: "10 and more A100 by the month at 0.80", inputs: "10 at 15,000 to 20,000; the contract of F7", guide: "×0.80", verdict: "OK", by: "Contract.Adjustments Adjust Commitment.Cover",
			check: func(c *checker) {
				c.is("list from", monthly("15000", 10), "150000")
				c.is("to", monthly("20000", 10), "200000")
				c.is("less 20 % from", adjusted(monthly("15000", 10), rule(StageVolume, Discount, "0.2")), "120000")
				c.is("to", bulk(c, 10, false, false), "160000")
			},
		},
		{
			id: "E22b", what: "H100 at 28/h by a yearly contract", inputs: "144,000 in 8,760 h; 28 against 30 and 40 per hour", guide: "saves 144,000 a year", verdict: "UNDER: the number of GPUs is missing", by: "Quote.PerHour BreakEven",
			check: func(c *checker) {
				base := new(big.Rat).Add(rat("28"), perHour("144000", 8760))
				c.is("for one GPU the base is", base, "3244/73")
				c.beyond("3244/73", rat("30"), rat("40"))
				for _, v := range [][3]string{{"30", "2", "600/73"}, {"40", "12", "100/73"}} {
					h, _ := pays(rat("144000"), v[1], 8760)
					c.is("from "+v[0]+" on it is GPUs", new(big.Rat).Quo(h, rat("8760")), v[2])
				}
			},
		},
		{
			id: "E23", what: "FP8 doubles throughput, a month becomes two weeks", inputs: "H100 at 35; 28 and 30 days against 14; a plan of one month at 25,000", guide: "−50 %", verdict: "OK by the hour only", by: "Tariff.Rate Spread Commitment.Cover",
			check: func(c *checker) {
				half := c.cost("35", 1, 14*24)
				c.part("of 28 days", cheaper(c.cost("35", 1, 28*24), half), "0.5")
				c.part("of 30 days", cheaper(c.cost("35", 1, 30*24), half), "8/15")
				c.part("on a monthly plan", cheaper(monthly("25000", 1), bought("25000", 1, TermMonth, "2026-04-15")), "0")
			},
		},
		{
			id: "E24", what: "10 × T4 by the month, 80 % below A100", inputs: "15,000 for 7,200 GPU-hours; 5 A100 at 15,000; 10 at 15,000 to 20,000; E07", guide: "15,000; −80 %", verdict: "UNDER; contradicts E07: monthly is 30 % of hourly, not 60–70 %", by: "Quote.PerHour Spread Commitment.Cover",
			check: func(c *checker) {
				c.is("per hour", perHour("15000", 7200), "25/12")
				c.is("5 A100", monthly("15000", 5), "75000")
				c.part("against them", cheaper(rat("15000"), monthly("15000", 5)), "0.8")
				c.part("against 10", cheaper(rat("15000"), monthly("15000", 10)), "0.9")
				c.part("to", cheaper(rat("15000"), monthly("20000", 10)), "0.925")
				c.part("of the hourly price of E07", new(big.Rat).Quo(perHour("15000", 7200), perHour("50000", 7200)), "0.3")
				c.beyond("0.3", rat("0.6"), rat("0.7"))
			},
		},
		{
			id: "E25", what: "20 → 100 GPUs for 3 days", inputs: "60,000 for 80 × 72 h; 250,000 for 100 or 80 GPUs; month of 720 h", guide: "60,000 more, against 250,000", verdict: "OK as a decision, ratio OFF", by: "Quote.PerHour BreakEven Tariff.Rate Adjust",
			check: func(c *checker) {
				hourly := perHour("60000", 80*72)
				c.is("per hour", hourly, "125/12")
				for _, v := range []struct{ what, plan, ratio, hours string }{{"of 100", "2500", "1/3", "240"}, {"of 80", "3125", "5/12", "300"}} {
					c.part("monthly "+v.what+" is of hourly", new(big.Rat).Quo(perHour(v.plan, 720), hourly), v.ratio)
					c.beyond(v.ratio, rat("0.6"), rat("0.7"))
					h, _ := pays(rat(v.plan), Exact(hourly), 720)
					c.is("hours to break even", h, v.hours)
				}
				for _, v := range [][2]string{{"0.7", "250000/7"}, {"0.6", "125000/3"}} {
					// 60 to 70 % of the hourly price is 3,125 a month: what would the burst cost?
					price := new(big.Rat).Quo(perHour("3125", 720), rat(v[0]))
					c.is("the burst if monthly is "+v[0], c.cost(Exact(price), 80, 72), v[1])
				}
			},
		},
		{
			id: "E26", what: "INT8 makes 50 queries per second 150", inputs: "1,500,000 queries on one T4 take 30,000 s or 10,000 s at 125/18 per hour; 10 GPUs, or 4 whole ones", guide: "two thirds fewer GPUs", verdict: "OK", by: "Tariff.Rate Spread",
			check: func(c *checker) {
				bill := func(end string) *big.Rat {
					tariff := &Tariff{Profile: profileOf(c.t, ""), Book: bookOf(rat("125/18"))}
					return costOf(tariff.Rate(lease("", 1, "running 08:00:00", "released "+end)))
				}
				c.part("less", cheaper(bill("16:20:00"), bill("10:46:40")), "2/3")
				c.part("in whole GPUs", cheaper(c.cost("125/18", 10, 720), c.cost("125/18", 4, 720)), "0.6")
			},
		},
		{
			id: "E27", what: "H100 20 % dearer in 2024, capped contracts are not", inputs: "F11", guide: "+20 %", verdict: "OK", by: "Tariff.Rate Book.Price Adjust",
			check: func(c *checker) {
				c.is("30 becomes", adjusted(rat("30"), rule(StageRegion, Uplift, "0.2")), "36")
				c.is("40 becomes", adjusted(rat("40"), rule(StageRegion, Uplift, "0.2")), "48")
				c.is("an hour of each, uncapped", shock(c, "30", "36"), "66")
				c.is("capped at 30", shock(c, "30", "36", rule(StageCap, Cap, "30")), "60")
			},
		},
		{
			id: "E28", what: "100 GPUs in 3 stages", inputs: "1,200 GPU-months less 15 %; the schedule of F13", guide: "−15 %", verdict: "UNDER: depends on the schedule", by: "Adjust Commitment.Cover Spread",
			check: func(c *checker) {
				staged, atOnce := stages()
				c.is("15 % off", adjusted(atOnce, rule(StageTerm, Discount, "0.15")), "1020")
				c.is("F13", staged, "804")
				c.part("that is", cheaper(staged, atOnce), "0.33")
			},
		},
		{
			id: "E29", what: "bundle of 50 TB of storage", inputs: "F8: 10 GPUs at 20,000 with 20 % off", guide: "5 % more", verdict: "UNDER: on which lines is not said", by: "Contract.Adjustments Adjust Commitment.Cover",
			check: func(c *checker) {
				c.is("of the GPUs, multiplied", bulk(c, 10, true, false), "152000")
				c.is("or additive", bulk(c, 10, true, true), "150000")
			},
		},
		{
			id: "E30", what: "training by night, serving by day: 50 → 90 % used", inputs: "10 h at 1 per hour, of which 5 or 9 are useful", guide: "90 %", verdict: "OK", by: "Quote.PerHour Spread",
			check: func(c *checker) {
				c.is("a useful hour", perHour("10", 5), "2")
				c.is("becomes", perHour("10", 9), "10/9")
				c.part("less", cheaper(perHour("10", 5), perHour("10", 9)), "4/9")
			},
		},
		{
			id: "E32", what: "80 % fewer GPUs at night", inputs: "40,000 in 30 nights; 125/18, 25/12 and 35 per hour; 30 GPUs for 8 h a night", guide: "saves 40,000 a month", verdict: "UNDER: no size", by: "BreakEven Tariff.Rate",
			check: func(c *checker) {
				for _, v := range [][3]string{{"6.944", "125/18", "240"}, {"2.083", "25/12", "800"}, {"35", "35", "1000/21"}} {
					// One GPU-hour a night that is there no more saves 0.8 of it 30 times.
					h, _ := pays(rat("40000"), Exact(new(big.Rat).Mul(rat(v[1]), rat("24"))), 1000)
					c.is("GPU-hours a night at "+v[0], h, v[2])
				}
				all, few := c.cost("125/18", 30, 240), c.cost("125/18", 6, 240)
				c.is("30 GPUs, 8 h, 30 nights:", new(big.Rat).Sub(all, few), "40000")
			},
		},
		{
			id: "E33", what: "distilling and pruning", inputs: "10 and 3 GPUs for 720 h at 125/18", guide: "−70 % inference compute", verdict: "OK as an input", by: "Tariff.Rate Spread",
			check: func(c *checker) {
				c.part("less", cheaper(c.cost("125/18", 10, 720), c.cost("125/18", 3, 720)), "0.7")
			},
		},
		{
			id: "E34", what: "gradient checkpointing", inputs: "720 and 432 h at 35", guide: "−40 % training time", verdict: "OK as an input", by: "Tariff.Rate Spread",
			check: func(c *checker) { c.part("less", cheaper(c.cost("35", 1, 720), c.cost("35", 1, 432)), "0.4") },
		},
		{
			id: "E35", what: "active learning", inputs: "720 and 288 h at 35, if time goes with the data", guide: "−60 % data", verdict: "OK as an input", by: "Tariff.Rate Spread",
			check: func(c *checker) { c.part("less", cheaper(c.cost("35", 1, 720), c.cost("35", 1, 288)), "0.6") },
		},
		{
			id: "E42", what: "1 h of outage compensated as 2 h", inputs: "35/h, ratio 2", guide: "×2", verdict: "OK", by: "SLA.Credit",
			check: func(c *checker) {
				sla := SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}
				got := sla.Credit(hours(720), []Span{hours(1)}, c.charges("35", 1, 720))
				c.is("lost hours", big.NewRat(got.LostMs, hourMs), "1")
				c.is("credit", got.Money, "-70")
			},
		},
	}
}
