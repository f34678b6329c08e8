package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

func clauseRows() []row {
	return []row{
		{
			id: "C1", what: "minimum duration", inputs: "5 min with a minimum of 1 h per start, 30/h", by: "Tariff.Rate Cost",
			check: func(c *checker) {
				tariff := &Tariff{Profile: profileOf(c.t, "time: {minimum: 1h, minimum_per: start}\n"), Book: bookOf(rat("30"))}
				got := tariff.Rate(lease("", 1, "running 08:00:00", "released 08:05:00"))
				c.is("billed", costOf(got), "30")
				c.is("of it waste", Cost(got[0].MinimumMs, Price{PerGPUHour: got[0].Price}), "27.5")
			},
		},
		{
			id: "C2a", what: "billing stops at stop, or at release", inputs: "1 h running, 1 h stopped_keep, 1 h stopped_free, 30/h, shipped profiles", by: "Tariff.Rate Profiles",
			check: func(c *checker) {
				profiles := shipped(c.t)
				for _, v := range [][2]string{{"runpod", "30"}, {"alibaba-ecs", "60"}, {"baidu", "90"}} {
					tariff := &Tariff{Profile: profiles[v[0]], Book: bookOf(rat("30"))}
					c.is(v[0], costOf(tariff.Rate(lease("", 1, "running 08:00:00", "stopped_keep 09:00:00", "stopped_free 10:00:00", "released 11:00:00"))), v[1])
				}
			},
		},
		{id: "C2b"},
		{id: "C2c", what: "alerts: stopped and still billed, not released", waits: "a rule of alerts: what it says in money is C2b, nothing tells anybody yet"},
		{
			id: "C3", what: "a line can be traced to its instance", inputs: "a rental with evidence, a price in line 3 of its file and one rule", by: "Tariff.Rate Step.Text",
			check: func(c *checker) {
				book := mustParse(c.t, "currency: CNY\nprices:\n  - {model: m, per_gpu_hour: 30}\n")
				tariff := &Tariff{Profile: profileOf(c.t, ""), Book: book, Adjust: func(*Segment, int64) []Adjustment {
					return []Adjustment{{ID: "ten", Stage: StageVolume, Kind: Discount, Value: rat("0.2")}}
				}}
				r := lease("", 1, "running 08:00:00", "released 09:00:00")
				r.Instance, r.Segments[0].Evidence, r.Segments[0].Platform = "i-1", "sha256:ab", "p"
				got := tariff.Rate(r)[0]
				c.says("line:", strings.Join([]string{got.Segment.Platform, got.Instance, got.Segment.Evidence, fmt.Sprint("price of line ", got.Entry.Line), got.Steps[0].Text()}, ", "),
					"p, i-1, sha256:ab, price of line 3, volume ten: 30 x 0.8 = 24")
				again := mustParse(c.t, "# as before\ncurrency: CNY\nprices:\n  - {model: m, per_gpu_hour: \"30.00\"}\n")
				c.says("price version", fmt.Sprint(book.Hash == again.Hash && len(book.Hash) == 64), "true")
			},
		},
		{id: "C4"},
		{
			id: "C5", what: "SLA of 99.9 %, two for one", inputs: "720 h, 1 h outage, 35/h", by: "SLA.Credit SLA.AllowedOutageMs",
			check: func(c *checker) {
				sla := SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}
				outage, charges := []Span{{monthStart, monthStart + hourMs}}, c.charges("35", 1, 720)
				c.is("allowed minutes", new(big.Rat).Quo(sla.AllowedOutageMs(hours(720)), big.NewRat(60_000, 1)), "43.2")
				c.is("credit", sla.Credit(hours(720), outage, charges).Money, "-70")
				sla.Form = CreditHours
				c.is("or free hours", sla.Credit(hours(720), outage, charges).Hours, "2")
			},
		},
		{
			id: "C6a", what: "urgent scale-out within 2 h", inputs: "clauses: {scale_out: 2h}", by: "ParseContract",
			check: func(c *checker) { c.is("seconds", big.NewRat(int64(clausesOf(c).ScaleOut), 1000), "7200") },
		},
		{id: "C6b"},
		{id: "C6c", what: "where requests for capacity come from", waits: "events of requests for capacity and of their instances being ready, which ScaleOuts is given in C6b"},
		{id: "C7a"},
		{id: "C7b", what: "audit log of who read and changed what", waits: "a log of requests: it belongs to what answers them, not to pricing"},
		{
			id: "C8", what: "cap for 1 to 3 years", inputs: "32 H100, 720 h, market 36, cap 30", by: "Tariff.Rate Adjust",
			check: func(c *checker) {
				got := c.charges("36", 32, 720, rule(StageCap, Cap, "30"))
				c.is("avoided", new(big.Rat).Sub(got[0].ListCost, got[0].Cost), "138240")
			},
		},
		{
			id: "C9", what: "discount against list, as it works out", inputs: "10 GPUs, 720 h, 25/h, 20 % for the number and 5 % for the bundle", by: "Tariff.Rate Spread",
			check: func(c *checker) {
				got := c.charges("25", 10, 720, rule(StageVolume, Discount, "0.2"), rule(StageBundle, Discount, "0.05"))
				c.is("list", got[0].ListCost, "180000")
				c.is("paid", got[0].Cost, "136800")
				c.part("effective discount", cheaper(got[0].ListCost, got[0].Cost), "0.24")
			},
		},
		{id: "C10a"},
		{id: "C10b", what: "an alert before a certificate expires, and a filter of platforms by certificates", waits: "a rule of alerts and a filter of reports: what expires is C10a"},
		{id: "C11"},
		{id: "C12"},
		{
			id: "C13", what: "checkpoint every hour on spot", inputs: "clauses: {checkpoint: 1h}, 12/h, 1 GPU, half an interval is lost", by: "ParseContract Cost",
			check: func(c *checker) {
				c.is("expected loss per interruption", Cost(int64(clausesOf(c).Checkpoint)/2, Price{PerGPUHour: rat("12")}), "6")
			},
		},
	}
}

func clausesOf(c *checker) Clauses {
	contract, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\nclauses: {scale_out: 2h, checkpoint: 1h}\n"))
	if err != nil {
		c.t.Fatal(err)
	}
	return contract.Clauses
}

func modeRows() []row {
	return []row{
		{
			id: "M1", what: "hourly", inputs: "61 min running, then stopped_free for 59 min, 60/h, under three granularities", by: "Tariff.Rate",
			check: func(c *checker) {
				for _, v := range [][3]string{{"by the second", "1s", "61"}, {"by the minute", "1m", "61"}, {"by the hour", "1h", "120"}} {
					tariff := &Tariff{Profile: profileOf(c.t, "time: {granularity: "+v[1]+", rounding: up}\n"), Book: bookOf(rat("60"))}
					c.is(v[0], costOf(tariff.Rate(lease("", 1, "running 08:00:00", "stopped_free 09:01:00", "released 10:00:00"))), v[2])
				}
				tariff := &Tariff{Profile: shipped(c.t)["lambda"], Book: bookOf(rat("60"))}
				c.is("where only release ends it", costOf(tariff.Rate(lease("", 1, "running 08:00:00", "stopped_free 09:01:00", "released 10:00:00"))), "120")
			},
		},
		{
			id: "M2", what: "daily", inputs: "36 h from 20:00 on, both kinds of day", by: "Term.Cycles",
			check: func(c *checker) {
				from, to := ms("2026-04-01T20:00:00Z"), ms("2026-04-03T08:00:00Z")
				c.is("rolling days", big.NewRat(int64(len(TermDay.Cycles(from, to, RollingDay, time.UTC))), 1), "2")
				c.is("dates", big.NewRat(int64(len(TermDay.Cycles(from, to, CalendarDay, time.UTC))), 1), "3")
			},
		},
		{
			id: "M3a", what: "weekly, 20 to 30 % below hourly", inputs: "30/h, 168 h, factors 0.70 and 0.80", by: "Tariff.Rate Adjust Term.Cycles",
			check: func(c *checker) {
				c.is("hours of a cycle", big.NewRat(TermWeek.Cycles(monthStart, monthStart+1, "", time.UTC)[0].Ms(), hourMs), "168")
				c.is("at 0.70", c.cost("30", 1, 168, rule(StageTerm, Factor, "0.7")), "3528")
				c.is("at 0.80", c.cost("30", 1, 168, rule(StageTerm, Factor, "0.8")), "4032")
			},
		},
		{id: "M3b"},
		{
			id: "M4a", what: "monthly, 60 to 70 % of hourly", inputs: "30/h, 720 h, factors 0.60 and 0.70; anchor 31 January; half of April left", by: "Tariff.Rate Adjust Term.Cycles MonthRule.Part",
			check: func(c *checker) {
				c.is("at 0.60", c.cost("30", 1, 720, rule(StageTerm, Factor, "0.6")), "12960")
				c.is("at 0.70", c.cost("30", 1, 720, rule(StageTerm, Factor, "0.7")), "15120")
				var ends []string
				for _, s := range TermMonth.Cycles(ms("2026-01-31T00:00:00Z"), ms("2026-04-01T00:00:00Z"), "", time.UTC) {
					ends = append(ends, time.UnixMilli(s.ToMs).UTC().Format("01-02"))
				}
				c.says("cycles end", strings.Join(ends, " "), "02-28 03-31 04-30")
				c.is("15 of 30 days", MonthOfCalendar.Part(Span{ms("2026-04-16T00:00:00Z"), ms("2026-05-01T00:00:00Z")}, Span{}, time.UTC), "0.5")
			},
		},
		{id: "M4b"},
		{
			id: "M5", what: "quarterly", inputs: "4 GPUs at 60,000 a quarter, a year from 1 April 2026 on", by: "Commitment.Cover",
			check: func(c *checker) { c.is("four purchases", bought("60000", 4, TermQuarter, "2027-04-01"), "960000") },
		},
		{
			id: "M6a", what: "yearly, paid at once", inputs: "1 GPU at 280,000 a year of 8,760 h", by: "Commitment.Cover Quote.PerHour",
			check: func(c *checker) {
				c.is("one purchase", bought("280000", 1, TermYear, "2027-04-01"), "280000")
				c.is("per hour", perHour("280000", 8760), "7000/219")
			},
		},
		{id: "M6b"},
		{
			id: "M7", what: "spot, with a price that moves and an interruption", inputs: "12 and from 10:00 on 10 per hour; 08:10 to 11:30, taken back; the started hour is free or not", by: "Tariff.Rate",
			check: func(c *checker) {
				book := mustParse(c.t, "currency: CNY\nprices:\n  - {model: m, per_gpu_hour: 12, valid_to: 2026-03-02T10:00:00Z}\n  - {model: m, per_gpu_hour: 10, valid_from: 2026-03-02T10:00:00Z}\n")
				for _, v := range [][3]string{{"free", "hour", "101/3"}, {"not free", "none", "37"}} {
					tariff := &Tariff{Profile: profileOf(c.t, "spot: {refund: "+v[1]+"}\n"), Book: book}
					c.is(v[0], costOf(tariff.Rate(lease(PlanSpot, 1, "running 08:10:00", "interrupted 11:30:00", "released 11:30:01"))), v[2])
				}
			},
		},
		{
			id: "M8a", what: "dedicated, +20 to 30 %", inputs: "30/h, uplifts 20 and 30 %", by: "Adjust",
			check: func(c *checker) {
				c.is("at 20 %", adjusted(rat("30"), rule(StageTenancy, Uplift, "0.2")), "36")
				c.is("at 30 %", adjusted(rat("30"), rule(StageTenancy, Uplift, "0.3")), "39")
			},
		},
		{id: "M8b"},
		{
			id: "M9a", what: "one price for a job", inputs: "fee 50,000, 1,600 GPU-hours", by: "Quote.PerHour",
			check: func(c *checker) { c.is("per GPU-hour", perHour("50000", 1600), "31.25") },
		},
		{id: "M9b"},
		{
			id: "M10", what: "base by the month, burst by the hour", inputs: "as V12", by: "Commitment.Cover Tariff.Rate Curve",
			check: func(c *checker) { mix(c) },
		},
		{
			id: "M11", what: "a cap on the unit price", inputs: "40/h, cap 30, with 20 and with 30 % off before it", by: "Adjust",
			check: func(c *checker) {
				c.is("with 20 % off", adjusted(rat("40"), rule(StageCap, Cap, "30"), rule(StageNegotiated, Discount, "0.2")), "30")
				c.is("with 30 % off", adjusted(rat("40"), rule(StageCap, Cap, "30"), rule(StageNegotiated, Discount, "0.3")), "28")
			},
		},
		{
			id: "M12a", what: "from which use on a plan is right", inputs: "25,000 a month against 40/h; month of 720 h", by: "BreakEven",
			check: func(c *checker) {
				h, text := pays(rat("25000"), "40", 720)
				c.is("hours", h, "625")
				c.part("of the month", new(big.Rat).Quo(h, rat("720")), "125/144")
				c.says("breaks even:", text, "yes")
			},
		},
		{id: "M12b"},
		{
			id: "M13", what: "finer granularity, by workload, modes side by side", inputs: "1 s at 36/h; a rule for training of 20 %; 8 GPUs of which a plan covers 3, at 30/h for 1 h", by: "Tariff.Rate Contract.Adjustments Commitment.Cover",
			check: func(c *checker) { finer(c) },
		},
	}
}

func finer(c *checker) {
	tariff := &Tariff{Profile: profileOf(c.t, "time: {granularity: 1s, rounding: up}\n"), Book: bookOf(rat("36"))}
	c.is("a second", costOf(tariff.Rate(lease("", 1, "running 08:00:00", "released 08:00:01"))), "0.01")
	contract, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\nadjustments:\n  - {id: train, stage: negotiated, discount: 20%, workload: [training]}\n"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range [][2]string{{"training", "24"}, {"inference", "30"}} {
		c.is("an hour of "+v[0], adjusted(rat("30"), contract.Adjustments(&Segment{Platform: "p", Workload: v[0]}, monthStart, Active{})...), v[1])
	}
	plan := &Commitment{Gpus: 3, Span: hours(720), Term: TermMonth, Price: rat("21600")}
	covered := plan.Cover([]*Rental{{Instance: "i", Segments: []Segment{{Span: hours(1), State: "running", Model: "m", Gpus: 8}}}}, running, time.UTC)
	byHour := &Tariff{Profile: profileOf(c.t, ""), Book: bookOf(rat("30"))}
	c.is("the 5 by the hour", costOf(byHour.Rate(covered.Rest[0])), "150")
	used := new(big.Rat)
	for _, u := range covered.Uses {
		if u.Instance != "" {
			used.Add(used, u.Cost)
		}
	}
	c.is("the 3 of the plan in that hour", used, "90")
}
