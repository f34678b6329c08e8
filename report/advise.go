package report

import (
	"context"
	"math/big"
	"slices"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
)

// AdviseParams ask for advice on how to pay for what was used.
type AdviseParams struct {
	PlansParams
	// SpotRework is the part of useful work that spot does again, as a decimal such as
	// 0.05; empty = as it was measured.
	SpotRework string
	// Step is how many GPUs can be reserved at once, 1 to MaxStep; 1 when 0.
	Step int64
}

// MaxStep bounds AdviseParams.Step.
const MaxStep = 10_000

// AdviceReport says how what was used in a span could be paid for, if it goes on like
// that. Costs are for the span. Times are GPU-ms, amounts decimal strings of Currency,
// null when they are not known.
type AdviceReport struct {
	RatedHead
	Step    int64        `json:"step" doc:"GPUs that can be reserved at once"`
	Pools   []PoolAdvice `json:"pools" nullable:"false" doc:"How many GPUs to reserve, by platform, region and model"`
	Modes   []ModeRow    `json:"modes" nullable:"false" doc:"Which one way of paying fits, by workload, too"`
	WhatIfs []WhatIfRow  `json:"what_if" nullable:"false" doc:"The same usage paid for otherwise: complete ones first, the cheapest before all others"`
	Spreads []SpreadRow  `json:"spreads" nullable:"false" doc:"How far apart platforms are for a model, at the end of the span"`
}

// PoolKey names GPUs that can stand in for each other.
type PoolKey struct {
	Platform string `json:"platform"`
	Region   string `json:"region"`
	Model    string `json:"model"`
}

// PoolAdvice is the cheapest mix for a pool.
type PoolAdvice struct {
	PoolKey
	GPUMs     int64       `json:"gpu_ms" doc:"That were wanted"`
	Peak      int64       `json:"peak_gpus" doc:"Wanted at once"`
	Committed int64       `json:"committed_gpus" doc:"Of commitments and plans that last at the end of the span: they are paid for already"`
	Demand    []DemandRow `json:"demand" nullable:"false" doc:"Its times add up to the span"`
	OnDemand  *string     `json:"on_demand_per_gpu_hour" nullable:"true"`
	Spot      *string     `json:"spot_per_gpu_hour" nullable:"true" doc:"As it was paid in the span, with rework; null without spot"`
	Rework    *string     `json:"spot_rework" nullable:"true" doc:"Lost / useful"`
	Code      string      `json:"code" enum:"reserve,on_demand,spot,no_plan,unpriced"`
	BestTerm  *string     `json:"best_term" nullable:"true" doc:"Of the cheapest offer"`
	Reserve   *int64      `json:"reserve_gpus" nullable:"true" doc:"Of the cheapest offer; 0 = none"`
	Cost      *string     `json:"cost" nullable:"true" doc:"Of the cheapest mix"`
	Without   *string     `json:"cost_without" nullable:"true" doc:"With nothing reserved"`
	Savings   *string     `json:"savings" nullable:"true"`
	Offers    []OfferRow  `json:"offers" nullable:"false" doc:"One for each term that has a price"`

	advice pricing.Advice
}

// DemandRow is for how long so many GPUs were wanted.
type DemandRow struct {
	GPUs int64 `json:"gpus"`
	Ms   int64 `json:"ms"`
}

// OfferRow is what reserving for a term does.
type OfferRow struct {
	Term      string     `json:"term"`
	PerHour   string     `json:"per_gpu_hour"`
	Threshold *string    `json:"threshold" nullable:"true" doc:"Part of the time from which on a GPU is worth it"`
	Reserve   int64      `json:"reserve_gpus"`
	Cost      string     `json:"cost"`
	Curve     []MixRow   `json:"curve" nullable:"false" doc:"Every number of GPUs that can be reserved"`
	Layers    []LayerRow `json:"layers" nullable:"false" doc:"GPUs counted from 1: the k-th is wanted while at least k are"`
}

// MixRow is a point of a cost curve.
type MixRow struct {
	Reserved     int64  `json:"reserved_gpus"`
	ReservedCost string `json:"reserved_cost"`
	RestCost     string `json:"rest_cost" doc:"On demand or spot, whichever is cheaper"`
	Cost         string `json:"cost"`
	UsedMs       int64  `json:"used_ms"`
	UnusedMs     int64  `json:"unused_ms"`
	RestMs       int64  `json:"rest_ms"`
}

// LayerRow are GPUs that are wanted for the same time.
type LayerRow struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Ms   int64  `json:"ms"`
	Duty string `json:"duty"`
	Mode string `json:"mode" enum:"reserved,on_demand,spot"`
}

// ModeRow says which one way of paying fits a workload.
type ModeRow struct {
	PoolKey
	Workload string    `json:"workload" doc:"Empty when leases name none"`
	GPUMs    int64     `json:"gpu_ms"`
	Peak     int64     `json:"peak_gpus"`
	Duty     *string   `json:"duty" nullable:"true" doc:"Wanted / (peak x span)"`
	Costs    []ModeSum `json:"costs" nullable:"false"`
	Mode     *string   `json:"mode" nullable:"true" doc:"The cheapest: on_demand, spot or a term; null without a price"`
	Saving   *string   `json:"saving" nullable:"true" doc:"Against on demand"`
}

// ModeSum is what a mode costs.
type ModeSum struct {
	Mode string `json:"mode"`
	Cost string `json:"cost"`
}

// WhatIfRow is what the same usage costs otherwise.
type WhatIfRow struct {
	Kind       string  `json:"kind" enum:"as_is,on_demand,plan,platform"`
	Platform   string  `json:"platform" doc:"Of a platform; else empty"`
	Term       string  `json:"term" doc:"Of a plan; else empty"`
	Cost       *string `json:"cost" nullable:"true" doc:"Without what is unpriced; null when nothing has a price"`
	GPUMs      int64   `json:"gpu_ms" doc:"Billed; own_ms + original_ms + unpriced_ms"`
	OwnMs      int64   `json:"own_ms" doc:"At prices of this kind"`
	OriginalMs int64   `json:"original_ms" doc:"At prices of where it ran, on demand: there are no others"`
	UnpricedMs int64   `json:"unpriced_ms" doc:"Without any price: in no cost"`
}

// SpreadRow compares platforms for a model, each at its lowest price.
type SpreadRow struct {
	Model  string        `json:"model"`
	Spread *string       `json:"spread" nullable:"true" doc:"(highest - lowest) / highest; null without two platforms"`
	Prices []PlatformRow `json:"prices" nullable:"false" doc:"The cheapest first"`
}

// PlatformRow is the lowest price of a platform for a model.
type PlatformRow struct {
	Platform string `json:"platform"`
	Region   string `json:"region"`
	PerHour  string `json:"per_gpu_hour"`
}

// ParseAdvise checks a question. Every error is a *RequestError.
func ParseAdvise(p AdviseParams, now time.Time) (r Request, rework *big.Rat, err error) {
	if r, err = ParsePlans(p.PlansParams, now); err != nil {
		return r, nil, err
	}
	if p.Step < 0 || p.Step > MaxStep {
		return r, nil, wrong("step", "%d is not between 1 and %d", p.Step, MaxStep)
	}
	if p.SpotRework != "" {
		if len(p.SpotRework) > 20 || !isNumber(p.SpotRework) {
			return r, nil, wrong("spot_rework", "%q is not a decimal such as 0.05", clip(p.SpotRework))
		}
		rework, _ = new(big.Rat).SetString(p.SpotRework)
	}
	return r, rework, nil
}

// Advise measures the demand of a span and works out how it could be paid for. It fails
// as Plans does.
func (s *Service) Advise(ctx context.Context, p AdviseParams) (*AdviceReport, error) {
	r, rework, err := ParseAdvise(p, s.Now())
	if err != nil {
		return nil, err
	}
	v, err := s.rated(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := &AdviceReport{RatedHead: v.head(), Step: max(p.Step, 1), Pools: []PoolAdvice{}, Modes: []ModeRow{}, WhatIfs: []WhatIfRow{}, Spreads: []SpreadRow{}}
	currency := currencyOf(v.book())
	wants := func(s *pricing.Segment) bool { return v.keeps(s) && v.terms.Wants(s) }
	prices := func(pool pricing.Pool) pricing.PoolPrices {
		pool.Workload = ""
		p := v.terms.PoolPrices(pool, v.Span)
		p.Step = out.Step
		if p.Spot, p.Rework = pricing.MeasureSpot(v.lines, v.Span, pool); rework != nil {
			p.Rework = rework
		}
		return p
	}
	var models []string
	for _, d := range pricing.MeasureDemand(v.usage.Rentals, v.Span, wants, pricing.PoolOf) {
		p := prices(d.Pool)
		row := poolAdvice(pricing.Advise(d, &p), &p, currency)
		row.Committed = v.committed(d.Pool)
		out.Pools = append(out.Pools, row)
		models = append(models, d.Pool.Model)
	}
	byWorkload := func(s *pricing.Segment) pricing.Pool {
		pool := pricing.PoolOf(s)
		pool.Workload = s.Workload
		return pool
	}
	for _, d := range pricing.MeasureDemand(v.usage.Rentals, v.Span, wants, byWorkload) {
		p := prices(d.Pool)
		out.Modes = append(out.Modes, modeRow(pricing.Modes(&d, &p), currency))
	}
	var profiles []*pricing.Profile
	if v.terms != nil {
		profiles = v.terms.Profiles
	}
	for _, w := range pricing.Reprice(v.terms, v.usage, v.Span, profiles, v.keeps) {
		out.WhatIfs = append(out.WhatIfs, WhatIfRow{string(w.Kind), w.Platform, string(w.Term), amountOrNil(w.Cost, currency), w.GPUMs, w.OwnMs, w.OriginalMs, w.UnpricedMs})
	}
	slices.Sort(models)
	for _, spread := range pricing.PlatformSpreads(v.book(), slices.Compact(models), v.Span.ToMs-1) {
		out.Spreads = append(out.Spreads, spreadRow(&spread))
	}
	return out, nil
}

// committed is how many GPUs of a pool are paid for at the end of the span.
func (v *ratedSpan) committed(pool pricing.Pool) (gpus int64) {
	for i := range v.lines {
		l := &v.lines[i]
		s := &l.Segment
		if l.Category == pricing.CategoryPurchase && l.FromMs < v.Span.ToMs && v.Span.ToMs <= l.ToMs && s.Platform == pool.Platform && s.Model == pool.Model && (s.Region == "" || s.Region == pool.Region) {
			gpus += s.Gpus
		}
	}
	return gpus
}

func poolAdvice(a pricing.Advice, p *pricing.PoolPrices, currency string) PoolAdvice {
	d := &a.Demand
	row := PoolAdvice{
		PoolKey: PoolKey{d.Pool.Platform, d.Pool.Region, d.Pool.Model}, GPUMs: d.GPUMs(), Peak: d.Peak(), Demand: []DemandRow{}, Code: string(a.Code),
		OnDemand: amountOrNil(a.OnDemand, currency), Spot: amountOrNil(a.Spot, currency), Without: amountOrNil(a.Without, currency), Savings: amountOrNil(a.Savings, currency),
		Offers: []OfferRow{}, advice: a,
	}
	if a.Spot != nil {
		row.Rework = decimalOrNil(p.Rework)
	}
	for _, m := range d.Demand {
		row.Demand = append(row.Demand, DemandRow{m.Gpus, m.Ms})
	}
	for i := range a.Offers {
		row.Offers = append(row.Offers, offerRow(&a.Offers[i], currency))
	}
	if a.Best >= 0 {
		best := &row.Offers[a.Best]
		row.BestTerm, row.Reserve, row.Cost = &best.Term, &best.Reserve, &best.Cost
	}
	return row
}

func offerRow(o *pricing.Offer, currency string) OfferRow {
	row := OfferRow{
		Term: string(o.Term), PerHour: pricing.Format(o.PerHour, currency), Threshold: decimalOrNil(o.Threshold), Reserve: o.Best.Reserved,
		Cost: pricing.Format(o.Best.Cost, currency), Curve: []MixRow{}, Layers: []LayerRow{},
	}
	for i := range o.Curve {
		m := &o.Curve[i]
		// Rounded so that the two parts add up.
		parts, total := pricing.RoundParts([]*big.Rat{m.ReservedCost, m.RestCost}, pricing.Decimals)
		row.Curve = append(row.Curve, MixRow{m.Reserved, pricing.Format(parts[0], currency), pricing.Format(parts[1], currency), pricing.Format(total, currency), m.UsedMs, m.UnusedMs, m.RestMs})
	}
	for _, l := range o.Layers {
		row.Layers = append(row.Layers, LayerRow{l.From, l.To, l.Ms, trimmed(l.Duty, 6), string(l.Mode)})
	}
	return row
}

func modeRow(m pricing.ModeAdvice, currency string) ModeRow {
	row := ModeRow{
		PoolKey: PoolKey{m.Pool.Platform, m.Pool.Region, m.Pool.Model}, Workload: m.Pool.Workload, GPUMs: m.GPUMs, Peak: m.Peak, Duty: decimalOrNil(m.Duty),
		Costs: []ModeSum{}, Mode: orNil(string(m.Best)), Saving: amountOrNil(m.Saving, currency),
	}
	for _, c := range m.Costs {
		row.Costs = append(row.Costs, ModeSum{string(c.Mode), pricing.Format(c.Cost, currency)})
	}
	return row
}

func spreadRow(s *pricing.PlatformSpread) SpreadRow {
	row := SpreadRow{Model: s.Model, Spread: decimalOrNil(s.Spread), Prices: []PlatformRow{}}
	for _, p := range s.Prices {
		row.Prices = append(row.Prices, PlatformRow{p.Platform, p.Region, pricing.Exact(p.PerGPUHour)})
	}
	return row
}
