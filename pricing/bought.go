package pricing

import (
	"cmp"
	"math"
	"math/big"
	"slices"
)

// What is bought for a time is a purchase when it is bought, and used or unused while
// that time goes by: the purchase is billed, and its uses are what it is worth to whom.
// Over the whole of it they add up to each other exactly.

// prepaid is a purchase that is to be spread over what it pays for.
type prepaid struct {
	id       string
	contract *Contract // nil for a plan of the price book
	version  string
	line     int
	plan     string
	instance string // whose plan it is; empty = a commitment's
	currency string
	segment  Segment // what is bought, with its owner
	per      string
	list     func(cycle Span) *big.Rat
	price    func(cycle Span) *big.Rat
	steps    func(cycle Span) []Step
	quantity int64
}

// purchase is the line of one cycle.
func (r *rating) purchase(b *prepaid, p Purchase) {
	s := b.segment
	s.Span, s.Plan, s.Gpus = p.Span, b.plan, b.quantity
	l := Line{
		Category: CategoryPurchase, Meter: MeterGPU, Span: p.Span, Instance: b.instance, Segment: s, Commitment: b.id, Contract: b.contractID(),
		Settlements: 1, Currency: b.currency, List: b.list(p.Span), Price: b.price(p.Span), Per: b.per, Version: b.version, Line: b.line,
		ListCost: new(big.Rat), Cost: p.Cost, Billed: p.Cost, Effective: new(big.Rat), Evidence: s.Evidence,
	}
	if b.steps != nil {
		l.Steps = b.steps(p.Span)
	}
	r.lines.add(l)
}

func (b *prepaid) contractID() string {
	if b.contract == nil {
		return ""
	}
	return b.contract.ID
}

// use is the line of a part of a purchase.
func (r *rating) use(b *prepaid, u *Use) {
	l := Line{
		Category: CategoryUsage, Status: StatusUnused, Meter: MeterGPU, Span: u.Span, Instance: b.instance, Segment: b.segment, Commitment: b.id,
		Contract: b.contractID(), Settlements: 1, MeteredMs: u.Ms(), BillableMs: u.Ms(), Currency: b.currency,
		Price: b.price(u.Span), Per: b.per, Version: b.version, Line: b.line,
		ListCost: new(big.Rat), Cost: u.Cost, Billed: new(big.Rat), Effective: u.Cost,
	}
	switch {
	case u.Segment == nil:
		l.Reason, l.Segment.State = "nothing used it", ""
	case r.profile.Billed.Bills(u.Segment.State) && u.Segment.State != "stopped_keep":
		l.Status, l.Instance, l.Segment = StatusUsed, u.Instance, *u.Segment
		l.Evidence = u.Segment.Evidence
		if price, ok := r.lookup(u.Segment, "", u.FromMs); ok {
			l.List = price.PerGPUHour
			l.ListCost = hoursAt(u.Ms(), new(big.Rat).Mul(price.PerGPUHour, big.NewRat(u.Gpus, 1)))
		} else {
			l.ListCost = nil // what it would have cost is not known
		}
	default:
		l.Instance, l.Segment = u.Instance, *u.Segment
		l.Reason = "its instance is in the state " + u.Segment.State
	}
	l.Segment.Span, l.Segment.Plan, l.Segment.Gpus = u.Span, b.plan, u.Gpus
	r.lines.add(l)
}

// lookup returns the price of an hour of a segment under a plan; empty = on demand.
func (r *rating) lookup(s *Segment, plan string, atMs int64) (Price, bool) {
	p, ok := r.book.Lookup(s.item(plan), atMs)
	return p, ok && p.PerGPUHour != nil
}

// uses writes the uses of a purchase as lines: those that follow each other as one,
// apart where the price that they are compared with may change.
func (r *rating) uses(b *prepaid, list []Use) {
	last := map[*Segment]int{}
	merged := make([]Use, 0, len(list))
	for _, u := range list {
		at, known := last[u.Segment]
		if known && merged[at].ToMs == u.FromMs && merged[at].Gpus == u.Gpus && merged[at].Cycle == u.Cycle {
			m := &merged[at]
			m.ToMs = u.ToMs
			m.Cost = new(big.Rat).Add(m.Cost, u.Cost)
			continue
		}
		last[u.Segment] = len(merged)
		merged = append(merged, u)
	}
	for i := range merged {
		u := &merged[i]
		for _, piece := range Cut(u.FromMs, u.ToMs, r.usage.Cuts, r.book.Cuts(u.FromMs, u.ToMs)) {
			part := *u
			part.Span = piece
			part.Cost = new(big.Rat).Mul(u.Cost, big.NewRat(piece.Ms(), u.Ms()))
			r.use(b, &part)
		}
	}
}

// commitments lets the contracts' commitments cover what they can, in their order, and
// returns what is left.
func (r *rating) commitments(rest []*Rental) []*Rental {
	for _, c := range r.contracts {
		for i := range c.Commitments {
			d := &c.Commitments[i]
			commitment := c.Commitment(d)
			commitment.UntilMs = r.usage.NowMs
			if r.usage.NowMs != 0 && commitment.FromMs >= r.usage.NowMs {
				continue
			}
			commitment.RankCuts = r.book.Cuts(commitment.FromMs, Forever)
			commitment.Rank = func(s *Segment, atMs int64) *big.Rat {
				if price, ok := r.lookup(s, "", atMs); ok {
					return price.PerGPUHour
				}
				return new(big.Rat)
			}
			covered := commitment.Cover(rest, r.wants, r.profile.Zone)
			rest = covered.Rest
			price := func(Span) *big.Rat { return d.PerGPU }
			b := &prepaid{
				id: d.ID, contract: c, version: c.Hash, line: d.Line, plan: string(d.Term), currency: c.Currency, per: "GPU-" + string(d.Term), list: price, price: price,
				segment: Segment{Project: d.Project, Platform: c.Platform, Region: d.Region, Model: d.Model, Tenancy: d.Tenancy}, quantity: d.Gpus,
			}
			for n, p := range covered.Purchases {
				r.payments(b, d, commitment.FromMs, n, p)
			}
			r.uses(b, covered.Uses)
		}
	}
	return rest
}

// planRun is a time in which an instance is on a plan of the price book: paid for by
// the day to the year, whatever it does.
type planRun struct {
	Span
	rental *Rental
	first  *Segment
	ended  bool // by a release or a change, and not by the question's end
}

// plans lets the plans of instances pay for them, and returns the rentals with what
// they leave.
func (r *rating) plans(rentals []*Rental) []*Rental {
	rest := make([]*Rental, len(rentals))
	for i, rental := range rentals {
		rest[i] = rental
		for _, run := range r.planRuns(rental) {
			rest[i] = r.plan(&run, rest[i])
		}
	}
	return rest
}

func (r *rating) planRuns(rental *Rental) (runs []planRun) {
	for i := range rental.Segments {
		s := &rental.Segments[i]
		if !provided(s.State) || s.Ms() == 0 {
			continue
		}
		if _, ok := r.planEntry(s, s.FromMs); !ok {
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].ToMs == s.FromMs && runs[n-1].first.Plan == s.Plan && runs[n-1].first.Gpus == s.Gpus && runs[n-1].first.Model == s.Model {
			runs[n-1].ToMs = s.ToMs
			continue
		}
		runs = append(runs, planRun{Span: s.Span, rental: rental, first: s})
	}
	for i := range runs {
		runs[i].ended = r.usage.NowMs == 0 || runs[i].ToMs < r.usage.NowMs
	}
	return runs
}

// planEntry returns the price of a segment's plan for one term.
func (r *rating) planEntry(s *Segment, atMs int64) (*Entry, bool) {
	if s.Plan == "" {
		return nil, false
	}
	p, ok := r.book.Lookup(s.item(s.Plan), atMs)
	if !ok || p.Entry.Term == "" {
		return nil, false
	}
	return p.Entry, true
}

// plan bills one run and returns what it leaves of the rental.
func (r *rating) plan(run *planRun, rental *Rental) *Rental {
	s := run.first
	prices := map[int64]*big.Rat{}
	steps := map[int64][]Step{}
	b := &prepaid{
		id: "plan " + run.rental.Instance + " " + instantText(run.FromMs), instance: run.rental.Instance, plan: s.Plan, per: "GPU-" + s.Plan,
		version: r.book.Hash, segment: *s, quantity: s.Gpus,
	}
	entry := func(cycle Span) *Entry {
		e, ok := r.planEntry(s, cycle.FromMs)
		if !ok { // a plan is not ended by a price list that ends
			e, _ = r.planEntry(s, run.FromMs)
		}
		return e
	}
	b.list = func(cycle Span) *big.Rat { return entry(cycle).PerGPU }
	b.price = func(cycle Span) *big.Rat {
		if p := prices[cycle.FromMs]; p != nil {
			return p
		}
		price, how := Adjust(b.list(cycle), perTerm(r.adjustments(s, cycle.FromMs)))
		prices[cycle.FromMs], steps[cycle.FromMs] = price, how
		return price
	}
	b.steps = func(cycle Span) []Step { return steps[cycle.FromMs] }
	first, _ := r.planEntry(s, run.FromMs)
	b.line, b.currency = first.Line, first.Currency
	c := &Commitment{
		ID: b.id, Instance: run.rental.Instance, Gpus: s.Gpus, Span: run.Span, Term: Term(s.Plan), Day: r.profile.Plan.Day,
		PriceOf: b.price, UntilMs: r.usage.NowMs,
	}
	covered := c.Cover([]*Rental{rental}, func(s *Segment) bool { return provided(s.State) }, r.profile.Zone)
	for _, p := range covered.Purchases {
		r.purchase(b, p)
	}
	r.uses(b, r.refunded(run, b, &covered))
	return covered.Rest[0]
}

// perTerm leaves out rules that say what an hour costs: for a plan they mean nothing.
func perTerm(list []Adjustment) []Adjustment {
	return slices.DeleteFunc(list, func(a Adjustment) bool { return a.Kind == Fixed || a.Kind == Cap })
}

// refunded gives back what the platform's rule says of a cycle that ended early, and
// returns the uses with what is left of the purchase.
func (r *rating) refunded(run *planRun, b *prepaid, covered *Covered) []Use {
	n := len(covered.Purchases)
	if n == 0 || !run.ended || run.ToMs >= covered.Purchases[n-1].ToMs {
		return covered.Uses
	}
	last := &covered.Purchases[n-1]
	refund := r.refundOf(run, last)
	if refund == nil || refund.Sign() == 0 {
		return covered.Uses
	}
	s := b.segment
	s.Span, s.Gpus = Span{run.ToMs, last.ToMs}, b.quantity
	r.lines.add(Line{
		Category: CategoryCredit, Meter: MeterGPU, Span: Span{run.ToMs, last.ToMs}, Instance: b.instance, Segment: s, Commitment: b.id, Settlements: 1,
		Reason: "refund of a cycle that ended early: " + string(r.profile.Plan.Refund), Currency: b.currency, Version: r.profile.Hash,
		ListCost: new(big.Rat), Cost: new(big.Rat).Neg(refund), Billed: new(big.Rat).Neg(refund), Effective: new(big.Rat),
	})
	// What is kept is what the time until then is worth.
	kept := new(big.Rat).Sub(last.Cost, refund)
	worth := kept.Quo(kept, big.NewRat(run.ToMs-last.FromMs, 1))
	uses := slices.DeleteFunc(slices.Clone(covered.Uses), func(u Use) bool { return u.FromMs >= run.ToMs })
	for i := range uses {
		if u := &uses[i]; u.Cycle == n-1 {
			u.Cost = new(big.Rat).Mul(worth, big.NewRat(u.Ms(), 1))
			u.Cost.Mul(u.Cost, big.NewRat(u.Gpus, b.quantity))
		}
	}
	return uses
}

// refundOf returns what is given back of the last cycle of a run; never more than was
// paid.
func (r *rating) refundOf(run *planRun, last *Purchase) *big.Rat {
	left := Span{run.ToMs, last.ToMs}
	switch r.profile.Plan.Refund {
	case RefundProrated:
		part := big.NewRat(left.Ms(), last.Ms())
		if Term(run.first.Plan) == TermMonth {
			part = r.profile.Plan.Month.Part(left, last.Span, r.profile.Zone)
		}
		if part.Cmp(one) > 0 {
			part = one
		}
		return part.Mul(part, last.Cost)
	case RefundHourly:
		price, ok := r.lookup(run.first, "", last.FromMs)
		if !ok {
			return nil
		}
		used := hoursAt(run.ToMs-last.FromMs, new(big.Rat).Mul(price.PerGPUHour, big.NewRat(run.first.Gpus, 1)))
		if used.Cmp(last.Cost) >= 0 {
			return nil
		}
		return used.Sub(last.Cost, used)
	}
	return nil
}

// quotes lets the fixed prices of jobs pay for the time of their projects.
func (r *rating) quotes(rest []*Rental) []*Rental {
	for _, c := range r.contracts {
		for i := range c.Quotes {
			rest = r.quote(c, &c.Quotes[i], rest)
		}
	}
	return rest
}

// span returns how long a quote lasts.
func (q *Quote) span(c *Contract) Span {
	s := Span{int64(q.From), int64(q.To)}
	if q.From == 0 {
		s.FromMs = int64(c.From)
	}
	if q.To == 0 {
		s.ToMs = int64(c.To)
	}
	return s
}

func (r *rating) quote(c *Contract, q *Quote, rest []*Rental) []*Rental {
	span := q.span(c)
	now := span.ToMs
	if r.usage.NowMs != 0 {
		now = min(now, r.usage.NowMs)
	}
	if now <= span.FromMs {
		return rest
	}
	uses, taken := r.quoted(q, Span{span.FromMs, now}, rest)
	fee := func(Span) *big.Rat { return q.Fee }
	b := &prepaid{
		id: q.ID, contract: c, version: c.Hash, line: q.Line, plan: "quote", currency: c.Currency, per: perJob, list: fee, price: fee,
		segment: Segment{Project: q.Project, Platform: c.Platform}, quantity: 1,
	}
	r.purchase(b, Purchase{span, q.Fee})
	if len(uses) == 0 {
		uses = []Use{{Span: Span{span.FromMs, now}, Project: q.Project, Gpus: 1, Cost: q.Fee}}
	}
	r.uses(b, uses)
	out := make([]*Rental, len(rest))
	for i := range rest {
		out[i] = without(rest[i], taken[i])
	}
	return out
}

// quoted returns the time that a quote pays for, each with its part of the fee, in all
// and by rental.
func (r *rating) quoted(q *Quote, span Span, rest []*Rental) (uses []Use, taken [][]Use) {
	taken = make([][]Use, len(rest))
	var changes []change
	for i, rental := range rest {
		for k := range rental.Segments {
			s := &rental.Segments[k]
			part := Span{max(s.FromMs, span.FromMs), min(s.ToMs, span.ToMs)}
			if part.Ms() > 0 && s.Gpus > 0 && s.Project == q.Project && r.wants(s) {
				taken[i] = append(taken[i], Use{Span: part, Instance: rental.Instance, Project: s.Project, Segment: s, Gpus: s.Gpus})
				changes = append(changes, change{part.FromMs, s.Gpus}, change{part.ToMs, -s.Gpus})
			}
		}
	}
	end, total := q.lasts(changes)
	for i := range taken {
		kept := taken[i][:0]
		for _, u := range taken[i] {
			if u.ToMs = min(u.ToMs, end); u.Ms() > 0 {
				u.Cost = big.NewRat(u.Ms()*u.Gpus, total)
				u.Cost.Mul(u.Cost, q.Fee)
				kept = append(kept, u)
			}
		}
		taken[i] = kept
		uses = append(uses, kept...)
	}
	slices.SortStableFunc(uses, func(a, b Use) int { return cmp.Compare(a.FromMs, b.FromMs) })
	return uses, taken
}

// lasts returns when the GPU-hours of a quote end, as GPUs come and go, and the GPU-ms
// that it pays for until then. The millisecond in which they end is not paid for, and
// nothing after it.
func (q *Quote) lasts(changes []change) (end, gpuMs int64) {
	most := int64(math.MaxInt64)
	if q.GPUHours != nil {
		whole, _ := floor(q.GPUHours, big.NewInt(hourMs))
		if whole.IsInt64() {
			most = whole.Int64()
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.atMs, b.atMs) })
	gpus := int64(0)
	for i, c := range changes {
		if gpus > 0 {
			from := changes[i-1].atMs
			if ms := (most - gpuMs) / gpus; ms < c.atMs-from {
				return from + ms, gpuMs + ms*gpus
			}
			gpuMs += gpus * (c.atMs - from)
		}
		gpus += c.gpus
	}
	return Forever, gpuMs
}
