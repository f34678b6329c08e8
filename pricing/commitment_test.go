package pricing

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func running(s *Segment) bool { return s.State == "running" }

// M10 and V12: a base of 20 GPUs by the month and 80 more for 72 hours by the hour.
func TestBaseAndBurst(t *testing.T) {
	begin := ms("2026-04-01T00:00:00Z")
	month := Span{begin, begin + 720*hourMs}
	burst := Span{begin + 100*hourMs, begin + 172*hourMs}
	rentals := []*Rental{
		{Instance: "base", Segments: []Segment{{Span: month, State: "running", Model: "m", Project: "a", Gpus: 20}}},
		{Instance: "burst", Segments: []Segment{{Span: burst, State: "running", Model: "m", Project: "b", Gpus: 80}}},
	}
	c := &Commitment{ID: "plan", Model: "m", Project: "a", Gpus: 20, Span: month, Term: TermMonth, Price: rat("3125")}
	covered := c.Cover(rentals, running, time.UTC)
	total := new(big.Rat)
	for _, p := range covered.Purchases {
		total.Add(total, p.Cost)
	}
	tariff := &Tariff{Profile: profileOf(t, ""), Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: \"10\"}]"), Adjust: func(*Segment, int64) []Adjustment {
		return []Adjustment{{ID: "exact", Stage: StageNegotiated, Kind: Fixed, Value: rat("125/12")}}
	}}
	for _, r := range covered.Rest {
		for _, charge := range tariff.Rate(r) {
			total.Add(total, charge.Cost)
		}
	}
	if len(covered.Purchases) != 1 || Exact(total) != "122500" {
		t.Errorf("%d purchases and in all %s, want 122500", len(covered.Purchases), Exact(total))
	}
	for _, u := range covered.Uses {
		if u.Instance != "base" || u.Gpus != 20 {
			t.Errorf("the owner comes first: %+v", u)
		}
	}
}

// What covers an instance does not hide that the platform took it back.
func TestCoverKeepsMoments(t *testing.T) {
	r := lease(PlanSpot, 2, "running 08:00:00", "interrupted 08:30:00", "released 08:30:00", "released 09:00:00")
	c := &Commitment{Model: "m", Gpus: 1, Span: Span{r.Segments[0].FromMs, r.Segments[0].FromMs + dayMs}, Term: TermDay, Price: rat("24")}
	rest := c.Cover([]*Rental{r}, running, time.UTC).Rest[0]
	tariff := &Tariff{Profile: profileOf(t, "spot: {refund: run}\n"), Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 35}]")}
	if got, want := chargesText(tariff.Rate(rest)), "running 08:00:00-08:30:00 1800s-1800+0+0=0 0.000000 -> 0.000000 the platform took the instance back\n"; got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// At every hour a commitment covers as much as it has, in its order; used and unused
// add up to what was bought; and what is covered is not there to be paid for again.
func TestCoverKeepsItsSums(t *testing.T) {
	start := ms("2026-01-31T00:00:00Z")
	rapid.Check(t, func(t *rapid.T) {
		var rentals []*Rental
		for i := range rapid.IntRange(0, 5).Draw(t, "rentals") {
			r := &Rental{Instance: fmt.Sprint("i", i)}
			at := start + rapid.Int64Range(-3, 3).Draw(t, "start")*dayMs
			for range rapid.IntRange(1, 4).Draw(t, "segments") {
				end := at + rapid.Int64Range(1, 40).Draw(t, "days")*dayMs
				r.Segments = append(r.Segments, Segment{Span: Span{at, end}, State: rapid.SampledFrom([]string{"running", "stopped_free"}).Draw(t, "state"),
					Model: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"), Project: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "project"), Gpus: rapid.Int64Range(0, 8).Draw(t, "gpus")})
				at = end
			}
			rentals = append(rentals, r)
		}
		c := &Commitment{Model: "m", Project: "a", Gpus: rapid.Int64Range(1, 12).Draw(t, "committed"), Term: TermMonth, Price: big.NewRat(rapid.Int64Range(1, 1000).Draw(t, "price"), 7),
			Span: Span{start, start + rapid.Int64Range(1, 80).Draw(t, "term")*dayMs}}
		got := c.Cover(rentals, running, time.UTC)
		bought, used := new(big.Rat), new(big.Rat)
		for _, p := range got.Purchases {
			bought.Add(bought, p.Cost)
		}
		for _, u := range got.Uses {
			used.Add(used, u.Cost)
		}
		if bought.Cmp(used) != 0 {
			t.Fatalf("bought for %s, used and unused are %s", Exact(bought), Exact(used))
		}
		end := got.Purchases[len(got.Purchases)-1].ToMs
		for at := start - 3*dayMs; at < start+160*dayMs; at += dayMs {
			var wanted, own, covered, ownCovered, unused int64
			for i, r := range rentals {
				for k := range r.Segments {
					s := &r.Segments[k]
					if at < s.FromMs || at >= s.ToMs {
						continue
					}
					rest := gpusAt(got.Rest[i], at)
					if s.Model != "m" || s.State != "running" || at < start || at >= end {
						if rest != s.Gpus {
							t.Fatalf("%d of %d GPUs of %s are left, and none can be covered", rest, s.Gpus, r.Instance)
						}
						continue
					}
					wanted += s.Gpus
					covered += s.Gpus - rest
					if s.Project == "a" {
						own += s.Gpus
						ownCovered += s.Gpus - rest
					}
				}
			}
			for _, u := range got.Uses {
				if u.Instance == "" && at >= u.FromMs && at < u.ToMs {
					unused += u.Gpus
				}
			}
			if at < start || at >= end {
				continue
			}
			if covered != min(wanted, c.Gpus) || ownCovered != min(own, c.Gpus) || covered+unused != c.Gpus {
				t.Fatalf("on day %d: %d of %d covered, %d of %d of the owner, %d unused of %d", (at-start)/dayMs, covered, wanted, ownCovered, own, unused, c.Gpus)
			}
		}
	})
}

func gpusAt(r *Rental, ms int64) int64 {
	for i := range r.Segments {
		if s := &r.Segments[i]; ms >= s.FromMs && ms < s.ToMs {
			return s.Gpus
		}
	}
	return 0
}
