package pricing

import (
	"cmp"
	"math/big"
	"slices"
)

// WhatIfKind is what is different in a what-if.
type WhatIfKind string

// Kinds of what-ifs.
const (
	WhatIfAsIs     WhatIfKind = "as_is"     // nothing: with contracts, commitments and plans
	WhatIfOnDemand WhatIfKind = "on_demand" // all on demand at list, where it ran
	WhatIfPlan     WhatIfKind = "plan"      // every GPU on a plan of one term, where it ran
	WhatIfPlatform WhatIfKind = "platform"  // all on demand by the rules of one platform
)

// WhatIf is what the same usage would cost otherwise. Times are GPU-ms that are billed;
// the last three add up to GPUMs.
type WhatIf struct {
	Kind     WhatIfKind
	Platform string // of WhatIfPlatform
	Term     Term   // of WhatIfPlan
	Currency string

	GPUMs int64
	// Cost is that of GPU time in the span; what is unpriced is not in it. It is nil
	// when nothing has a price, and only then comparable when nothing is unpriced.
	Cost       *big.Rat
	OwnMs      int64 // at the prices that the what-if is about
	OriginalMs int64 // at the prices of where it ran, because it has none of its own
	UnpricedMs int64
}

// Complete says whether all of it has a price.
func (w *WhatIf) Complete() bool { return w.UnpricedMs == 0 && w.Cost != nil }

func (w *WhatIf) add(ms int64, cost *big.Rat, original bool) {
	w.GPUMs += ms
	switch {
	case cost == nil:
		w.UnpricedMs += ms
		return
	case original:
		w.OriginalMs += ms
	default:
		w.OwnMs += ms
	}
	if w.Cost == nil {
		w.Cost = new(big.Rat)
	}
	w.Cost.Add(w.Cost, cost)
}

// Reprice rates the GPU time of a span as it is, on demand, on every term that
// [Terms.PlanPrices] knows, and by the rules of each profile's platform, with that
// platform's prices where the book has any for the model, and else with the original
// ones. The complete ones come first, the cheapest before all others.
//
// Other platforms are rated without contracts: what they would agree to is not known.
//
// It is about the segments for which keep is true; nil keeps all of them.
func Reprice(terms *Terms, usage *Usage, span Span, profiles []*Profile, keep func(s *Segment) bool) []WhatIf {
	if keep == nil {
		keep = func(*Segment) bool { return true }
	}
	all, u := *usage, *usage
	all.Cuts = append(slices.Clip(slices.Clone(usage.Cuts)), span.FromMs, span.ToMs)
	u.Cuts, u.Rentals = all.Cuts, kept(usage.Rentals, keep)
	list := []WhatIf{asIs(terms, &all, span, keep), onDemand(terms, &u, span)}
	list = append(list, onPlans(terms, &u, span)...)
	for _, profile := range profiles {
		list = append(list, elsewhere(terms, &u, span, profile))
	}
	for i := range list {
		if terms != nil && terms.Book != nil {
			list[i].Currency = terms.Book.Currency
		}
	}
	slices.SortStableFunc(list, func(a, b WhatIf) int {
		switch {
		case a.Complete() && b.Complete():
			return a.Cost.Cmp(b.Cost)
		case a.Complete():
			return -1
		case b.Complete():
			return 1
		}
		return cmp.Compare(a.UnpricedMs, b.UnpricedMs)
	})
	return list
}

// kept are the rentals with the segments that are kept.
func kept(rentals []*Rental, keep func(s *Segment) bool) (list []*Rental) {
	for _, r := range rentals {
		part := &Rental{Instance: r.Instance}
		for i := range r.Segments {
			if keep(&r.Segments[i]) {
				part.Segments = append(part.Segments, r.Segments[i])
			}
		}
		if len(part.Segments) > 0 {
			list = append(list, part)
		}
	}
	return list
}

// asIs takes all of the usage, because commitments are shared.
func asIs(terms *Terms, u *Usage, span Span, keep func(s *Segment) bool) WhatIf {
	w := WhatIf{Kind: WhatIfAsIs}
	for _, l := range terms.Rate(u) {
		if l.Category != CategoryUsage || l.Meter != MeterGPU || l.FromMs < span.FromMs || l.FromMs >= span.ToMs || !keep(&l.Segment) {
			continue
		}
		ms := l.gpuMs(span)
		if l.Status == StatusUnused {
			ms = 0 // paid for, and no use
		}
		if l.Effective != nil && terms.Book != nil && l.Currency != terms.Book.Currency {
			l.Effective = nil // an amount of another currency cannot be added
		}
		w.add(ms, l.Effective, false)
	}
	return w
}

// charge adds what a tariff asks for a rental. original says of a segment whether its
// price is that of where it ran.
func (w *WhatIf) charge(t *Tariff, r *Rental, span Span, original func(s *Segment) bool) {
	for _, c := range t.Rate(r) {
		if c.Segment.Gpus == 0 || c.FromMs < span.FromMs || c.FromMs >= span.ToMs {
			continue
		}
		ms := c.Ms() * c.Segment.Gpus
		if c.ExcludedMs > 0 {
			ms = 0 // it costs nothing, which is known
		}
		w.add(ms, c.Billed, original(&c.Segment))
	}
}

func (t *Terms) book() *Book {
	if t == nil {
		return nil
	}
	return t.Book
}

func onDemand(terms *Terms, u *Usage, span Span) WhatIf {
	w := WhatIf{Kind: WhatIfOnDemand}
	for _, platform := range platformsOf(u) {
		tariff := &Tariff{Profile: terms.Profile(platform), Book: terms.book(), Cuts: u.Cuts}
		for _, r := range u.Rentals {
			for _, part := range onPlatform(r, platform) {
				part = changed(part, nil, func(s *Segment) { s.Plan = "" })
				w.charge(tariff, part, span, func(*Segment) bool { return false })
			}
		}
	}
	return w
}

// changed is a copy of a rental, with its segments cut.
func changed(r *Rental, cuts []int64, change func(s *Segment)) *Rental {
	out := &Rental{Instance: r.Instance}
	for _, s := range r.Segments {
		if s.Ms() == 0 {
			out.Segments = append(out.Segments, s)
			continue
		}
		for _, piece := range Cut(s.FromMs, s.ToMs, cuts) {
			part := s
			part.Span = piece
			change(&part)
			out.Segments = append(out.Segments, part)
		}
	}
	return out
}

// elsewhere moves everything to one platform.
func elsewhere(terms *Terms, u *Usage, span Span, profile *Profile) WhatIf {
	w := WhatIf{Kind: WhatIfPlatform, Platform: profile.Platform}
	book := terms.book()
	tariff := &Tariff{Profile: profile, Book: book, Cuts: u.Cuts}
	for _, r := range u.Rentals {
		moved := changed(r, book.Cuts(r.Segments[0].FromMs, r.Segments[len(r.Segments)-1].ToMs), func(s *Segment) {
			if region, ok := book.sells(profile.Platform, s.Model, s.Region, s.FromMs); ok {
				s.Platform, s.Region = profile.Platform, region
			}
		})
		w.charge(tariff, moved, span, func(s *Segment) bool { return s.Platform != profile.Platform })
	}
	return w
}

// sells returns the region in which a platform has a price of its own for a model: the
// one that is asked for or, without it, the cheapest.
func (b *Book) sells(platform, model, region string, atMs int64) (string, bool) {
	own := func(region string) (Price, bool) {
		p, ok := b.Price(model, platform, region, atMs)
		return p, ok && p.PerGPUHour != nil && p.Entry != nil && p.Entry.Platform == platform
	}
	if b == nil || platform == "" {
		return "", false
	}
	if _, ok := own(region); ok {
		return region, true
	}
	best, found := Price{}, false
	for _, r := range b.regions(platform) {
		if p, ok := own(r); ok && (!found || p.PerGPUHour.Cmp(best.PerGPUHour) < 0) {
			best, region, found = p, r, true
		}
	}
	return region, found
}

// regions are those that a platform's entries name, in order.
func (b *Book) regions(platform string) []string {
	var list []string
	for i := range b.Entries {
		if e := &b.Entries[i]; e.Platform == platform {
			list = append(list, e.Region)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// onPlans puts every GPU on a plan, one term after the other. A pool without a price
// for the term stays on demand.
func onPlans(terms *Terms, u *Usage, span Span) []WhatIf {
	demands := MeasureDemand(u.Rentals, span, terms.Wants, PoolOf)
	prices := make([]PoolPrices, len(demands))
	var known []Term
	for i := range demands {
		prices[i] = terms.PoolPrices(demands[i].Pool, span)
		known = append(known, prices[i].terms()...)
	}
	slices.SortFunc(known, func(a, b Term) int { return cmp.Compare(termOrder(a), termOrder(b)) })
	var list []WhatIf
	for _, term := range slices.Compact(known) {
		w := WhatIf{Kind: WhatIfPlan, Term: term}
		for i := range demands {
			d, p := &demands[i], &prices[i]
			var cost *big.Rat
			plan := p.price(term, d.Peak())
			switch {
			case plan != nil:
				cost = d.planned(plan)
			case p.OnDemand != nil:
				cost = hoursAt(d.GPUMs(), p.OnDemand)
			}
			w.add(d.GPUMs(), cost, plan == nil)
		}
		list = append(list, w)
	}
	return list
}

// termOrder puts the shortest first.
func termOrder(t Term) int {
	return slices.Index([]Term{TermHour, TermDay, TermWeek, TermMonth, TermQuarter, TermYear}, t)
}

// PoolPrices returns what the terms say of a pool in a span: the list price at its
// beginning, or the first one in it, the price of spot at its beginning, and the plans
// of [Terms.PlanPrices].
func (t *Terms) PoolPrices(pool Pool, span Span) PoolPrices {
	p := PoolPrices{Plans: t.PlanPrices(pool, span)}
	for _, at := range append([]int64{span.FromMs}, t.book().Cuts(span.FromMs, span.ToMs)...) {
		if price, ok := t.book().Price(pool.Model, pool.Platform, pool.Region, at); ok {
			p.OnDemand = price.PerGPUHour
			break
		}
	}
	if price, ok := t.book().Lookup(pool.item(PlanSpot), span.FromMs); ok && price.Entry.Plan == PlanSpot && price.Entry.Currency == t.Book.Currency {
		p.Spot = price.PerGPUHour
	}
	return p
}

// PlanPrices returns the cheapest price of each term that the book, at the beginning of
// the span, and contracts of its currency, valid in some of the span, have for a pool.
// The length of a term is that of
// one that begins with the span.
func (t *Terms) PlanPrices(pool Pool, span Span) []PlanPrice {
	if t.book() == nil {
		return nil
	}
	zone := t.Profile(pool.Platform).Zone
	best := map[Term]PlanPrice{}
	offer := func(term Term, perGPU *big.Rat) {
		if old, known := best[term]; !known || perGPU.Cmp(old.PerGPU) < 0 {
			best[term] = PlanPrice{Term: term, PerGPU: perGPU, Ms: term.Cycles(span.FromMs, span.FromMs+1, RollingDay, zone)[0].Ms()}
		}
	}
	for _, term := range []Term{TermDay, TermWeek, TermMonth, TermQuarter, TermYear} {
		if p, ok := t.Book.Lookup(pool.item(string(term)), span.FromMs); ok && p.Entry.Term == term && p.Entry.Currency == t.Book.Currency {
			offer(term, p.Entry.PerGPU)
		}
	}
	for _, c := range t.Contracts {
		if c.Platform != pool.Platform || c.Currency != t.Book.Currency {
			continue
		}
		for i := range c.Commitments {
			d := &c.Commitments[i]
			from, to := d.span(c)
			if d.Model != pool.Model || d.Region != "" && d.Region != pool.Region || (Span{int64(from), int64(to)}).in(span).Ms() == 0 {
				continue
			}
			offer(d.Term, d.PerGPU)
		}
	}
	var list []PlanPrice
	for _, p := range best {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b PlanPrice) int { return cmp.Compare(termOrder(a.Term), termOrder(b.Term)) })
	return list
}

// PlatformPrice is the lowest price of a platform for a model.
type PlatformPrice struct {
	Platform   string
	Region     string
	PerGPUHour *big.Rat
}

// PlatformSpread is how far apart platforms are for one model (F9), each at its lowest
// price.
type PlatformSpread struct {
	Model  string
	Prices []PlatformPrice // the cheapest first
	Spread *big.Rat        // (highest - lowest) / highest; nil without two platforms
}

// PlatformSpreads compares the platforms that the book has entries of their own for, at
// an instant, model by model.
func PlatformSpreads(book *Book, models []string, atMs int64) []PlatformSpread {
	if book == nil {
		return nil
	}
	var platforms []string
	for i := range book.Entries {
		if p := book.Entries[i].Platform; p != "" {
			platforms = append(platforms, p)
		}
	}
	slices.Sort(platforms)
	platforms = slices.Compact(platforms)
	var list []PlatformSpread
	for _, model := range models {
		s := PlatformSpread{Model: model}
		var prices []*big.Rat
		for _, platform := range platforms {
			best := PlatformPrice{Platform: platform}
			for _, region := range book.regions(platform) {
				if p, ok := book.Price(model, platform, region, atMs); ok && p.Entry != nil && p.Entry.Platform == platform && p.PerGPUHour != nil && (best.PerGPUHour == nil || p.PerGPUHour.Cmp(best.PerGPUHour) < 0) {
					best.Region, best.PerGPUHour = region, p.PerGPUHour
				}
			}
			if best.PerGPUHour != nil {
				s.Prices = append(s.Prices, best)
				prices = append(prices, best.PerGPUHour)
			}
		}
		slices.SortStableFunc(s.Prices, func(a, b PlatformPrice) int { return a.PerGPUHour.Cmp(b.PerGPUHour) })
		s.Spread = Spread(prices)
		list = append(list, s)
	}
	return list
}
