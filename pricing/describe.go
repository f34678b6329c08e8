package pricing

import (
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ProfileRule is a rule of a profile as a reader sees it.
type ProfileRule struct {
	Name   string // dotted, such as time.minimum
	Value  string // empty = left out
	Status RuleStatus
}

// RuleStatus says how sure a rule is.
type RuleStatus string

// How sure a rule is.
const (
	Confirmed  RuleStatus = "confirmed"  // by the sources of the profile
	Unverified RuleStatus = "unverified" // a guess that its owner has to confirm
	OwnRule    RuleStatus = "own"        // of a profile that follows nobody's pages
)

// Rules returns all rules of the profile in the order of the format, with those that are
// left out: that a platform has no minimum may be a guess, too. The price without a GPU
// is one only where that state is billed.
func (f *Profile) Rules() []ProfileRule {
	list := f.rules(reflect.ValueOf(*f), "")
	return slices.DeleteFunc(list, func(r ProfileRule) bool {
		switch r.Name {
		case "platform", "sources", "unverified":
			return true
		case "billed.no_gpu_per_hour":
			return r.Value == "" && !f.Billed.Bills("running_no_gpu")
		}
		return false
	})
}

func (f *Profile) rules(v reflect.Value, prefix string) (list []ProfileRule) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case name == "":
		case v.Field(i).Kind() == reflect.Struct:
			list = append(list, f.rules(v.Field(i), prefix+name+".")...)
		default:
			list = append(list, ProfileRule{prefix + name, ruleText(v.Field(i)), f.status(prefix + name)})
		}
	}
	return list
}

func (f *Profile) status(rule string) RuleStatus {
	switch {
	case slices.ContainsFunc(f.Unverified, func(u string) bool { return u == rule || strings.HasPrefix(rule, u+".") }):
		return Unverified
	case len(f.Sources)+len(f.Unverified) == 0:
		return OwnRule
	}
	return Confirmed
}

func ruleText(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch value := v.Interface().(type) {
	case *big.Rat:
		return Exact(value)
	case *time.Location:
		return value.String()
	case Length:
		return value.String()
	case []State:
		texts := make([]string, len(value))
		for i, s := range value {
			texts[i] = string(s)
		}
		return strings.Join(texts, ", ")
	case int:
		return strconv.Itoa(value)
	}
	return v.String()
}

// String writes the length in the largest unit that it is a whole number of.
func (l Length) String() string {
	best := "ms"
	for unit, ms := range lengthUnits {
		if l > 0 && int64(l)%ms == 0 && ms > lengthUnits[best] {
			best = unit
		}
	}
	return strconv.FormatInt(int64(l)/lengthUnits[best], 10) + best
}

// Discount returns how much cheaper the commitment is than the price that its contract
// compares it with: negative when it is dearer, nil when nothing is stated.
func (d *CommittedDoc) Discount() *big.Rat {
	if d.Stated == nil || d.Stated.Of.Sign() == 0 {
		return nil
	}
	return new(big.Rat).Sub(one, new(big.Rat).Quo(d.PerGPU, d.Stated.Of))
}

// Adjustment returns what the rule does to a price.
func (r *Rule) Adjustment() Adjustment { return r.adjustment() }
