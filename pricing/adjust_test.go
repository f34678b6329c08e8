package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAdjust(t *testing.T) {
	east := Adjustment{ID: "east", Stage: StageRegion, Kind: Uplift, Value: rat("0.15")}
	tier := Adjustment{ID: "tier3", Stage: StageTier, Kind: Uplift, Value: rat("0.10")}
	alone := Adjustment{ID: "dedicated", Stage: StageTenancy, Kind: Uplift, Value: rat("0.25")}
	bulk := Adjustment{ID: "ten", Stage: StageVolume, Kind: Discount, Value: rat("0.20")}
	bundle := Adjustment{ID: "storage", Stage: StageBundle, Kind: Discount, Value: rat("0.05")}
	added := bundle
	added.Additive = true
	atMost := Adjustment{ID: "framework", Stage: StageCap, Kind: Cap, Value: rat("30")}
	for _, c := range []struct {
		name, list string
		rules      []Adjustment
		want       string
	}{
		{"F1", "30", []Adjustment{east}, "34.5"},
		{"F1 the other way", "34.5", []Adjustment{{ID: "west", Stage: StageRegion, Kind: Factor, Value: rat("20/23")}}, "30"},
		{"F2", "30", []Adjustment{tier}, "33"},
		{"F3", "30", []Adjustment{alone}, "37.5"},
		{"V08, F1 to F3 in any order", "30", []Adjustment{alone, east, tier}, "47.4375"},
		{"F4", "30", []Adjustment{{ID: "month", Stage: StageTerm, Kind: Factor, Value: rat("0.65")}}, "19.5"},
		{"F5", "12000", []Adjustment{{ID: "week", Stage: StageTerm, Kind: Discount, Value: rat("0.25")}}, "9000"},
		{"F6", "20", []Adjustment{{ID: "spot", Stage: StageTerm, Kind: Discount, Value: rat("0.40")}}, "12"},
		{"F7", "20000", []Adjustment{bulk}, "16000"},
		{"F8 multiplied", "20000", []Adjustment{bulk, bundle}, "15200"},
		{"F8 added", "20000", []Adjustment{bulk, added}, "15000"},
		{"F8 added, after a term", "20000", []Adjustment{bulk, added, {ID: "year", Stage: StageTerm, Kind: Factor, Value: rat("0.5")}}, "7500"},
		{"F11 with a cap", "36", []Adjustment{atMost}, "30"},
		{"F11 within the cap", "29.99", []Adjustment{atMost}, "29.99"},
		{"a cap comes last", "40", []Adjustment{atMost, bulk}, "30"},
		{"negotiated instead of all before", "40", []Adjustment{bulk, {ID: "deal", Stage: StageNegotiated, Kind: Fixed, Value: rat("27.5")}, atMost}, "27.5"},
		{"never below nothing", "10", []Adjustment{{ID: "much", Stage: StageNegotiated, Kind: Discount, Value: rat("1.5")}}, "0"},
		{"nothing", "10", nil, "10"},
	} {
		got, steps := Adjust(rat(c.list), c.rules)
		if Exact(got) != c.want || len(steps) != len(c.rules) {
			t.Errorf("%s: %s in %d steps, want %s", c.name, Exact(got), len(steps), c.want)
		}
	}
	_, steps := Adjust(rat("30"), []Adjustment{bulk, added, east, atMost})
	var lines []string
	for i := range steps {
		lines = append(lines, steps[i].Text())
	}
	want := "region east: 30 x 1.15 = 34.5\nvolume ten: 34.5 x 0.8 = 27.6\nbundle storage: 27.6 - that much of the price before volume: 0.05 = 25.875\ncap framework: 25.875 is not above 30"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("steps\n%s\nwant\n%s", got, want)
	}
}

// The order in which rules are given changes nothing; every step begins where the
// one before ended; multiplied parts are the product of all.
func TestAdjustments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rules []Adjustment
		product := new(big.Rat).Set(rat("40"))
		for i := range rapid.IntRange(0, 7).Draw(t, "rules") {
			value := big.NewRat(rapid.Int64Range(0, 99).Draw(t, "percent"), 100)
			kind := rapid.SampledFrom([]Kind{Uplift, Discount, Factor}).Draw(t, "kind")
			stage := Stage(rapid.IntRange(int(StageRegion), int(StageNegotiated)).Draw(t, "stage"))
			rules = append(rules, Adjustment{ID: fmt.Sprint("r", i), Stage: stage, Kind: kind, Value: value})
			switch kind {
			case Uplift:
				product.Mul(product, new(big.Rat).Add(one, value))
			case Discount:
				product.Mul(product, new(big.Rat).Sub(one, value))
			default:
				product.Mul(product, value)
			}
		}
		got, steps := Adjust(rat("40"), rules)
		if got.Cmp(product) != 0 {
			t.Fatalf("%s, want %s", Exact(got), Exact(product))
		}
		before := rat("40")
		for i := range steps {
			if steps[i].Before.Cmp(before) != 0 || i > 0 && steps[i].Stage < steps[i-1].Stage {
				t.Fatalf("step %d does not follow: %s", i, steps[i].Text())
			}
			before = steps[i].After
		}
		shuffled := slices.Clone(rules)
		slices.Reverse(shuffled)
		if again, _ := Adjust(rat("40"), shuffled); again.Cmp(got) != 0 {
			t.Fatalf("%s in another order, %s in the first", Exact(again), Exact(got))
		}
	})
}
