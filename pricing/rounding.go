package pricing

import "math/big"

// Mode is how an amount becomes a whole number of last digits.
type Mode string

// Modes. All are symmetric: a credit rounds to minus what the charge rounds to.
const (
	HalfUp   Mode = "half_up"   // half away from zero, as most cloud bills
	HalfEven Mode = "half_even" // half to the even digit
	Up       Mode = "up"        // away from zero
	Down     Mode = "down"      // towards zero
)

// Rounding is how a platform makes money of an exact amount: the settlement rule
// of one line or of one bill. The zero Rounding leaves amounts exact.
type Rounding struct {
	Mode     Mode
	Decimals int
	// FreeBelow is the amount below which nothing is charged; nil = none.
	FreeBelow *big.Rat
	// Minimum is the least amount of a charge that is not nothing; nil = none.
	Minimum *big.Rat
}

// Round applies the rule: an amount below FreeBelow is nothing, any other is
// rounded, and what is then below Minimum is Minimum.
func (r *Rounding) Round(x *big.Rat) *big.Rat {
	if r.Mode == "" || x.Sign() == 0 {
		return new(big.Rat).Set(x)
	}
	abs := new(big.Rat).Abs(x)
	if r.FreeBelow != nil && abs.Cmp(r.FreeBelow) < 0 {
		return new(big.Rat)
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(r.Decimals)), nil)
	digits, lost := floor(abs, scale)
	if r.Mode.goesUp(lost, digits) {
		digits.Add(digits, big.NewInt(1))
	}
	rounded := new(big.Rat).SetFrac(digits, scale)
	if r.Minimum != nil && rounded.Cmp(r.Minimum) < 0 {
		rounded.Set(r.Minimum)
	}
	if x.Sign() < 0 {
		rounded.Neg(rounded)
	}
	return rounded
}

var half = big.NewRat(1, 2)

// goesUp says whether the part of a digit that is left over makes a whole one.
func (m Mode) goesUp(lost *big.Rat, digits *big.Int) bool {
	switch m {
	case Up:
		return lost.Sign() > 0
	case HalfEven:
		c := lost.Cmp(half)
		return c > 0 || c == 0 && digits.Bit(0) == 1
	case HalfUp:
		return lost.Cmp(half) >= 0
	}
	return false
}
