package report

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of a page of events.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// ExplainParams asks for the events behind a figure. Kind and By of the Params
// are not used: the figure is the totals of a report over the span and filter.
type ExplainParams struct {
	Params
	Limit int    // events per page, 1 to MaxPage; DefaultPage when 0
	After string // the Next of the page before; empty = first page
}

// Explanation is a figure taken apart: the usage it is made of with the price
// of every piece, and the events that the usage was computed from.
//
// Total, Lines and Leases are the same on every page; Total equals the totals of
// a report over the same span, filter and as-of. Events and Leases are the
// evidence. They do not add up to the total by themselves: two reports of the
// same time count once, an owner of a part of a unit is charged that part, and of
// an instance with leases usage counts while a lease holds, and leased time that
// no event reports counts too.
type Explanation struct {
	From         string            `json:"from"`
	To           string            `json:"to"`
	AsOf         string            `json:"as_of"`
	Zone         string            `json:"zone"`
	Currency     *string           `json:"currency"`
	PriceVersion *string           `json:"price_version"`
	Filter       map[string]string `json:"filter"`
	Total        ExplainTotal      `json:"total"`
	Lines        []ExplainLine     `json:"lines"`
	Charges      []ExplainCharge   `json:"charges"`      // of leases, by platform and instance, at most MaxPage
	MoreCharges  int               `json:"more_charges"` // how many more there are
	Leases       []ExplainLease    `json:"leases"`       // by instance and time, at most MaxPage
	MoreLeases   int               `json:"more_leases"`  // how many more there are
	Events       []ExplainEvent    `json:"events"`
	// Corrections are those of the events of the page, and those that put them in
	// place of others, first stored first.
	Corrections []ExplainCorrection `json:"corrections"`
	Next        string              `json:"next"` // empty on the last page

	request Request
}

// ExplainTotal is the figure. Amounts are decimal strings in the currency, nil
// when nothing of the time has a price.
type ExplainTotal struct {
	AllocatedMs int64   `json:"allocated_ms"`
	KnownMs     int64   `json:"known_ms"`
	ActiveMs    int64   `json:"active_ms"`
	IdleMs      int64   `json:"idle_ms"`
	UnknownMs   int64   `json:"unknown_ms"`
	FreeMs      int64   `json:"free_ms"`
	UnpricedMs  int64   `json:"unpriced_ms"`
	Cost        *string `json:"cost"`
	IdleWaste   *string `json:"idle_waste"`
	FreeCost    *string `json:"free_cost"`

	ListCost      *string `json:"list_cost"`
	EffectiveCost *string `json:"effective_cost"`
}

// ExplainLine is the usage of one kind of unit in one piece of the span. The
// amounts of the lines add up to the total's cost.
type ExplainLine struct {
	From        string        `json:"from"`
	To          string        `json:"to"`
	Model       string        `json:"model"`
	Platform    string        `json:"platform"`
	Region      string        `json:"region"`
	AllocatedMs int64         `json:"allocated_ms"`
	ActiveMs    int64         `json:"active_ms"`
	IdleMs      int64         `json:"idle_ms"`
	FreeMs      int64         `json:"free_ms"`
	UnknownMs   int64         `json:"unknown_ms"`
	Price       *AppliedPrice `json:"price"` // nil = unpriced
	Amount      *string       `json:"amount"`
	Arithmetic  string        `json:"arithmetic"`
}

// AppliedPrice is an entry of the price list that was used.
type AppliedPrice struct {
	PerGPUHour string  `json:"per_gpu_hour"`
	Model      string  `json:"model"` // as the entry says it; "*" = any
	Platform   string  `json:"platform"`
	Region     string  `json:"region"`
	ValidFrom  *string `json:"valid_from"`
	ValidTo    *string `json:"valid_to"`
	Line       int     `json:"line"` // in the price file
}

// ExplainEvent is one stored event. ActiveMs, IdleMs and UnknownMs split its
// whole interval as its source reported it; ClippedMs is the part of the
// interval inside the span. Counted is false for a conflicting copy and for what a
// correction took out.
type ExplainEvent struct {
	Source         string  `json:"source"`
	ID             string  `json:"id"`
	Sequence       *string `json:"sequence"` // nil when the source does not count
	Payload        string  `json:"payload_hash"`
	Stream         string  `json:"stream"`
	StreamSequence uint64  `json:"stream_sequence"`
	Place          uint32  `json:"place"`
	StoredAt       string  `json:"stored_at"`
	Counted        bool    `json:"counted"`
	// Why says why the event does not count; nil when it does.
	Why          *ExplainWhy       `json:"why"`
	Unit         string            `json:"unit"`
	Instance     string            `json:"instance"`
	Project      string            `json:"project"`
	Node         string            `json:"node"`
	Platform     string            `json:"platform"`
	Region       string            `json:"region"`
	Model        string            `json:"model"`
	Labels       map[string]string `json:"labels"`
	Start        string            `json:"start"`
	End          string            `json:"end"`
	ActiveMs     int64             `json:"active_ms"`
	IdleMs       int64             `json:"idle_ms"`
	UnknownMs    int64             `json:"unknown_ms"`
	Utilization  *string           `json:"utilization"`
	Share        *string           `json:"share"`
	ClippedStart string            `json:"clipped_start"`
	ClippedEnd   string            `json:"clipped_end"`
	ClippedMs    int64             `json:"clipped_ms"`
	Pieces       []ExplainPiece    `json:"pieces"` // empty when not counted
	// OutsideLeaseMs is the part of ClippedMs in which the lease of the instance does
	// not hold the unit. It is not allocated, and Pieces leave it out.
	OutsideLeaseMs int64 `json:"outside_lease_ms"`
}

// ExplainPiece is a part of an event's clipped interval with one price. The
// amount is for the whole unit, before shares and before time that another
// event reported too.
type ExplainPiece struct {
	From       string        `json:"from"`
	To         string        `json:"to"`
	Ms         int64         `json:"ms"`
	Price      *AppliedPrice `json:"price"`
	Amount     *string       `json:"amount"`
	Arithmetic string        `json:"arithmetic"`
}

// Explain answers with one page of events. Errors are as for Report.
func (s *Service) Explain(ctx context.Context, p ExplainParams) (*Explanation, error) {
	p.Kind, p.By = "", nil
	req, err := Parse(p.Params, s.Now())
	if err != nil {
		return nil, err
	}
	switch {
	case p.Limit < 0 || p.Limit > MaxPage:
		return nil, wrong("limit", "%d is not between 1 and %d", p.Limit, MaxPage)
	case p.Limit == 0:
		p.Limit = DefaultPage
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	ch, err := s.booked(ctx, &req)
	if err != nil {
		return nil, err
	}
	e := newExplanation(req, ch)
	if err := s.explainTotal(ctx, e, ch); err != nil {
		return nil, err
	}
	if err := s.explainLeases(ctx, e); err != nil {
		return nil, err
	}
	events, next, err := s.Store.Events(ctx, schema.EventQuery{
		Tenant: req.Tenant, FromMs: req.FromMs, ToMs: req.ToMs, Filter: storedFilter(req.Filter), Projects: req.Projects, AsOfMs: req.AsOfMs, Limit: p.Limit, After: p.After,
	})
	if err != nil {
		return nil, fmt.Errorf("explain: events: %w", err)
	}
	e.Next = next
	for i := range events {
		if !ch.keeps(&req, &events[i]) {
			continue // so a page may have fewer events than were asked for, and another follow it
		}
		event, err := s.explainEvent(&req, &events[i], ch)
		if err != nil {
			return nil, err
		}
		e.Events = append(e.Events, event)
	}
	if !req.scoped() {
		e.Corrections = correctionsOf(events)
	}
	return e, nil
}

func newExplanation(req Request, ch *charges) *Explanation {
	e := &Explanation{
		From: instantIn(utc, req.FromMs), To: instantIn(utc, req.ToMs), AsOf: instantIn(utc, req.asOf()),
		Zone: req.ZoneName, Filter: req.Filter, Lines: []ExplainLine{}, Charges: []ExplainCharge{}, Leases: []ExplainLease{}, Events: []ExplainEvent{}, Corrections: []ExplainCorrection{}, request: req,
	}
	if e.Filter == nil {
		e.Filter = map[string]string{}
	}
	e.Currency, e.PriceVersion = orNil(ch.currency), orNil(ch.version())
	return e
}

// explainTotal asks the store the same question as a report without groups does
// and adds the answer up with the same code, so that the two cannot differ.
func (s *Service) explainTotal(ctx context.Context, e *Explanation, ch *charges) error {
	req := &e.request
	cal := newCalendar(req)
	cuts, err := allCuts(req, cal, ch)
	if err != nil {
		return err
	}
	rows, err := s.Store.Usage(ctx, req.usage(cuts, nil, ch))
	if err != nil {
		return fmt.Errorf("explain: usage: %w", err)
	}
	_, totals, err := group(req, cal, cuts, rows, ch)
	if err != nil {
		return err
	}
	if err := ch.err(); err != nil {
		return err
	}
	f := totals.figures()
	currency := ch.currency
	e.Currency = orNil(currency)
	alone := f // a total without rows rounds as one row
	roundColumns([]*Figures{&alone}, &f)
	e.Total = ExplainTotal{
		AllocatedMs: f.AllocatedMs, KnownMs: f.KnownMs, ActiveMs: f.ActiveMs, IdleMs: f.IdleMs, UnknownMs: f.UnknownMs,
		FreeMs: f.FreeMs, UnpricedMs: f.UnpricedMs,
		Cost: orNil(amountText(f.Cost, currency)), IdleWaste: orNil(amountText(f.IdleWaste, currency)), FreeCost: orNil(amountText(f.FreeCost, currency)),
		ListCost: orNil(amountText(f.ListCost, currency)), EffectiveCost: orNil(amountText(f.EffectiveCost, currency)),
	}
	e.explainLines(cuts, rows, ch)
	e.explainCharges(ch)
	return nil
}

func (e *Explanation) explainLines(cuts []int64, rows []schema.UsageRow, ch *charges) {
	sortUsage(rows)
	var parts []*big.Rat
	for i := range rows {
		row := &rows[i]
		if row.AllocatedMs() == 0 || !e.request.keepsPlan(ch.plan(row)) {
			continue
		}
		line := ExplainLine{
			From: instantIn(utc, cuts[row.Piece]), To: instantIn(utc, cuts[row.Piece+1]),
			Model: row.Model, Platform: row.Platform, Region: row.Region, AllocatedMs: row.AllocatedMs(),
			ActiveMs: row.ActiveMs, IdleMs: row.IdleMs, FreeMs: row.FreeMs, UnknownMs: row.UnknownMs,
		}
		var part *big.Rat
		if at := ch.rate(row, cuts[row.Piece]); at != nil {
			part = new(big.Rat).Mul(at.cost, big.NewRat(row.AllocatedMs(), 1))
		}
		if ch.billed(row) {
			line.Arithmetic = fmtRate(row.AllocatedMs(), ch.rate(row, cuts[row.Piece]), part)
		} else {
			price, ok := ch.price(row.Model, row.Platform, row.Region, cuts[row.Piece])
			line.Price, line.Arithmetic = applied(price, ok), arithmetic(row.AllocatedMs(), price, ok)
		}
		e.Lines, parts = append(e.Lines, line), append(parts, part)
	}
	for _, l := range ch.lumpRows(&e.request, newCalendar(&e.request), []int64{e.request.FromMs, e.request.ToMs}) {
		if l.lump.cost == nil || l.lump.cost.Sign() == 0 {
			continue
		}
		line, s := l.lump.line, &l.lump.line.Segment
		part := new(big.Rat).Mul(l.lump.cost, l.part)
		e.Lines, parts = append(e.Lines, ExplainLine{
			From: instantIn(utc, max(line.FromMs, e.request.FromMs)), To: instantIn(utc, min(max(line.ToMs, line.FromMs), e.request.ToMs)), Model: s.Model, Platform: s.Platform, Region: s.Region,
			Arithmetic: fmt.Sprintf("%s of the %s of charge %s = %s", pricing.Exact(l.part), classNames[l.lump.class], line.Digest(), pricing.Exact(part)),
		}), append(parts, part)
	}
	rounded, _ := pricing.RoundParts(parts, pricing.Decimals)
	for i := range e.Lines {
		e.Lines[i].Amount = orNil(amountText(rounded[i], ch.currency))
	}
}

func (s *Service) explainEvent(req *Request, ev *schema.StoredEvent, ch *charges) (ExplainEvent, error) {
	labels, err := labelsOf(ev)
	if err != nil {
		return ExplainEvent{}, err
	}
	active, idle, unknownMs := ev.Split(s.ThresholdMillionths)
	from, to := max(ev.StartMs, req.FromMs), min(ev.EndMs, req.ToMs)
	e := ExplainEvent{
		Source: ev.Source, ID: ev.ID, Payload: hex.EncodeToString(ev.Payload[:]),
		Stream: ev.Stream, StreamSequence: ev.StreamSequence, Place: ev.Place,
		StoredAt: time.Unix(0, ev.StoredAtNs).UTC().Format(time.RFC3339Nano), Counted: ev.Counted,
		Unit: ev.Unit, Instance: ev.Instance, Project: ev.Project, Node: ev.Node, Platform: ev.Platform, Region: ev.Region, Model: ev.Model,
		Labels: labels, Start: instantIn(utc, ev.StartMs), End: instantIn(utc, ev.EndMs),
		ActiveMs: active, IdleMs: idle, UnknownMs: unknownMs, Utilization: orNil(ratioText(ev.Utilization)),
		ClippedStart: instantIn(utc, from), ClippedEnd: instantIn(utc, to), ClippedMs: max(0, to-from), Pieces: []ExplainPiece{},
	}
	if ev.Sequence != 0 {
		e.Sequence = orNil(strconv.FormatUint(ev.Sequence, 10))
	}
	if ev.Share.Known {
		e.Share = orNil(schema.FormatShare(ev.Share.Value))
	}
	if !ev.Counted {
		e.Why = req.visible(whyNot(ev))
	}
	for _, held := range heldParts(ev.NotHeld, from, to) {
		e.OutsideLeaseMs -= held.ToMs - held.FromMs
		if ev.Counted {
			e.Pieces = append(e.Pieces, ch.explainPieces(ev, held.FromMs, held.ToMs)...)
		}
	}
	e.OutsideLeaseMs += e.ClippedMs
	return e, nil
}

// heldParts returns what is left of [fromMs, toMs) without notHeld.
func heldParts(notHeld []schema.Interval, fromMs, toMs int64) (list []schema.Interval) {
	for _, n := range append(slices.Clip(notHeld), schema.Interval{FromMs: toMs, ToMs: toMs}) {
		if until := min(n.FromMs, toMs); fromMs < until {
			list = append(list, schema.Interval{FromMs: fromMs, ToMs: until})
		}
		fromMs = max(fromMs, n.ToMs)
	}
	return list
}

// labelsOf returns the labels of an event in whichever form it carries them.
func labelsOf(ev *schema.StoredEvent) (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range ev.Labels {
		labels[l.Key] = l.Value
	}
	if len(labels) == 0 && ev.LabelsText != "" {
		if err := json.Unmarshal([]byte(ev.LabelsText), &labels); err != nil {
			return nil, fmt.Errorf("explain: labels of event %s/%s: %w", ev.Source, ev.ID, err)
		}
	}
	return labels, nil
}

func applied(p pricing.Price, ok bool) *AppliedPrice {
	if !ok {
		return nil
	}
	e := p.Entry
	a := &AppliedPrice{PerGPUHour: pricing.Exact(e.PerGPUHour), Model: e.Model, Platform: e.Platform, Region: e.Region, Line: e.Line}
	if e.FromMs != pricing.Always {
		a.ValidFrom = orNil(instantIn(utc, e.FromMs))
	}
	if e.ToMs != pricing.Forever {
		a.ValidTo = orNil(instantIn(utc, e.ToMs))
	}
	return a
}

// arithmetic shows the calculation with its exact result.
func arithmetic(ms int64, p pricing.Price, ok bool) string {
	if !ok {
		return fmt.Sprintf("%d ms, no price", ms)
	}
	return fmt.Sprintf("%d ms / 3600000 x %s = %s", ms, pricing.Exact(p.PerGPUHour), pricing.Exact(pricing.Cost(ms, p)))
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
