package report

import (
	"context"
	"math/big"
	"slices"

	"github.com/gpumeter/gpumeter/pricing"
)

// Chargeback divides what was spent among projects: what each used, and a part of what is
// of no project.
type Chargeback struct {
	From     string       `json:"from" format:"date-time"`
	To       string       `json:"to" format:"date-time" doc:"Exclusive"`
	AsOf     string       `json:"as_of" format:"date-time"`
	Zone     string       `json:"zone"`
	Currency *string      `json:"currency" nullable:"true"`
	Share    string       `json:"share" enum:"proportional,even,none" doc:"How what is of no project is divided"`
	Projects []ProjectRow `json:"projects" doc:"By name"`
	// Unallocated is what no project pays for.
	Unallocated *ProjectAmounts `json:"unallocated" doc:"What is of no project: direct all of it, shared what the projects take of it (negative), total what is left. Null when the asker sees some projects only."`
	Totals      ProjectAmounts  `json:"totals" doc:"The sums of the columns"`
}

// ProjectRow is a project.
type ProjectRow struct {
	Project string `json:"project"`
	ProjectAmounts
}

// ProjectAmounts are what a project pays, by effective cost. Amounts are null where
// nothing has a price.
type ProjectAmounts struct {
	Direct  *string `json:"direct" nullable:"true" doc:"Effective cost of what it used"`
	Shared  *string `json:"shared" nullable:"true" doc:"Its part of what is of no project; null when nothing is divided"`
	Total   *string `json:"total" nullable:"true"`
	Figures Shown   `json:"figures" doc:"Of what it used"`
}

// ChargebackParams ask for a chargeback. By, Top and the like are not used.
type ChargebackParams struct {
	Params
	Share string // proportional (default), even or none
}

var shares = []string{"proportional", "even", "none"}

// Chargeback answers what each project pays. Columns add up exactly, as shown, and the
// total is the effective cost of a report.
func (s *Service) Chargeback(ctx context.Context, p ChargebackParams) (*Chargeback, error) {
	if p.Share == "" {
		p.Share = shares[0]
	}
	if !slices.Contains(shares, p.Share) {
		return nil, wrong("share", "%q is none of %s, %s, %s", clip(p.Share), shares[0], shares[1], shares[2])
	}
	q := p.Params
	q.Kind, q.By, q.Top, q.Limit, q.After = "", []string{"project"}, 0, 0, ""
	req, err := Parse(q, s.Now())
	if err != nil {
		return nil, err
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	ch, err := s.charges(ctx, &req)
	if err != nil {
		return nil, err
	}
	r := &Report{Request: req, Rows: []Row{}}
	if err := s.usage(ctx, r, ch); err != nil {
		return nil, err
	}
	if err := ch.err(); err != nil {
		return nil, err
	}
	c := &Chargeback{
		From: instantIn(utc, req.FromMs), To: instantIn(utc, req.ToMs), AsOf: instantIn(utc, req.asOf()), Zone: req.ZoneName, Currency: orNil(ch.currency),
		Share: p.Share, Projects: []ProjectRow{},
	}
	c.divide(r, ch.currency)
	return c, nil
}

// divide makes the rows from those of a report by project.
func (c *Chargeback) divide(r *Report, currency string) {
	var none *Row
	var projects []*Row
	for i := range r.Rows {
		if r.Rows[i].Keys[0] == "" {
			none = &r.Rows[i]
		} else {
			projects = append(projects, &r.Rows[i])
		}
	}
	var parts []*big.Rat
	if none != nil && none.EffectiveCost != nil && c.Share != "none" {
		parts = sharesOf(projects, none.EffectiveCost, c.Share)
	}
	taken := new(big.Rat)
	for i, p := range projects {
		a := ProjectAmounts{Direct: amountOrNil(p.EffectiveCost, currency), Total: amountOrNil(p.EffectiveCost, currency), Figures: Shown{p.Figures, currency}}
		if parts != nil {
			total := new(big.Rat).Set(parts[i])
			if p.EffectiveCost != nil {
				total.Add(total, p.EffectiveCost)
			}
			taken.Add(taken, parts[i])
			a.Shared, a.Total = amountOrNil(parts[i], currency), amountOrNil(total, currency)
		}
		c.Projects = append(c.Projects, ProjectRow{p.Keys[0], a})
	}
	c.Totals = ProjectAmounts{Direct: amountOrNil(r.Totals.EffectiveCost, currency), Total: amountOrNil(r.Totals.EffectiveCost, currency), Figures: Shown{r.Totals, currency}}
	if parts != nil {
		c.Totals.Shared = amountOrNil(new(big.Rat), currency)
	}
	if r.scoped() {
		return
	}
	c.Unallocated = &ProjectAmounts{Figures: Shown{Figures{}, currency}}
	if none != nil {
		left := none.EffectiveCost
		if parts != nil {
			left = new(big.Rat).Sub(left, taken)
			c.Unallocated.Shared = amountOrNil(new(big.Rat).Neg(taken), currency)
		}
		c.Unallocated.Direct, c.Unallocated.Total = amountOrNil(none.EffectiveCost, currency), amountOrNil(left, currency)
		c.Unallocated.Figures = Shown{none.Figures, currency}
	}
}

// sharesOf divides an amount exactly, nil when there is nobody to divide it among.
// Proportional goes by what each project used, as far as that is more than nothing.
func sharesOf(projects []*Row, amount *big.Rat, share string) []*big.Rat {
	weights := make([]*big.Rat, len(projects))
	sum := new(big.Rat)
	for i, p := range projects {
		weights[i] = new(big.Rat)
		if share == "even" {
			weights[i].SetInt64(1)
		} else if p.EffectiveCost != nil && p.EffectiveCost.Sign() > 0 {
			weights[i].Set(p.EffectiveCost)
		}
		sum.Add(sum, weights[i])
	}
	if sum.Sign() == 0 {
		return nil
	}
	for i := range weights {
		weights[i].Mul(weights[i], amount).Quo(weights[i], sum)
	}
	rounded, _ := pricing.RoundParts(weights, pricing.Decimals)
	return rounded
}
