package report

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
)

// Rated knows what was rented. It is what plan checks and advice need beside the terms.
type Rated interface {
	// Usage returns rentals, readings and outages of a tenant as of an instant (0 = all
	// that is stored) and until another one, from the first rental on: what a plan is
	// worth depends on who used it before the span that is asked for. The caller does
	// not change it.
	Usage(ctx context.Context, tenant string, asOfMs, nowMs int64) (*pricing.Usage, error)
}

// PlansParams ask for a check of plans. Its fields are those of [Params]; filters are on
// RatedFilters only.
type PlansParams struct {
	Tenant         string
	From, To, AsOf string
	Zone           string
	Filter         map[string]string
	// Projects have to be nil = all: plans are shared, so what one is worth to some
	// projects tells what others used.
	Projects []string
}

// RatedFilters are the keys that plan checks and advice can be filtered by.
var RatedFilters = []string{"platform", "region", "model", "project"}

// ParsePlans checks a question. Every error is a *RequestError, or a *ScopeError.
func ParsePlans(p PlansParams, now time.Time) (Request, error) {
	if p.Projects != nil {
		return Request{}, &ScopeError{What: "plans and advice"}
	}
	for key := range p.Filter {
		if !slices.Contains(RatedFilters, key) {
			return Request{}, wrong("filter", "%q is not a key that plans have; the keys are %s", clip(key), strings.Join(RatedFilters, ", "))
		}
	}
	r, err := Parse(Params{Tenant: p.Tenant, From: p.From, To: p.To, AsOf: p.AsOf, Zone: p.Zone, Filter: p.Filter}, now)
	if err == nil && r.FromMs >= r.until() {
		err = wrong("from", "%s is not before %s: plans are checked over time that has passed", instantIn(r.Zone, r.FromMs), instantIn(r.Zone, r.until()))
	}
	return r, err
}

// until is the instant that an answer knows of: the same for ever when it is as of one.
func (r *Request) until() int64 {
	if r.AsOfMs != 0 {
		return r.AsOfMs
	}
	return r.NowMs
}

// ratedSpan is the usage of a question and what it is rated by.
type ratedSpan struct {
	*Request
	pricing.Span // of the question, until now
	terms        *pricing.Terms
	usage        *pricing.Usage
	lines        []pricing.Line
}

// rated rates all usage of a tenant, whatever the filter: plans are shared.
func (s *Service) rated(ctx context.Context, r *Request) (*ratedSpan, error) {
	if s.Rated == nil {
		return nil, conflict("this program does not read rentals, so it can neither check plans nor give advice")
	}
	if err := s.known(ctx, r.AsOfMs, r.NowMs); err != nil {
		return nil, err
	}
	terms, err := s.Terms(ctx, r.Tenant, r.AsOfMs)
	if err != nil {
		return nil, fmt.Errorf("terms: %w", err)
	}
	usage, err := s.Rated.Usage(ctx, r.Tenant, r.AsOfMs, r.until())
	if err != nil {
		return nil, fmt.Errorf("rentals: %w", err)
	}
	own := *usage
	v := &ratedSpan{Request: r, Span: pricing.Span{FromMs: r.FromMs, ToMs: min(r.ToMs, r.until())}, terms: terms, usage: &own}
	own.NowMs = r.until()
	own.Cuts = append(slices.Clone(usage.Cuts), v.Span.FromMs, v.Span.ToMs)
	v.lines = terms.Rate(v.usage)
	return v, nil
}

func (v *ratedSpan) book() *pricing.Book {
	if v.terms == nil {
		return nil
	}
	return v.terms.Book
}

// keeps says whether the filter lets something through.
func (v *ratedSpan) keeps(s *pricing.Segment) bool {
	for key, want := range v.Filter {
		if got := map[string]string{"platform": s.Platform, "region": s.Region, "model": s.Model, "project": s.Project}[key]; got != want {
			return false
		}
	}
	return true
}

// RatedHead is what answers about plans begin with.
type RatedHead struct {
	From         string            `json:"from" format:"date-time"`
	To           string            `json:"to" format:"date-time" doc:"Exclusive; not after the instant that is known of"`
	AsOf         string            `json:"as_of" format:"date-time"`
	Zone         string            `json:"zone"`
	Filter       map[string]string `json:"filter"`
	Currency     *string           `json:"currency" nullable:"true" doc:"Of the price list; null without one"`
	PriceVersion *string           `json:"price_version" nullable:"true" doc:"Digest of the price list"`
}

func (v *ratedSpan) head() RatedHead {
	h := RatedHead{From: instantIn(utc, v.Span.FromMs), To: instantIn(utc, v.Span.ToMs), AsOf: instantIn(utc, v.until()), Zone: v.ZoneName, Filter: v.Filter}
	if h.Filter == nil {
		h.Filter = map[string]string{}
	}
	if book := v.book(); book != nil {
		h.Currency, h.PriceVersion = orNil(book.Currency), orNil(book.Hash)
	}
	return h
}

func (h *RatedHead) table(b *strings.Builder, what string) {
	fmt.Fprintf(b, "%s from %s to %s (%s), as of %s\n", what, h.From, h.To, h.Zone, h.AsOf)
	if len(h.Filter) > 0 {
		fmt.Fprintf(b, "only %s\n", printable(filterText(h.Filter)))
	}
	if h.PriceVersion == nil {
		b.WriteString("no price list: what anything costs on demand is not known\n")
	}
}

// amountOrNil writes an amount that may not be known.
func amountOrNil(x *big.Rat, currency string) *string { return orNil(amountText(x, currency)) }

// decimalOrNil writes a number with at most six decimals, rounded half away from zero.
func decimalOrNil(x *big.Rat) *string {
	if x == nil {
		return nil
	}
	return orNil(trimmed(x, 6))
}

func trimmed(x *big.Rat, decimals int) string {
	s := x.FloatString(decimals)
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// gpuHours writes GPU-ms for people.
func gpuHours(ms int64) string { return trimmed(big.NewRat(ms, 3_600_000), 1) }
