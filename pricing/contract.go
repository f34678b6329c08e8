package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Contract is what was agreed with a platform beside its public prices, for a time.
type Contract struct {
	ID          string         `yaml:"contract,required"`
	Platform    string         `yaml:"platform,required"`
	Currency    string         `yaml:"currency,required"`
	From        Instant        `yaml:"valid_from,required"`
	To          Instant        `yaml:"valid_to,required"` // exclusive
	Commitments []CommittedDoc `yaml:"commitments"`
	Rules       []Rule         `yaml:"adjustments"`
	SLA         *SLA           `yaml:"sla"`
	Meters      []MeterPrice   `yaml:"meters"`
	Quotes      []Quote        `yaml:"quotes"`
	Credits     []CreditDoc    `yaml:"credits"`
	Clauses     Clauses        `yaml:"clauses"`

	Line int
	Hash string // digest of the document: the version of what it says
}

// CommittedDoc is a [Commitment] as a contract writes it.
type CommittedDoc struct {
	ID      string   `yaml:"id,required"`
	Model   string   `yaml:"model,required"`
	Region  string   `yaml:"region"`
	Tenancy string   `yaml:"tenancy"` // such as dedicated: covers nothing else
	Project string   `yaml:"project"`
	Gpus    int64    `yaml:"gpus,required"`
	Term    Term     `yaml:"term,required"`
	Day     DayCycle `yaml:"day"`
	PerGPU  *big.Rat `yaml:"per_gpu,required"` // for one cycle
	Payment Payment  `yaml:"payment"`          // left out: upfront
	// Down is the part of a cycle's price that is paid when it begins; for a partial
	// payment.
	Down *big.Rat `yaml:"down_payment"`
	From Instant  `yaml:"from"` // left out: the contract's
	To   Instant  `yaml:"to"`
	// Stated is what the contract says the price is; it has to follow from prices.
	Stated *Stated `yaml:"stated"`

	Line int
}

// Stated is a percentage of a contract and the price that it refers to.
type Stated struct {
	Discount *big.Rat `yaml:"discount,required"`
	Of       *big.Rat `yaml:"of_per_gpu,required"` // for one cycle, too
}

// Rule is an [Adjustment] and when it applies: everything that is given has to hold.
type Rule struct {
	ID       string   `yaml:"id,required"`
	Stage    StageDoc `yaml:"stage,required"`
	Uplift   *big.Rat `yaml:"uplift"` // one of these five
	Discount *big.Rat `yaml:"discount"`
	Factor   *big.Rat `yaml:"factor"`
	Fixed    *big.Rat `yaml:"fixed"`
	Cap      *big.Rat `yaml:"cap"`
	Additive bool     `yaml:"additive"`

	Models    []string `yaml:"model"`
	Regions   []string `yaml:"region"`
	Tiers     []string `yaml:"dc_tier"`
	Tenancies []string `yaml:"tenancy"`
	Plans     []string `yaml:"plan"`
	Projects  []string `yaml:"project"`
	Workloads []string `yaml:"workload"`
	MinGpus   int64    `yaml:"min_gpus"` // of all rentals that it could apply to, at the time
	With      []string `yaml:"with"`     // meters or rules that have to be there, too
	From      Instant  `yaml:"valid_from"`
	To        Instant  `yaml:"valid_to"`

	Line int
}

// StageDoc is a [Stage] by name.
type StageDoc string

// Clauses are promises that are checked and not priced.
type Clauses struct {
	ScaleOut   Length             `yaml:"scale_out"`    // C6: an urgent request is met within
	Checkpoint Length             `yaml:"checkpoint"`   // C13: work is saved so often
	NoTraining bool               `yaml:"no_training"`  // C12: data is not used for anything else
	Encryption []string           `yaml:"encryption"`   // C11
	Valid      map[string]Instant `yaml:"certificates"` // C10: name and when it expires
}

func (StageDoc) values() []string { return stageNames[1:] }
func (Term) values() []string {
	return []string{string(TermHour), string(TermDay), string(TermWeek), string(TermMonth), string(TermQuarter), string(TermYear)}
}

// ParseContract reads a contract. Errors are as for [Parse].
func ParseContract(name string, data []byte) (*Contract, error) {
	return parseAs(name, data, (*parser).contract)
}

func (p *parser) contract(root ast.Node) *Contract {
	c := &Contract{}
	p.read(root, "the contract", c)
	if len(p.faults) == 0 {
		p.checkContract(root, c)
	}
	c.Hash = p.hash
	return c
}

// wrong reports a fault in an entry that begins in a line.
func (p *parser) wrong(line int, format string, args ...any) {
	p.faults = append(p.faults, &Fault{Line: line, Msg: fmt.Sprintf(format, args...)})
}

func (p *parser) checkContract(root ast.Node, c *Contract) {
	if !KnownCurrency(c.Currency) {
		p.fail(under(root, "currency"), "currency %q is not an ISO 4217 code such as USD, EUR or CNY", clip(c.Currency))
	}
	if c.To <= c.From {
		p.fail(under(root, "valid_to"), "valid_to %s is not after valid_from %s", instantText(int64(c.To)), instantText(int64(c.From)))
	}
	ids := map[string]int{}
	name := func(id string, line int) {
		if first, twice := ids[id]; twice {
			p.wrong(line, "id %q is there twice, first in line %d", clip(id), first)
		}
		ids[id] = line
	}
	for i := range c.Commitments {
		d := &c.Commitments[i]
		name(d.ID, d.Line)
		p.checkCommitment(c, d)
	}
	for i := range c.Rules {
		name(c.Rules[i].ID, c.Rules[i].Line)
		p.checkRule(&c.Rules[i])
	}
	for i := range c.Credits {
		name(c.Credits[i].ID, c.Credits[i].Line)
		p.checkCredit(c, &c.Credits[i])
	}
	p.checkBundles(c)
}

func (p *parser) checkCommitment(c *Contract, d *CommittedDoc) {
	if d.Gpus == 0 {
		p.wrong(d.Line, "commitment %s is of 0 gpus", d.ID)
	}
	from, to := d.span(c)
	if from >= to || from < c.From || to > c.To {
		p.wrong(d.Line, "commitment %s lasts from %s to %s, which is not within the contract", d.ID, instantText(int64(from)), instantText(int64(to)))
	}
	p.checkPayment(d)
	switch s := d.Stated; {
	case s == nil:
	case s.Of.Sign() == 0:
		p.wrong(d.Line, "commitment %s states a discount of a price of 0", d.ID)
	default:
		is := new(big.Rat).Sub(one, new(big.Rat).Quo(d.PerGPU, s.Of))
		if is.Cmp(s.Discount) != 0 {
			percent := func(x *big.Rat) string {
				return strings.TrimSuffix(strings.TrimRight(new(big.Rat).Mul(x, big.NewRat(100, 1)).FloatString(4), "0"), ".") + " %"
			}
			what := percent(is) + " cheaper"
			if is.Sign() < 0 {
				what = percent(new(big.Rat).Neg(is)) + " dearer"
			}
			p.wrong(d.Line, "commitment %s states a discount of %s, and %s instead of %s is %s", d.ID, percent(s.Discount), Exact(d.PerGPU), Exact(s.Of), what)
		}
	}
}

func (d *CommittedDoc) span(c *Contract) (from, to Instant) {
	if from, to = d.From, d.To; from == 0 {
		from = c.From
	}
	if to == 0 {
		to = c.To
	}
	return from, to
}

// Commitment returns what [Commitment.Cover] needs.
func (c *Contract) Commitment(d *CommittedDoc) *Commitment {
	from, to := d.span(c)
	return &Commitment{
		ID: d.ID, Platform: c.Platform, Region: d.Region, Model: d.Model, Tenancy: d.Tenancy, Project: d.Project, Gpus: d.Gpus,
		Span: Span{int64(from), int64(to)}, Term: d.Term, Day: d.Day, Price: d.PerGPU,
	}
}

func (p *parser) checkRule(r *Rule) {
	a := r.adjustment()
	switch n := len(r.given()); {
	case n == 0:
		p.wrong(r.Line, "adjustment %s changes nothing; it needs one of uplift, discount, factor, fixed, cap", r.ID)
		return
	case n > 1:
		p.wrong(r.Line, "adjustment %s has several of uplift, discount, factor, fixed, cap", r.ID)
		return
	}
	if a.Kind == Discount && a.Value.Cmp(one) > 0 {
		p.wrong(r.Line, "adjustment %s is a discount of more than the whole price", r.ID)
	}
	if a.Additive && (a.Stage < StageVolume || a.Kind != Discount && a.Kind != Uplift) {
		p.wrong(r.Line, "adjustment %s cannot be additive: only discounts and uplifts of the stages from volume on can", r.ID)
	}
	if (a.Stage == StageCap) != (a.Kind == Cap) {
		p.wrong(r.Line, "adjustment %s: the stage cap is for caps, and caps are for it", r.ID)
	}
	if r.To != 0 && r.To <= r.From {
		p.wrong(r.Line, "adjustment %s ends at %s and begins at %s", r.ID, instantText(int64(r.To)), instantText(int64(r.From)))
	}
}

// checkBundles looks for rules that wait for each other.
func (p *parser) checkBundles(c *Contract) {
	byID := map[string]*Rule{}
	for i := range c.Rules {
		byID[c.Rules[i].ID] = &c.Rules[i]
	}
	done := map[string]bool{}
	var visit func(r *Rule, path []string)
	visit = func(r *Rule, path []string) {
		if i := slices.Index(path, r.ID); i >= 0 {
			p.wrong(r.Line, "adjustments need each other: %s", strings.Join(append(path[i:], r.ID), " needs "))
			return
		}
		if done[r.ID] {
			return
		}
		for _, name := range r.With {
			if next := byID[name]; next != nil {
				visit(next, append(slices.Clip(path), r.ID))
			}
		}
		done[r.ID] = true
	}
	for i := range c.Rules {
		visit(&c.Rules[i], nil)
	}
}

func (r *Rule) given() (list []Adjustment) {
	for _, v := range []struct {
		kind  Kind
		value *big.Rat
	}{{Uplift, r.Uplift}, {Discount, r.Discount}, {Factor, r.Factor}, {Fixed, r.Fixed}, {Cap, r.Cap}} {
		if v.value != nil {
			list = append(list, Adjustment{ID: r.ID, Stage: Stage(slices.Index(stageNames[:], string(r.Stage))), Kind: v.kind, Value: v.value, Additive: r.Additive})
		}
	}
	return list
}

func (r *Rule) adjustment() (a Adjustment) {
	if list := r.given(); len(list) > 0 {
		a = list[0]
	}
	return a
}

// applies says whether the rule could apply to a segment at an instant, but for
// min_gpus and with.
func (r *Rule) applies(s *Segment, atMs int64) bool {
	any := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return any(r.Models, s.Model) && any(r.Regions, s.Region) && any(r.Tiers, s.DCTier) && any(r.Tenancies, s.Tenancy) && any(r.Plans, s.Plan) &&
		any(r.Projects, s.Project) && any(r.Workloads, s.Workload) && atMs >= int64(r.From) && (r.To == 0 || atMs < int64(r.To))
}

// Active is what runs at an instant, beside the segment that is priced.
type Active struct {
	// Enough says whether as many GPUs run as a rule with min_gpus needs: of all
	// segments that it could apply to.
	Enough func(r *Rule, atMs int64) bool
	// Meter says whether a meter runs.
	Meter func(name string, atMs int64) bool
}

// Adjustments returns the rules of the contract that apply to a segment at an
// instant. A rule that needs another one needs it to apply.
func (c *Contract) Adjustments(s *Segment, atMs int64, active Active) (list []Adjustment) {
	if s.Platform != c.Platform || atMs < int64(c.From) || atMs >= int64(c.To) {
		return nil
	}
	holds := map[string]bool{}
	for {
		found := false
		for i := range c.Rules {
			r := &c.Rules[i]
			if holds[r.ID] || !r.applies(s, atMs) || slices.ContainsFunc(r.With, func(name string) bool { return !holds[name] && !active.Meter(name, atMs) }) {
				continue
			}
			if r.MinGpus > 0 && !active.Enough(r, atMs) {
				continue
			}
			holds[r.ID], found = true, true
			list = append(list, r.adjustment())
		}
		if !found {
			return list
		}
	}
}
