package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// The oracle of whole bills walks over all instances at once, a second after the other,
// and decides of every GPU who pays for it: the quotes in their order, then the
// commitments in theirs, then nobody but its user. Like the oracle of one rental it
// shares the package's types and none of its computing functions.

// moment is a second, or the part of one before or after the hours of a quote end.
type moment struct {
	second int64
	from   int64 // ms
	ms     int64
	bucket int    // between which cuts
	facts  uint64 // which of the conditions of rules hold that do not depend on the segment
}

// tenant is an instance on the platform, from when it comes to when it goes.
type tenant struct {
	rental  *Rental
	seconds []second
	first   int64   // second
	left    []int64 // GPUs by moment that nobody has paid for
}

// at is what an instance does at a moment; nil = it is not there.
func (t *tenant) at(m *moment) *Segment {
	if i := m.second - t.first; i >= 0 && i < int64(len(t.seconds)) {
		return t.seconds[i].segment
	}
	return nil
}

// tallyKey is what the lines of a bill are summed up by.
type tallyKey struct {
	category                    Category
	status                      Status
	meter, instance, commitment string
	contract, project, state    string
	region, model               string
	bucket                      int  // between which cuts
	billed                      bool // the sum of what is rounded, by settlement and thus not by bucket
}

// tally is what they are summed up to. Times are in ms, costs are exact.
type tally struct {
	metered, excluded, billable, gpus, lost int64
	unpriced, unlisted                      int64
	list, cost, effective, billed, quantity big.Rat
}

func (t *tally) text() string {
	return fmt.Sprintf("metered %d excluded %d billable %d ms, %d GPU-ms, lost %d, unpriced %d unlisted %d, list %s cost %s effective %s billed %s quantity %s", t.metered, t.excluded, t.billable, t.gpus,
		t.lost, t.unpriced, t.unlisted, Exact(&t.list), Exact(&t.cost), Exact(&t.effective), Exact(&t.billed), Exact(&t.quantity))
}

type tallies map[tallyKey]*tally

func (b tallies) of(k tallyKey) *tally {
	if b[k] == nil {
		b[k] = &tally{}
	}
	return b[k]
}

// billOracle bills one platform.
type billOracle struct {
	oracle
	usage     *Usage
	contracts []*Contract
	tenants   []*tenant
	moments   []moment
	bill      tallies

	paid map[paidFor][2]*big.Rat
	lost []lostTime
}

// paidFor is what a price depends on.
type paidFor struct {
	segment *Segment
	entry   int
	facts   uint64
}

// lostTime is billed time that an SLA may give something back for.
type lostTime struct {
	key   tallyKey
	at    *moment
	gpus  int64
	cost  *big.Rat // of the moment
	extra *big.Rat // what a minimum or rounding adds at its end; nil = nothing
}

// oracleBill is the bill of all platforms.
func oracleBill(terms *Terms, u *Usage, ms int64) tallies {
	bill := tallies{}
	platforms := map[string]bool{}
	for _, r := range u.Rentals {
		for i := range r.Segments {
			platforms[r.Segments[i].Platform] = true
		}
	}
	for i := range u.Readings {
		platforms[u.Readings[i].Platform] = true
	}
	for _, c := range terms.Contracts {
		if len(c.Commitments)+len(c.Quotes)+len(c.Credits) > 0 { // bought or given, used or not
			platforms[c.Platform] = true
		}
	}
	for platform := range platforms {
		b := &billOracle{oracle: oracle{ms: ms, entries: terms.Book.Entries, profile: exactProfile}, usage: u, bill: bill, paid: map[paidFor][2]*big.Rat{}}
		for _, p := range terms.Profiles {
			if p.Platform == platform {
				b.profile = p
			}
		}
		for _, c := range terms.Contracts {
			if c.Platform == platform {
				b.contracts = append(b.contracts, c)
			}
		}
		b.enter(platform)
		for _, c := range b.contracts {
			for i := range c.Quotes {
				b.quote(c, &c.Quotes[i])
			}
		}
		for _, c := range b.contracts {
			for i := range c.Commitments {
				b.commitment(c, &c.Commitments[i])
			}
		}
		for _, t := range b.tenants {
			b.byUse(t)
		}
		for i := range u.Readings {
			if m := &u.Readings[i]; m.Platform == platform {
				b.reading(m)
			}
		}
		for _, c := range b.contracts {
			if c.SLA != nil {
				b.credit(c)
			}
			for i := range c.Credits {
				b.grant(c, &c.Credits[i])
			}
		}
	}
	return bill
}

func (b *billOracle) bucket(ms int64) int {
	n := 0
	for _, cut := range b.usage.Cuts {
		if cut <= ms {
			n++
		}
	}
	return n
}

// enter lists the tenants, and the moments from the first that anything happens in.
func (b *billOracle) enter(platform string) {
	first, last := int64(Forever), int64(Always)
	reach := func(s Span) {
		if b.usage.NowMs != 0 {
			s.ToMs = min(s.ToMs, b.usage.NowMs)
		}
		first, last = min(first, s.FromMs/b.ms), max(last, s.ToMs/b.ms)
	}
	for _, r := range b.usage.Rentals {
		var part *Rental
		for _, s := range r.Segments {
			if s.Platform != platform {
				part = nil
				continue
			}
			if part == nil {
				part = &Rental{Instance: r.Instance}
				b.tenants = append(b.tenants, &tenant{rental: part})
			}
			part.Segments = append(part.Segments, s)
			reach(s.Span)
		}
	}
	for _, c := range b.contracts {
		for i := range c.Quotes {
			reach(c.Quotes[i].span(c))
		}
		for i := range c.Commitments {
			for _, cycle := range b.cycles(c, &c.Commitments[i]) {
				reach(cycle)
			}
		}
	}
	for _, t := range b.tenants {
		t.first = t.rental.Segments[0].FromMs / b.ms
		t.seconds = b.timed(t.rental)
	}
	for at := first; at < last; at++ {
		b.moments = append(b.moments, moment{second: at, from: at * b.ms, ms: b.ms, bucket: b.bucket(at * b.ms)})
	}
	for _, t := range b.tenants {
		t.left = make([]int64, len(b.moments))
		for i := range b.moments {
			if s := t.at(&b.moments[i]); s != nil {
				t.left[i] = s.Gpus
			}
		}
	}
	for i := range b.moments {
		b.moments[i].facts = b.facts(&b.moments[i])
	}
}

// bare says whether an instance runs without the GPUs that it would have, at a price of
// its own: then there are none to be paid for.
func (b *billOracle) bare(s *Segment) bool {
	return s.State == "running_no_gpu" && b.profile.Billed.NoGPU != nil
}

// wants says whether an instance needs somebody to pay for GPUs.
func (b *billOracle) wants(s *Segment) bool {
	return s != nil && slices.Contains(b.profile.Billed.Compute, State(s.State)) && !b.bare(s)
}

// facts are bits, for each rule: it is valid, there are GPUs enough, and for each name
// that it needs: such a meter runs.
func (b *billOracle) facts(m *moment) (bits uint64) {
	bit := uint64(1)
	fact := func(is bool) {
		if is {
			bits |= bit
		}
		bit <<= 1
	}
	for _, c := range b.contracts {
		for i := range c.Rules {
			r := &c.Rules[i]
			valid := m.from >= int64(c.From) && m.from < int64(c.To) && m.from >= int64(r.From) && (r.To == 0 || m.from < int64(r.To))
			fact(valid)
			gpus := int64(0)
			for _, t := range b.tenants {
				if s := t.at(m); b.wants(s) && fits(r, s) {
					gpus += s.Gpus
				}
			}
			fact(gpus >= r.MinGpus)
			for _, name := range r.With {
				runs := false
				for k := range b.usage.Readings {
					x := &b.usage.Readings[k]
					runs = runs || x.Meter == name && x.FromMs <= m.from && m.from < x.ToMs && len(b.tenants) > 0 && b.here(x.Platform)
				}
				fact(runs)
			}
		}
	}
	return bits
}

func (b *billOracle) here(platform string) bool {
	return b.tenants[0].rental.Segments[0].Platform == platform
}

// fits says whether a segment is what a rule is about.
func fits(r *Rule, s *Segment) bool {
	for _, one := range []struct {
		list []string
		is   string
	}{{r.Models, s.Model}, {r.Regions, s.Region}, {r.Tiers, s.DCTier}, {r.Tenancies, s.Tenancy}, {r.Plans, s.Plan}, {r.Projects, s.Project}, {r.Workloads, s.Workload}} {
		if len(one.list) > 0 && !slices.Contains(one.list, one.is) {
			return false
		}
	}
	return true
}

// holding are the rules that hold for a segment: those that need none, then those that
// need these, and so on.
func (b *billOracle) holding(s *Segment, bits uint64) (list []Adjustment) {
	bit := 0
	fact := func() bool { bit++; return bits>>(bit-1)&1 != 0 }
	for _, c := range b.contracts {
		type candidate struct {
			rule  *Rule
			needs []string // rules
		}
		var waiting []candidate
		for i := range c.Rules {
			r := &c.Rules[i]
			valid, enough := fact(), fact()
			one := candidate{rule: r}
			for _, name := range r.With {
				if !fact() {
					one.needs = append(one.needs, name)
				}
			}
			if valid && enough && fits(r, s) {
				waiting = append(waiting, one)
			}
		}
		holds := map[string]bool{}
		for range len(waiting) {
			for _, one := range waiting {
				met := true
				for _, name := range one.needs {
					met = met && holds[name]
				}
				holds[one.rule.ID] = holds[one.rule.ID] || met
			}
		}
		for _, one := range waiting {
			if !holds[one.rule.ID] {
				continue
			}
			r := one.rule
			a := Adjustment{ID: r.ID, Additive: r.Additive}
			for stage := StageRegion; stage <= StageCap; stage++ {
				if stage.String() == string(r.Stage) {
					a.Stage = stage
				}
			}
			for kind, value := range map[Kind]*big.Rat{Uplift: r.Uplift, Discount: r.Discount, Factor: r.Factor, Fixed: r.Fixed, Cap: r.Cap} {
				if value != nil {
					a.Kind, a.Value = kind, value
				}
			}
			list = append(list, a)
		}
	}
	return list
}

// priceAt are list price and price of an hour of a GPU, or of a bare instance.
func (b *billOracle) priceAt(s *Segment, m *moment) (list, paid *big.Rat) {
	in := paidFor{s, b.entry(s, m.second), m.facts}
	prices, ok := b.paid[in]
	if !ok {
		if in.entry >= 0 {
			list = b.entries[in.entry].PerGPUHour
		}
		if b.bare(s) {
			list = b.profile.Billed.NoGPU
		}
		if list != nil {
			prices = [2]*big.Rat{list, stacked(list, b.holding(s, m.facts))}
		}
		b.paid[in] = prices
	}
	return prices[0], prices[1]
}

func (b *billOracle) listAt(s *Segment, m *moment) *big.Rat {
	if n := b.entry(s, m.second); n >= 0 {
		return b.entries[n].PerGPUHour
	}
	return nil
}

func overHours(price *big.Rat, gpuMs int64) *big.Rat {
	return new(big.Rat).Mul(price, big.NewRat(gpuMs, hourMs))
}

// key is of a line about a segment.
func (b *billOracle) key(t *tenant, s *Segment, m *moment) tallyKey {
	return tallyKey{category: CategoryUsage, meter: MeterGPU, instance: t.rental.Instance, project: s.Project, state: s.State, region: s.Region, model: s.Model, bucket: m.bucket}
}

// cover lets something that was bought pay for GPUs of an instance.
func (b *billOracle) cover(t *tenant, i int, id, contract string, gpus int64, worth *big.Rat) {
	m := &b.moments[i]
	s := t.at(m)
	k := b.key(t, s, m)
	k.commitment, k.contract, k.status = id, contract, StatusUsed
	if s.State == "stopped_keep" {
		k.status = StatusUnused
	}
	x := b.bill.of(k)
	x.metered += m.ms
	x.billable += m.ms
	x.gpus += m.ms * gpus
	x.cost.Add(&x.cost, worth)
	x.effective.Add(&x.effective, worth)
	if k.status == StatusUsed {
		if list := b.listAt(s, m); list != nil {
			x.list.Add(&x.list, overHours(list, m.ms*gpus))
		} else {
			x.unlisted += m.ms
		}
		if len(b.usage.Outages) > 0 {
			b.lost = append(b.lost, lostTime{key: k, at: m, gpus: gpus, cost: worth})
		}
	}
	t.left[i] -= gpus
}

// unused is what nobody used.
func (b *billOracle) unused(k tallyKey, m *moment, gpus int64, worth *big.Rat) {
	k.category, k.status, k.meter, k.bucket = CategoryUsage, StatusUnused, MeterGPU, m.bucket
	x := b.bill.of(k)
	x.metered += m.ms
	x.billable += m.ms
	x.gpus += m.ms * gpus
	x.cost.Add(&x.cost, worth)
	x.effective.Add(&x.effective, worth)
}

func (b *billOracle) purchase(k tallyKey, fromMs int64, price *big.Rat) {
	k.category, k.meter, k.bucket = CategoryPurchase, MeterGPU, b.bucket(fromMs)
	x := b.bill.of(k)
	x.cost.Add(&x.cost, price)
	k.billed, k.bucket = true, 0
	x = b.bill.of(k)
	x.billed.Add(&x.billed, price)
}

// quote pays for all GPUs of its project, until it ends, the question is asked, or its
// hours are spent; then its fee is spread over all that it paid for.
func (b *billOracle) quote(c *Contract, q *Quote) {
	from, to := int64(q.From), int64(q.To)
	if q.From == 0 {
		from = int64(c.From)
	}
	if q.To == 0 {
		to = int64(c.To)
	}
	if b.usage.NowMs != 0 {
		to = min(to, b.usage.NowMs)
	}
	if from >= to {
		return
	}
	own := tallyKey{commitment: q.ID, contract: c.ID, project: q.Project}
	b.purchase(own, from, q.Fee)
	type taken struct {
		t    *tenant
		i    int
		gpus int64
	}
	var all []taken
	total := int64(0)
	for i := 0; i < len(b.moments); i++ {
		if m := &b.moments[i]; m.from < from || m.from >= to {
			continue
		}
		gpus := int64(0)
		wanted := func(t *tenant) bool {
			s := t.at(&b.moments[i])
			return b.wants(s) && s.Project == q.Project && t.left[i] > 0
		}
		for _, t := range b.tenants {
			if wanted(t) {
				gpus += t.left[i]
			}
		}
		if gpus == 0 {
			continue
		}
		ends := false
		if q.GPUHours != nil {
			// For how many whole milliseconds is there enough?
			rest := new(big.Rat).Sub(new(big.Rat).Mul(q.GPUHours, big.NewRat(hourMs, 1)), big.NewRat(total, 1))
			rest.Quo(rest, big.NewRat(gpus, 1))
			whole := new(big.Int).Quo(rest.Num(), rest.Denom()).Int64()
			ends = whole < b.moments[i].ms
			if whole == 0 {
				break
			}
			if ends {
				b.split(i, whole)
			}
		}
		for _, t := range b.tenants {
			if wanted(t) {
				all = append(all, taken{t, i, t.left[i]})
				total += t.left[i] * b.moments[i].ms
			}
		}
		if ends {
			break
		}
	}
	for _, x := range all {
		b.cover(x.t, x.i, q.ID, c.ID, x.gpus, new(big.Rat).Mul(q.Fee, big.NewRat(x.gpus*b.moments[x.i].ms, total)))
	}
	for i := range b.moments {
		if m := &b.moments[i]; total == 0 && m.from >= from && m.from < to {
			b.unused(own, m, 1, new(big.Rat).Mul(q.Fee, big.NewRat(m.ms, to-from)))
		}
	}
}

// split makes two moments of one.
func (b *billOracle) split(i int, ms int64) {
	for k := range b.lost { // they point into the list that changes
		one := *b.lost[k].at
		b.lost[k].at = &one
	}
	second := b.moments[i]
	second.from += ms
	second.ms -= ms
	b.moments[i].ms = ms
	b.moments = slices.Insert(slices.Clone(b.moments), i+1, second)
	for _, t := range b.tenants {
		t.left = slices.Insert(t.left, i+1, t.left[i])
	}
}

// cycles are the times that a commitment is paid for, one after the other, as long as
// one begins within its term and before the question.
func (b *billOracle) cycles(c *Contract, d *CommittedDoc) (list []Span) {
	from, to := int64(d.From), int64(d.To)
	if d.From == 0 {
		from = int64(c.From)
	}
	if d.To == 0 {
		to = int64(c.To)
	}
	if b.usage.NowMs != 0 {
		to = min(to, b.usage.NowMs)
	}
	for at, n := from, 1; at < to; n++ {
		end := at
		switch {
		case d.Term == TermHour:
			end += 3_600_000
		case d.Term == TermDay && d.Day != CalendarDay:
			end += 24 * 3_600_000
		case d.Term == TermDay:
			for end += b.ms; b.clockAt(end/b.ms).day == b.clockAt(end/b.ms-1).day; {
				end += b.ms
			}
		case d.Term == TermWeek:
			end += 7 * 24 * 3_600_000
		default:
			end = AddMonths(from, n*map[Term]int{TermMonth: 1, TermQuarter: 3, TermYear: 12}[d.Term], b.profile.Zone)
		}
		list = append(list, Span{at, end})
		at = end
	}
	return list
}

// commitment pays for as many GPUs as it has: of its owner first, then of whom they
// would cost most, then by name.
func (b *billOracle) commitment(c *Contract, d *CommittedDoc) {
	cycles := b.cycles(c, d)
	own := tallyKey{commitment: d.ID, contract: c.ID, project: d.Project, region: d.Region, model: d.Model}
	price := new(big.Rat).Mul(d.PerGPU, big.NewRat(d.Gpus, 1))
	for i, cycle := range cycles {
		b.pay(own, d, cycle, cycles[0].FromMs, i, price)
	}
	for i := range b.moments {
		m := &b.moments[i]
		n := slices.IndexFunc(cycles, func(s Span) bool { return s.FromMs <= m.from && m.from < s.ToMs })
		if n < 0 || b.usage.NowMs != 0 && m.from >= b.usage.NowMs {
			continue
		}
		length := cycles[n].ToMs - cycles[n].FromMs
		worth := func(gpus int64) *big.Rat { return new(big.Rat).Mul(d.PerGPU, big.NewRat(gpus*m.ms, length)) }
		gpus := d.Gpus
		for gpus > 0 {
			var next *tenant
			for _, t := range b.tenants {
				s := t.at(m)
				if b.wants(s) && t.left[i] > 0 && s.Model == d.Model && (d.Region == "" || s.Region == d.Region) && (d.Tenancy == "" || s.Tenancy == d.Tenancy) && (next == nil || b.before(d, m, t, next)) {
					next = t
				}
			}
			if next == nil {
				break
			}
			some := min(gpus, next.left[i])
			b.cover(next, i, d.ID, c.ID, some, worth(some))
			gpus -= some
		}
		if gpus > 0 {
			b.unused(own, m, gpus, worth(gpus))
		}
	}
}

// pay is a cycle at once, or a part of it every month.
func (b *billOracle) pay(own tallyKey, d *CommittedDoc, cycle Span, first int64, n int, price *big.Rat) {
	months := map[Term]int{TermQuarter: 3, TermYear: 12}[d.Term]
	if d.Payment == "" || d.Payment == PayUpfront {
		b.purchase(own, cycle.FromMs, price)
		return
	}
	rest := new(big.Rat).Set(price)
	if d.Payment == PayPartial {
		down := new(big.Rat).Mul(price, d.Down)
		b.purchase(own, cycle.FromMs, down)
		rest.Sub(rest, down)
	}
	for month := range months {
		at := cycle.FromMs
		if month > 0 {
			at = AddMonths(first, n*months+month, b.profile.Zone)
		}
		if b.usage.NowMs == 0 || at < b.usage.NowMs {
			b.purchase(own, at, new(big.Rat).Quo(rest, big.NewRat(int64(months), 1)))
		}
	}
}

// grant gives a part of what is spread in every second.
func (b *billOracle) grant(c *Contract, d *CreditDoc) {
	k := tallyKey{category: CategoryCredit, meter: MeterGPU, contract: c.ID, project: d.Project, region: d.Region}
	give := func(at int64, part *big.Rat) {
		if b.usage.NowMs != 0 && at >= b.usage.NowMs {
			return
		}
		k := k
		k.bucket = b.bucket(at)
		x := b.bill.of(k)
		x.cost.Sub(&x.cost, part)
		x.effective.Sub(&x.effective, part)
		y := b.bill.of(tallyKey{category: CategoryCredit, meter: MeterGPU, contract: c.ID, billed: true})
		y.billed.Sub(&y.billed, part)
	}
	if d.At != 0 {
		give(int64(d.At), d.Amount)
		return
	}
	from, to := int64(c.From), int64(c.To)
	if d.From != 0 {
		from = int64(d.From)
	}
	if d.To != 0 {
		to = int64(d.To)
	}
	part := new(big.Rat).Mul(d.Amount, big.NewRat(b.ms, to-from))
	for at := from; at < to; at += b.ms {
		give(at, part)
	}
}

func (b *billOracle) before(d *CommittedDoc, m *moment, x, y *tenant) bool {
	s, o := x.at(m), y.at(m)
	if (s.Project == d.Project) != (o.Project == d.Project) {
		return s.Project == d.Project
	}
	prices := [2]*big.Rat{}
	for i, g := range []*Segment{s, o} {
		if prices[i] = b.listAt(g, m); prices[i] == nil {
			prices[i] = new(big.Rat)
		}
	}
	if c := prices[0].Cmp(prices[1]); c != 0 {
		return c > 0
	}
	return x.rental.Instance < y.rental.Instance
}

// byUse bills the GPUs that nobody has paid for.
func (b *billOracle) byUse(t *tenant) {
	lost := b.rework(t)
	settled := map[int]*big.Rat{}
	last := map[int64]int{} // the last moment of a second
	for i := range b.moments {
		last[b.moments[i].second] = i
	}
	for i := range b.moments {
		m := &b.moments[i]
		s := t.at(m)
		if s == nil {
			continue
		}
		now := &t.seconds[m.second-t.first]
		gpus := t.left[i]
		if b.bare(s) {
			gpus = 1
		}
		if !now.metered || gpus == 0 {
			continue
		}
		k := b.key(t, s, m)
		x := b.bill.of(k)
		x.metered += m.ms
		x.gpus += m.ms * gpus
		if lost[m.second] {
			x.lost += m.ms
		}
		if now.run < 0 || now.free {
			x.excluded += m.ms
			continue
		}
		if now.times == 0 {
			continue
		}
		extra := int64(0)
		if last[m.second] == i {
			extra = (now.times - 1) * b.ms
		}
		x.billable += m.ms + extra
		list, paid := b.priceAt(s, m)
		if list == nil {
			x.unpriced += m.ms + extra
			continue
		}
		cost := overHours(paid, gpus*m.ms)
		x.list.Add(&x.list, overHours(list, gpus*(m.ms+extra)))
		one := lostTime{key: k, at: m, gpus: gpus, cost: cost}
		x.cost.Add(&x.cost, cost)
		together := settled[now.settlement]
		if together == nil {
			together = new(big.Rat)
			settled[now.settlement] = together
		}
		together.Add(together, cost)
		if extra > 0 {
			one.extra = overHours(paid, gpus*extra)
			x.cost.Add(&x.cost, one.extra)
			together.Add(together, one.extra)
		}
		if len(b.usage.Outages) > 0 {
			b.lost = append(b.lost, one)
		}
	}
	x := b.bill.of(tallyKey{category: CategoryUsage, meter: MeterGPU, instance: t.rental.Instance, billed: true})
	for _, cost := range settled {
		x.billed.Add(&x.billed, b.money(cost))
	}
}

// rework are the seconds whose work was lost.
func (b *billOracle) rework(t *tenant) map[int64]bool {
	lost := map[int64]bool{}
	for i := range t.seconds {
		now := &t.seconds[i]
		at := t.first + int64(i)
		if now.run < 0 || i+1 < len(t.seconds) && t.seconds[i+1].run == now.run || !b.interruptedAt(t.rental, at+1) || now.segment.Plan != "spot" {
			continue
		}
		end := (at + 1) * b.ms
		for _, c := range b.contracts {
			if c.Clauses.Checkpoint > 0 && end > int64(c.From) && end <= int64(c.To) {
				for back := int64(0); back*b.ms < int64(c.Clauses.Checkpoint)/2; back++ {
					if k := int64(i) - back; k >= 0 && t.seconds[k].run == now.run {
						lost[at-back] = true
					}
				}
				break
			}
		}
	}
	return lost
}

var oracleUnits = map[Unit]string{UnitGB: "1000000000", UnitGiB: "1073741824", UnitGBHour: "3600000000000"}

// reading bills a meter second by second, at the price of when it begins.
func (b *billOracle) reading(m *Reading) {
	k := tallyKey{category: CategoryUsage, meter: m.Meter, instance: m.Instance, project: m.Project, region: m.Region}
	x := b.bill.of(k)
	var price *big.Rat
	var from *Contract
	for _, c := range b.contracts {
		for i := range c.Meters {
			if p := &c.Meters[i]; price == nil && p.Meter == m.Meter && m.FromMs >= int64(c.From) && m.FromMs < int64(c.To) {
				price, from = new(big.Rat).Quo(p.Price, rat(oracleUnits[p.Per])), c
			}
		}
	}
	add := func(part *big.Rat, ms int64) {
		quantity := new(big.Rat).Mul(m.Quantity, part)
		y := x
		if from != nil {
			k.contract = from.ID
			y = b.bill.of(k)
		}
		y.metered += ms
		y.billable += ms
		y.quantity.Add(&y.quantity, quantity)
		if price == nil {
			y.unpriced += ms
			return
		}
		cost := quantity.Mul(quantity, price)
		for _, sum := range []*big.Rat{&y.list, &y.cost, &y.effective} {
			sum.Add(sum, cost)
		}
		k := k
		k.billed = true
		y = b.bill.of(k)
		y.billed.Add(&y.billed, cost)
	}
	if m.FromMs == m.ToMs {
		add(big.NewRat(1, 1), 0)
		return
	}
	for at := m.FromMs / b.ms; at < m.ToMs/b.ms; at++ {
		part := big.NewRat(b.ms, m.ToMs-m.FromMs)
		free := false
		for _, t := range b.tenants {
			s := b.segmentAt(t.rental, at)
			if t.rental.Instance == m.Instance && s != nil && strings.HasPrefix(m.Meter, "storage") {
				there := !slices.Contains([]string{"released", "expired", "interrupted"}, s.State)
				free = free || there && !slices.Contains(b.profile.Billed.Storage, State(s.State))
			}
		}
		if free {
			x.metered += b.ms
			x.excluded += b.ms
			x.quantity.Add(&x.quantity, part.Mul(part, m.Quantity))
			continue
		}
		add(part, b.ms)
	}
}

// credit gives back what was paid for seconds in outages: by instance, by region that it
// was in, and by month.
func (b *billOracle) credit(c *Contract) {
	type window struct {
		instance, region string
		month            int
	}
	down := func(o *Outage, x *lostTime, ms int64) bool {
		return (o.Region == "" || o.Region == x.key.region) && (o.Instance == "" || o.Instance == x.key.instance) && (o.Platform == "" || b.here(o.Platform)) &&
			o.FromMs <= ms && ms < o.ToMs && ms >= int64(c.From) && ms < int64(c.To)
	}
	all, lost := map[window]*big.Rat{}, map[window]*big.Rat{}
	inside := map[window][]int{}
	for i := range b.lost {
		x := &b.lost[i]
		w := window{x.key.instance, x.key.region, b.clockAt(x.at.second).month}
		if all[w] == nil {
			all[w], lost[w] = new(big.Rat), new(big.Rat)
		}
		all[w].Add(all[w], x.cost)
		if x.extra != nil {
			all[w].Add(all[w], x.extra)
		}
		for k := range b.usage.Outages {
			if down(&b.usage.Outages[k], x, x.at.from) {
				lost[w].Add(lost[w], x.cost)
				inside[w] = append(inside[w], i)
				break
			}
		}
	}
	for w, list := range inside {
		if c.SLA.Trigger == BelowTarget {
			// The month, second by second: how much of it is down?
			first := b.lost[list[0]].at.second
			from := b.monthStart(first)
			to := b.monthEnd(first)
			seconds := int64(0)
			for k := range b.usage.Outages {
				for at := b.usage.Outages[k].FromMs / b.ms; at < b.usage.Outages[k].ToMs/b.ms; at++ {
					counted := at < from || at >= to || !down(&b.usage.Outages[k], &b.lost[list[0]], at*b.ms)
					for j := range k { // by an outage before
						counted = counted || down(&b.usage.Outages[j], &b.lost[list[0]], at*b.ms)
					}
					if !counted {
						seconds++
					}
				}
			}
			if big.NewRat(to-from-seconds, to-from).Cmp(c.SLA.Target) >= 0 {
				continue
			}
		}
		part := new(big.Rat).Set(c.SLA.Ratio)
		if c.SLA.Most != nil && lost[w].Sign() > 0 {
			if most := new(big.Rat).Quo(new(big.Rat).Mul(all[w], c.SLA.Most), lost[w]); most.Cmp(part) < 0 {
				part = most
			}
		}
		for _, i := range list {
			x := &b.lost[i]
			k := x.key
			k.category, k.status, k.commitment, k.contract = CategoryCredit, "", "", c.ID
			y := b.bill.of(k)
			y.metered += x.at.ms
			y.excluded += x.at.ms
			y.gpus += x.at.ms * x.gpus
			if c.SLA.Form == CreditHours {
				hours := big.NewRat(x.at.ms*x.gpus, hourMs)
				y.quantity.Add(&y.quantity, hours.Mul(hours, c.SLA.Ratio))
				continue
			}
			back := new(big.Rat).Mul(part, x.cost)
			y.cost.Sub(&y.cost, back)
			y.effective.Sub(&y.effective, back)
			k.billed, k.bucket, k.project, k.state, k.region, k.model = true, 0, "", "", "", ""
			y = b.bill.of(k)
			y.billed.Sub(&y.billed, back)
		}
	}
}

// monthStart and monthEnd are the seconds in which the month of a second begins and ends.
func (b *billOracle) monthStart(at int64) int64 {
	y, m, _ := clockOf(at*b.ms, b.profile.Zone)
	return startOfDay(y, m, 1, b.profile.Zone) / b.ms
}

func (b *billOracle) monthEnd(at int64) int64 {
	y, m, _ := clockOf(at*b.ms, b.profile.Zone)
	return startOfDay(y, m+1, 1, b.profile.Zone) / b.ms
}
