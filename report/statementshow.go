package report

import (
	"cmp"
	"context"

	"github.com/gpumeter/gpumeter/schema"
)

// StatementParams name a statement.
type StatementParams struct {
	Tenant string // schema.DefaultTenant when empty
	Period string
	// Zone and By are of an open period; of a closed one they are frozen. An
	// empty Zone is that of the tenant's other statements, else UTC; an empty By
	// is project.
	Zone string
	By   []string
}

// Show returns the frozen statement of a closed period, byte for byte. Of an open
// one it returns what closing it now would freeze; the adjustments are those that
// whichever period is closed next will carry, and all of it may change.
func (s *Statements) Show(ctx context.Context, p StatementParams) (*Frozen, error) {
	if p.Tenant == "" {
		p.Tenant = schema.DefaultTenant
	}
	closed, err := s.closed(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	req, err := s.request(p.Tenant, p.Period, p.Zone, p.By, closed)
	if err != nil {
		return nil, err
	}
	if c := statementOf(closed, p.Period); c != nil {
		return s.frozen(ctx, c)
	}
	if req.NowMs < req.FromMs {
		return nil, wrong("period", "%s begins at %s; there is nothing to show yet", p.Period, instantIn(req.Zone, req.FromMs))
	}
	doc, err := s.compute(ctx, &req, p.Period, closed)
	if err != nil {
		return nil, err
	}
	return &Frozen{Statement: *doc, content: encodeStatement(doc)}, nil
}

// List returns the closed periods of a tenant in the order of closing.
func (s *Statements) List(ctx context.Context, tenant string) (*StatementList, error) {
	if tenant == "" {
		tenant = schema.DefaultTenant
	}
	closed, err := s.closed(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list := &StatementList{Statements: []StatementSummary{}}
	for i := range closed {
		list.Statements = append(list.Statements, summaryOf(&closed[i]))
	}
	return list, nil
}

// DiffParams ask what changed in a closed period.
type DiffParams struct {
	Tenant string // schema.DefaultTenant when empty
	Period string
	AsOf   string // RFC 3339, or a date in the statement's zone; empty = everything stored so far
}

// Diff compares a closed period as it is known now, or as of an instant, with its
// frozen statement. Prices are those of that instant, too: a change of the price
// list for the past shows here, and in the adjustments of the next statement.
func (s *Statements) Diff(ctx context.Context, p DiffParams) (*StatementDiff, error) {
	if p.Tenant == "" {
		p.Tenant = schema.DefaultTenant
	}
	closed, err := s.closed(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	c := statementOf(closed, p.Period)
	if c == nil {
		if _, err := s.request(p.Tenant, p.Period, "", nil, closed); err != nil {
			return nil, err
		}
		return nil, &NotClosedError{Period: p.Period, Tenant: p.Tenant}
	}
	f, err := s.frozen(ctx, c)
	if err != nil {
		return nil, err
	}
	req, err := s.request(p.Tenant, p.Period, c.Zone, f.By, closed)
	if err != nil {
		return nil, err
	}
	if p.AsOf != "" {
		if req.AsOfMs, err = req.instant("as_of", p.AsOf); err != nil {
			return nil, err
		}
		if err := s.Service.known(ctx, req.AsOfMs, req.NowMs); err != nil {
			return nil, err
		}
	}
	if req.AsOfMs < c.AsOfMs {
		return nil, wrong("as_of", "%s is before the period was closed, as of %s", instantIn(req.Zone, req.AsOfMs), instantIn(req.Zone, c.AsOfMs))
	}
	return s.diff(ctx, &req, c, f)
}

func (s *Statements) diff(ctx context.Context, r *Request, c *schema.Statement, f *Frozen) (*StatementDiff, error) {
	ch, err := s.Service.charges(ctx, r)
	if err != nil {
		return nil, err
	}
	after, _, err := s.Service.collect(ctx, r, ch)
	if err := cmp.Or(err, ch.err()); err != nil {
		return nil, err
	}
	currency := ch.currency
	if then := f.Currency; then != nil && currency != "" && *then != currency {
		return nil, conflict("the statement of %s is in %s and the price list now in %s; amounts of two currencies have no difference", c.Period, *then, currency)
	} else if then != nil {
		currency = *then
	}
	before, err := f.exactLines()
	if err != nil {
		return nil, err
	}
	arrivals, err := s.arrivals(ctx, r, c, c.AsOfMs)
	if err != nil {
		return nil, err
	}
	prices, err := s.priceChange(ctx, r, []schema.Statement{*c}, ch.terms)
	if err != nil {
		return nil, err
	}
	rows, change := render(r.By, difference(linesOf(after), before), currency)
	d := &StatementDiff{
		Tenant: r.Tenant, Period: c.Period, Zone: c.Zone, From: f.From, To: f.To, Hash: c.Hash, ClosedAsOf: f.AsOf, AsOf: instantIn(utc, r.AsOfMs),
		Currency: orNil(currency), PriceVersion: f.PriceVersion, By: f.By, Rows: rows, Totals: change.figures(currency), Events: arrivals,
	}
	if prices.touches(c) {
		d.Prices = prices.versions
	}
	if ch.book != nil {
		d.PriceVersionNow = orNil(ch.version())
	}
	return d, nil
}
