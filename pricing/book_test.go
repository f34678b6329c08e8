package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(s)
	}
	return r
}

func TestMostSpecificEntryWins(t *testing.T) {
	b := mustParse(t, `
currency: USD
prices:
  - {model: m, per_gpu_hour: 1}
  - {model: m, region: r, per_gpu_hour: 2}
  - {model: m, platform: p, per_gpu_hour: 3}
  - {model: m, platform: p, region: r, per_gpu_hour: 4, valid_from: 2026-03-01, valid_to: 2026-03-02}
  - {model: "*", platform: q, region: r, per_gpu_hour: 9}
`)
	in, before := ms("2026-03-01T00:00:00Z"), ms("2026-02-28T23:59:59Z")
	cases := []struct {
		model, platform, region string
		at                      int64
		want                    string // empty = unpriced
	}{
		{"m", "", "", in, "1"},
		{"m", "x", "y", in, "1"},
		{"m", "x", "r", in, "2"},
		{"m", "p", "y", in, "3"},
		{"m", "p", "", in, "3"},
		{"m", "p", "r", in, "4"},
		{"m", "p", "r", before, "3"},
		{"m", "p", "r", ms("2026-03-02T00:00:00Z"), "3"},
		{"m", "q", "r", in, "2"}, // the model's own entry before the wildcard, however narrow
		{"other", "q", "r", in, "9"},
		{"", "q", "r", in, "9"},
		{"other", "q", "", in, ""},
		{"M", "", "", in, ""},
	}
	for _, c := range cases {
		p, ok := b.Price(c.model, c.platform, c.region, c.at)
		if got := priceText(p, ok); got != c.want {
			t.Errorf("%q on %q in %q at %d: %q, want %q", c.model, c.platform, c.region, c.at, got, c.want)
		}
	}
}

func priceText(p Price, ok bool) string {
	if !ok {
		return ""
	}
	return Exact(p.PerGPUHour)
}

func TestNoBookPricesNothing(t *testing.T) {
	for name, b := range map[string]*Book{"nil": nil, "zero": {}} {
		if _, ok := b.Price("m", "", "", 0); ok || len(b.Cuts(0, Forever)) > 0 {
			t.Errorf("%s book has a price", name)
		}
	}
}

// The list with many validities is looked up by halving; the reference walks.
func TestPriceAgreesWithAWalkAndCutsWithChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models, platforms := []string{"m", "n", AnyModel}, []string{"", "p"}
		var entries []Entry
		last := map[key]int64{}
		for i := range rapid.IntRange(0, 12).Draw(t, "entries") {
			k := key{model: rapid.SampledFrom(models).Draw(t, "model"), platform: rapid.SampledFrom(platforms).Draw(t, "platform")}
			from := last[k] + rapid.Int64Range(0, 5).Draw(t, "gap")
			to := from + rapid.Int64Range(1, 5).Draw(t, "length")
			last[k] = to
			entries = append(entries, Entry{Model: k.model, Platform: k.platform, PerGPUHour: big.NewRat(int64(i), 1), FromMs: from, ToMs: to, Line: i + 1})
		}
		b, faults := newBook("USD", entries)
		if len(faults) > 0 {
			t.Fatalf("faults: %v", faults[0])
		}
		end := int64(80)
		cuts := b.Cuts(0, end)
		for _, model := range []string{"m", "n", "x"} {
			previous := ""
			for at := range end {
				p, ok := b.Price(model, "p", "r", at)
				got := priceText(p, ok)
				if want := walk(entries, model, "p", at); got != want {
					t.Fatalf("%s at %d: %q, want %q", model, at, got, want)
				}
				if at > 0 && got != previous && !slices.Contains(cuts, at) {
					t.Fatalf("%s changes at %d, which is no cut of %v", model, at, cuts)
				}
				previous = got
			}
		}
	})
}

func walk(entries []Entry, model, platform string, at int64) string {
	best, rank := "", -1
	for _, e := range entries {
		if at < e.FromMs || at >= e.ToMs || e.Model != model && e.Model != AnyModel || e.Platform != "" && e.Platform != platform {
			continue
		}
		r := 0
		if e.Model != AnyModel {
			r += 4
		}
		if e.Platform != "" {
			r += 2
		}
		if r > rank {
			best, rank = Exact(e.PerGPUHour), r
		}
	}
	return best
}

func TestCostIsExact(t *testing.T) {
	cases := []struct {
		ms           int64
		price, exact string
	}{
		{60_000, "3.60", "0.06"},                                    // A1
		{4_000, "3.60", "0.004"},                                    // E4
		{3_600_000, "112.50", "112.5"},                              // E7
		{3_600_000, "1.0", "1"},                                     // E12: used as given
		{8 * 3_600_000, "3.60", "28.8"},                             // I1
		{1, "3.60", "0.000001"},                                     //
		{1, "1", "1/3600000"},                                       // no end as a decimal, still exact
		{8 * 31 * 24 * 3_600_000, "99999999.99", "595199999940.48"}, // large and fine at once
	}
	for _, c := range cases {
		if got := Exact(Cost(c.ms, Price{PerGPUHour: rat(c.price)})); got != c.exact {
			t.Errorf("%d ms at %s: %s, want %s", c.ms, c.price, got, c.exact)
		}
	}
}

func TestSumsDoNotDrift(t *testing.T) { // E1, E2
	sum := func(n int, s string) string {
		total := new(big.Rat)
		for range n {
			total.Add(total, rat(s))
		}
		return Exact(total)
	}
	for _, c := range []struct {
		n       int
		s, want string
	}{{4, "0.029", "0.116"}, {10, "0.1", "1"}, {100_000, "0.1", "10000"}, {1, "9007199254740993", "9007199254740993"}} {
		if got := sum(c.n, c.s); got != c.want {
			t.Errorf("%d x %s: %s, want %s", c.n, c.s, got, c.want)
		}
	}
	if Format(rat("102.0000000000000024"), "USD") != Format(rat("102"), "USD") { // E3
		t.Error("a residue below the stored precision shows")
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ in, currency, want string }{
		{"0.06", "USD", "0.06"}, {"28.8", "USD", "28.80"}, {"0.012", "USD", "0.012"}, {"1234.567891", "USD", "1234.567891"},
		{"0", "USD", "0.00"}, {"0.0000004", "USD", "0.00"}, {"0.0000005", "USD", "0.000001"}, {"-1.5", "USD", "-1.50"},
		{"1935", "JPY", "1935"}, {"0.5", "JPY", "0.5"}, {"1", "KWD", "1.000"}, {"2", "", "2.00"},
	} {
		if got := Format(rat(c.in), c.currency); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.in, c.currency, got, c.want)
		}
	}
}

func TestRoundPartsExamples(t *testing.T) {
	for _, c := range []struct {
		parts          string
		decimals       int
		rounded, total string
	}{
		{"0.004 0.004 0.004", 6, "0.004 0.004 0.004", "0.012"}, // E4
		{"0.004 0.004 0.004", 2, "0.01 0 0", "0.01"},           // ties: the earlier part
		{"1/3 1/3 1/3", 2, "0.34 0.33 0.33", "1"},
		{"0.001 0.009 0.006", 2, "0 0.01 0.01", "0.02"},
		{"0.005", 2, "0.01", "0.01"},
		{"-0.005", 2, "-0.01", "-0.01"},
		{"1.35296", 6, "1.35296", "1.35296"},
		{"2 ? 1/3", 2, "2 ? 0.33", "2.33"},
		{"?", 2, "?", "0"},
	} {
		var parts []*big.Rat
		for s := range strings.FieldsSeq(c.parts) {
			if s == "?" {
				parts = append(parts, nil)
				continue
			}
			parts = append(parts, rat(s))
		}
		rounded, total := RoundParts(parts, c.decimals)
		var texts []string
		for _, r := range rounded {
			if r == nil {
				texts = append(texts, "?")
				continue
			}
			texts = append(texts, Exact(r))
		}
		if got := strings.Join(texts, " "); got != c.rounded || Exact(total) != c.total {
			t.Errorf("%s to %d: %s = %s, want %s = %s", c.parts, c.decimals, got, Exact(total), c.rounded, c.total)
		}
	}
}

func TestRoundPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		decimals := rapid.IntRange(0, 6).Draw(t, "decimals")
		digit := new(big.Rat).SetFrac64(1, pow10(decimals))
		var parts []*big.Rat
		exact := new(big.Rat)
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			r := big.NewRat(rapid.Int64Range(-1e12, 1e12).Draw(t, "num"), rapid.Int64Range(1, 3_600_000).Draw(t, "den"))
			parts = append(parts, r)
			exact.Add(exact, r)
		}
		rounded, total := RoundParts(parts, decimals)
		sum := new(big.Rat)
		for i, r := range rounded {
			sum.Add(sum, r)
			if moved := new(big.Rat).Sub(r, parts[i]); moved.Abs(moved).Cmp(digit) >= 0 {
				t.Fatalf("part %s moved to %s", parts[i], r)
			}
			if !new(big.Rat).Mul(r, big.NewRat(pow10(decimals), 1)).IsInt() {
				t.Fatalf("part %s has more than %d decimals", r, decimals)
			}
		}
		if sum.Cmp(total) != 0 {
			t.Fatalf("parts add up to %s, the total is %s", sum, total)
		}
		if off := new(big.Rat).Sub(total, exact); new(big.Rat).Mul(off.Abs(off), big.NewRat(2, 1)).Cmp(digit) > 0 {
			t.Fatalf("total %s of %s is off by more than half a digit", total, exact)
		}
	})
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

func ExampleFormat() {
	sum := new(big.Rat)
	for range 3 {
		sum.Add(sum, Cost(4_000, Price{PerGPUHour: big.NewRat(36, 10)}))
	}
	fmt.Println(Format(sum, "USD"), "USD")
	// Output: 0.012 USD
}
