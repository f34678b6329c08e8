package pricing

import (
	"math/big"
	"slices"
	"strings"
)

// Decimals is how many decimals of the currency's unit an amount in a report
// has at most. Amounts are rounded to it once, by [RoundParts], and nowhere else.
const Decimals = 6

var msPerHour = big.NewInt(3_600_000)

// Cost is the exact price of ms GPU-milliseconds.
func Cost(ms int64, p Price) *big.Rat {
	hours := new(big.Rat).SetFrac(big.NewInt(ms), msPerHour)
	return hours.Mul(hours, p.PerGPUHour)
}

// RoundParts rounds parts to that many decimals so that the rounded parts add
// up exactly to the rounded total, which it returns too. This is the rounding
// boundary of the project: what goes in is exact, what comes out is shown.
//
// The total is rounded half away from zero. Every part is rounded down, and
// what is then missing from the total goes, one last digit each, to the parts
// that lost most; among equals to the earlier one. No part moves by a whole
// last digit or more. A nil part is unknown, stays nil and adds nothing.
func RoundParts(parts []*big.Rat, decimals int) (rounded []*big.Rat, total *big.Rat) {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)
	sum := new(big.Rat)
	whole := make([]*big.Int, len(parts))
	lost := make([]*big.Rat, len(parts))
	missing := new(big.Int)
	for i, p := range parts {
		if p == nil {
			continue
		}
		sum.Add(sum, p)
		whole[i], lost[i] = floor(p, scale)
		missing.Sub(missing, whole[i])
	}
	units := roundHalfAway(sum, scale)
	missing.Add(missing, units)
	for _, i := range byLoss(lost, int(missing.Int64())) {
		whole[i].Add(whole[i], big.NewInt(1))
	}
	rounded = make([]*big.Rat, len(parts))
	for i, w := range whole {
		if w != nil {
			rounded[i] = new(big.Rat).SetFrac(w, scale)
		}
	}
	return rounded, new(big.Rat).SetFrac(units, scale)
}

// floor returns the whole last digits in p and the fraction of one left over.
func floor(p *big.Rat, scale *big.Int) (*big.Int, *big.Rat) {
	scaled := new(big.Int).Mul(p.Num(), scale)
	q, r := new(big.Int).DivMod(scaled, p.Denom(), new(big.Int))
	return q, new(big.Rat).SetFrac(r, p.Denom())
}

func roundHalfAway(x *big.Rat, scale *big.Int) *big.Int {
	abs := new(big.Int).Abs(x.Num())
	abs.Mul(abs, scale).Lsh(abs, 1).Add(abs, x.Denom())
	abs.Quo(abs, new(big.Int).Lsh(x.Denom(), 1))
	if x.Sign() < 0 {
		abs.Neg(abs)
	}
	return abs
}

// Format writes an amount as plain decimal text: at least the decimals that the
// currency is written with (2 for most, 0 for yen), at most [Decimals], and no
// zeros beyond the least. An amount that is finer is rounded.
func Format(x *big.Rat, currency string) string {
	s := x.FloatString(Decimals)
	whole, fraction, _ := strings.Cut(s, ".")
	least := MinorDigits(currency)
	for len(fraction) > least && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// Exact writes a rational without rounding: as a decimal where it has an end,
// else as numerator/denominator.
func Exact(x *big.Rat) string {
	if n, exact := x.FloatPrec(); exact {
		return x.FloatString(n)
	}
	return x.RatString()
}

// byLoss returns the indices of the n parts that lost most by rounding down,
// the earlier one first among equals. Parts that lost nothing are never chosen:
// fewer parts than n have a loss only if the losses did not add up to n.
func byLoss(lost []*big.Rat, n int) []int {
	order := make([]int, 0, len(lost))
	for i, l := range lost {
		if l != nil && l.Sign() > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return lost[b].Cmp(lost[a]) })
	return order[:min(n, len(order))]
}
