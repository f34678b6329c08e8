package pricing

import (
	"math/big"
	"slices"
	"strings"
	"testing"
)

func inApril(clock string) int64 { return ms("2026-04-01T" + clock + ":00Z") }

// rate returns the lines of instances of platform p on 1 April 2026, with these rules of
// the platform and the contract, at 10 an hour.
func rate(t *testing.T, profile, contract string, u Usage) []Line {
	t.Helper()
	terms := &Terms{
		Book:      mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}, {model: n, per_gpu_hour: 5, valid_to: 2026-04-01T10:00:00Z}, {model: n, per_gpu_hour: 20, valid_from: 2026-04-01T10:00:00Z}]"),
		Profiles:  []*Profile{profileOf(t, profile)},
		Contracts: []*Contract{contractOf(t, contract)},
	}
	return terms.Rate(&u)
}

func during(instance, project, from, to string, change func(s *Segment)) *Rental {
	s := Segment{Span: Span{inApril(from), inApril(to)}, State: "running", Project: project, Platform: "p", Model: "m", Gpus: 1}
	if change != nil {
		change(&s)
	}
	return &Rental{Instance: instance, Segments: []Segment{s}}
}

func wantLines(t *testing.T, lines []Line, want ...string) {
	t.Helper()
	if got := linesText(lines); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("%swant\n%s", got, strings.Join(want, "\n"))
	}
}

// A reading of a moment, such as a number of bytes that were sent, has all of its
// quantity.
func TestReadingOfAMoment(t *testing.T) {
	const meters = "meters: [{meter: storage_byte_seconds, per: GB_hour, price: 1}, {meter: egress_bytes, per: GB, price: 1}]"
	moment := Span{inApril("09:00"), inApril("09:00")}
	wantLines(t, rate(t, "", meters, Usage{
		Rentals: []*Rental{during("i", "a", "08:00", "10:00", nil)},
		Readings: []Reading{
			{Span: moment, Meter: "egress_bytes", Quantity: rat("2000000000"), Platform: "p"},
			{Span: moment, Meter: "storage_byte_seconds", Quantity: rat("3600000000000"), Platform: "p", Instance: "i"},
		},
	}),
		"usage gpu i 01T08:00-01T10:00 1x list 20 billed 20 effective 20 ",
		"usage egress_bytes  01T09:00-01T09:00 0x list 2 billed 2 effective 2 ",
		"usage storage_byte_seconds i 01T09:00-01T09:00 0x list 1 billed 1 effective 1 ")
}

// An instance that left the platform and came back has states there, too.
func TestStorageOfAnInstanceThatCameBack(t *testing.T) {
	back := during("i", "a", "08:00", "09:00", nil)
	back.Segments = append(back.Segments, during("i", "a", "09:00", "10:00", func(s *Segment) { s.Platform = "q" }).Segments...)
	back.Segments = append(back.Segments, during("i", "a", "10:00", "11:00", func(s *Segment) { s.State = "stopped_free" }).Segments...)
	terms := &Terms{Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]"), Profiles: []*Profile{profileOf(t, "")}}
	lines := terms.Rate(&Usage{Rentals: []*Rental{back}, Readings: []Reading{{Span: Span{inApril("10:00"), inApril("11:00")}, Meter: "storage_byte_seconds", Quantity: rat("1"), Platform: "p", Instance: "i"}}})
	n := slices.IndexFunc(lines, func(l Line) bool { return l.Meter != MeterGPU })
	if lines[n].Reason != "storage is not billed in the state stopped_free" {
		t.Errorf("%s", linesText(lines))
	}
}

// An instance that runs without its GPUs has a price of its own, however many its lease
// names, and uses up nothing that pays for GPUs.
func TestWithoutGPUs(t *testing.T) {
	for _, gpus := range []int64{0, 8} {
		bare := during("i", "a", "08:00", "10:00", func(s *Segment) { s.State, s.Gpus = "running_no_gpu", gpus })
		terms := &Terms{
			Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]"), Profiles: []*Profile{profileOf(t, "")},
			Contracts: []*Contract{contractOf(t, "commitments: [{id: base, model: m, project: a, gpus: 1, term: hour, per_gpu: 7, from: 2026-04-01T08:00:00Z, to: 2026-04-01T10:00:00Z}]\n"+
				"quotes: [{id: job, project: a, fee: 100, from: 2026-04-01T08:00:00Z, to: 2026-04-01T10:00:00Z}]\nadjustments: [{id: eight, stage: volume, discount: 50%, min_gpus: 8}]")},
		}
		terms.Profiles[0].Billed.NoGPU = rat("0.1")
		wantLines(t, terms.Rate(&Usage{Rentals: []*Rental{bare}}),
			"purchase gpu job 01T08:00-01T10:00 1x list 0 billed 100 effective 0 ",
			"usage unused gpu job 01T08:00-01T10:00 1x list 0 billed 0 effective 100 nothing used it",
			"purchase gpu base 01T08:00-01T09:00 1x list 0 billed 7 effective 0 ",
			"purchase gpu base 01T09:00-01T10:00 1x list 0 billed 7 effective 0 ",
			"usage unused gpu base 01T08:00-01T09:00 1x list 0 billed 0 effective 7 nothing used it",
			"usage unused gpu base 01T09:00-01T10:00 1x list 0 billed 0 effective 7 nothing used it",
			"usage gpu i 01T08:00-01T10:00 1x list 0.2 billed 0.2 effective 0.2 ")
	}
}

// When the hours of a quote end, nothing that comes later is paid by what is left of a
// millisecond.
func TestQuoteEndsOnce(t *testing.T) {
	lines := rate(t, "", "quotes: [{id: job, project: a, fee: 100, gpu_hours: \"2.000001\"}]", Usage{Rentals: []*Rental{
		during("i", "a", "08:00", "09:00", func(s *Segment) { s.Gpus = 7 }), during("k", "a", "09:00", "10:00", nil),
	}})
	for i := range lines {
		if l := &lines[i]; l.Commitment == "job" && l.Instance == "k" {
			t.Errorf("%d ms are paid for after the end", l.Ms())
		}
	}
}

// Who would pay most at the time is covered first, and not who did when it began.
func TestCoverFollowsPrices(t *testing.T) {
	n := func(s *Segment) { s.Model = "n" }
	c := &Commitment{Gpus: 1, Span: Span{inApril("08:00"), inApril("12:00")}, Term: TermDay, Price: rat("24")}
	book := mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}, {model: n, per_gpu_hour: 5, valid_to: 2026-04-01T10:00:00Z}, {model: n, per_gpu_hour: 20, valid_from: 2026-04-01T10:00:00Z}]")
	c.UntilMs, c.RankCuts = inApril("12:00"), book.Cuts(0, Forever)
	c.Rank = func(s *Segment, atMs int64) *big.Rat {
		p, _ := book.Price(s.Model, "p", "", atMs)
		return p.PerGPUHour
	}
	got := c.Cover([]*Rental{during("i", "a", "08:00", "12:00", nil), during("k", "a", "08:00", "12:00", n)}, running, profileOf(t, "").Zone)
	if len(got.Uses) != 2 || got.Uses[0].Instance != "i" || got.Uses[1].Instance != "k" || got.Uses[1].FromMs != inApril("10:00") {
		t.Errorf("%+v", got.Uses)
	}
}

// What is kept for an instance that is stopped says for which.
func TestUnusedNamesItsInstance(t *testing.T) {
	terms := &Terms{Profiles: []*Profile{profileOf(t, "")}, Contracts: []*Contract{contractOf(t, "commitments: [{id: base, model: m, gpus: 1, term: hour, per_gpu: 7, from: 2026-04-01T08:00:00Z, to: 2026-04-01T09:00:00Z}]")}}
	terms.Profiles[0].Billed.Compute = append(terms.Profiles[0].Billed.Compute, "stopped_keep")
	wantLines(t, terms.Rate(&Usage{Rentals: []*Rental{during("i", "a", "08:00", "09:00", func(s *Segment) { s.State = "stopped_keep" })}}),
		"purchase gpu base 01T08:00-01T09:00 1x list 0 billed 7 effective 0 ",
		"usage unused gpu ibase 01T08:00-01T09:00 1x list 0 billed 0 effective 7 its instance is in the state stopped_keep")
}

// A credit is for the time that was lost, wherever lines are cut: not for what a minimum
// adds, not for the rounding of a settlement, and only where the instance was then.
func TestCreditIsForLostTime(t *testing.T) {
	const sla = "sla: {target: 99.9%, credit_ratio: 2, trigger: any}"
	sum := func(lines []Line) string {
		x := new(big.Rat)
		for i := range lines {
			if lines[i].Category == CategoryCredit {
				x.Add(x, lines[i].Billed)
			}
		}
		return Exact(x)
	}
	outage := []Outage{{Span: Span{inApril("08:00"), inApril("08:06")}, Reason: "power"}}
	for _, rules := range []string{"", "time: {minimum: 1h, minimum_per: start}\n", "amount: {rounding: up, decimals: 0}\n"} {
		for _, cuts := range [][]int64{nil, {inApril("08:03"), inApril("08:10")}} {
			lines := rate(t, rules, sla, Usage{Rentals: []*Rental{during("i", "a", "08:00", "08:30", nil)}, Outages: outage, Cuts: cuts})
			if got := sum(lines); got != "-2" {
				t.Errorf("%s cut at %v: %s, want -2\n%s", rules, cuts, got, linesText(lines))
			}
		}
	}
	moved := during("i", "a", "08:00", "09:00", nil)
	moved.Segments = append(moved.Segments, during("i", "a", "09:00", "10:00", func(s *Segment) { s.Region = "r" }).Segments...)
	inRegion := []Outage{{Span: Span{inApril("08:30"), inApril("09:30")}, Region: "r", Reason: "power"}}
	if got := sum(rate(t, "", sla, Usage{Rentals: []*Rental{moved}, Outages: inRegion})); got != "-10" {
		t.Errorf("half an hour in the region: %s, want -10", got)
	}
}

// Of two outages each part of a credit names its own.
func TestCreditNamesItsOutage(t *testing.T) {
	outages := []Outage{{Span: Span{inApril("08:00"), inApril("08:06")}, Reason: "power"}, {Span: Span{inApril("08:12"), inApril("08:18")}, Reason: "network"}}
	lines := rate(t, "", "sla: {target: 99.9%, credit_ratio: 2, trigger: any}", Usage{Rentals: []*Rental{during("i", "a", "08:00", "09:00", nil)}, Outages: outages})
	wantLines(t, lines,
		"usage gpu i 01T08:00-01T09:00 1x list 10 billed 10 effective 10 ",
		"credit gpu i 01T08:00-01T08:06 1x list 0 billed -2 effective -2 outage: power",
		"credit gpu i 01T08:12-01T08:18 1x list 0 billed -2 effective -2 outage: network")
}
