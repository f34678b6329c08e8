package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// Rate returns the lines of the bill of what was used, platform by platform, each in
// the order in which a platform computes it: what commitments and quotes pay for first,
// in the order of the contracts; the rest by its price; then other meters; then what an
// SLA gives back, and what a contract gives apart from any price.
//
// It depends on nothing but its arguments. Lines of a rental do not depend on other
// rentals but through commitments, quotes, and rules that count GPUs or need a meter.
func (t *Terms) Rate(u *Usage) []Line {
	var all []lineList
	for _, platform := range t.platforms(u) {
		r := t.rating(u, platform)
		rest := r.plans(r.rentals)
		rest = r.quotes(rest)
		rest = r.commitments(rest)
		r.onDemand(rest)
		r.readings()
		r.credits()
		r.granted()
		all = append(all, r.lines)
	}
	n := 0
	for i := range all {
		n += all[i].n
	}
	if n == 0 {
		return nil
	}
	lines := make([]Line, 0, n)
	for i := range all {
		for _, chunk := range all[i].chunks {
			lines = append(lines, chunk...)
		}
	}
	return lines
}

// rating is the bill of one platform in the making.
type rating struct {
	terms     *Terms
	usage     *Usage
	platform  string
	profile   *Profile
	book      *Book
	contracts []*Contract
	rentals   []*Rental
	rentalsOf map[string][]*Rental // by instance; several when it left the platform and came back
	enough    map[*Rule][]Span     // when rules with min_gpus have enough of them
	running   map[string][]Span
	cuts      []int64
	lines     lineList
}

// lineList grows without moving what it has: a month has hundreds of thousands of lines,
// and to move them over and over took most of the time of rating it.
type lineList struct {
	chunks [][]Line
	n      int
}

const linesPerChunk = 1024

func (l *lineList) add(line Line) {
	if l.n%linesPerChunk == 0 {
		l.chunks = append(l.chunks, make([]Line, 0, min(linesPerChunk, max(16, l.n))))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, line)
	l.n++
}

func (l *lineList) at(i int) *Line { return &l.chunks[i/linesPerChunk][i%linesPerChunk] }

// platforms are those that something was used of, bought from or given by: what is
// bought costs, also when nothing uses it.
func (t *Terms) platforms(u *Usage) []string {
	list := platformsOf(u)
	if t != nil {
		for _, c := range t.Contracts {
			if len(c.Commitments)+len(c.Quotes)+len(c.Credits) > 0 {
				list = append(list, c.Platform)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func platformsOf(u *Usage) []string {
	known := map[string]bool{}
	for _, r := range u.Rentals {
		for i := range r.Segments {
			known[r.Segments[i].Platform] = true
		}
	}
	for i := range u.Readings {
		known[u.Readings[i].Platform] = true
	}
	list := make([]string, 0, len(known))
	for p := range known {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

func (t *Terms) rating(u *Usage, platform string) *rating {
	r := &rating{terms: t, usage: u, platform: platform, profile: t.Profile(platform), enough: map[*Rule][]Span{}, running: map[string][]Span{}}
	if t != nil {
		r.book = t.Book
		for _, c := range t.Contracts {
			if c.Platform == platform {
				r.contracts = append(r.contracts, c)
			}
		}
	}
	for _, rental := range u.Rentals {
		r.rentals = append(r.rentals, onPlatform(rental, platform)...)
	}
	r.rentalsOf = make(map[string][]*Rental, len(r.rentals))
	for _, rental := range r.rentals {
		r.rentalsOf[rental.Instance] = append(r.rentalsOf[rental.Instance], rental)
	}
	r.cuts = slices.Clone(u.Cuts)
	for _, c := range r.contracts {
		r.cuts = append(r.cuts, int64(c.From), int64(c.To))
		for i := range c.Rules {
			r.rule(c, &c.Rules[i])
		}
	}
	return r
}

// onPlatform returns the parts of a rental on a platform; almost always that is all
// of it.
func onPlatform(r *Rental, platform string) []*Rental {
	other := func(s Segment) bool { return s.Platform != platform }
	if !slices.ContainsFunc(r.Segments, other) {
		return []*Rental{r}
	}
	var parts []*Rental
	for from := 0; from < len(r.Segments); {
		to := from + 1
		for to < len(r.Segments) && other(r.Segments[to]) == other(r.Segments[from]) {
			to++
		}
		if !other(r.Segments[from]) {
			parts = append(parts, &Rental{Instance: r.Instance, Segments: r.Segments[from:to]})
		}
		from = to
	}
	return parts
}

// rule works out when a rule that depends on more than the segment holds, so that
// nothing has to be counted again for every line.
func (r *rating) rule(c *Contract, rule *Rule) {
	r.cuts = append(r.cuts, int64(rule.From))
	if rule.To != 0 {
		r.cuts = append(r.cuts, int64(rule.To))
	}
	for _, name := range rule.With {
		if _, known := r.running[name]; known {
			continue
		}
		var spans []Span
		for i := range r.usage.Readings {
			if m := &r.usage.Readings[i]; m.Meter == name && m.Platform == r.platform {
				spans = append(spans, m.Span)
			}
		}
		r.running[name] = union(Span{Always, Forever}, spans)
		r.cutAt(r.running[name])
	}
	if rule.MinGpus > 0 {
		r.enough[rule] = r.counted(c, rule)
		r.cutAt(r.enough[rule])
	}
}

func (r *rating) cutAt(spans []Span) {
	for _, s := range spans {
		r.cuts = append(r.cuts, s.FromMs, s.ToMs)
	}
}

// change is GPUs that come or, negative, go at an instant.
type change struct{ atMs, gpus int64 }

// counted returns when as many GPUs run as a rule needs.
func (r *rating) counted(c *Contract, rule *Rule) []Span {
	var changes []change
	for _, rental := range r.rentals {
		for i := range rental.Segments {
			s := &rental.Segments[i]
			from, to := max(s.FromMs, int64(c.From), int64(rule.From)), min(s.ToMs, int64(c.To))
			if rule.To != 0 {
				to = min(to, int64(rule.To))
			}
			if from < to && r.wants(s) && rule.applies(s, from) {
				changes = append(changes, change{from, s.Gpus}, change{to, -s.Gpus})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.atMs, b.atMs) })
	var spans []Span
	gpus := int64(0)
	for i, ch := range changes {
		gpus += ch.gpus
		if i+1 < len(changes) && changes[i+1].atMs == ch.atMs {
			continue // all that changes at an instant changes at once
		}
		n := len(spans)
		open := n > 0 && spans[n-1].ToMs == Forever
		switch {
		case gpus >= rule.MinGpus && !open:
			spans = append(spans, Span{ch.atMs, Forever})
		case gpus < rule.MinGpus && open:
			spans[n-1].ToMs = ch.atMs
		}
	}
	return slices.DeleteFunc(spans, func(s Span) bool { return s.Ms() == 0 })
}

func within(spans []Span, atMs int64) bool {
	i, found := slices.BinarySearchFunc(spans, atMs, func(s Span, ms int64) int { return cmp.Compare(s.FromMs, ms) })
	return found || i > 0 && atMs < spans[i-1].ToMs
}

// adjustments are the rules of all contracts that apply to a segment at an instant.
func (r *rating) adjustments(s *Segment, atMs int64) (list []Adjustment) {
	active := Active{
		Enough: func(rule *Rule, atMs int64) bool { return within(r.enough[rule], atMs) },
		Meter:  func(name string, atMs int64) bool { return within(r.running[name], atMs) },
	}
	for _, c := range r.contracts {
		list = append(list, c.Adjustments(s, atMs, active)...)
	}
	return list
}

// onDemand bills what nothing else has paid for.
func (r *rating) onDemand(rentals []*Rental) {
	tariff := &Tariff{Profile: r.profile, Book: r.book, Cuts: r.cuts, Rework: r.rework}
	if len(r.contracts) > 0 {
		tariff.Adjust = r.adjustments
	}
	for _, rental := range rentals {
		charges := tariff.Rate(rental)
		for i := range charges {
			if c := &charges[i]; (c.Segment.Gpus > 0 || r.profile.bare(&c.Segment)) && (c.Ms() > 0 || c.BillableMs > 0) {
				r.lines.add(r.charge(c))
			}
		}
	}
}

// wants says whether the GPUs of a segment are there to be paid for: it is billed, and
// not without its GPUs.
func (r *rating) wants(s *Segment) bool {
	return r.profile.Billed.Bills(s.State) && !r.profile.bare(s)
}

// rework is what is lost when an instance is taken back: half a checkpoint interval, as
// is to be expected of an interruption at any moment of it.
func (r *rating) rework(s *Segment) int64 {
	for _, c := range r.contracts {
		if ms := int64(c.Clauses.Checkpoint); ms > 0 && s.ToMs > int64(c.From) && s.ToMs <= int64(c.To) {
			return ms / 2
		}
	}
	return 0
}

func (r *rating) charge(c *Charge) Line {
	l := Line{
		Category: CategoryUsage, Meter: MeterGPU, Span: c.Span, Instance: c.Instance, Segment: c.Segment,
		Settlements: c.Settlements, MeteredMs: c.MeteredMs, ExcludedMs: c.ExcludedMs, Reason: c.Reason,
		MinimumMs: c.MinimumMs, RoundingMs: c.RoundingMs, BillableMs: c.BillableMs, Currency: r.currency(),
		List: c.List, Price: c.Price, Per: perGPUHour, Steps: c.Steps,
		ListCost: c.ListCost, Cost: c.Cost, Billed: c.Billed, Effective: c.Billed, Evidence: c.Segment.Evidence, Rework: c.Rework,
	}
	switch {
	case c.Entry != nil:
		l.Version, l.Line, l.Currency = r.book.Hash, c.Entry.Line, c.Entry.Currency
	case c.List != nil: // the profile's
		l.Version = r.profile.Hash
	}
	if r.profile.bare(&c.Segment) {
		l.Per, l.Segment.Gpus = perInstanceHour, 1
	}
	return l
}

// Units of prices.
const (
	perGPUHour      = "GPU-hour"
	perInstanceHour = "instance-hour"
	perJob          = "job"
)

func (r *rating) currency() string {
	if r.book == nil {
		return ""
	}
	return r.book.Currency
}

// readings bills the meters other than GPU time, each at the price that is valid when
// the reading begins.
func (r *rating) readings() {
	for i := range r.usage.Readings {
		if m := &r.usage.Readings[i]; m.Platform == r.platform {
			for _, part := range r.billedParts(m) {
				r.lines.add(r.reading(m, part))
			}
		}
	}
}

// meterPart is a part of a reading of which a platform bills all or nothing.
type meterPart struct {
	Span
	state string // that is not billed; empty = it is billed
}

// billedParts divides a reading of storage by what the profile says of the states of
// its instance.
func (r *rating) billedParts(m *Reading) []meterPart {
	whole := []meterPart{{Span: m.Span}}
	if m.Instance == "" || !storage(m.Meter) || m.Ms() == 0 {
		return whole
	}
	var free []meterPart
	var cuts []int64
	for _, rental := range r.rentalsOf[m.Instance] {
		for k := range rental.Segments {
			s := &rental.Segments[k]
			if s.Ms() > 0 && s.FromMs < m.ToMs && s.ToMs > m.FromMs && provided(s.State) && !slices.Contains(r.profile.Billed.Storage, State(s.State)) {
				free = append(free, meterPart{s.Span, s.State})
				cuts = append(cuts, s.FromMs, s.ToMs)
			}
		}
	}
	if len(free) == 0 {
		return whole
	}
	slices.SortFunc(free, func(a, b meterPart) int { return cmp.Compare(a.FromMs, b.FromMs) })
	var parts []meterPart
	for _, piece := range Cut(m.FromMs, m.ToMs, cuts) {
		for len(free) > 0 && free[0].ToMs <= piece.FromMs {
			free = free[1:]
		}
		part := meterPart{Span: piece}
		if len(free) > 0 && free[0].FromMs <= piece.FromMs {
			part.state = free[0].state
		}
		parts = append(parts, part)
	}
	return parts
}

func storage(meter string) bool { return len(meter) >= 7 && meter[:7] == "storage" }

func (r *rating) reading(m *Reading, part meterPart) Line {
	l := Line{
		Category: CategoryUsage, Meter: m.Meter, Span: part.Span, Instance: m.Instance, Settlements: 1, MeteredMs: part.Ms(), BillableMs: part.Ms(),
		Segment:  Segment{Span: part.Span, Project: m.Project, Platform: m.Platform, Region: m.Region, Labels: m.Labels},
		Quantity: m.Quantity, Currency: r.currency(), Evidence: m.Evidence,
	}
	if m.Ms() > 0 { // else it is of a moment, and whole
		l.Quantity = new(big.Rat).Mul(m.Quantity, big.NewRat(part.Ms(), m.Ms()))
	}
	if part.state != "" {
		l.ExcludedMs, l.BillableMs, l.Reason = l.MeteredMs, 0, "storage is not billed in the state "+part.state
		l.zero()
		return l
	}
	price, from := r.meterPrice(m)
	if price == nil {
		return l
	}
	l.List, l.Price, l.Per, l.Version, l.Line, l.Contract, l.Currency = price.Price, price.Price, string(price.Per), from.version, from.line, from.contract, from.currency
	l.Cost = price.Cost(l.Quantity)
	l.ListCost, l.Billed, l.Effective = l.Cost, l.Cost, l.Cost
	return l
}

func (l *Line) zero() {
	l.ListCost, l.Cost, l.Billed, l.Effective = new(big.Rat), new(big.Rat), new(big.Rat), new(big.Rat)
}

// origin says where a price is written.
type origin struct {
	version, contract, currency string
	line                        int
}

func (r *rating) meterPrice(m *Reading) (*MeterPrice, origin) {
	for _, c := range r.contracts {
		if m.FromMs < int64(c.From) || m.FromMs >= int64(c.To) {
			continue
		}
		for i := range c.Meters {
			if c.Meters[i].Meter == m.Meter {
				return &c.Meters[i], origin{version: c.Hash, contract: c.ID, currency: c.Currency}
			}
		}
	}
	if e, ok := r.book.Meter(m.Meter, m.Platform, m.Region, m.FromMs); ok {
		return &e.MeterPrice, origin{version: r.book.Hash, currency: e.Currency, line: e.Line}
	}
	return nil, origin{}
}
