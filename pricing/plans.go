package pricing

import (
	"math/big"
)

// PlanKind is what was bought for a time.
type PlanKind string

// Kinds of plans.
const (
	PlanCommitment PlanKind = "commitment" // GPUs of a contract, for whoever runs
	PlanInstance   PlanKind = "instance"   // the plan of one instance
	PlanQuote      PlanKind = "quote"      // the fixed price of a job
)

// Verdict is what a check says of a plan.
type Verdict string

// Verdicts. The first one that holds is given, in this order.
const (
	VerdictUnused  Verdict = "unused"               // nothing used it
	VerdictNever   Verdict = "never_breaks_even"    // a cycle has fewer hours than it needs
	VerdictUnknown Verdict = "unpriced"             // what its use costs on demand is not known
	VerdictTooDear Verdict = "too_dear_at_this_use" // on demand the same use is cheaper
	VerdictKeep    Verdict = "keep"
)

// PlanCheck says of a plan what it was worth over a span of time. Times are GPU-ms,
// amounts exact and in Currency. UsedMs + UnusedMs = CommittedMs.
type PlanCheck struct {
	ID       string // of the commitment, plan or quote
	Contract string // that it is in; empty = none
	Kind     PlanKind
	Instance string // whose plan it is; empty = a contract's
	Project  string // the owner
	Platform string
	Region   string // empty = any
	Model    string // empty for a quote
	Tenancy  string // empty = any
	Term     Term   // of a cycle; empty for a quote
	Gpus     int64  // 0 for a quote, which is for no number of GPUs
	Currency string
	Span     // the part of the span in which it lasted, until now

	CommittedMs int64 // of a quote what it was used for
	UsedMs      int64
	UnusedMs    int64
	EligibleMs  int64    // GPU time that it could have covered, whoever paid for it
	Utilization *big.Rat // used / committed; nil for a quote or without committed time
	Coverage    *big.Rat // used / eligible; nil when nothing was

	Purchased  *big.Rat // cycles that begin in the span, as billed
	Refunded   *big.Rat // given back in the span of cycles that ended early; not negative
	UsedCost   *big.Rat // purchases spread over their time: the part that was used
	UnusedCost *big.Rat // and the part that was not
	OnDemand   *big.Rat // the used time on demand, at list; nil = not known
	Savings    *big.Rat // OnDemand less both costs, negative when the plan is dearer; nil = not known

	Price   *big.Rat // of a GPU for the last cycle of the span; a quote's fee
	PerHour *big.Rat // list price of a GPU-hour that it is compared with; nil = not known
	Cycle   Span     // the last one of the span
	// BreakEven is how many hours on demand a GPU's cycle pays for (for a quote, GPU-hours
	// of the job); nil = not known. Never says that the cycle has fewer.
	BreakEven *big.Rat
	Never     bool
	// Missing is how many of these hours each GPU still lacks in the last cycle, and
	// LeftMs how long that cycle goes on after the span.
	Missing *big.Rat
	LeftMs  int64

	Verdict Verdict
}

// CheckPlans checks every commitment, instance plan and quote that lasts in a span, in
// the order of the lines. The lines are all that [Terms.Rate] returns, also of the time
// before the span: a cycle may have begun there. A line that is partly in the span
// counts with that part of it, so amounts are those of the lines when they are cut at
// its ends. What the used time costs on demand is at the book's list prices, and not
// known where a plan is paid in another currency than the book's.
func CheckPlans(lines []Line, span Span, book *Book) []PlanCheck {
	type id struct{ contract, commitment string }
	plans := map[id]*planLines{}
	var order []*planLines
	eligible := eligibleLines{}
	for i := range lines {
		l := &lines[i]
		eligible.add(l)
		if l.Commitment == "" {
			continue
		}
		k := id{l.Contract, l.Commitment}
		if plans[k] == nil {
			plans[k] = &planLines{}
			order = append(order, plans[k])
		}
		plans[k].add(l)
	}
	var list []PlanCheck
	for _, p := range order {
		if c, ok := p.check(span, eligible, book); ok {
			list = append(list, c)
		}
	}
	return list
}

// in returns the part of a span that lies in another one, which may be empty.
func (s Span) in(window Span) Span {
	from := max(s.FromMs, window.FromMs)
	return Span{from, max(from, min(s.ToMs, window.ToMs))}
}

// share is the part of an amount of the line that falls into a window.
func (l *Line) share(amount *big.Rat, window Span) *big.Rat {
	if l.Ms() == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Mul(amount, big.NewRat(l.Span.in(window).Ms(), l.Ms()))
}

// gpuMs is the GPU time of a line in a window: time that was had, not what a minimum or
// rounding adds.
func (l *Line) gpuMs(window Span) int64 {
	if l.Category != CategoryUsage || l.Meter != MeterGPU || l.ExcludedMs > 0 || l.Per == perInstanceHour {
		return 0
	}
	return l.Span.in(window).Ms() * l.Segment.Gpus
}

// eligibleLines are lines of GPU time that somebody had, by what a plan may ask for.
type eligibleLines map[[3]string][]*Line

func (e eligibleLines) add(l *Line) {
	if l.Status == StatusUnused || l.gpuMs(l.Span) == 0 {
		return
	}
	s := &l.Segment
	for _, k := range [...][3]string{{"model", s.Platform, s.Model}, {"project", s.Platform, s.Project}, {"instance", s.Platform, l.Instance}} {
		e[k] = append(e[k], l)
	}
}

// ms is how much of it a plan could have covered in a window.
func (e eligibleLines) ms(c *PlanCheck, window Span) (ms int64) {
	k := [3]string{"model", c.Platform, c.Model}
	switch c.Kind {
	case PlanInstance:
		k = [3]string{"instance", c.Platform, c.Instance}
	case PlanQuote:
		k = [3]string{"project", c.Platform, c.Project}
	}
	for _, l := range e[k] {
		same := func(want, got string) bool { return c.Kind != PlanCommitment || want == "" || want == got }
		if same(c.Region, l.Segment.Region) && same(c.Tenancy, l.Segment.Tenancy) {
			ms += l.gpuMs(window)
		}
	}
	return ms
}

// planLines are the lines of one plan.
type planLines struct{ purchases, uses, refunds []*Line }

func (p *planLines) add(l *Line) {
	switch l.Category {
	case CategoryPurchase:
		p.purchases = append(p.purchases, l)
	case CategoryCredit:
		p.refunds = append(p.refunds, l)
	default:
		p.uses = append(p.uses, l)
	}
}

// check is false when the plan does not last in the span.
func (p *planLines) check(span Span, eligible eligibleLines, book *Book) (PlanCheck, bool) {
	if len(p.purchases) == 0 {
		return PlanCheck{}, false
	}
	c := p.describe()
	from, to := p.purchases[0].FromMs, p.purchases[0].FromMs
	for _, l := range p.uses {
		to = max(to, l.ToMs)
	}
	if c.Kind == PlanQuote { // it has no use between the runs of its job
		to = p.purchases[0].ToMs
	}
	if c.Span = (Span{from, to}).in(span); c.Ms() == 0 {
		return c, false
	}
	p.amounts(&c, span)
	c.EligibleMs = eligible.ms(&c, c.Span)
	if c.Kind != PlanQuote {
		c.Utilization = ratio(c.UsedMs, c.CommittedMs)
	}
	c.Coverage = ratio(c.UsedMs, c.EligibleMs)
	if book == nil || book.Currency != c.Currency {
		c.OnDemand = nil
	}
	if c.OnDemand != nil {
		c.Savings = new(big.Rat).Sub(c.OnDemand, c.UsedCost)
		c.Savings.Sub(c.Savings, c.UnusedCost)
	}
	p.breakEven(&c, book)
	c.Verdict = c.verdict()
	return c, true
}

// describe says what was bought, from the first purchase.
func (p *planLines) describe() PlanCheck {
	l := p.purchases[0]
	s := &l.Segment
	c := PlanCheck{
		ID: l.Commitment, Contract: l.Contract, Kind: PlanCommitment, Instance: l.Instance, Project: s.Project, Platform: s.Platform, Region: s.Region, Model: s.Model,
		Tenancy: s.Tenancy, Term: Term(s.Plan), Gpus: s.Gpus, Currency: l.Currency,
		Purchased: new(big.Rat), Refunded: new(big.Rat), UsedCost: new(big.Rat), UnusedCost: new(big.Rat), OnDemand: new(big.Rat),
	}
	switch {
	case l.Instance != "":
		c.Kind = PlanInstance
	case l.Per == perJob:
		c.Kind, c.Term, c.Gpus = PlanQuote, "", 0
	}
	return c
}

// amounts adds up what the lines have in the span.
func (p *planLines) amounts(c *PlanCheck, span Span) {
	within := func(l *Line) bool { return l.FromMs >= span.FromMs && l.FromMs < span.ToMs }
	for _, l := range p.purchases {
		if within(l) {
			c.Purchased.Add(c.Purchased, l.Billed)
		}
		if l.FromMs < c.ToMs && l.ToMs != c.Cycle.ToMs { // else it is a further payment of the same cycle
			c.Cycle, c.Price = l.Span, l.Price
		}
	}
	if c.Kind == PlanCommitment && len(p.uses) > 0 {
		c.Price = p.uses[0].Price // a purchase may be one of several payments
	}
	for _, l := range p.refunds {
		if within(l) {
			c.Refunded.Sub(c.Refunded, l.Billed)
		}
	}
	for _, l := range p.uses {
		ms := l.gpuMs(span)
		if ms == 0 {
			continue
		}
		if l.Status == StatusUnused {
			c.UnusedMs += ms
			c.UnusedCost.Add(c.UnusedCost, l.share(l.Effective, span))
			continue
		}
		c.UsedMs += ms
		c.UsedCost.Add(c.UsedCost, l.share(l.Effective, span))
		if l.ListCost == nil {
			c.OnDemand = nil
		} else if c.OnDemand != nil {
			c.OnDemand.Add(c.OnDemand, l.share(l.ListCost, span))
		}
	}
	if c.Kind == PlanQuote {
		c.UnusedMs = 0 // a fee buys no number of GPUs that could lie idle
	}
	c.CommittedMs = c.UsedMs + c.UnusedMs
}

// breakEven works out the hours of the last cycle. The price on demand is the mean of
// the used time, and what the book says when there is none.
func (p *planLines) breakEven(c *PlanCheck, book *Book) {
	if c.OnDemand != nil && c.UsedMs > 0 {
		c.PerHour = new(big.Rat).Quo(c.OnDemand, big.NewRat(c.UsedMs, hourMs))
	} else if c.Kind != PlanQuote && book != nil && book.Currency == c.Currency {
		if price, ok := book.Price(c.Model, c.Platform, c.Region, c.ToMs-1); ok {
			c.PerHour = price.PerGPUHour
		}
	}
	ended := len(p.refunds) > 0 && p.refunds[len(p.refunds)-1].FromMs <= c.ToMs
	if c.ToMs < c.Cycle.ToMs && !ended {
		c.LeftMs = c.Cycle.ToMs - c.ToMs
	}
	if c.PerHour == nil {
		return
	}
	if c.Kind == PlanQuote {
		c.BreakEven, _ = BreakEven(c.Price, c.PerHour, 0)
		return
	}
	c.BreakEven, c.Never = BreakEven(c.Price, c.PerHour, c.Cycle.Ms()/hourMs)
	if c.BreakEven == nil {
		return
	}
	used := int64(0)
	for _, l := range p.uses {
		if l.Status == StatusUsed {
			used += l.gpuMs(Span{c.Cycle.FromMs, c.ToMs})
		}
	}
	c.Missing = new(big.Rat).Sub(c.BreakEven, big.NewRat(used, hourMs*max(1, c.Gpus)))
	if c.Missing.Sign() < 0 {
		c.Missing.SetInt64(0)
	}
}

func (c *PlanCheck) verdict() Verdict {
	switch {
	case c.UsedMs == 0:
		return VerdictUnused
	case c.Never:
		return VerdictNever
	case c.Savings == nil:
		return VerdictUnknown
	case c.Savings.Sign() < 0:
		return VerdictTooDear
	}
	return VerdictKeep
}

// ratio is nil when there is no whole.
func ratio(part, whole int64) *big.Rat {
	if whole == 0 {
		return nil
	}
	return big.NewRat(part, whole)
}
