package pricing

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
)

// Stage is a step between the list price of a unit and the price that is paid for
// it. The order of the stages is fixed and the same for everybody.
type Stage int

// Stages, in their order.
const (
	StageRegion     Stage = iota + 1 // F1: where the data centre lies
	StageTier                        // F2: how good it is
	StageTenancy                     // F3: shared or dedicated
	StageTerm                        // F4, F5, F6: for how long, or spot
	StageVolume                      // F7: how many
	StageBundle                      // F8: what else is rented
	StageNegotiated                  // what two agreed on
	StageCap                         // C8: what the price may be at most
)

var stageNames = [...]string{StageRegion: "region", StageTier: "tier", StageTenancy: "tenancy", StageTerm: "term",
	StageVolume: "volume", StageBundle: "bundle", StageNegotiated: "negotiated", StageCap: "cap"}

// String returns the name of the stage as documents write it.
func (s Stage) String() string { return stageNames[s] }

// Kind is what an adjustment's value means. A percentage never stands alone: 15 %
// dearer is 13.04 % cheaper seen from the other side.
type Kind string

// Kinds.
const (
	Uplift   Kind = "uplift"   // the price and that part of it more
	Discount Kind = "discount" // the price less that part of it
	Factor   Kind = "factor"   // that part of the price
	Fixed    Kind = "fixed"    // this price instead
	Cap      Kind = "cap"      // this price, if it would be more
)

// Adjustment is one rule that applies to a price.
type Adjustment struct {
	ID    string // of the rule
	Stage Stage
	Kind  Kind
	// Value is a part (0.15 for 15 %) or, for fixed and cap, a price per unit.
	Value *big.Rat
	// Additive takes an uplift or a discount of the price before the first
	// adjustment of the stages from volume on, so that 20 % and 5 % are 25 % and not
	// 24 %.
	Additive bool
}

// Step is an adjustment as it was applied: the price before and after.
type Step struct {
	Adjustment
	Before, After *big.Rat
}

// Adjust applies adjustments to a list price: stage by stage, within a stage in the
// order of their ids. The steps lead from the list price to the price it returns.
// No price falls below zero.
func Adjust(list *big.Rat, adjustments []Adjustment) (*big.Rat, []Step) {
	ordered := slices.Clone(adjustments)
	slices.SortStableFunc(ordered, func(a, b Adjustment) int { return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.ID, b.ID)) })
	price, base := list, list
	steps := make([]Step, 0, len(ordered))
	for i := range ordered {
		a := &ordered[i]
		if a.Stage < StageVolume {
			base = a.apply(price, price)
			steps = append(steps, Step{*a, price, base})
			price = base
			continue
		}
		after := a.apply(price, base)
		steps = append(steps, Step{*a, price, after})
		price = after
	}
	return price, steps
}

func (a *Adjustment) apply(price, base *big.Rat) *big.Rat {
	if !a.Additive {
		base = price
	}
	part := new(big.Rat).Mul(base, a.Value)
	after := new(big.Rat)
	switch a.Kind {
	case Uplift:
		after.Add(price, part)
	case Discount:
		after.Sub(price, part)
	case Factor:
		after.Set(part)
	case Fixed:
		after.Set(a.Value)
	case Cap:
		if after.Set(price); price.Cmp(a.Value) > 0 {
			after.Set(a.Value)
		}
	default:
		panic(fmt.Sprintf("pricing: adjustment %s has the kind %q", a.ID, a.Kind))
	}
	if after.Sign() < 0 {
		after.SetInt64(0)
	}
	return after
}

// Text writes the step so that a person can redo it.
func (s *Step) Text() string {
	switch s.Kind {
	case Fixed:
		return fmt.Sprintf("%s %s: %s instead of %s", s.Stage, s.ID, Exact(s.After), Exact(s.Before))
	case Cap:
		if s.Before.Cmp(s.After) == 0 {
			return fmt.Sprintf("%s %s: %s is not above %s", s.Stage, s.ID, Exact(s.Before), Exact(s.Value))
		}
		return fmt.Sprintf("%s %s: at most %s instead of %s", s.Stage, s.ID, Exact(s.After), Exact(s.Before))
	}
	of := "x"
	value := s.Value
	switch {
	case s.Additive:
		of = "+ that much of the price before volume:"
		if s.Kind == Discount {
			of = "- that much of the price before volume:"
		}
	case s.Kind == Uplift:
		value = new(big.Rat).Add(one, s.Value)
	case s.Kind == Discount:
		value = new(big.Rat).Sub(one, s.Value)
	}
	return fmt.Sprintf("%s %s: %s %s %s = %s", s.Stage, s.ID, Exact(s.Before), of, Exact(value), Exact(s.After))
}

var one = big.NewRat(1, 1)
