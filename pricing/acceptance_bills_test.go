package pricing

import (
	"fmt"
	"math/big"
	"strings"
)

// What follows bills what the rows are about as a whole: by a price list, the rules of a
// platform and a contract, in the way in which every report does.

// deal is what is paid by. The zero values are exact time and no contract.
type deal struct {
	profile  string
	shipped  *Profile // instead
	contract string   // what follows its head
	prices   string   // entries of the price list
	book     *Book    // instead
}

func (c *checker) terms(d deal) *Terms {
	t := &Terms{Book: d.book, Profiles: []*Profile{d.shipped}}
	if d.book == nil && d.prices != "" {
		t.Book = mustParse(c.t, "currency: CNY\nprices: ["+d.prices+"]\n")
	}
	if d.shipped == nil {
		t.Profiles[0] = profileOf(c.t, d.profile)
	}
	if d.contract != "" {
		t.Contracts = []*Contract{contractOf(c.t, d.contract)}
	}
	return t
}

func (c *checker) bill(d deal, rentals ...*Rental) []Line {
	return c.terms(d).Rate(&Usage{Rentals: rentals})
}

// on moves a rental to a platform, with a project.
func on(platform string, r *Rental) *Rental {
	for i := range r.Segments {
		r.Segments[i].Platform, r.Segments[i].Project = platform, "a"
	}
	return r
}

// held is an instance that runs for so many hours of April, from one on.
func held(instance string, gpus, from, to int64, change func(s *Segment)) *Rental {
	s := Segment{Span: Span{monthStart + from*hourMs, monthStart + to*hourMs}, State: "running", Project: "a", Platform: "p", Model: "m", Gpus: gpus}
	if change != nil {
		change(&s)
	}
	return &Rental{Instance: instance, Segments: []Segment{s}}
}

func planned(plan string) func(s *Segment) { return func(s *Segment) { s.Plan = plan } }

func anyLine(*Line) bool { return true }

func of(category Category) func(l *Line) bool {
	return func(l *Line) bool { return l.Category == category }
}

func onHours(l *Line) bool { return l.Category == CategoryUsage && l.Commitment == "" }

func paidIn(lines []Line, which func(l *Line) bool) *big.Rat {
	return total(lines, which, func(l *Line) *big.Rat { return l.Billed })
}

func worthOf(lines []Line, which func(l *Line) bool) *big.Rat {
	return total(lines, which, func(l *Line) *big.Rat { return l.Effective })
}

func total(lines []Line, which func(l *Line) bool, amount func(l *Line) *big.Rat) *big.Rat {
	sum := new(big.Rat)
	for i := range lines {
		if x := amount(&lines[i]); which(&lines[i]) && x != nil {
			sum.Add(sum, x)
		}
	}
	return sum
}

// wholeBills compute rows once more, as bills.
func wholeBills() map[string]func(c *checker) {
	early := func() *Rental { return on("p", lease("", 1, "running 08:45:30", "released 09:30:00")) }
	const hourly = "{model: m, per_gpu_hour: 30}"
	mixed := func(c *checker) {
		d := deal{book: bookOf(rat("125/12")), contract: "commitments: [{id: base, model: m, project: a, gpus: 20, term: month, per_gpu: 3125, from: 2026-04-01, to: 2026-05-01}]\n"}
		lines := c.bill(d, held("base", 20, 0, 720, nil), held("burst", 80, 100, 172, nil))
		c.is("billed: base", paidIn(lines, of(CategoryPurchase)), "62500")
		c.is("burst", paidIn(lines, onHours), "60000")
		c.is("together", paidIn(lines, anyLine), "122500")
		c.is("worth", worthOf(lines, anyLine), "122500")
	}
	job := func(c *checker) {
		lines := c.bill(deal{prices: hourly, contract: "quotes: [{id: job, project: a, fee: 50000}]\n"}, held("i", 8, 0, 200, nil))
		c.is("billed", paidIn(lines, anyLine), "50000")
		c.is("worth of a GPU-hour", new(big.Rat).Quo(worthOf(lines, anyLine), rat("1600")), "31.25")
	}
	return map[string]func(c *checker){
		"V01": func(c *checker) {
			lines := c.bill(deal{profile: "settle: hour\namount: {rounding: half_up, decimals: 2, per: line}\n", prices: "{model: m, per_gpu_hour: 35}"}, early())
			c.is("bill", paidIn(lines, anyLine), "25.96")
		},
		"V02": func(c *checker) {
			c.is("bill", paidIn(c.bill(deal{profile: "time: {granularity: 1h, rounding: up}\n", prices: "{model: m, per_gpu_hour: 35}"}, early()), anyLine), "35")
		},
		"V04": func(c *checker) {
			for _, v := range [][2]string{{"free_below: \"0.005\"", "0"}, {"minimum: \"0.01\"", "0.01"}} {
				d := deal{profile: "amount: {rounding: half_up, decimals: 2, " + v[0] + "}\n", prices: "{model: m, per_gpu_hour: 2}"}
				c.is("bill", paidIn(c.bill(d, on("p", lease("", 1, "running 08:00:00", "released 08:00:01"))), anyLine), v[1])
			}
		},
		"V06": func(c *checker) {
			d := deal{profile: "plan: {month: calendar, refund: prorated}\n", prices: "{model: m, plan: month, per_gpu: 1750}"}
			r := held("i", 1, 0, 1, planned("month"))
			r.Segments[0].Span = Span{ms("2026-06-09T00:00:00Z"), ms("2026-06-19T00:00:00Z")}
			c.is("refunded of a month from 9 June that ends on 19 June", paidIn(c.bill(d, r), of(CategoryCredit)), "-35700/31")
		},
		"V11": func(c *checker) {
			terms := c.terms(deal{prices: "{model: m, per_gpu_hour: 35}", contract: "sla: {target: 99.9%, credit_ratio: 2, trigger: any}\n"})
			lines := terms.Rate(&Usage{Rentals: []*Rental{held("i", 1, 0, 720, nil)}, Outages: []Outage{{Span: Span{monthStart + 100*hourMs, monthStart + 101*hourMs}, Platform: "p"}}})
			c.is("credited", paidIn(lines, of(CategoryCredit)), "-70")
			c.is("bill", paidIn(lines, anyLine), "25130")
		},
		"V12": mixed, "M10": mixed, "V15": job, "M9a": job,
		"C1": func(c *checker) {
			l := c.bill(deal{profile: "time: {minimum: 1h, minimum_per: start}\n", prices: hourly}, on("p", lease("", 1, "running 08:00:00", "released 08:05:00")))[0]
			c.is("bill", l.Billed, "30")
			c.is("beyond the time", new(big.Rat).Mul(l.Billed, big.NewRat(l.MinimumMs, l.BillableMs)), "27.5")
		},
		"C2a": func(c *checker) {
			for _, v := range [][2]string{{"runpod", "30"}, {"alibaba-ecs", "60"}, {"baidu", "90"}} {
				p := shipped(c.t)[v[0]]
				c.is("bill of "+v[0], paidIn(c.bill(deal{shipped: p, prices: hourly}, stopped(p)), anyLine), v[1])
			}
		},
		"C8": func(c *checker) {
			lines := c.bill(deal{prices: "{model: m, per_gpu_hour: 36}", contract: "adjustments: [{id: ceiling, stage: cap, cap: 30}]\n"}, held("i", 32, 0, 720, nil))
			c.is("list less bill", new(big.Rat).Sub(total(lines, anyLine, func(l *Line) *big.Rat { return l.ListCost }), paidIn(lines, anyLine)), "138240")
		},
		"F7": func(c *checker) {
			for _, v := range []struct {
				gpus int64
				want string
			}{{10, "160000"}, {9, "180000"}} {
				c.is(fmt.Sprint("bill of ", v.gpus), bulkBill(c, v.gpus, "", nil), v.want)
			}
		},
		"F8": func(c *checker) {
			storage := []Reading{{Span: hours(720), Meter: "storage_byte_seconds", Quantity: rat("1"), Platform: "p"}}
			c.is("bill, multiplied", bulkBill(c, 10, "", storage), "152000")
			c.is("additive", bulkBill(c, 10, "additive: true, ", storage), "150000")
		},
		"F11": func(c *checker) {
			for _, v := range [][4]string{{"30", "36", "", "66"}, {"40", "48", "", "88"}, {"30", "36", "adjustments: [{id: ceiling, stage: cap, cap: 30}]\n", "60"}} {
				d := deal{contract: v[2], prices: fmt.Sprintf("{model: m, per_gpu_hour: %s, valid_to: 2026-04-01T01:00:00Z}, {model: m, per_gpu_hour: %s, valid_from: 2026-04-01T01:00:00Z}", v[0], v[1])}
				c.is("bill", paidIn(c.bill(d, held("i", 1, 0, 2, nil)), anyLine), v[3])
			}
		},
		"M1": func(c *checker) {
			stop := func(p string) *Rental {
				return on(p, lease("", 1, "running 08:00:00", "stopped_free 09:01:00", "released 10:00:00"))
			}
			for _, v := range [][2]string{{"1s", "61"}, {"1m", "61"}, {"1h", "120"}} {
				d := deal{profile: "time: {granularity: " + v[0] + ", rounding: up}\n", prices: "{model: m, per_gpu_hour: 60}"}
				c.is("bill by "+v[0], paidIn(c.bill(d, stop("p")), anyLine), v[1])
			}
			lambda := shipped(c.t)["lambda"]
			c.is("of lambda", paidIn(c.bill(deal{shipped: lambda, prices: "{model: m, per_gpu_hour: 60}"}, stop(lambda.Platform)), anyLine), "120")
		},
		"M2": func(c *checker) {
			for _, v := range [][2]string{{"rolling", "1000"}, {"calendar", "1500"}} {
				d := deal{profile: "plan: {day: " + v[0] + "}\n", prices: "{model: m, plan: day, per_gpu: 500}"}
				c.is("bill at 500 a day, "+v[0], paidIn(c.bill(d, held("i", 1, 20, 56, planned("day"))), anyLine), v[1])
			}
		},
		"M3a": func(c *checker) {
			for _, v := range [][2]string{{"0.7", "3528"}, {"0.8", "4032"}} {
				c.is("bill of a week at "+v[0], factored(c, "week", "5040", v[0], 168), v[1])
			}
		},
		"M4a": func(c *checker) {
			for _, v := range [][2]string{{"0.6", "12960"}, {"0.7", "15120"}} {
				c.is("bill of a month at "+v[0], factored(c, "month", "21600", v[0], 720), v[1])
			}
		},
		"M5": func(c *checker) {
			c.is("bill of 2026", paidIn(c.bill(deal{contract: "commitments: [{id: q, model: m, gpus: 4, term: quarter, per_gpu: 60000}]\n"}), anyLine), "960000")
		},
		"M6a": func(c *checker) {
			r := held("i", 1, 0, 1, nil)
			r.Segments[0].Span = Span{ms("2026-01-01T00:00:00Z"), ms("2027-01-01T00:00:00Z")}
			lines := c.bill(deal{contract: "commitments: [{id: y, model: m, gpus: 1, term: year, per_gpu: 280000}]\n"}, r)
			c.is("bill of 2026", paidIn(lines, anyLine), "280000")
			c.is("worth of an hour", new(big.Rat).Quo(worthOf(lines, of(CategoryUsage)), rat("8760")), "7000/219")
		},
		"M7": func(c *checker) {
			for _, v := range [][2]string{{"hour", "101/3"}, {"none", "37"}} {
				d := deal{profile: "spot: {refund: " + v[0] + "}\n", prices: "{model: m, per_gpu_hour: 12, valid_to: 2026-03-02T10:00:00Z}, {model: m, per_gpu_hour: 10, valid_from: 2026-03-02T10:00:00Z}"}
				c.is("bill, refund "+v[0], paidIn(c.bill(d, on("p", lease(PlanSpot, 1, "running 08:10:00", "interrupted 11:30:00", "released 11:30:01"))), anyLine), v[1])
			}
		},
		"M8a": func(c *checker) {
			for _, v := range [][2]string{{"20%", "36"}, {"30%", "39"}} {
				d := deal{prices: hourly, contract: "adjustments: [{id: own, stage: tenancy, uplift: " + v[0] + ", tenancy: [dedicated]}]\n"}
				lines := c.bill(d, held("i", 1, 0, 1, func(s *Segment) { s.Tenancy = "dedicated" }), held("j", 1, 0, 1, nil))
				c.is("bill of a dedicated hour", paidIn(lines, func(l *Line) bool { return l.Instance == "i" }), v[1])
				c.is("of a shared one", paidIn(lines, func(l *Line) bool { return l.Instance == "j" }), "30")
			}
		},
		"M11": func(c *checker) {
			for _, v := range [][2]string{{"20%", "30"}, {"30%", "28"}} {
				d := deal{prices: "{model: m, per_gpu_hour: 40}", contract: "adjustments: [{id: ceiling, stage: cap, cap: 30}, {id: ours, stage: negotiated, discount: " + v[0] + "}]\n"}
				c.is("bill with "+v[0], paidIn(c.bill(d, held("i", 1, 0, 1, nil)), anyLine), v[1])
			}
		},
		"M12a": func(c *checker) {
			d := deal{prices: "{model: m, per_gpu_hour: 40}", contract: "commitments: [{id: base, model: m, gpus: 1, term: month, per_gpu: 25000, from: 2026-04-01, to: 2026-05-01}]\n"}
			for _, v := range [][2]string{{"624", "too_dear_at_this_use"}, {"625", "keep"}} {
				n := rat(v[0]).Num().Int64()
				checks := CheckPlans(c.bill(d, held("i", 1, 0, n, nil)), hours(720), c.terms(d).Book)
				c.is("break-even of the bill", checks[0].BreakEven, "625")
				c.says("verdict at "+v[0]+" h", string(checks[0].Verdict), v[1])
			}
		},
		"M13": func(c *checker) {
			d := deal{prices: hourly, contract: "commitments: [{id: base, model: m, gpus: 3, term: month, per_gpu: 21600, from: 2026-04-01, to: 2026-05-01}]\nadjustments: [{id: train, stage: negotiated, discount: 20%, workload: [training]}]\n"}
			lines := c.bill(d, held("i", 8, 0, 1, nil))
			c.is("bill of the 5 by the hour", paidIn(lines, onHours), "150")
			c.is("worth of the 3 of the plan", worthOf(lines, func(l *Line) bool { return l.Status == StatusUsed }), "90")
			lines = c.bill(d, held("i", 8, 0, 1, func(s *Segment) { s.Workload = "training" }))
			c.is("bill of the 5 for training", paidIn(lines, onHours), "120")
		},
	}
}

// stopped runs for an hour and is stopped in two ways for an hour each.
func stopped(p *Profile) *Rental {
	return on(p.Platform, lease("", 1, "running 08:00:00", "stopped_keep 09:00:00", "stopped_free 10:00:00", "released 11:00:00"))
}

// bulkBill is a month of instances with one GPU each under the contract of F7 and F8.
func bulkBill(c *checker, gpus int64, additive string, readings []Reading) *big.Rat {
	terms := c.terms(deal{prices: "{model: m, plan: month, per_gpu: 20000}", contract: "adjustments:\n  - {id: ten, stage: volume, discount: 20%, min_gpus: 10, plan: [month]}\n" +
		"  - {id: storage, stage: bundle, discount: 5%, " + additive + "with: [storage_byte_seconds]}\n"})
	u := Usage{Readings: readings}
	for i := range gpus {
		u.Rentals = append(u.Rentals, held(fmt.Sprint("i", i), 1, 0, 720, planned("month")))
	}
	return paidIn(terms.Rate(&u), anyLine)
}

// factored is an instance on a plan of the price list with a factor of the contract.
func factored(c *checker, plan, price, factor string, n int64) *big.Rat {
	d := deal{prices: "{model: m, plan: " + plan + ", per_gpu: " + price + "}", contract: "adjustments: [{id: term, stage: term, factor: " + factor + ", plan: [" + plan + "]}]\n"}
	return paidIn(c.bill(d, held("i", 1, 0, n, planned(plan))), anyLine)
}

// billRows are rows that only a bill as a whole can compute, and checks of clauses.
func billRows() []row {
	return []row{
		{
			id: "F12", what: "subsidy for green power in the west", inputs: "an amount of our own, for the guide gives none: 12,000 from April to June (91 days); 10 h at 30", by: "Terms.Rate",
			check: func(c *checker) {
				d := deal{prices: "{model: m, per_gpu_hour: 30}", contract: "credits: [{id: green, project: a, region: west, amount: 12000, from: 2026-04-01, to: 2026-07-01, reason: green power}]\n"}
				terms := c.terms(d)
				lines := terms.Rate(&Usage{Rentals: []*Rental{held("i", 1, 0, 10, nil)}, Cuts: []int64{ms("2026-05-01T00:00:00Z")}})
				c.is("the price stays", lines[0].Price, "30")
				c.is("usage", paidIn(lines, of(CategoryUsage)), "300")
				c.is("credits", paidIn(lines, of(CategoryCredit)), "-12000")
				c.is("of April", paidIn(lines, func(l *Line) bool { return l.Category == CategoryCredit && l.FromMs == monthStart }), "-360000/91")
			},
		},
		{
			id: "C2b", what: "what an instance costs in each state until it is released", inputs: "C2a on the profile that bills all of them", by: "Terms.Rate",
			check: func(c *checker) {
				p := shipped(c.t)["baidu"]
				lines := c.bill(deal{shipped: p, prices: "{model: m, per_gpu_hour: 30}"}, stopped(p))
				for _, state := range []string{"running", "stopped_keep", "stopped_free"} {
					c.is(state, paidIn(lines, func(l *Line) bool { return l.Segment.State == state }), "30")
				}
			},
		},
		{
			id: "C4", what: "public price, clear unit, visible usage and cost", inputs: "4 lines, one without a price, two without evidence; 1 of the profile's rules unverified", by: "Transparent Terms.Rate",
			check: func(c *checker) {
				d := deal{profile: "sources: [https://example.com/price]\nunverified: [time.minimum]\n", prices: "{model: m, per_gpu_hour: 30}"}
				proven := func(s *Segment) { s.Evidence = "ab" }
				lines := c.bill(d, held("i", 1, 0, 1, proven), held("j", 1, 0, 1, proven), held("k", 1, 0, 1, nil), held("l", 1, 0, 1, func(s *Segment) { s.Model = "x" }))
				t := Transparent(lines, "p", c.terms(d).Profiles[0])
				c.says("parts:", strings.Join(t.ScoreTexts[:4], ", "), "priced 0.75, with a unit 0.75, with a source 0.75, with evidence 0.5")
				c.is("rules not confirmed", big.NewRat(int64(t.Rules-t.Confirmed), 1), "1")
			},
		},
		{
			id: "C6b", what: "late scale-outs, p50 and p95", inputs: "C6a; requests that are all ready after 30 min, 2 h and 3 h", by: "ScaleOuts",
			check: func(c *checker) {
				var requests []CapacityRequest
				for _, last := range []int64{hourMs / 2, 2 * hourMs, 3 * hourMs} {
					requests = append(requests, CapacityRequest{Platform: "p", RequestedMs: monthStart, ReadyMs: []int64{monthStart + 1000, monthStart + last}})
				}
				got := ScaleOuts([]*Contract{contractOf(c.t, "clauses: {scale_out: 2h}\n")}, requests, monthStart+dayMs)[0]
				c.is("late", big.NewRat(int64(got.Late), 1), "1")
				c.is("p50 in seconds", big.NewRat(got.P50Ms, 1000), "7200")
				c.is("p95", big.NewRat(got.P95Ms, 1000), "10800")
			},
		},
		{
			id: "C7a", what: "detailed usage", inputs: "5 min with a minimum of 1 h, 30/h", by: "Terms.Rate Line.Arithmetic",
			check: func(c *checker) {
				l := c.bill(deal{profile: "time: {minimum: 1h, minimum_per: start}\n", prices: "{model: m, per_gpu_hour: 30}"}, on("p", lease("", 1, "running 08:00:00", "released 08:05:00")))[0]
				steps := l.Arithmetic()
				c.says("time:", steps[0], "metered 300 s + 3300 s up to the minimum = billable 3600 s")
				c.says("amount:", steps[len(steps)-1], "cost: 3600 s / 3600 x 1 x 30 = 30")
			},
		},
		{
			id: "C10a", what: "MLPS level 3, ISO 27001, Data Security Law: what expires", inputs: "three dates; 1 April 2026 and 90 days", by: "Expiring Checklist",
			check: func(c *checker) {
				contracts := []*Contract{contractOf(c.t, "clauses: {certificates: {MLPS 3: 2026-06-30, ISO 27001: 2027-03-01, Data Security Law: 2026-03-31}}\n")}
				var texts []string
				for _, e := range Expiring(contracts, monthStart, 90*dayMs) {
					texts = append(texts, e.Certificate+map[bool]string{true: " has expired"}[e.Expired])
				}
				c.says("expire:", strings.Join(texts, ", "), "Data Security Law has expired, MLPS 3")
				c.says("held:", heldItems(Checklist(contracts, monthStart, "MLPS 3", "ISO 27001", "Data Security Law")), "MLPS 3, ISO 27001")
			},
		},
		{
			id: "C11", what: "encryption in transit and at rest", inputs: "clauses: {encryption: [tls, at rest]}", by: "Checklist",
			check: func(c *checker) {
				c.says("held:", heldItems(Checklist([]*Contract{contractOf(c.t, "clauses: {encryption: [tls, at rest]}\n")}, monthStart)), "encryption in transit, encryption at rest")
			},
		},
		{
			id: "C12", what: "no training on customers' data", inputs: "clauses: {no_training: true}, and a contract that does not say", by: "Checklist",
			check: func(c *checker) {
				c.says("held:", heldItems(Checklist([]*Contract{contractOf(c.t, "clauses: {no_training: true}\n")}, monthStart)), "no_training")
				c.says("not said:", heldItems(Checklist([]*Contract{contractOf(c.t, "clauses: {}\n")}, monthStart)), "nothing")
			},
		},
		{
			id: "M3b", what: "cancelling within the week", inputs: "4,032 a week, 30/h, released after 2 days, three rules of refund", by: "Terms.Rate",
			check: func(c *checker) { refunds(c, "week", "4032", 48, "4032", "1152", "1440") },
		},
		{
			id: "M4b", what: "refund of a month that ends early", inputs: "20,000 for April, 30/h, released after 15 days, three rules of refund", by: "Terms.Rate",
			check: func(c *checker) { refunds(c, "month", "20000", 360, "20000", "10000", "10800") },
		},
		{
			id: "M6b", what: "yearly, paid at once, in part or by the month", inputs: "120,000 for 2026; 40 % down", by: "Terms.Rate",
			check: func(c *checker) {
				for _, v := range [][3]string{{"upfront", "120000", "120000"}, {"partial, down_payment: 40%", "54000", "60000"}, {"monthly", "10000", "20000"}} {
					d := deal{contract: "commitments: [{id: y, model: m, gpus: 1, term: year, per_gpu: 120000, payment: " + v[0] + "}]\n"}
					whole := c.bill(d)
					start := ms("2026-01-01T00:00:00Z")
					what := strings.Split(v[0], ",")[0]
					c.is(what+": on 1 January", paidIn(whole, func(l *Line) bool { return l.FromMs == start }), v[1])
					c.is("by March", paidIn(c.terms(d).Rate(&Usage{NowMs: ms("2026-03-01T00:00:00Z")}), anyLine), v[2])
					c.is("in all", paidIn(whole, anyLine), "120000")
					c.is("worth", worthOf(whole, anyLine), "120000")
				}
			},
		},
		{
			id: "M8b", what: "dedicated cluster: its id and the least number of nodes", inputs: "4 nodes of 8 GPUs for April at 20,000 a GPU, of which 2 run, and 1 shared GPU at 30/h for 1 h", by: "Terms.Rate",
			check: func(c *checker) {
				d := deal{prices: "{model: m, per_gpu_hour: 30}", contract: "commitments: [{id: cluster, model: m, tenancy: dedicated, gpus: 32, term: month, per_gpu: 20000, from: 2026-04-01, to: 2026-05-01}]\n"}
				node := func(s *Segment) { s.Tenancy, s.Labels = "dedicated", `{"cluster":"c-1"}` }
				lines := c.bill(d, held("n1", 8, 0, 720, node), held("n2", 8, 0, 720, node), held("other", 1, 0, 1, nil))
				c.is("bill of the nodes", paidIn(lines, of(CategoryPurchase)), "640000")
				c.is("used", worthOf(lines, func(l *Line) bool { return l.Status == StatusUsed && l.Segment.Labels == `{"cluster":"c-1"}` }), "320000")
				c.is("not used", worthOf(lines, func(l *Line) bool { return l.Status == StatusUnused }), "320000")
				c.is("the shared one", paidIn(lines, onHours), "30")
			},
		},
		{
			id: "M9b", what: "what goes beyond the scope of a job", inputs: "50,000 for 1,600 GPU-hours; 1,700 used; 35/h, and 28/h where the contract says so", by: "Terms.Rate",
			check: func(c *checker) {
				const quote = "quotes: [{id: job, project: a, fee: 50000, gpu_hours: 1600}]\n"
				for _, v := range [][3]string{{"at the list price", "", "3500"}, {"at the contract's", "adjustments: [{id: overage, stage: negotiated, fixed: 28, project: [a]}]\n", "2800"}} {
					lines := c.bill(deal{prices: "{model: m, per_gpu_hour: 35}", contract: quote + v[1]}, held("i", 10, 0, 170, nil))
					c.is("100 beyond, "+v[0], paidIn(lines, onHours), v[2])
					c.is("the job", paidIn(lines, of(CategoryPurchase)), "50000")
				}
			},
		},
		{
			id: "M12b", what: "which mode fits a workload", inputs: "2 h a day, 4 days in a row, all of 30 days; 30/h, 500 a day, 12,960 a month; a job of 1,600 GPU-hours for 40,000", by: "MeasureDemand Modes CheckPlans Terms.Rate",
			check: func(c *checker) {
				prices := &PoolPrices{OnDemand: rat("30"), Plans: []PlanPrice{{Term: TermDay, PerGPU: rat("500"), Ms: dayMs}, {Term: TermMonth, PerGPU: rat("12960"), Ms: 720 * hourMs}}}
				var sporadic []*Rental
				for day := range int64(30) {
					sporadic = append(sporadic, held(fmt.Sprint("i", day), 1, 24*day+8, 24*day+10, nil))
				}
				for _, v := range []struct {
					what    string
					rentals []*Rental
					best    string
					cost    string
				}{
					{"unstable:", sporadic, "on_demand", "1800"},
					{"phased:", []*Rental{held("i", 1, 0, 96, nil)}, "day", "2000"},
					{"steady:", []*Rental{held("i", 1, 0, 720, nil)}, "month", "12960"},
				} {
					terms := c.terms(deal{})
					demand := MeasureDemand(v.rentals, hours(720), terms.Wants, PoolOf)
					advice := Modes(&demand[0], prices)
					c.says(v.what, string(advice.Best), v.best)
					c.is("at", advice.cost(advice.Best), v.cost)
				}
				d := deal{prices: "{model: m, per_gpu_hour: 30}", contract: "quotes: [{id: job, project: a, fee: 40000}]\n"}
				check := CheckPlans(c.bill(d, held("i", 8, 0, 200, nil)), hours(720), c.terms(d).Book)[0]
				c.says("bounded: the quote", string(check.Verdict), "keep")
				c.is("saves", check.Savings, "8000")
			},
		},
		{
			id: "E21b", what: "a model of 10 billion parameters needs 16 to 32 H100", inputs: "720 h at 30 to 40; how many are needed is an input", guide: "16–32", verdict: "–", by: "Terms.Rate",
			check: func(c *checker) {
				for _, v := range []struct {
					gpus        int64
					price, want string
				}{{16, "30", "345600"}, {32, "40", "921600"}} {
					c.is(fmt.Sprint(v.gpus, " at ", v.price), paidIn(c.bill(deal{prices: "{model: m, per_gpu_hour: " + v.price + "}"}, held("i", v.gpus, 0, 720, nil)), anyLine), v.want)
				}
			},
		},
	}
}

func heldItems(list []ChecklistItem) string {
	var names []string
	for _, item := range list {
		if item.Held {
			names = append(names, item.Item)
		}
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// refunds is what is paid in all for a plan that ends after so many hours.
func refunds(c *checker, plan, price string, n int64, none, prorated, hourly string) {
	for _, v := range [][2]string{{"none", none}, {"prorated", prorated}, {"hourly", hourly}} {
		d := deal{profile: "plan: {month: calendar, refund: " + v[0] + "}\n", prices: "{model: m, per_gpu_hour: 30}, {model: m, plan: " + plan + ", per_gpu: " + price + "}"}
		r := held("i", 1, 0, n, planned(plan))
		lines := c.terms(d).Rate(&Usage{Rentals: []*Rental{r}, NowMs: ms("2026-06-01T00:00:00Z")})
		c.is("paid in all, refund "+v[0], paidIn(lines, anyLine), v[1])
		c.is("worth", worthOf(lines, anyLine), v[1])
	}
}
