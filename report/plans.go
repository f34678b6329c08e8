package report

import (
	"context"
	"math/big"

	"github.com/gpumeter/gpumeter/pricing"
)

// PlansReport says what plans were worth. Times are GPU-ms; amounts are decimal strings
// of their plan's currency, null when they are not known.
type PlansReport struct {
	RatedHead
	Plans  []PlanRow    `json:"plans" nullable:"false"`
	Totals []PlanTotals `json:"totals" nullable:"false" doc:"One for each currency"`
}

// PlanRow is the check of one plan. Cost is used_cost + unused_cost, and savings are
// on_demand_cost - cost.
type PlanRow struct {
	ID       string `json:"id"`
	Contract string `json:"contract" doc:"Empty when it is in none"`
	Kind     string `json:"kind" enum:"commitment,instance,quote"`
	Instance string `json:"instance" doc:"Whose plan it is; empty for a contract's"`
	Project  string `json:"project" doc:"The owner"`
	Platform string `json:"platform"`
	Region   string `json:"region" doc:"Empty = any"`
	Model    string `json:"model"`
	Term     string `json:"term" doc:"Of a billing cycle; empty for a quote"`
	GPUs     int64  `json:"gpus" doc:"0 for a quote"`
	Currency string `json:"currency"`
	From     string `json:"from" format:"date-time" doc:"When it lasted in the span"`
	To       string `json:"to" format:"date-time"`

	CommittedMs int64   `json:"committed_ms" doc:"used_ms + unused_ms"`
	UsedMs      int64   `json:"used_ms"`
	UnusedMs    int64   `json:"unused_ms"`
	EligibleMs  int64   `json:"eligible_ms" doc:"GPU time that it could have covered, whoever paid for it"`
	Utilization *string `json:"utilization" nullable:"true" doc:"Used / committed, at most six decimals; null for a quote"`
	Coverage    *string `json:"coverage" nullable:"true" doc:"Used / eligible; null when nothing was eligible"`

	Purchased  string  `json:"purchased" doc:"Cycles that begin in the span"`
	Refunded   string  `json:"refunded"`
	Cost       string  `json:"cost" doc:"Purchases spread over their time"`
	UsedCost   string  `json:"used_cost"`
	UnusedCost string  `json:"unused_cost"`
	OnDemand   *string `json:"on_demand_cost" nullable:"true" doc:"Of the used time, at list; null when a price is missing or of another currency"`
	Savings    *string `json:"savings" nullable:"true" doc:"Negative: the plan is dearer than on demand at this use"`

	CycleHours     *string `json:"cycle_hours" nullable:"true" doc:"Of the last cycle; null for a quote"`
	BreakEvenHours *string `json:"break_even_hours" nullable:"true" doc:"On demand hours that a GPU's cycle pays for; GPU-hours of the job for a quote"`
	NeverBreaks    bool    `json:"never_breaks_even" doc:"A cycle has fewer hours than that"`
	MissingHours   *string `json:"hours_to_break_even" nullable:"true" doc:"That each GPU still lacks in the last cycle"`
	LeftHours      string  `json:"hours_left" doc:"That the last cycle goes on after the span"`
	Verdict        string  `json:"verdict" enum:"keep,too_dear_at_this_use,never_breaks_even,unused,unpriced"`

	check pricing.PlanCheck
}

// PlanTotals adds up the plans of one currency.
type PlanTotals struct {
	Currency   string  `json:"currency"`
	Purchased  string  `json:"purchased"`
	Cost       string  `json:"cost"`
	UsedCost   string  `json:"used_cost"`
	UnusedCost string  `json:"unused_cost"`
	OnDemand   *string `json:"on_demand_cost" nullable:"true" doc:"Null unless it is known of every plan"`
	Savings    *string `json:"savings" nullable:"true"`
}

// Plans checks the plans that lasted in a span. It fails with a *RequestError, with an
// *UnsettledError, with a *ConflictError when Options.Rated is nil, or with what the
// stores say.
func (s *Service) Plans(ctx context.Context, p PlansParams) (*PlansReport, error) {
	r, err := ParsePlans(p, s.Now())
	if err != nil {
		return nil, err
	}
	v, err := s.rated(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := &PlansReport{RatedHead: v.head(), Plans: []PlanRow{}, Totals: []PlanTotals{}}
	var order []string
	byCurrency := map[string][]pricing.PlanCheck{}
	for _, c := range pricing.CheckPlans(v.lines, v.Span, v.book()) {
		if !v.keeps(&pricing.Segment{Platform: c.Platform, Region: c.Region, Model: c.Model, Project: c.Project}) {
			continue
		}
		if byCurrency[c.Currency] == nil {
			order = append(order, c.Currency)
		}
		byCurrency[c.Currency] = append(byCurrency[c.Currency], c)
	}
	for _, currency := range order {
		rows, totals := planRows(byCurrency[currency], currency)
		out.Plans, out.Totals = append(out.Plans, rows...), append(out.Totals, totals)
	}
	return out, nil
}

// planRows writes the plans of one currency, rounded so that they add up: in a row, in a
// column, and in the corner.
func planRows(checks []pricing.PlanCheck, currency string) ([]PlanRow, PlanTotals) {
	var purchased, refunded, costs, onDemand []*big.Rat
	allKnown := true
	for i := range checks {
		c := &checks[i]
		purchased, refunded = append(purchased, c.Purchased), append(refunded, c.Refunded)
		costs, onDemand = append(costs, c.UsedCost, c.UnusedCost), append(onDemand, c.OnDemand)
		allKnown = allKnown && c.OnDemand != nil
	}
	purchased, bought := pricing.RoundParts(purchased, pricing.Decimals)
	refunded, _ = pricing.RoundParts(refunded, pricing.Decimals)
	costs, cost := pricing.RoundParts(costs, pricing.Decimals)
	onDemand, listed := pricing.RoundParts(onDemand, pricing.Decimals)
	format := func(x *big.Rat) string { return pricing.Format(x, currency) }
	rows := make([]PlanRow, len(checks))
	used, unused := new(big.Rat), new(big.Rat)
	for i := range checks {
		row := planRow(&checks[i])
		u, n := costs[2*i], costs[2*i+1]
		used.Add(used, u)
		unused.Add(unused, n)
		sum := new(big.Rat).Add(u, n)
		row.Purchased, row.Refunded, row.UsedCost, row.UnusedCost, row.Cost = format(purchased[i]), format(refunded[i]), format(u), format(n), format(sum)
		if onDemand[i] != nil {
			row.OnDemand, row.Savings = amountOrNil(onDemand[i], currency), amountOrNil(sum.Sub(onDemand[i], sum), currency)
		}
		rows[i] = row
	}
	totals := PlanTotals{Currency: currency, Purchased: format(bought), Cost: format(cost), UsedCost: format(used), UnusedCost: format(unused)}
	if allKnown {
		totals.OnDemand, totals.Savings = amountOrNil(listed, currency), amountOrNil(new(big.Rat).Sub(listed, cost), currency)
	}
	return rows, totals
}

// planRow writes all but the amounts.
func planRow(c *pricing.PlanCheck) PlanRow {
	row := PlanRow{
		ID: c.ID, Contract: c.Contract, Kind: string(c.Kind), Instance: c.Instance, Project: c.Project, Platform: c.Platform, Region: c.Region, Model: c.Model,
		Term: string(c.Term), GPUs: c.Gpus, Currency: c.Currency, From: instantIn(utc, c.FromMs), To: instantIn(utc, c.ToMs),
		CommittedMs: c.CommittedMs, UsedMs: c.UsedMs, UnusedMs: c.UnusedMs, EligibleMs: c.EligibleMs,
		Utilization: decimalOrNil(c.Utilization), Coverage: decimalOrNil(c.Coverage),
		BreakEvenHours: decimalOrNil(c.BreakEven), NeverBreaks: c.Never, MissingHours: decimalOrNil(c.Missing),
		LeftHours: trimmed(big.NewRat(c.LeftMs, 3_600_000), 6), Verdict: string(c.Verdict), check: *c,
	}
	if c.Kind != pricing.PlanQuote {
		row.CycleHours = decimalOrNil(big.NewRat(c.Cycle.Ms(), 3_600_000))
	}
	return row
}
