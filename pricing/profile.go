package pricing

import (
	"math/big"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Profile is how a platform turns leases into a bill. What a platform's pages do not
// say is marked unverified: the rule is a guess that its owner has to confirm.
type Profile struct {
	Platform   string         `yaml:"platform,required"` // as lease and usage events name it
	Zone       *time.Location `yaml:"zone,required"`     // where its hours, days and months begin
	Sources    []string       `yaml:"sources"`           // where the rules are written
	Unverified []string       `yaml:"unverified"`        // rules, such as time.minimum, that no source confirms
	Billed     BilledStates   `yaml:"billed,required"`
	Time       ProfileTime    `yaml:"time"`
	Settle     Every          `yaml:"settle"` // when money is taken; left out: at the end of a run
	Amount     ProfileAmount  `yaml:"amount"`
	Spot       ProfileSpot    `yaml:"spot"`
	Plan       ProfilePlan    `yaml:"plan"`

	Line int
	Hash string // digest of the document: the version of its rules
}

// BilledStates are the states of a lease, as its events name them, in which each
// meter runs. In a state that is not in a list nothing is billed for that meter.
type BilledStates struct {
	Compute []State `yaml:"compute,required"`
	Storage []State `yaml:"storage,required"`
	// NoGPU is the price per instance and hour in the state running_no_gpu, in the
	// currency of the price book; left out: that of any billed state.
	NoGPU *big.Rat `yaml:"no_gpu_per_hour"`
}

// State is a state of a lease.
type State string

var states = []string{
	"provisioning", "running", "running_no_gpu", "stopping", "stopped_keep", "stopped_free", "interrupted", "released", "expired", "frozen",
}

// ProfileTime is how time is counted. Left out, it is exact.
type ProfileTime struct {
	Granularity Length     `yaml:"granularity"`
	Rounding    TimeRound  `yaml:"rounding"`
	Per         RoundScope `yaml:"per"`
	Minimum     Length     `yaml:"minimum"`
	MinimumPer  MinimumPer `yaml:"minimum_per"`
}

// ProfileAmount is how amounts become money. Left out, they stay exact.
type ProfileAmount struct {
	Rounding  Mode        `yaml:"rounding"`
	Decimals  int         `yaml:"decimals"`
	Minimum   *big.Rat    `yaml:"minimum"`
	FreeBelow *big.Rat    `yaml:"free_below"`
	Per       AmountScope `yaml:"per"`
}

// AmountScope is what is rounded: every settled line, or the bill.
type AmountScope string

// Scopes of amounts.
const (
	PerLine AmountScope = "line"
	PerBill AmountScope = "bill"
)

// ProfileSpot are the rules for instances that the platform may take back.
type ProfileSpot struct {
	Protection Length `yaml:"protection"` // not taken back before
	Notice     Length `yaml:"notice"`     // told so long before
	// Refund says what is not billed of a run that the platform ends within Within of
	// its start.
	Refund SpotRefund `yaml:"refund"`
	Within Length     `yaml:"refund_within"`
}

// SpotRefund is what an interrupted run does not cost.
type SpotRefund string

// Refunds.
const (
	RefundNone SpotRefund = "none"
	RefundRun  SpotRefund = "run"  // all of the run's compute
	RefundHour SpotRefund = "hour" // the started hour
)

// ProfilePlan are the rules for daily to yearly plans.
type ProfilePlan struct {
	Month  MonthRule  `yaml:"month"`
	Day    DayCycle   `yaml:"day"`
	Refund PlanRefund `yaml:"refund"`
}

// PlanRefund is what is given back of a cycle that ends early.
type PlanRefund string

// Refunds of plans.
const (
	NoRefund       PlanRefund = "none"
	RefundProrated PlanRefund = "prorated" // the part of the cycle that is left
	RefundHourly   PlanRefund = "hourly"   // paid less what the used time costs by the hour
)

func (State) values() []string { return states }
func (Every) values() []string {
	return []string{string(EveryHour), string(EveryDay), string(EveryMonth)}
}
func (TimeRound) values() []string {
	return []string{string(RoundUp), string(RoundDown), string(RoundNearest)}
}
func (RoundScope) values() []string { return []string{string(PerRun), string(PerSettlement)} }
func (MinimumPer) values() []string { return []string{string(PerStart), string(PerDay)} }
func (Mode) values() []string {
	return []string{string(HalfUp), string(HalfEven), string(Up), string(Down)}
}
func (AmountScope) values() []string { return []string{string(PerLine), string(PerBill)} }
func (SpotRefund) values() []string {
	return []string{string(RefundNone), string(RefundRun), string(RefundHour)}
}
func (MonthRule) values() []string {
	return []string{string(MonthOfCalendar), string(MonthOfCycle), string(MonthOf30Days), string(MonthOf730Hours)}
}
func (DayCycle) values() []string { return []string{string(RollingDay), string(CalendarDay)} }
func (PlanRefund) values() []string {
	return []string{string(NoRefund), string(RefundProrated), string(RefundHourly)}
}

// ParseProfile reads a profile. Errors are as for [Parse].
func ParseProfile(name string, data []byte) (*Profile, error) {
	return parseAs(name, data, (*parser).profile)
}

func (p *parser) profile(root ast.Node) *Profile {
	f := &Profile{}
	p.read(root, "the profile", f)
	if len(p.faults) == 0 {
		p.check(root, f)
	}
	f.Hash = p.hash
	return f
}

// check looks for rules that mean nothing, or contradict one another.
func (p *parser) check(root ast.Node, f *Profile) {
	t := &f.Time
	if t.Granularity > 1 && t.Rounding == "" {
		p.fail(under(root, "time.granularity"), "time.granularity is %d ms and time.rounding does not say what a started one counts", t.Granularity)
	}
	if t.Granularity <= 1 && t.Rounding != "" {
		p.fail(under(root, "time.rounding"), "time.rounding is %s and there is no time.granularity to round to", t.Rounding)
	}
	if t.Minimum > 0 && t.MinimumPer == "" {
		p.fail(under(root, "time.minimum"), "time.minimum is %d ms and time.minimum_per does not say whether per start or per day", t.Minimum)
	}
	if t.Per == PerSettlement && f.Settle == "" {
		p.fail(under(root, "time.per"), "time.per is settlement and settle is left out")
	}
	a := &f.Amount
	if a.Rounding == "" && (a.Decimals > 0 || a.Minimum != nil || a.FreeBelow != nil || a.Per != "") {
		p.fail(under(root, "amount"), "amount has no rounding; without it amounts stay exact and the other keys mean nothing")
	}
	if f.Spot.Within > 0 && (f.Spot.Refund == "" || f.Spot.Refund == RefundNone) {
		p.fail(under(root, "spot.refund_within"), "spot.refund_within is there and spot.refund does not say what is given back")
	}
	rules := rulesOf(Profile{}, "")
	for _, name := range f.Unverified {
		if !slices.Contains(rules, name) {
			p.fail(under(root, "unverified"), "unverified names %q, which is no rule; did you mean %q?", clip(name), nearest(name, rules))
		}
	}
}

// TimeRule returns the rules of time for [TimeRule.Bill].
func (f *Profile) TimeRule() TimeRule {
	return TimeRule{
		Granularity: int64(f.Time.Granularity), Rounding: f.Time.Rounding, Per: f.Time.Per,
		MinimumMs: int64(f.Time.Minimum), MinimumPer: f.Time.MinimumPer, Settle: f.Settle, Zone: f.Zone,
	}
}

// Rounding returns the rule for amounts.
func (f *Profile) Rounding() Rounding {
	return Rounding{Mode: f.Amount.Rounding, Decimals: f.Amount.Decimals, Minimum: f.Amount.Minimum, FreeBelow: f.Amount.FreeBelow}
}

// Bills says whether a state is billed.
func (b *BilledStates) Bills(state string) bool { return slices.Contains(b.Compute, State(state)) }
