package pricing

import (
	"math/big"
	"strings"
)

// The guides' examples. What a row asserts is what follows from its inputs; the guides'
// number stands beside it and is never an aim.
func exampleRows() []row {
	return []row{
		{
			id: "E01", what: "entry GPU, a day", inputs: "24 h at 2 and at 4 per hour", guide: "at most 100 a day", verdict: "OK", by: "Tariff.Rate",
			check: func(c *checker) {
				c.is("at 2", c.cost("2", 1, 24), "48")
				c.is("at 4", c.cost("4", 1, 24), "96")
			},
		},
		{
			id: "E02", what: "10 × RTX 3070, one month", inputs: "25,000 for 7,200 GPU-hours; list 2 to 4", guide: "25,000", verdict: "RANGE", by: "Quote.PerHour Tariff.Rate",
			check: func(c *checker) {
				low, high := c.cost("2", 10, 720), c.cost("4", 10, 720)
				c.is("per hour", perHour("25000", 7200), "125/36")
				c.is("at 2", low, "14400")
				c.is("at 4", high, "28800")
				c.inside("25000", low, high)
			},
		},
		{
			id: "E04", what: "20 × RTX 4090, one month", inputs: "120,000 for 14,400 GPU-hours; list 4 to 8; months of 720 and 744 h", guide: "120,000", verdict: "OFF +4.2 % (+0.8 % at 744 h)", by: "Quote.PerHour Tariff.Rate",
			check: func(c *checker) {
				top, long := c.cost("8", 20, 720), c.cost("8", 20, 744)
				c.is("per hour", perHour("120000", 14400), "25/3")
				c.is("most", top, "115200")
				c.is("at 744 h", long, "119040")
				c.part("above it", dearer(rat("120000"), top), "1/24")
				c.part("at 744 h", dearer(rat("120000"), long), "1/124")
				c.beyond("120000", c.cost("4", 20, 720), top)
			},
		},
		{
			id: "E04b", what: "and 40 % below enterprise GPUs", inputs: "120,000; 20 A100 at 20 to 30 per hour; 10 A100 at 20,000 a month", guide: "−40 %", verdict: "UNDER: the number compared with is missing", by: "Adjust Tariff.Rate Commitment.Cover Spread",
			check: func(c *checker) {
				c.is("40 % off is 120,000 of", adjusted(rat("200000"), rule(StageTerm, Discount, "0.4")), "120000")
				c.is("of 200,000, per hour", perHour("200000", 14400), "125/9")
				low, high := c.cost("20", 20, 720), c.cost("30", 20, 720)
				c.is("20 A100 at 20", low, "288000")
				c.is("at 30", high, "432000")
				c.part("below", cheaper(rat("120000"), low), "7/12")
				c.part("to", cheaper(rat("120000"), high), "13/18")
				c.is("10 A100 by the month", monthly("20000", 10), "200000")
			},
		},
		{
			id: "E06", what: "H100 cluster moved to Chengdu", inputs: "bills in the west that an uplift of 10 or 15 % makes 80,000 dearer; a spread of 30 %; 35/h", guide: "saves 80,000 a month", verdict: "UNDER: no size", by: "Adjust BreakEven",
			check: func(c *checker) {
				for _, v := range [][2]string{{"0.15", "1600000/3"}, {"0.1", "800000"}} {
					west := rat(v[1])
					c.is("saved of "+west.FloatString(0), new(big.Rat).Sub(adjusted(west, rule(StageRegion, Uplift, v[0])), west), "80000")
					h, _ := BreakEven(west, rat("35"), 720)
					gpus := new(big.Rat).Quo(h, rat("720"))
					c.is("GPUs", gpus, map[string]string{"0.15": "4000/189", "0.1": "2000/63"}[v[0]])
				}
				bill := rat("800000/3")
				c.is("at a spread of 30 %, saved of 266667", new(big.Rat).Sub(bill, adjusted(bill, rule(StageTerm, Discount, "0.3"))), "80000")
			},
		},
		{
			id: "E07", what: "100 × T4, 3 days by the hour", inputs: "50,000 for 7,200 GPU-hours", guide: "50,000", verdict: "OK, but see E24", by: "Quote.PerHour",
			check: func(c *checker) { c.is("per hour", perHour("50000", 7200), "125/18") },
		},
		{
			id: "E08a", what: "A100 by the month", inputs: "15,000 to 20,000 against 720 h at 20 and at 30", guide: "60–70 % of hourly", verdict: "OFF: true at one corner only", by: "Tariff.Rate",
			check: func(c *checker) {
				low, high := c.cost("20", 1, 720), c.cost("30", 1, 720)
				c.part("15,000 of 14,400", new(big.Rat).Quo(rat("15000"), low), "25/24")
				c.part("20,000 of 21,600", new(big.Rat).Quo(rat("20000"), high), "25/27")
				corner := new(big.Rat).Quo(rat("15000"), high)
				c.part("15,000 of 21,600", corner, "25/36")
				c.inside("25/36", rat("0.6"), rat("0.7"))
				c.beyond("25/24", rat("0.6"), rat("0.7"))
				c.beyond("25/27", rat("0.6"), rat("0.7"))
			},
		},
		{
			id: "E08b", what: "H100 by the month", inputs: "25,000 to 30,000 against 720 h at 30 and at 40", guide: "60–70 % of hourly", verdict: "OFF: never reached", by: "Tariff.Rate Adjust BreakEven",
			check: func(c *checker) {
				low, high := c.cost("30", 1, 720), c.cost("40", 1, 720)
				c.part("best", new(big.Rat).Quo(rat("25000"), high), "125/144")
				c.part("worst", new(big.Rat).Quo(rat("30000"), low), "25/18")
				c.beyond("125/144", rat("0.6"), rat("0.7"))
				c.is("60 % of 30/h", adjusted(low, rule(StageTerm, Factor, "0.6")), "12960")
				c.is("70 % of 40/h", adjusted(high, rule(StageTerm, Factor, "0.7")), "20160")
				for _, v := range [][2]string{{"25000", "2500/3"}, {"30000", "1000"}} {
					h, text := pays(rat(v[0]), "30", 744)
					c.is(v[0]+" at 30/h pays for hours", h, v[1])
					c.says("breaks even:", text, "never")
				}
			},
		},
		{
			id: "E09", what: "100 × H100 by the year", inputs: "280,000 each; 12 months at 25,000 to 30,000; 8,760 h", guide: "280,000; 15 % below monthly", verdict: "RANGE", by: "Adjust Spread Commitment.Cover Quote.PerHour",
			check: func(c *checker) {
				month := rat("1400000/51")
				c.is("12 × this with 15 % off:", adjusted(new(big.Rat).Mul(month, rat("12")), rule(StageTerm, Discount, "0.15")), "280000")
				c.inside("1400000/51", rat("25000"), rat("30000"))
				c.part("saves", cheaper(rat("280000"), bought("25000", 1, TermMonth, "2027-04-01")), "1/15")
				c.part("to", cheaper(rat("280000"), bought("30000", 1, TermMonth, "2027-04-01")), "2/9")
				c.is("total", bought("280000", 100, TermYear, "2027-04-01"), "28000000")
				c.is("per hour", perHour("280000", 8760), "7000/219")
			},
		},
		{
			id: "E10", what: "A100 on spot", inputs: "12 against 20, 24 and 30 per hour", guide: "12; budget at 60 %", verdict: "OK with a base of 20 to 24", by: "Adjust Spread",
			check: func(c *checker) {
				c.is("20 less 40 %", adjusted(rat("20"), rule(StageTerm, Discount, "0.4")), "12")
				c.is("24 less 50 %", adjusted(rat("24"), rule(StageTerm, Discount, "0.5")), "12")
				c.part("against 30", cheaper(rat("12"), rat("30")), "0.6")
				c.beyond("0.6", rat("0.3"), rat("0.5"))
			},
		},
		{
			id: "E11", what: "10 × A100 dedicated, one month", inputs: "15,000 to 20,000 a month or 20 to 30 per hour, uplift 20 to 30 %; 350,000", guide: "350,000", verdict: "OFF +25 % and more over the highest reading", by: "Commitment.Cover Tariff.Rate Adjust Quote.PerHour",
			check: func(c *checker) {
				c.is("by the month from", adjusted(monthly("15000", 10), rule(StageTenancy, Uplift, "0.2")), "180000")
				c.is("to", adjusted(monthly("20000", 10), rule(StageTenancy, Uplift, "0.3")), "260000")
				c.is("by the hour from", c.cost("20", 10, 720, rule(StageTenancy, Uplift, "0.2")), "172800")
				most := c.cost("30", 10, 720, rule(StageTenancy, Uplift, "0.3"))
				c.is("to", most, "280800")
				c.is("350,000 is per hour", perHour("350000", 7200), "875/18")
				c.part("over monthly", dearer(rat("350000"), monthly("20000", 10)), "0.75")
				c.part("to", dearer(rat("350000"), monthly("15000", 10)), "4/3")
				c.part("over the highest reading", dearer(rat("350000"), most), "173/702")
			},
		},
		{
			id: "E12", what: "move to Chengdu", inputs: "uplifts of 10 and 15 %; a saving of 12 %", guide: "saves 12 %", verdict: "RANGE", by: "Adjust Spread",
			check: func(c *checker) {
				low := cheaper(adjusted(rat("30"), rule(StageRegion, Uplift, "0.1")), rat("30"))
				high := cheaper(adjusted(rat("30"), rule(StageRegion, Uplift, "0.15")), rat("30"))
				c.part("10 % dearer is cheaper by", low, "1/11")
				c.part("15 % by", high, "3/23")
				c.inside("0.12", low, high)
				c.part("12 % cheaper is dearer by", dearer(rat("30"), adjusted(rat("30"), rule(StageRegion, Discount, "0.12"))), "3/22")
			},
		},
		{
			id: "E13", what: "storage beside the GPUs", inputs: "30,000 and 60,000 GB of transfer a month at 1 and 0.5 per GB", guide: "saves 30,000 a month", verdict: "RANGE", by: "MeterPrice.Cost",
			check: func(c *checker) {
				for _, v := range [][3]string{{"30,000 GB at 1", "1", "30000"}, {"60,000 GB at 0.5", "0.5", "60000"}} {
					m := MeterPrice{Per: UnitGB, Price: rat(v[1])}
					c.is(v[0], m.Cost(rat(v[2]+"000000000")), "30000")
				}
			},
		},
		{
			id: "E14", what: "tier 4", inputs: "uplift 8 %; 1 h of outage in 8,760 h; targets 99.98 and 99.995 %", guide: "+8 %; less than 1 h a year", verdict: "RANGE, the availability does not support the hour", by: "Adjust SLA.Credit SLA.AllowedOutageMs",
			check: func(c *checker) {
				c.is("30 becomes", adjusted(rat("30"), rule(StageTier, Uplift, "0.08")), "32.4")
				c.inside("0.08", rat("0.05"), rat("0.1"))
				sla := SLA{Target: rat("0.9998"), Ratio: rat("2"), Trigger: AnyOutage}
				c.part("available", sla.Credit(hours(8760), []Span{hours(1)}, nil).Availability, "8759/8760")
				for _, v := range [][3]string{{"99.98 % allows hours", "0.9998", "1.752"}, {"99.995 %", "0.99995", "0.438"}} {
					sla.Target = rat(v[1])
					c.is(v[0], new(big.Rat).Quo(sla.AllowedOutageMs(hours(8760)), big.NewRat(hourMs, 1)), v[2])
				}
			},
		},
		{
			id: "E15", what: "2 × RTX 3090, 7 days", inputs: "3,000 for 336 GPU-hours; list 4 to 8", guide: "3,000", verdict: "OFF +11.6 %", by: "Quote.PerHour Tariff.Rate",
			check: func(c *checker) {
				low, high := c.cost("4", 2, 168), c.cost("8", 2, 168)
				c.is("per hour", perHour("3000", 336), "125/14")
				c.is("most", high, "2688")
				c.part("above it", dearer(rat("3000"), high), "13/112")
				c.beyond("3000", low, high)
			},
		},
		{
			id: "E16", what: "spot in the prototype stage", inputs: "20/h, discounts of 30 and 50 %", guide: "a further −30 %", verdict: "RANGE", by: "Adjust",
			check: func(c *checker) {
				c.is("at 30 %", adjusted(rat("20"), rule(StageTerm, Discount, "0.3")), "14")
				c.is("at 50 %", adjusted(rat("20"), rule(StageTerm, Discount, "0.5")), "10")
				c.inside("0.3", rat("0.3"), rat("0.5"))
			},
		},
		{
			id: "E17", what: "one RTX 3090 instead of an A100", inputs: "4 to 8 against 20 to 30 per hour", guide: "no number", verdict: "UNDER: the total depends on the hours", by: "Spread",
			check: func(c *checker) {
				c.part("per hour less by", cheaper(rat("8"), rat("20")), "0.6")
				c.part("to", cheaper(rat("4"), rat("30")), "13/15")
			},
		},
		{
			id: "E18", what: "8 × A4000 instead of A100", inputs: "4 to 8 against 20 to 30 per hour; the hours that 65 % of an A100-hour pays for", guide: "−35 %", verdict: "UNDER: needs the work that was measured", by: "Spread BreakEven Adjust",
			check: func(c *checker) {
				c.part("at equal hours less by", cheaper(rat("8"), rat("20")), "0.6")
				c.part("to", cheaper(rat("4"), rat("30")), "13/15")
				for _, v := range [][3]string{{"20", "8", "1.625"}, {"30", "4", "4.875"}} {
					h, _ := pays(adjusted(rat(v[0]), rule(StageTerm, Discount, "0.35")), v[1], 1000)
					c.is("−35 % of "+v[0]+" is hours at "+v[1]+":", h, v[2])
				}
			},
		},
		{
			id: "E19", what: "10 GPUs from hourly to weekly", inputs: "12,000 and 8,000 for 1,680 GPU-hours; 20 to 30 % off", guide: "12,000 → 8,000 as 20–30 %", verdict: "OFF", by: "Quote.PerHour Spread Adjust",
			check: func(c *checker) {
				c.part("less", cheaper(rat("12000"), rat("8000")), "1/3")
				c.is("from", perHour("12000", 1680), "50/7")
				c.is("to", perHour("8000", 1680), "100/21")
				low := adjusted(rat("12000"), rule(StageTerm, Discount, "0.3"))
				high := adjusted(rat("12000"), rule(StageTerm, Discount, "0.2"))
				c.is("30 % off", low, "8400")
				c.is("20 % off", high, "9600")
				c.beyond("8000", low, high)
			},
		},
		{
			id: "E20", what: "8 × RTX 4090 instead of an A100", inputs: "8 at 4 to 8 per hour; A100 at 20 to 30", guide: "no number", verdict: "UNDER", by: "Tariff.Rate BreakEven",
			check: func(c *checker) {
				low, high := c.cost("4", 8, 1), c.cost("8", 8, 1)
				c.is("an hour of the eight", low, "32")
				c.is("to", high, "64")
				few, _ := pays(low, "30", 1000)
				many, _ := pays(high, "20", 1000)
				c.is("A100-hours", few, "16/15")
				c.is("to", many, "3.2")
			},
		},
		{
			id: "E21", what: "32 × H100 by the month, 40 % below hourly", inputs: "960,000; 32 × 720 h at 30 and at 40; a contract that states 40 % of 28,800", guide: "960,000; −40 %", verdict: "OFF: the plan is dearer", by: "Commitment.Cover Tariff.Rate ParseContract",
			check: func(c *checker) {
				low, high := c.cost("30", 32, 720), c.cost("40", 32, 720)
				c.is("32 at 30,000", monthly("30000", 32), "960000")
				c.is("by the hour from", low, "691200")
				c.is("to", high, "921600")
				c.part("dearer by", dearer(rat("960000"), high), "1/24")
				c.part("to", dearer(rat("960000"), low), "7/18")
				c.is("−40 % would need per hour", new(big.Rat).Quo(perHour("30000", 720), rat("0.6")), "625/9")
				_, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\ncommitments:\n"+
					"  - {id: plan, model: H100, gpus: 32, term: month, per_gpu: 30000, stated: {discount: 40%, of_per_gpu: 28800}}\n"))
				if err == nil {
					c.t.Fatal("E21: the contract passes")
				}
				_, said, _ := strings.Cut(err.Error(), "states a ")
				c.says("such a contract is refused:", said, "discount of 40 %, and 30000 instead of 28800 is 4.1667 % dearer")
			},
		},
	}
}
