package report

import (
	"encoding/json"
	"math/big"
	"slices"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// ExplainCharge is a line of a bill that overlaps the span. Amounts are those of the
// whole line, exact: a decimal, or numerator/denominator where it has no end as one;
// nil when there is no price. Times are of the instance.
type ExplainCharge struct {
	ID          string  `json:"id"` // digest of all that the line says
	Category    string  `json:"category"`
	Status      *string `json:"status"` // of a commitment's time: used or unused
	Meter       string  `json:"meter"`
	From        string  `json:"from"`
	To          string  `json:"to"`
	Instance    string  `json:"instance"`
	Project     string  `json:"project"`
	Platform    string  `json:"platform"`
	Region      string  `json:"region"`
	Model       string  `json:"model"`
	Plan        string  `json:"plan"`
	State       string  `json:"state"`
	Gpus        int64   `json:"gpus"`
	Commitment  *string `json:"commitment"`
	Contract    *string `json:"contract"`
	Settlements int64   `json:"settlements"`

	MeteredMs  int64   `json:"metered_ms"`
	ExcludedMs int64   `json:"excluded_ms"`
	Reason     *string `json:"reason"` // why time is excluded, or what is given back for
	MinimumMs  int64   `json:"minimum_ms"`
	RoundingMs int64   `json:"rounding_ms"`
	BillableMs int64   `json:"billable_ms"`
	Quantity   *string `json:"quantity"`

	ListUnitPrice *string         `json:"list_unit_price"`
	UnitPrice     *string         `json:"unit_price"` // contracted
	Currency      *string         `json:"currency"`   // of all amounts; null without a price
	Unit          *string         `json:"unit"`
	Adjustments   []ExplainAdjust `json:"adjustments"`
	PriceVersion  *string         `json:"price_version"`
	PriceLine     *int            `json:"price_line"`

	ListCost      *string `json:"list_cost"`
	Cost          *string `json:"contracted_cost"`
	Billed        *string `json:"billed_cost"`
	EffectiveCost *string `json:"effective_cost"`

	Evidence   *string  `json:"evidence"` // payload hash of the event that it rests on
	Arithmetic []string `json:"arithmetic"`
}

// ExplainAdjust is a step from the list price to the price that is paid.
type ExplainAdjust struct {
	Rule   string `json:"rule"`
	Stage  string `json:"stage"`
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Before string `json:"before"`
	After  string `json:"after"`
}

var classNames = [classes]string{
	useful: "useful cost", heldIdleClass: "idle waste", freeClass: "free cost", unknownClass: "unknown cost", stoppedClass: "stopped cost", minimumClass: "minimum cost",
	unusedClass: "unused commitment", reworkClass: "rework", meterClass: "meter", creditClass: "credit",
}

// explainCharges lists the lines that the request is about.
func (e *Explanation) explainCharges(ch *charges) {
	for i := range ch.lines {
		l := &ch.lines[i]
		if !concerns(l, &e.request) {
			continue
		}
		if len(e.Charges) == MaxPage {
			e.MoreCharges++
			continue
		}
		e.Charges = append(e.Charges, chargeOf(l))
	}
}

// concerns says whether a line is about what a request asks for. Units and nodes hold time
// of an instance, so a filter by one of them keeps the charges of all.
func concerns(l *pricing.Line, r *Request) bool {
	if !schema.InScope(r.Projects, l.Segment.Project) {
		return false
	}
	for name, want := range r.Filter {
		if name != "unit" && name != "node" && lineValue(l, name) != want {
			return false
		}
	}
	return true
}

// ChargeJSON writes all that a line says, with its arithmetic.
func ChargeJSON(l *pricing.Line) []byte {
	b, err := json.Marshal(chargeOf(l))
	if err != nil {
		panic("report: a charge cannot be written: " + err.Error()) // it is text and numbers
	}
	return b
}

func chargeOf(l *pricing.Line) ExplainCharge {
	s := &l.Segment
	c := ExplainCharge{
		ID: l.Digest(), Category: string(l.Category), Status: orNil(string(l.Status)), Meter: l.Meter, From: instantIn(utc, l.FromMs), To: instantIn(utc, l.ToMs),
		Instance: l.Instance, Project: s.Project, Platform: s.Platform, Region: s.Region, Model: s.Model, Plan: s.Plan, State: s.State, Gpus: s.Gpus,
		Commitment: orNil(l.Commitment), Contract: orNil(l.Contract), Settlements: l.Settlements,
		MeteredMs: l.MeteredMs, ExcludedMs: l.ExcludedMs, Reason: orNil(l.Reason), MinimumMs: l.MinimumMs, RoundingMs: l.RoundingMs, BillableMs: l.BillableMs,
		Quantity: exactOrNil(l.Quantity), ListUnitPrice: exactOrNil(l.List), UnitPrice: exactOrNil(l.Price), Currency: orNil(l.Currency), Unit: orNil(l.Per),
		Adjustments: []ExplainAdjust{}, PriceVersion: orNil(l.Version),
		ListCost: exactOrNil(l.ListCost), Cost: exactOrNil(l.Cost), Billed: exactOrNil(l.Billed), EffectiveCost: exactOrNil(l.Effective),
		Evidence: orNil(l.Evidence), Arithmetic: l.Arithmetic(),
	}
	if l.Line > 0 {
		line := l.Line
		c.PriceLine = &line
	}
	for i := range l.Steps {
		st := &l.Steps[i]
		c.Adjustments = append(c.Adjustments, ExplainAdjust{st.ID, st.Stage.String(), string(st.Kind), pricing.Exact(st.Value), pricing.Exact(st.Before), pricing.Exact(st.After)})
	}
	return c
}

func exactOrNil(x *big.Rat) *string {
	if x == nil {
		return nil
	}
	return orNil(pricing.Exact(x))
}

// keeps says whether any part of an event within the request has a plan that its filter
// lets through.
func (ch *charges) keeps(r *Request, ev *schema.StoredEvent) bool {
	if _, asked := r.Filter[planKey]; !asked {
		return true
	}
	from, to := max(ev.StartMs, r.FromMs), min(ev.EndMs, r.ToMs)
	for _, s := range ch.spans[ev.Instance] {
		if s.FromMs >= to || s.ToMs <= from {
			continue
		}
		if r.keepsPlan(ch.rates[s.Rate-1].plan) {
			return true
		}
		if s.FromMs <= from && s.ToMs >= to {
			return false
		}
	}
	return r.keepsPlan("") // what no lease rates is on demand
}

// explainPieces cuts an event's interval where what it costs changes.
func (ch *charges) explainPieces(ev *schema.StoredEvent, fromMs, toMs int64) []ExplainPiece {
	cuts := ch.cuts(fromMs, toMs)
	spans := ch.spans[ev.Instance]
	for _, s := range spans {
		cuts = append(cuts, s.FromMs, s.ToMs)
	}
	pieces := []ExplainPiece{}
	var before *rate
	for i, span := range pricing.Cut(fromMs, toMs, cuts) {
		row := &schema.UsageRow{Model: ev.Model, Platform: ev.Platform, Region: ev.Region}
		if at := slices.IndexFunc(spans, func(s schema.RatedSpan) bool { return s.FromMs <= span.FromMs && span.FromMs < s.ToMs }); at >= 0 {
			row.Rate = spans[at].Rate
		}
		now := ch.rate(row, span.FromMs)
		if n := len(pieces); i > 0 && now == before {
			span.FromMs -= pieces[n-1].Ms // another unit's price changed
			pieces = pieces[:n-1]
		}
		before = now
		pieces = append(pieces, ch.piece(row, span, now))
	}
	return pieces
}

func (ch *charges) piece(row *schema.UsageRow, span pricing.Span, at *rate) ExplainPiece {
	p := ExplainPiece{From: instantIn(utc, span.FromMs), To: instantIn(utc, span.ToMs), Ms: span.Ms()}
	if !ch.billed(row) {
		price, ok := ch.price(row.Model, row.Platform, row.Region, span.FromMs)
		p.Price, p.Arithmetic = applied(price, ok), arithmetic(span.Ms(), price, ok)
	}
	if at == nil {
		if ch.billed(row) {
			p.Arithmetic = fmtRate(span.Ms(), nil, nil)
		}
		return p
	}
	cost := new(big.Rat).Mul(at.cost, big.NewRat(span.Ms(), 1))
	p.Amount = orNil(pricing.Format(cost, ch.currency))
	if ch.billed(row) {
		p.Arithmetic = fmtRate(span.Ms(), at, cost)
	}
	return p
}

func fmtRate(ms int64, at *rate, cost *big.Rat) string {
	if at == nil {
		return big.NewInt(ms).String() + " ms, no price by the charges of its lease"
	}
	return big.NewInt(ms).String() + " ms x " + pricing.Exact(at.cost) + ", what a GPU-millisecond of its lease costs by the charges = " + pricing.Exact(cost)
}

// labelIn reads one label out of labels in canonical JSON.
func labelIn(labels, key string) string {
	var m map[string]string
	if labels == "" || json.Unmarshal([]byte(labels), &m) != nil {
		return ""
	}
	return m[key]
}
