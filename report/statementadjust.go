package report

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// priceChange is what became of prices between the instant that closed periods were
// billed through and that of a request.
type priceChange struct {
	billedMs int64
	was, is  *pricing.Book
	changes  []pricing.BookChange
	rules    bool          // a contract or a profile changed; what that means only rating tells
	versions []PriceSource // applied in between
}

// priceChange looks at both ends; without a closed period there is nothing to look at.
func (s *Statements) priceChange(ctx context.Context, r *Request, closed []schema.Statement, terms *pricing.Terms) (*priceChange, error) {
	is := bookIn(terms)
	if len(closed) == 0 {
		return &priceChange{is: is}, nil
	}
	p := &priceChange{billedMs: closed[len(closed)-1].AsOfMs, is: is}
	then := *r
	then.AsOfMs = p.billedMs
	var err error
	if p.was, err = s.book(ctx, &then); err != nil {
		return nil, err
	}
	if p.was != is && (p.was == nil || is == nil || p.was.Hash != is.Hash) {
		p.changes = pricing.DiffBooks(p.was, is)
	}
	list, err := s.Versions(ctx, r.Tenant, r.AsOfMs)
	if err != nil {
		return nil, fmt.Errorf("statement: versions of prices: %w", err)
	}
	for i := range list {
		if v := &list[i]; v.AppliedAtMs > p.billedMs {
			p.rules = p.rules || v.Kind != schema.TermsBook
			p.versions = append(p.versions, PriceSource{
				Kind: v.Kind, Name: v.Name, Version: v.Version, AppliedAt: instantIn(utc, v.AppliedAtMs), AppliedBy: v.AppliedBy, Reason: v.Reason, Forced: v.Forced,
			})
		}
	}
	return p, nil
}

// book returns the price list as known at the instant of a request.
func (s *Statements) book(ctx context.Context, r *Request) (*pricing.Book, error) {
	terms, err := s.Service.Terms(ctx, r.Tenant, r.AsOfMs)
	return bookIn(terms), err
}

func bookIn(terms *pricing.Terms) *pricing.Book {
	if terms == nil {
		return nil
	}
	return terms.Book
}

// touches says whether any price of a period changed.
func (p *priceChange) touches(c *schema.Statement) bool {
	return p.rules || slices.ContainsFunc(p.changes, func(b pricing.BookChange) bool { return b.Touches(c.FromMs, c.ToMs) })
}

// adjustment is what changed in a closed period since the instant it was billed
// through: by what came in, and by prices that were applied since. nil when nothing
// did.
func (s *Statements) adjustment(ctx context.Context, r *Request, c *schema.Statement, p *priceChange) (*Adjustment, *sums, error) {
	arrivals, err := s.arrivals(ctx, r, c, p.billedMs)
	repriced := p.touches(c)
	if err != nil || arrivals.Total == 0 && !repriced {
		return nil, nil, err
	}
	currency := currencyOf(p.is)
	if was := currencyOf(p.was); was != "" && currency != "" && was != currency {
		return nil, nil, conflict("period %s was billed in %s and the price list is now in %s; amounts of two currencies have no difference", c.Period, was, currency)
	}
	at := *r
	at.FromMs, at.ToMs = c.FromMs, c.ToMs
	after, err := s.Service.cost(ctx, &at)
	if err != nil {
		return nil, nil, err
	}
	at.AsOfMs = p.billedMs
	before, err := s.Service.cost(ctx, &at)
	if err != nil {
		return nil, nil, err
	}
	rows, change := render(r.By, difference(linesOf(after), linesOf(before)), currency)
	if len(rows) == 0 && arrivals.usage == 0 {
		return nil, nil, nil // the corrections, leases and prices are of what nobody used
	}
	a := &Adjustment{Origin: c.Period, BilledThrough: instantIn(utc, p.billedMs), Rows: rows, Totals: change.figures(currency), Events: arrivals}
	if repriced {
		a.Prices = p.versions
	}
	return a, &change, nil
}
