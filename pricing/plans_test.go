package pricing

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// april is the month of 720 h of the vectors.
var april = Span{ms("2026-04-01T00:00:00Z"), ms("2026-05-01T00:00:00Z")}

func text(x *big.Rat) string {
	if x == nil {
		return "unknown"
	}
	return Exact(x)
}

func termsOf(t *testing.T, perHour, contract string) *Terms {
	t.Helper()
	terms := &Terms{Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: "+perHour+"}]")}
	if contract != "" {
		terms.Contracts = []*Contract{contractOf(t, contract)}
	}
	return terms
}

// run is an instance that runs for so many hours of April.
func run720(instance string, gpus, hours int64) *Rental {
	s := Segment{Span: Span{april.FromMs, april.FromMs + hours*hourMs}, State: "running", Project: "a", Platform: "p", Model: "m", Gpus: gpus}
	return &Rental{Instance: instance, Segments: []Segment{s}}
}

func checkText(c *PlanCheck) string {
	never := ""
	if c.Never {
		never = " never"
	}
	return fmt.Sprintf("%s %s: %d of %d h used, utilization %s, coverage %s; bought %s, used %s, unused %s, on demand %s, savings %s; needs %s h%s, lacks %s, %d left: %s",
		c.Kind, c.ID, c.UsedMs/hourMs, c.CommittedMs/hourMs, text(c.Utilization), text(c.Coverage), text(c.Purchased), text(c.UsedCost), text(c.UnusedCost),
		text(c.OnDemand), text(c.Savings), text(c.BreakEven), never, text(c.Missing), c.LeftMs/hourMs, c.Verdict)
}

// The plan check of E08b, E21, E25 and V14: what the guides call cheaper is not.
func TestCheckPlans(t *testing.T) {
	commitment := func(gpus, perGPU string) string {
		return "commitments: [{id: base, model: m, project: a, gpus: " + gpus + ", term: month, per_gpu: " + perGPU + ", from: 2026-04-01, to: 2026-05-01}]"
	}
	for name, c := range map[string]struct {
		perHour, contract string
		rentals           []*Rental
		span              Span
		now               int64
		want              string
	}{
		"E08b and V14: 25,000 against 30/h needs more hours than any month has": {
			"30", commitment("1", "25000"), []*Rental{run720("i", 1, 720)}, april, 0,
			"commitment base: 720 of 720 h used, utilization 1, coverage 1; bought 25000, used 25000, unused 0, on demand 21600, savings -3400; needs 2500/3 h never, lacks 340/3, 0 left: never_breaks_even",
		},
		"V13: against 40/h 625 h do, and 312 do not": {
			"40", commitment("1", "25000"), []*Rental{run720("i", 1, 312)}, april, 0,
			"commitment base: 312 of 720 h used, utilization 13/30, coverage 1; bought 25000, used 32500/3, unused 42500/3, on demand 12480, savings -12520; needs 625 h, lacks 313, 0 left: too_dear_at_this_use",
		},
		"kept": {
			"40", commitment("1", "25000"), []*Rental{run720("i", 1, 720)}, april, 0,
			"commitment base: 720 of 720 h used, utilization 1, coverage 1; bought 25000, used 25000, unused 0, on demand 28800, savings 3800; needs 625 h, lacks 0, 0 left: keep",
		},
		"E21: 32 at 30,000 are dearer than 720 h at 40/h": {
			"40", commitment("32", "30000"), []*Rental{run720("i", 32, 720)}, april, 0,
			"commitment base: 23040 of 23040 h used, utilization 1, coverage 1; bought 960000, used 960000, unused 0, on demand 921600, savings -38400; needs 750 h never, lacks 30, 0 left: never_breaks_even",
		},
		"E25: the burst of 72 h on a monthly plan needs 300": {
			"125/12", commitment("80", "3125"), []*Rental{run720("i", 80, 72)}, april, 0,
			"commitment base: 5760 of 57600 h used, utilization 0.1, coverage 1; bought 250000, used 25000, unused 225000, on demand 60000, savings -190000; needs 300 h, lacks 228, 0 left: too_dear_at_this_use",
		},
		"V12: the base of 20 is fully used and covers part of the demand": {
			"125/12", commitment("20", "3125"), []*Rental{run720("base", 20, 720), run720("burst", 80, 72)}, april, 0,
			"commitment base: 14400 of 14400 h used, utilization 1, coverage 5/7; bought 62500, used 62500, unused 0, on demand 150000, savings 87500; needs 300 h, lacks 0, 0 left: keep",
		},
		"nothing uses it": {
			"40", commitment("1", "25000"), []*Rental{{Instance: "x", Segments: []Segment{{Span: Span{april.FromMs, april.FromMs + hourMs}, State: "running", Platform: "p", Model: "other", Gpus: 1}}}}, april, 0,
			"commitment base: 0 of 720 h used, utilization 0, coverage unknown; bought 25000, used 0, unused 25000, on demand 0, savings -25000; needs 625 h, lacks 625, 0 left: unused",
		},
		"a third of the month, and how long it has to go on": {
			"40", commitment("1", "25000"), []*Rental{run720("i", 1, 240)}, Span{april.FromMs, april.FromMs + 240*hourMs}, april.FromMs + 240*hourMs,
			"commitment base: 240 of 240 h used, utilization 1, coverage 1; bought 25000, used 25000/3, unused 0, on demand 9600, savings 3800/3; needs 625 h, lacks 385, 480 left: keep",
		},
		"a span in the middle has no purchase": {
			"40", commitment("1", "25000"), []*Rental{run720("i", 1, 720)}, Span{april.FromMs + 24*hourMs, april.FromMs + 48*hourMs}, 0,
			"commitment base: 24 of 24 h used, utilization 1, coverage 1; bought 0, used 2500/3, unused 0, on demand 960, savings 380/3; needs 625 h, lacks 577, 672 left: keep",
		},
		"V15: a quote": {
			"30", "quotes: [{id: job, project: a, fee: 50000, from: 2026-04-01, to: 2026-05-01}]", []*Rental{run720("i", 8, 200)}, april, 0,
			"quote job: 1600 of 1600 h used, utilization unknown, coverage 1; bought 50000, used 50000, unused 0, on demand 48000, savings -2000; needs 5000/3 h, lacks unknown, 0 left: too_dear_at_this_use",
		},
		"its use has no price": {
			"40, region: r", commitment("1", "25000"), []*Rental{run720("i", 1, 720)}, april, 0,
			"commitment base: 720 of 720 h used, utilization 1, coverage 1; bought 25000, used 25000, unused 0, on demand unknown, savings unknown; needs unknown h, lacks unknown, 0 left: unpriced",
		},
	} {
		terms := termsOf(t, "30", c.contract)
		if price, ok := new(big.Rat).SetString(c.perHour); ok {
			terms.Book = bookOf(price)
		} else {
			terms = termsOf(t, c.perHour, c.contract)
		}
		lines := terms.Rate(&Usage{Rentals: c.rentals, NowMs: c.now, Cuts: []int64{c.span.FromMs, c.span.ToMs}})
		got := CheckPlans(lines, c.span, terms.Book)
		if len(got) != 1 || checkText(&got[0]) != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, checkText(&got[0]), c.want)
		}
	}
}

// A commitment on a platform that nothing ran on is paid for all the same.
func TestCheckPlanWithoutAnyUsage(t *testing.T) {
	terms := termsOf(t, "40", "commitments: [{id: base, model: m, gpus: 2, term: month, per_gpu: 25000, from: 2026-04-01, to: 2026-05-01}]")
	got := CheckPlans(terms.Rate(&Usage{NowMs: april.FromMs + 72*hourMs}), april, terms.Book)
	want := "commitment base: 0 of 144 h used, utilization 0, coverage unknown; bought 50000, used 0, unused 5000, on demand 0, savings -5000; needs 625 h, lacks 625, 648 left: unused"
	if len(got) != 1 || checkText(&got[0]) != want {
		t.Errorf("got %+v, want %s", got, want)
	}
	if early := terms.Rate(&Usage{NowMs: april.FromMs}); len(early) != 0 {
		t.Errorf("before it begins: %s", linesText(early))
	}
}

func TestCheckPlansOfAnotherCurrency(t *testing.T) {
	terms := termsOf(t, "40", "commitments: [{id: base, model: m, gpus: 1, term: month, per_gpu: 25000, from: 2026-04-01, to: 2026-05-01}]")
	terms.Book.Currency = "USD"
	got := CheckPlans(terms.Rate(&Usage{Rentals: []*Rental{run720("i", 1, 720)}}), april, terms.Book)
	if len(got) != 1 || got[0].Verdict != VerdictUnknown || got[0].OnDemand != nil || got[0].BreakEven != nil {
		t.Errorf("yuan were compared with dollars: %+v", got)
	}
	if outside := CheckPlans(terms.Rate(&Usage{Rentals: []*Rental{run720("i", 1, 720)}}), Span{april.ToMs, april.ToMs + dayMs}, terms.Book); len(outside) != 0 {
		t.Errorf("a plan that is over: %+v", outside)
	}
}

// anyTerms are two commitments and a quote, and usage of all of them.
func anyTerms(t *rapid.T) (*Terms, *Usage) {
	gpus := rapid.Int64Range(1, 6)
	contract := fmt.Sprintf("commitments:\n  - {id: one, model: m, project: a, gpus: %d, term: month, per_gpu: %d, from: 2026-04-01, to: 2026-06-01}\n", gpus.Draw(t, "one"), rapid.Int64Range(1, 900).Draw(t, "price")) +
		fmt.Sprintf("  - {id: two, model: m, region: r, gpus: %d, term: week, per_gpu: 70, from: 2026-04-03, to: 2026-04-24}\nquotes: [{id: job, project: q, fee: 500}]\n", gpus.Draw(t, "two"))
	c, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\n"+contract))
	if err != nil {
		t.Fatal(err)
	}
	u := &Usage{NowMs: april.FromMs + rapid.Int64Range(1, 2000).Draw(t, "now")*hourMs}
	for i := range rapid.IntRange(0, 8).Draw(t, "rentals") {
		from := april.FromMs + rapid.Int64Range(-100, 700).Draw(t, "from")*hourMs
		s := Segment{Span: Span{from, from + rapid.Int64Range(1, 500).Draw(t, "hours")*hourMs}, State: "running", Project: rapid.SampledFrom([]string{"a", "b", "q"}).Draw(t, "project"), Platform: "p", Region: rapid.SampledFrom([]string{"", "r"}).Draw(t, "region"), Model: "m", Gpus: gpus.Draw(t, "gpus")}
		s.ToMs = min(s.ToMs, u.NowMs)
		if s.Ms() > 0 {
			u.Rentals = append(u.Rentals, &Rental{Instance: fmt.Sprint("i", i), Segments: []Segment{s}})
		}
	}
	return &Terms{Book: bookOf(rat("2")), Contracts: []*Contract{c}}, u
}

// Used and unused are what was committed, and all amounts are those of the lines.
func TestCheckPlansSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms, u := anyTerms(t)
		from := april.FromMs + rapid.Int64Range(-50, 800).Draw(t, "span from")*hourMs
		span := Span{from, from + rapid.Int64Range(1, 1000).Draw(t, "span")*hourMs}
		u.Cuts = []int64{span.FromMs, span.ToMs}
		lines := terms.Rate(u)
		var used, unused, bought, list, cost = new(big.Rat), new(big.Rat), new(big.Rat), new(big.Rat), new(big.Rat)
		usedMs := int64(0)
		for i := range lines {
			l := &lines[i]
			if l.Commitment == "" || l.FromMs < span.FromMs || l.FromMs >= span.ToMs {
				continue
			}
			switch {
			case l.Category == CategoryPurchase:
				bought.Add(bought, l.Billed)
			case l.Status == StatusUsed:
				used.Add(used, l.Effective)
				list.Add(list, l.ListCost)
				usedMs += l.Ms() * l.Segment.Gpus
			default:
				unused.Add(unused, l.Effective)
			}
			cost.Add(cost, l.Effective)
		}
		for _, c := range CheckPlans(lines, span, terms.Book) {
			if c.UsedMs+c.UnusedMs != c.CommittedMs || c.Kind == PlanCommitment && c.CommittedMs != c.Gpus*c.Ms() {
				t.Fatalf("%s: used %d + unused %d, committed %d", c.ID, c.UsedMs, c.UnusedMs, c.CommittedMs)
			}
			if c.UsedMs > c.EligibleMs {
				t.Fatalf("%s used %d of %d that it could have", c.ID, c.UsedMs, c.EligibleMs)
			}
			bought.Sub(bought, c.Purchased)
			used.Sub(used, c.UsedCost)
			unused.Sub(unused, c.UnusedCost)
			list.Sub(list, c.OnDemand)
			usedMs -= c.UsedMs
		}
		if bought.Sign() != 0 || used.Sign() != 0 || unused.Sign() != 0 || list.Sign() != 0 || usedMs != 0 {
			t.Fatalf("left of the lines: bought %s, used %s, unused %s, at list %s, %d ms", Exact(bought), Exact(used), Exact(unused), Exact(list), usedMs)
		}
	})
}

// A refund is said apart, and the plan has ended.
func TestCheckPlanOfAnInstance(t *testing.T) {
	at := func(hour int64) int64 { return april.FromMs + hour*hourMs }
	segment := Segment{Project: "a", Platform: "p", Model: "m", Plan: "month", Gpus: 2}
	line := func(category Category, status Status, from, to int64, billed, effective string) Line {
		l := Line{Category: category, Status: status, Meter: MeterGPU, Span: Span{at(from), at(to)}, Instance: "i", Segment: segment, Commitment: "plan i", Currency: "CNY", Price: rat("720"), Billed: rat(billed), Effective: rat(effective), ListCost: rat("100"), Per: "GPU-month"}
		l.Segment.Span = l.Span
		return l
	}
	lines := []Line{
		line(CategoryPurchase, "", 0, 720, "1440", "0"), line(CategoryCredit, "", 360, 720, "-720", "0"),
		line(CategoryUsage, StatusUsed, 0, 180, "0", "360"), line(CategoryUsage, StatusUnused, 180, 360, "0", "360"),
	}
	got := CheckPlans(lines, april, bookOf(rat("1")))
	want := "instance plan i: 360 of 720 h used, utilization 0.5, coverage 1; bought 1440, used 360, unused 360, on demand 100, savings -620; needs 2592 h never, lacks 2412, 0 left: never_breaks_even"
	if len(got) != 1 || checkText(&got[0]) != want || Exact(got[0].Refunded) != "720" {
		t.Errorf("%s, refunded %s", checkText(&got[0]), text(got[0].Refunded))
	}
}
