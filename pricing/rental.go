package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// Rental is an instance as its lease tells it: segments in order of time, each of
// which ends where the next begins or before.
type Rental struct {
	Instance string
	Segments []Segment
}

// Segment is a time of a rental in which nothing changes that a price depends on.
type Segment struct {
	Span
	State    string
	Project  string
	Platform string
	Region   string
	Model    string
	Plan     string // such as spot; empty = on demand
	Tenancy  string
	DCTier   string
	Workload string
	SKU      string
	Labels   string // as canonical JSON
	Gpus     int64
	Evidence string // digest of the lease event that began it
}

// item is what a segment is called in a price book.
func (s *Segment) item(plan string) Item {
	return Item{SKU: s.SKU, Model: s.Model, Platform: s.Platform, Region: s.Region, Plan: plan}
}

// Charge is a line of a bill: so much of a rental, at one price, in one settlement. A
// line that is not billed has an amount in none, and may span several.
//
// Times are of the instance; amounts are for all of its GPUs. BillableMs = MeteredMs
// - ExcludedMs + MinimumMs + RoundingMs.
type Charge struct {
	Span
	Instance string
	Segment  Segment
	Run      int // that it belongs to, from 0; -1 = it is not billed

	MeteredMs  int64  // the platform provided it
	ExcludedMs int64  // of that, not billed
	Reason     string // why
	MinimumMs  int64  // billed beyond the end of the run, by a minimum
	RoundingMs int64  // and by rounding
	BillableMs int64

	// Settlements is how many settlements in a row, each with the same amounts, the
	// line puts together; settlement says which the first one is.
	Settlements int64
	settlement  int64

	List  *big.Rat // per GPU and hour; nil = there is no price
	Price *big.Rat // what is paid
	Steps []Step   // from the one to the other
	Entry *Entry   // that the list price is from

	Rework bool // the work of this time was lost when the platform took the instance back

	ListCost *big.Rat // exact, at list price; nil without a price
	Cost     *big.Rat // exact, at the price paid
	Billed   *big.Rat // as the platform rounds it, per settlement
}

// Tariff is what a rental is rated with.
type Tariff struct {
	Profile *Profile
	Book    *Book
	// Adjust returns what changes the list price of a segment at an instant; nil =
	// nothing does. Whenever that may change has to be among Cuts.
	Adjust func(s *Segment, atMs int64) []Adjustment
	// Cuts are further instants at which lines are to be cut, such as midnights of the
	// zone of reports and the ends of statements. They change no total.
	Cuts []int64
	// Rework returns how much work of a segment is lost when the platform takes the
	// instance back: that long before. nil = none.
	Rework func(s *Segment) int64
}

// Rate returns the charges of a rental in the order of time. What is provided and
// not billed is a charge of nothing with the reason; what has no price has none.
func (t *Tariff) Rate(r *Rental) []Charge {
	runs := t.runs(r)
	spans := make([]Span, len(runs))
	for i := range runs {
		spans[i] = runs[i].Span
	}
	rule := t.Profile.TimeRule()
	var list []Charge
	for _, b := range rule.Bill(spans, t.cuts(r, runs)) {
		run := &runs[b.Run]
		c := Charge{
			Span: b.Span, Instance: r.Instance, Segment: *run.at(b.FromMs), Run: b.Run,
			MeteredMs: b.Ms(), MinimumMs: b.MinimumMs, RoundingMs: b.RoundingMs, BillableMs: b.BilledMs,
			Settlements: b.Settlements, settlement: b.Settlement,
		}
		c.Rework = c.FromMs >= run.reworkFromMs
		if c.FromMs >= run.freeFromMs {
			c.exclude("the platform took the instance back")
		}
		list = append(list, c)
	}
	for i := range r.Segments {
		if s := &r.Segments[i]; s.Ms() > 0 && provided(s.State) && !t.Profile.Billed.Bills(s.State) {
			for _, piece := range Cut(s.FromMs, s.ToMs, t.cuts(r, nil)) {
				c := Charge{Span: piece, Instance: r.Instance, Segment: *s, Run: -1, MeteredMs: piece.Ms(), BillableMs: piece.Ms(), Settlements: 1}
				c.exclude("the state " + s.State + " is not billed")
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Charge) int { return cmp.Compare(a.FromMs, b.FromMs) })
	for i := range list {
		list[i].price(t)
	}
	t.settle(list)
	return list
}

// exclude takes all of the time out.
func (c *Charge) exclude(reason string) {
	c.ExcludedMs, c.Reason = c.MeteredMs, reason
	c.MinimumMs, c.RoundingMs, c.BillableMs = 0, 0, 0
}

// provided says whether the platform provides anything in a state.
func provided(state string) bool {
	switch state {
	case "released", "expired", "interrupted":
		return false
	}
	return true
}

// bare says whether an instance runs without the GPUs that it has otherwise, at a price
// of its own: it holds none then.
func (f *Profile) bare(s *Segment) bool {
	return f.Billed.NoGPU != nil && s.State == "running_no_gpu"
}

// run is a time in which billing does not stop.
type run struct {
	Span
	segments   []*Segment
	freeFromMs int64 // what begins from here on is refunded

	reworkFromMs int64 // the work from here on was lost
}

func (r *run) at(ms int64) *Segment {
	return r.segments[slices.IndexFunc(r.segments, func(s *Segment) bool { return ms < s.ToMs })]
}

func (t *Tariff) runs(r *Rental) []run {
	var runs []run
	open := false // the last run, until billing stops, be it for no time at all
	for i := range r.Segments {
		s := &r.Segments[i]
		n := len(runs)
		follows := n > 0 && runs[n-1].ToMs == s.FromMs
		switch billed := t.Profile.Billed.Bills(s.State); {
		case billed && s.Ms() == 0:
		case billed && open && follows:
			runs[n-1].ToMs = s.ToMs
			runs[n-1].segments = append(runs[n-1].segments, s)
		case billed:
			runs = append(runs, run{Span: s.Span, segments: []*Segment{s}, freeFromMs: Forever, reworkFromMs: Forever})
			open = true
		default:
			open = false
			if s.State == "interrupted" && follows {
				t.refund(&runs[n-1])
				t.lose(&runs[n-1])
			}
		}
	}
	return runs
}

// refund applies the rule for a run that the platform ended.
func (t *Tariff) refund(r *run) {
	rule := &t.Profile.Spot
	if r.segments[len(r.segments)-1].Plan != PlanSpot || rule.Within > 0 && r.Ms() >= int64(rule.Within) {
		return
	}
	switch rule.Refund {
	case RefundRun:
		r.freeFromMs = r.FromMs
	case RefundHour:
		r.freeFromMs = r.ToMs - r.Ms()%hourMs
	}
}

// lose marks the work that a run lost when the platform ended it.
func (t *Tariff) lose(r *run) {
	last := r.segments[len(r.segments)-1]
	if t.Rework == nil || last.Plan != PlanSpot {
		return
	}
	if ms := t.Rework(last); ms > 0 {
		r.reworkFromMs = max(r.FromMs, r.ToMs-ms)
	}
}

// PlanSpot is the plan of an instance that the platform may take back.
const PlanSpot = "spot"

// cuts are all instants at which a price, a segment or a refund may change.
func (t *Tariff) cuts(r *Rental, runs []run) []int64 {
	cuts := slices.Clone(t.Cuts)
	for i := range r.Segments {
		cuts = append(cuts, r.Segments[i].FromMs, r.Segments[i].ToMs)
	}
	if n := len(r.Segments); n > 0 {
		cuts = append(cuts, t.Book.Cuts(r.Segments[0].FromMs, r.Segments[n-1].ToMs)...)
	}
	for i := range runs {
		cuts = append(cuts, runs[i].freeFromMs, runs[i].reworkFromMs)
	}
	return cuts
}

// price applies the price that is valid when the charge begins.
func (c *Charge) price(t *Tariff) {
	s := &c.Segment
	gpus := s.Gpus
	price, ok := t.Book.Lookup(s.item(s.Plan), c.FromMs)
	if ok && price.PerGPUHour == nil { // a plan, which pays before this
		price, ok = t.Book.Lookup(s.item(""), c.FromMs)
	}
	c.List, c.Entry = price.PerGPUHour, price.Entry
	if t.Profile.bare(s) {
		c.List, c.Entry, gpus, ok = t.Profile.Billed.NoGPU, nil, 1, true
	}
	if !ok {
		if c.BillableMs == 0 {
			c.Cost, c.ListCost = new(big.Rat), new(big.Rat) // nothing costs nothing at any price
		}
		return
	}
	c.Price = c.List
	if t.Adjust != nil {
		c.Price, c.Steps = Adjust(c.List, t.Adjust(s, c.FromMs))
	}
	c.ListCost = hoursAt(c.BillableMs, new(big.Rat).Mul(c.List, big.NewRat(gpus, 1)))
	c.Cost = hoursAt(c.BillableMs, new(big.Rat).Mul(c.Price, big.NewRat(gpus, 1)))
}

// settle rounds what is settled at once, and divides the rounded amount among its
// charges so that they add up to it.
func (t *Tariff) settle(list []Charge) {
	rounding := t.Profile.Rounding()
	if t.Profile.Amount.Per == PerBill {
		rounding.Mode = "" // the bill is rounded, not its lines
	}
	var together []*Charge
	for i := range list {
		c := &list[i]
		switch {
		case c.Cost == nil:
			continue
		case c.Cost.Sign() == 0:
			c.Billed = new(big.Rat) // no digit of the others' amount is its
			continue
		case len(together) > 0 && together[0].settlement != c.settlement:
			rounding.divide(together)
			together = together[:0]
		}
		together = append(together, c)
	}
	rounding.divide(together)
}

// divide rounds the sum of the charges and gives each its part of that, in proportion to
// what it costs and exactly: parts in whole digits would depend on where charges are cut,
// and a cent would go from one project to another when a report asks by the day.
func (r *Rounding) divide(priced []*Charge) {
	if r.Mode == "" {
		for _, c := range priced {
			c.Billed = c.Cost
		}
		return
	}
	if len(priced) == 1 { // whatever it puts together
		c := priced[0]
		n := big.NewRat(c.Settlements, 1)
		c.Billed = new(big.Rat).Quo(c.Cost, n)
		c.Billed = n.Mul(n, r.Round(c.Billed))
		return
	}
	sum := new(big.Rat)
	for _, c := range priced {
		sum.Add(sum, c.Cost)
	}
	if sum.Sign() == 0 {
		return // there are none
	}
	part := r.Round(sum)
	part.Quo(part, sum)
	for _, c := range priced {
		c.Billed = new(big.Rat).Mul(c.Cost, part)
	}
}
