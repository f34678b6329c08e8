package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func whatIfText(list []WhatIf) string {
	var b strings.Builder
	for _, w := range list {
		fmt.Fprintf(&b, "%s %s", strings.TrimSpace(string(w.Kind)+" "+w.Platform+string(w.Term)), text(w.Cost))
		for _, part := range []struct {
			what string
			ms   int64
		}{{"of", w.GPUMs}, {"original", w.OriginalMs}, {"unpriced", w.UnpricedMs}} {
			if part.ms > 0 {
				fmt.Fprintf(&b, " %s %s", part.what, text(big.NewRat(part.ms, hourMs)))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func profileNamed(t *testing.T, platform, rules string) *Profile {
	t.Helper()
	f := profileOf(t, rules)
	f.Platform = platform
	return f
}

// T6: the same usage by the rules and prices of every platform, and on every plan.
func TestReprice(t *testing.T) {
	book := mustParse(t, "currency: CNY\nprices:\n"+
		"  - {model: m, platform: p, per_gpu_hour: 10}\n"+
		"  - {model: m, platform: hourly, region: east, per_gpu_hour: 9}\n"+
		"  - {model: m, platform: hourly, region: west, per_gpu_hour: 8}\n"+
		"  - {model: k, platform: p, per_gpu_hour: 1}\n")
	hourly, exact := profileNamed(t, "hourly", "time: {granularity: 1h, rounding: up}\n"), profileNamed(t, "exact", "")
	terms := &Terms{Book: book, Contracts: []*Contract{contractOf(t, "commitments: [{id: base, model: m, gpus: 1, term: month, per_gpu: 3600, from: 2026-04-01, to: 2026-05-01}]")}}
	half := func(model string) *Rental {
		r := run720(model, 1, 1)
		r.Segments[0].Model, r.Segments[0].ToMs = model, april.FromMs+5400_000 // 90 minutes
		return r
	}
	for name, c := range map[string]struct {
		terms   *Terms
		rentals []*Rental
		want    string
	}{
		// Sold by whole hours, in the cheaper of two regions; k has no price there.
		"two models": {terms, []*Rental{half("m"), half("k")},
			"on_demand 16.5 of 3\nplatform exact 16.5 of 3 original 3\nplatform hourly 18 of 3 original 1.5\nas_is 3601.5 of 3\nplan month 3601.5 of 3 original 1.5\n"},
		"a model without a price": {terms, []*Rental{half("m"), half("x")},
			"plan month 3600 of 3 unpriced 1.5\non_demand 15 of 3 unpriced 1.5\nplatform hourly 16 of 3 unpriced 1.5\nplatform exact 15 of 3 original 1.5 unpriced 1.5\nas_is 3600 of 3 unpriced 1.5\n"},
		"no terms": {nil, []*Rental{half("m")},
			"as_is unknown of 1.5 unpriced 1.5\non_demand unknown of 1.5 unpriced 1.5\nplatform hourly unknown of 1.5 unpriced 1.5\nplatform exact unknown of 1.5 unpriced 1.5\n"},
		"nothing": {terms, nil, ""},
	} {
		got := Reprice(c.terms, &Usage{Rentals: c.rentals}, april, []*Profile{hourly, exact}, nil)
		text := whatIfText(got)
		if name == "a model without a price" {
			for line := range strings.Lines(c.want) {
				if !strings.Contains(text, line) {
					t.Errorf("%s: no %q in\n%s", name, line, text)
				}
			}
			continue
		}
		if name == "nothing" {
			for i := range got {
				if got[i].GPUMs != 0 || got[i].Kind == WhatIfPlatform && got[i].Cost != nil {
					t.Errorf("nothing: %+v", got[i])
				}
			}
			continue
		}
		if text != c.want {
			t.Errorf("%s:\n%swant\n%s", name, text, c.want)
		}
	}
}

// A platform that takes back a spot instance within the hour does not bill it; another
// one does.
func TestRepriceByOtherRules(t *testing.T) {
	r := run720("i", 1, 1)
	r.Segments[0].Plan = PlanSpot
	r.Segments[0].ToMs = april.FromMs + 1800_000
	r.Segments = append(r.Segments, Segment{Span: Span{r.Segments[0].ToMs, r.Segments[0].ToMs}, State: "interrupted", Platform: "p", Model: "m", Plan: PlanSpot, Gpus: 1})
	got := whatIfText(Reprice(&Terms{Book: bookOf(rat("10"))}, &Usage{Rentals: []*Rental{r}}, april, []*Profile{
		profileNamed(t, "free", "spot: {refund: run, refund_within: 1h}\n"), profileNamed(t, "minute", "time: {minimum: 1h, minimum_per: start}\n"),
	}, nil))
	want := "platform free 0\nas_is 5 of 0.5\non_demand 5 of 0.5\nplatform minute 10 of 0.5 original 0.5\n"
	if got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// One model of two keeps its own part of what is shared.
func TestRepriceOfAPart(t *testing.T) {
	terms := &Terms{Book: bookOf(rat("10")), Contracts: []*Contract{contractOf(t, "commitments: [{id: base, model: m, gpus: 1, term: month, per_gpu: 3600, from: 2026-04-01, to: 2026-05-01}]")}}
	other := run720("k", 1, 3)
	other.Segments[0].Model = "k"
	u := &Usage{Rentals: []*Rental{run720("m", 1, 2), other}}
	for model, want := range map[string]string{
		"m": "on_demand 20 of 2\nas_is 3600 of 2\nplan month 3600 of 2\n", "k": "as_is 30 of 3\non_demand 30 of 3\n",
	} {
		if got := whatIfText(Reprice(terms, u, april, nil, func(s *Segment) bool { return s.Model == model })); got != want {
			t.Errorf("%s:\n%swant\n%s", model, got, want)
		}
	}
}

// By the rules of where it ran and without a contract nothing changes, and what has no
// price is never in a cost.
func TestRepriceAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms, u := anyTerms(t)
		terms.Contracts = nil
		profile := *exactProfile
		profile.Platform = "p"
		terms.Profiles = []*Profile{&profile}
		if rapid.Bool().Draw(t, "unpriced") {
			terms.Book = nil
		}
		all := Reprice(terms, u, april, terms.Profiles, nil)
		for _, w := range all {
			if w.GPUMs != w.OwnMs+w.OriginalMs+w.UnpricedMs || w.GPUMs != all[0].GPUMs {
				t.Fatalf("%+v", w)
			}
			if (w.Cost == nil) != (all[0].Cost == nil) || w.Cost != nil && w.Cost.Cmp(all[0].Cost) != 0 || terms.Book == nil && w.Cost != nil {
				t.Fatalf("%s costs %s, and %s %s", w.Kind, text(w.Cost), all[0].Kind, text(all[0].Cost))
			}
		}
	})
}

// F9: the guide's list prices are 20 to 30 for an A100 and 30 to 40 for an H100.
func TestPlatformSpreads(t *testing.T) {
	book := mustParse(t, "currency: CNY\nprices:\n"+
		"  - {model: A100, platform: a, per_gpu_hour: 20}\n  - {model: A100, platform: b, region: x, per_gpu_hour: 35}\n  - {model: A100, platform: b, region: y, per_gpu_hour: 30}\n"+
		"  - {model: H100, platform: a, per_gpu_hour: 40}\n  - {model: H100, platform: b, per_gpu_hour: 30}\n  - {model: L4, platform: a, per_gpu_hour: 3}\n  - {model: \"*\", per_gpu_hour: 1}\n")
	var got []string
	for _, s := range PlatformSpreads(book, []string{"A100", "H100", "L4", "none"}, april.FromMs) {
		var prices []string
		for _, p := range s.Prices {
			prices = append(prices, p.Platform+p.Region+" "+Exact(p.PerGPUHour))
		}
		got = append(got, s.Model+": "+strings.Join(prices, ", ")+": "+text(s.Spread))
	}
	want := "A100: a 20, by 30: 1/3; H100: b 30, a 40: 0.25; L4: a 3: unknown; none: : unknown"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
	if PlatformSpreads(nil, []string{"A100"}, 0) != nil {
		t.Error("a spread without prices")
	}
}
