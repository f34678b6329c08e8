package report

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// charges are what the time of one request costs. Of instances with a lease that is
// what the lines of their bill say, spread over the time that they are for; usage
// without a lease costs its time at the price of its kind of unit.
type charges struct {
	terms    *pricing.Terms
	book     *pricing.Book
	currency string         // of the amounts that were asked for; of the price list, as long as there are none
	used     bool           // there are some
	foreign  string         // another one that there are amounts in
	lines    []pricing.Line // that overlap the request's span
	spans    map[string][]schema.RatedSpan
	rates    []*rate // spans name them from 1
	lumps    []lump
	entries  map[*pricing.Entry]*rate
}

// rate is what one GPU-millisecond costs.
type rate struct {
	list      *big.Rat // at list price; nil = not known
	cost      *big.Rat // as it is billed; nil = there is no price, and nothing else is known
	effective *big.Rat // with purchases spread over what they pay for
	rework    bool     // work of this time was lost
	plan      string   // that the instance is leased by; empty = on demand
	unbilled  bool     // no line is for this time: it costs what usage without a lease does
	unpriced  *big.Rat // the part of it that has no price, and is in none of these; nil = none
}

// class is a part of the effective cost. The classes add up to it.
type class int

const (
	useful class = iota
	heldIdleClass
	freeClass
	unknownClass
	stoppedClass // billed while the instance did not hold its GPUs
	minimumClass // billed beyond the time of the instance, by a minimum or rounding
	unusedClass  // committed and not used
	reworkClass  // work that was lost
	meterClass   // transfer, storage
	creditClass
	classes
)

// lump is an amount that does not depend on what a unit did.
type lump struct {
	line            *pricing.Line
	fromMs, toMs    int64 // that it is spread over evenly; equal = it falls on an instant
	class           class
	list            *big.Rat // nil = not known
	cost, effective *big.Rat // nil = there is no price
}

// charges finds out what a request's time costs.
func (s *Service) charges(ctx context.Context, r *Request) (*charges, error) {
	return s.chargesIn(ctx, r, false)
}

// booked is charges in the lines of the ledger: it costs the same, in more lines.
func (s *Service) booked(ctx context.Context, r *Request) (*charges, error) {
	return s.chargesIn(ctx, r, true)
}

func (s *Service) chargesIn(ctx context.Context, r *Request, booked bool) (*charges, error) {
	ch := &charges{spans: map[string][]schema.RatedSpan{}, entries: map[*pricing.Entry]*rate{}}
	var err error
	if ch.terms, err = s.Terms(ctx, r.Tenant, r.AsOfMs); err != nil {
		return nil, fmt.Errorf("report: terms: %w", err)
	}
	if ch.terms != nil {
		ch.book = ch.terms.Book
	}
	ch.currency = currencyOf(ch.book)
	if s.Rated == nil {
		return ch, nil
	}
	usage, err := s.Rated.Usage(ctx, r.Tenant, r.AsOfMs, r.NowMs)
	if err != nil {
		return nil, fmt.Errorf("report: what is rated: %w", err)
	}
	own := *usage
	if first, any := ch.terms.Begins(usage); any && booked && first < r.NowMs {
		own.Cuts = slices.Concat(usage.Cuts, pricing.Midnights(pricing.Span{FromMs: max(first, r.FromMs), ToMs: min(r.ToMs, r.NowMs)}))
	}
	for _, l := range ch.terms.Rate(&own) {
		if l.FromMs < r.ToMs && max(l.ToMs, l.FromMs+1) > r.FromMs {
			ch.lines = append(ch.lines, l)
		}
	}
	for i := range ch.lines {
		if l := &ch.lines[i]; l.Billed != nil && l.Billed.Sign() != 0 && concerns(l, r) {
			ch.use(l.Currency)
		}
	}
	known := ch.spread()
	for _, r := range own.Rentals {
		ch.fill(r, known)
	}
	return ch, ch.err()
}

// use notes the currency of an amount.
func (ch *charges) use(currency string) {
	switch {
	case currency == "" || currency == ch.currency:
		ch.used = true
	case !ch.used:
		ch.currency, ch.used = currency, true
	default:
		ch.foreign = currency
	}
}

// err refuses to add up amounts of several currencies.
func (ch *charges) err() error {
	if ch.foreign == "" {
		return nil
	}
	return wrong("filter", "there are amounts in %s and in %s, which have no sum; ask for those of one at a time, such as with the filter platform", ch.currency, ch.foreign)
}

// spread turns the lines into rates of held time and lumps. It returns the numbers that
// rates have.
func (ch *charges) spread() map[string]int {
	byInstance := map[string][]int{}
	for i := range ch.lines {
		l := &ch.lines[i]
		if l.Meter == pricing.MeterGPU && l.Category == pricing.CategoryUsage && held(l) {
			byInstance[l.Instance] = append(byInstance[l.Instance], i)
			if l.Status != pricing.StatusUnused { // else it pays for the time, which is worth nothing
				ch.beyond(l)
				continue
			}
		}
		ch.whole(l)
	}
	known := map[string]int{}
	for instance, lines := range byInstance {
		ch.instance(instance, lines, known)
	}
	return known
}

// fill says the plan of the held time of an instance that no line is for, such as what
// rounding takes away: which lines there are depends on how they are cut.
func (ch *charges) fill(r *pricing.Rental, known map[string]int) {
	have := ch.spans[r.Instance]
	all := slices.Clip(have)
	next := 0
	for i := range r.Segments {
		s := &r.Segments[i]
		if state := (schema.LeaseSegment{State: s.State}); s.Plan == "" || !state.Held() {
			continue
		}
		for at := s.FromMs; at < s.ToMs; {
			for next < len(have) && have[next].ToMs <= at {
				next++
			}
			end := s.ToMs
			if next < len(have) {
				end = min(end, max(at, have[next].FromMs))
			}
			if at < end {
				all = append(all, schema.RatedSpan{FromMs: at, ToMs: end, Rate: ch.number(&rate{plan: s.Plan, unbilled: true}, "unbilled "+s.Plan, known)})
				at = end
				continue
			}
			at = have[next].ToMs
		}
	}
	if len(all) > len(have) {
		slices.SortFunc(all, func(a, b schema.RatedSpan) int { return cmp.Compare(a.FromMs, b.FromMs) })
		ch.spans[r.Instance] = all
	}
}

// billed says whether lines of a bill say what a row costs.
func (ch *charges) billed(row *schema.UsageRow) bool {
	return row.Rate > 0 && !ch.rates[row.Rate-1].unbilled
}

func held(l *pricing.Line) bool {
	s := schema.LeaseSegment{State: l.Segment.State}
	return s.Held() && l.Ms() > 0
}

// beyond makes a lump of what a minimum or rounding adds behind the time of a line.
func (ch *charges) beyond(l *pricing.Line) {
	extra := l.MinimumMs + l.RoundingMs
	if extra <= 0 || l.Billed == nil {
		return
	}
	part := big.NewRat(extra, l.BillableMs)
	of := func(x *big.Rat) *big.Rat {
		if x == nil {
			return nil
		}
		return new(big.Rat).Mul(x, part)
	}
	ch.lumps = append(ch.lumps, lump{line: l, fromMs: l.ToMs - 1, toMs: l.ToMs - 1, class: minimumClass, list: of(l.ListCost), cost: of(l.Billed), effective: of(l.Effective)})
}

// whole makes a lump of a line that is about something else than held time.
func (ch *charges) whole(l *pricing.Line) {
	at := lump{line: l, fromMs: l.FromMs, toMs: l.ToMs, list: l.ListCost, cost: l.Billed, effective: l.Effective}
	switch {
	case l.Category == pricing.CategoryPurchase:
		at.toMs = at.fromMs // it is bought when it begins; its worth is in its uses
	case l.Category == pricing.CategoryCredit:
		at.class = creditClass
		if l.Commitment != "" {
			at.toMs = at.fromMs
		}
	case l.Status == pricing.StatusUnused:
		at.class = unusedClass
	case l.Meter != pricing.MeterGPU:
		at.class = meterClass
	default:
		at.class = stoppedClass
		if l.Ms() == 0 {
			at.class = minimumClass // a moment that a minimum made long
		}
	}
	if at.cost != nil && at.cost.Sign() == 0 && at.effective.Sign() == 0 && (at.list == nil || at.list.Sign() == 0) {
		return
	}
	ch.lumps = append(ch.lumps, at)
}

// instance finds the rates of an instance over time. Several lines may pay for its GPUs
// at once: some for those that a commitment covers, others for the rest.
func (ch *charges) instance(instance string, lines []int, known map[string]int) {
	var cuts []int64
	for _, i := range lines {
		cuts = append(cuts, ch.lines[i].FromMs, ch.lines[i].ToMs)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	slices.SortFunc(lines, func(a, b int) int { return cmp.Compare(ch.lines[a].FromMs, ch.lines[b].FromMs) })
	var active []int
	next := 0
	for k := range cuts[:len(cuts)-1] {
		from, to := cuts[k], cuts[k+1]
		active = slices.DeleteFunc(active, func(i int) bool { return ch.lines[i].ToMs <= from })
		for ; next < len(lines) && ch.lines[lines[next]].FromMs <= from; next++ {
			active = append(active, lines[next])
		}
		if len(active) == 0 {
			continue
		}
		n := ch.rateOf(active, known)
		list := ch.spans[instance]
		if m := len(list); m > 0 && list[m-1].ToMs == from && list[m-1].Rate == n {
			list[m-1].ToMs = to
			continue
		}
		ch.spans[instance] = append(list, schema.RatedSpan{FromMs: from, ToMs: to, Rate: n})
	}
}

// rateOf numbers the rate that lines make together.
func (ch *charges) rateOf(active []int, known map[string]int) int {
	// A segment has one plan, and so have all lines that are for a moment of it.
	r := &rate{list: new(big.Rat), cost: new(big.Rat), effective: new(big.Rat), plan: ch.lines[active[0]].Segment.Plan}
	gpus, without := int64(0), int64(0)
	for _, i := range active {
		l := &ch.lines[i]
		gpus += l.Segment.Gpus
		if l.Status == pricing.StatusUnused {
			continue
		}
		if l.Billed == nil || l.Effective == nil {
			without += l.Segment.Gpus
			continue
		}
		// What a minimum or rounding adds is a lump; what rounding takes away is not
		// billed for the time that there was.
		perMs := big.NewRat(1, l.Ms())
		if extra := l.MinimumMs + l.RoundingMs; extra > 0 {
			perMs.Mul(perMs, big.NewRat(l.BillableMs-extra, l.BillableMs))
		}
		r.cost.Add(r.cost, new(big.Rat).Mul(l.Billed, perMs))
		r.effective.Add(r.effective, new(big.Rat).Mul(l.Effective, perMs))
		if l.ListCost == nil {
			r.list = nil
		} else if r.list != nil {
			r.list.Add(r.list, new(big.Rat).Mul(l.ListCost, perMs))
		}
		r.rework = r.rework || l.Rework
	}
	if gpus == without {
		return ch.number(&rate{plan: r.plan}, "no price "+r.plan, known)
	}
	share := "0"
	if without > 0 {
		r.unpriced = big.NewRat(without, gpus)
		share = r.unpriced.RatString()
	}
	each := big.NewRat(1, gpus)
	r.cost.Mul(r.cost, each)
	r.effective.Mul(r.effective, each)
	list := "unknown"
	if r.list != nil {
		list = r.list.Mul(r.list, each).RatString()
	}
	key := fmt.Sprintf("%s %s %s %t %s %s", list, r.cost.RatString(), r.effective.RatString(), r.rework, share, r.plan)
	return ch.number(r, key, known)
}

func (ch *charges) number(r *rate, key string, known map[string]int) int {
	if n, ok := known[key]; ok {
		return n
	}
	ch.rates = append(ch.rates, r)
	known[key] = len(ch.rates)
	return len(ch.rates)
}

// plan returns what a row's instance is leased by; empty on demand and without a lease.
func (ch *charges) plan(row *schema.UsageRow) string {
	if row.Rate == 0 {
		return ""
	}
	return ch.rates[row.Rate-1].plan
}

// rate returns what the time of a row costs; nil without a price.
func (ch *charges) rate(row *schema.UsageRow, startMs int64) *rate {
	if ch.billed(row) {
		if r := ch.rates[row.Rate-1]; r.cost != nil {
			return r
		}
		return nil // whatever others pay for such a unit
	}
	price, ok := ch.price(row.Model, row.Platform, row.Region, startMs)
	if !ok {
		return nil
	}
	ch.use(price.Entry.Currency)
	r := ch.entries[price.Entry]
	if r == nil {
		perMs := pricing.Cost(1, price)
		r = &rate{list: perMs, cost: perMs, effective: perMs}
		ch.entries[price.Entry] = r
	}
	return r
}

// price is that of an hour of a kind of unit, on demand.
func (ch *charges) price(model, platform, region string, atMs int64) (pricing.Price, bool) {
	p, ok := ch.book.Lookup(pricing.Item{Model: model, Platform: platform, Region: region}, atMs)
	return p, ok && p.PerGPUHour != nil
}

// cuts are the instants at which the price of usage without a lease may change.
func (ch *charges) cuts(fromMs, toMs int64) []int64 { return ch.book.Cuts(fromMs, toMs) }

// version is the version of the price list; empty without one.
func (ch *charges) version() string {
	if ch.book == nil {
		return ""
	}
	return ch.book.Hash
}

// lumpRow is the part of a lump that falls into one piece of the span.
type lumpRow struct {
	keys, order []string
	piece       int
	lump        *lump
	part        *big.Rat // of the lump
	unpricedMs  int64    // GPU time of it without a price
}

// lumpRows divides the lumps among the pieces, in the order of their keys.
func (ch *charges) lumpRows(r *Request, cal *calendar, cuts []int64) []lumpRow {
	var rows []lumpRow
	for i := range ch.lumps {
		l := &ch.lumps[i]
		stored, wanted := lumpKeys(l.line, r)
		if !wanted {
			continue
		}
		for at := max(l.fromMs, r.FromMs); at < r.ToMs && (at < l.toMs || at == l.fromMs); {
			piece, found := slices.BinarySearch(cuts, at)
			if !found {
				piece--
			}
			end := min(l.toMs, cuts[piece+1])
			part := big.NewRat(1, 1)
			if l.toMs > l.fromMs {
				part = big.NewRat(end-at, l.toMs-l.fromMs)
			}
			keys, order := rowKeys(r.By, stored, l.line.Segment.Plan, cal, cuts[piece])
			rows = append(rows, lumpRow{slices.Clone(keys), slices.Clone(order), piece, l, part, l.unpricedMs(at, end)})
			if l.toMs == l.fromMs {
				break
			}
			at = end
		}
	}
	slices.SortStableFunc(rows, func(a, b lumpRow) int { return slices.Compare(a.order, b.order) })
	return rows
}

// unpricedMs is the GPU time of a lump without a price in a part of its span. Parts add
// up to the whole, however it is cut. A quantity without a price is in the charges only.
func (l *lump) unpricedMs(from, to int64) int64 {
	if l.cost != nil && l.effective != nil || l.line.Meter != pricing.MeterGPU {
		return 0
	}
	all := new(big.Int).Mul(big.NewInt(l.line.BillableMs), big.NewInt(l.line.Segment.Gpus))
	if l.toMs == l.fromMs {
		return all.Int64()
	}
	until := func(ms int64) int64 {
		x := new(big.Int).Mul(all, big.NewInt(ms-l.fromMs))
		return x.Quo(x, big.NewInt(l.toMs-l.fromMs)).Int64()
	}
	return until(to) - until(from)
}

// lumpKeys returns the stored keys of a lump's row, and whether the request asks for it.
// A lump is no unit's and no node's.
func lumpKeys(l *pricing.Line, r *Request) (keys []string, wanted bool) {
	if !schema.InScope(r.Projects, l.Segment.Project) {
		return nil, false
	}
	for name, want := range r.Filter {
		if lineValue(l, name) != want {
			return nil, false
		}
	}
	for _, key := range storedKeys(r.By) {
		keys = append(keys, lineValue(l, key))
	}
	return keys, true
}

func lineValue(l *pricing.Line, dimension string) string {
	s := &l.Segment
	switch dimension {
	case "project":
		return s.Project
	case "instance":
		return l.Instance
	case "model":
		return s.Model
	case "platform":
		return s.Platform
	case "region":
		return s.Region
	case planKey:
		return s.Plan
	}
	if key, ok := strings.CutPrefix(dimension, labelPrefix); ok {
		return labelIn(s.Labels, key)
	}
	return ""
}
