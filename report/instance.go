package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// NoInstanceError says that a span knows nothing of an instance. To those who may not
// see it, it says the same.
type NoInstanceError struct{ Instance string }

// Error names the instance.
func (e *NoInstanceError) Error() string {
	return fmt.Sprintf("nothing is known of an instance %q in this span", clip(e.Instance))
}

// InstanceDetail is an instance with what its leases say.
type InstanceDetail struct {
	At       string  `json:"at" format:"date-time"`
	From     string  `json:"from" format:"date-time"`
	To       string  `json:"to" format:"date-time" doc:"Exclusive"`
	Zone     string  `json:"zone"`
	Currency *string `json:"currency" nullable:"true"`
	InstanceItem
	Labels map[string]string `json:"labels" doc:"Of its lease at the end of the span"`
	Units  []InstanceUnit    `json:"units" doc:"That reported usage for it, by name"`
	States []InstanceState   `json:"states" doc:"Of its lease, the oldest first"`
}

// InstanceUnit is a unit that an instance held.
type InstanceUnit struct {
	Unit    string `json:"unit"`
	Node    string `json:"node"`
	Figures Shown  `json:"figures"`
}

// InstanceState is a state of an instance's lease.
type InstanceState struct {
	From    string  `json:"from" format:"date-time"`
	To      *string `json:"to" nullable:"true" format:"date-time" doc:"Null while it goes on"`
	State   string  `json:"state"`
	Plan    string  `json:"plan"`
	Gpus    int64   `json:"gpus"`
	Project string  `json:"project"`
}

// InstanceParams ask about one instance, or the units, states and charges of it.
type InstanceParams struct {
	Params          // Filter is not used
	Instance string // required
	Step     string // of a timeline: minute, hour, day; empty or auto = what suits the span
}

func (p *InstanceParams) of() Params {
	q := p.Params
	q.Filter = map[string]string{"instance": p.Instance}
	return q
}

// Instance answers what is known of an instance. A *NoInstanceError says: nothing.
func (s *Service) Instance(ctx context.Context, p InstanceParams) (*InstanceDetail, error) {
	if p.Instance == "" {
		return nil, &NoInstanceError{}
	}
	t, err := s.InstanceTable(ctx, p.of())
	if err != nil {
		return nil, err
	}
	if len(t.rows) == 0 {
		return nil, &NoInstanceError{p.Instance}
	}
	list := t.head()
	list.Items = []InstanceItem{t.item(&t.rows[0])}
	if err := s.Sparks(ctx, t, list); err != nil {
		return nil, err
	}
	d := &InstanceDetail{
		At: list.At, From: list.From, To: list.To, Zone: list.Zone, Currency: list.Currency, InstanceItem: list.Items[0],
		Labels: map[string]string{}, Units: []InstanceUnit{}, States: []InstanceState{},
	}
	segments, err := s.Store.Leases(ctx, t.req.events())
	if err != nil {
		return nil, fmt.Errorf("instance: leases: %w", err)
	}
	for i := range segments {
		l := &segments[i]
		if l.FromMs >= t.req.until() {
			break
		}
		state := InstanceState{From: instantIn(utc, l.FromMs), State: l.State, Plan: l.Plan, Gpus: l.Gpus, Project: l.Project}
		if l.ToMs <= t.req.until() {
			state.To = orNil(instantIn(utc, l.ToMs))
		}
		d.States = append(d.States, state)
		if l.Labels != "" {
			d.Labels = map[string]string{}
			if err := json.Unmarshal([]byte(l.Labels), &d.Labels); err != nil {
				return nil, fmt.Errorf("instance %q: stored labels %q: %w", p.Instance, clip(l.Labels), err)
			}
		}
	}
	d.Units, err = s.unitsOf(ctx, &t.req)
	return d, err
}

// unitsOf are the units of the request's usage.
func (s *Service) unitsOf(ctx context.Context, r *Request) ([]InstanceUnit, error) {
	of := *r
	of.By = []string{"unit", "node"}
	ch, err := s.charges(ctx, &of)
	if err != nil {
		return nil, err
	}
	groups, _, err := s.collect(ctx, &of, ch)
	if err != nil {
		return nil, err
	}
	units := []InstanceUnit{}
	for _, g := range groups {
		if g.AllocatedMs = g.sums.AllocatedMs(); g.Keys[0] == "" {
			continue // leased time that nobody reported, and amounts of no unit
		}
		f := g.figures()
		roundEach(&f, f.largest())
		units = append(units, InstanceUnit{g.Keys[0], g.Keys[1], Shown{f, ch.currency}})
	}
	return units, nil
}

// Timeline is what an instance did over time.
type Timeline struct {
	From     string          `json:"from" format:"date-time"`
	To       string          `json:"to" format:"date-time" doc:"Exclusive"`
	Zone     string          `json:"zone"`
	Currency *string         `json:"currency" nullable:"true"`
	Step     string          `json:"step" enum:"minute,hour,day"`
	Points   []TimelinePoint `json:"points"`
}

// TimelinePoint is one step. Times are sums over the units of the instance, means are
// per unit.
type TimelinePoint struct {
	From        string  `json:"from" format:"date-time"`
	To          string  `json:"to" format:"date-time"`
	AllocatedMs int64   `json:"allocated_ms"`
	ActiveMs    int64   `json:"active_ms"`
	IdleMs      int64   `json:"idle_ms"`
	UnknownMs   int64   `json:"unknown_ms"`
	Utilization *string `json:"utilization" nullable:"true" doc:"Mean where it is known, 0 to 1"`
	MemoryBytes *string `json:"memory_bytes" nullable:"true" doc:"Mean in use of one unit, where it is known"`
	PowerWatts  *string `json:"power_watts" nullable:"true" doc:"Mean of one unit, where its energy is known"`
	Cost        *string `json:"cost" nullable:"true" doc:"Effective cost"`
	IdleWaste   *string `json:"idle_waste" nullable:"true"`
}

// MaxTimelinePoints bounds a timeline.
const MaxTimelinePoints = 2000

var timelineSteps = []string{"minute", "hour", "day"}

// Timeline answers what an instance did, step by step.
func (s *Service) Timeline(ctx context.Context, p InstanceParams) (*Timeline, error) {
	q := p.of()
	q.By, q.Kind, q.Top, q.Limit, q.After = nil, "", 0, 0, ""
	req, err := Parse(q, s.Now())
	if err != nil {
		return nil, err
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	req.ToMs = max(min(req.ToMs, req.until()), req.FromMs+1)
	step := p.Step
	if step == "" || step == "auto" {
		step = "day"
		switch span := req.ToMs - req.FromMs; {
		case span <= 6*schema.HourMs:
			step = "minute"
		case span <= 10*dayMs:
			step = "hour"
		}
	}
	steps, err := timelineCuts(&req, step)
	if err != nil {
		return nil, err
	}
	ch, err := s.charges(ctx, &req)
	if err != nil {
		return nil, err
	}
	b := &board{req: &req, ch: ch}
	b.cuts = slices.Concat(steps, ch.cuts(req.FromMs, req.ToMs))
	slices.Sort(b.cuts)
	b.cuts = slices.Compact(b.cuts)
	rows, err := s.Store.Usage(ctx, req.usage(b.cuts, []string{"project"}, ch))
	if err != nil {
		return nil, fmt.Errorf("timeline: usage: %w", err)
	}
	if err := b.take(rows); err != nil {
		return nil, err
	}
	return b.timeline(step, steps), ch.err()
}

// timelineCuts are the ends of the steps of a span.
func timelineCuts(r *Request, step string) ([]int64, error) {
	lengths := map[string]int64{"minute": schema.MinuteMs, "hour": schema.HourMs, "day": dayMs}
	length := lengths[step]
	if length == 0 {
		return nil, wrong("step", "%q is none of auto, %s, %s, %s", clip(step), timelineSteps[0], timelineSteps[1], timelineSteps[2])
	}
	if n := (r.ToMs - r.FromMs) / length; n > MaxTimelinePoints {
		return nil, wrong("step", "the span has %d steps of a %s, at most %d are allowed; ask for a shorter span or longer steps", n, step, MaxTimelinePoints)
	}
	cuts := []int64{r.FromMs, r.ToMs}
	if step == "minute" {
		for at := schema.Floor(r.FromMs, length) + length; at < r.ToMs; at += length {
			cuts = append(cuts, at)
		}
	} else {
		of := *r
		of.By = []string{step}
		more, err := newCalendar(&of).cuts(r.FromMs, r.ToMs)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, more...)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts), nil
}

func (b *board) timeline(step string, steps []int64) *Timeline {
	t := &Timeline{
		From: instantIn(utc, b.req.FromMs), To: instantIn(utc, b.req.ToMs), Zone: b.req.ZoneName, Currency: orNil(b.ch.currency), Step: step,
		Points: make([]TimelinePoint, len(steps)-1),
	}
	sums := make([]collector, len(steps)-1)
	for i := range b.parts {
		p := &b.parts[i]
		at, found := slices.BinarySearch(steps, b.cuts[p.piece])
		if !found {
			at--
		}
		p.into(&sums[at])
	}
	figures := make([]Figures, len(sums))
	rows := make([]*Figures, len(sums))
	var total collector
	for i := range b.parts {
		b.parts[i].into(&total)
	}
	for i := range sums {
		figures[i] = sums[i].figures()
		rows[i] = &figures[i]
	}
	all := total.figures()
	roundColumns(rows, &all)
	for i := range sums {
		f, s := &figures[i], &sums[i].sums
		t.Points[i] = TimelinePoint{
			From: instantIn(utc, steps[i]), To: instantIn(utc, steps[i+1]), AllocatedMs: f.AllocatedMs, ActiveMs: f.ActiveMs, IdleMs: f.IdleMs, UnknownMs: f.UnknownMs,
			Utilization: orNil(ratioText(f.Utilization)), MemoryBytes: quotient(s.MemoryByteMs, s.MemoryMs, 0), PowerWatts: quotient(sums[i].energyMj, s.EnergyMs, 3),
			Cost: amountOrNil(f.EffectiveCost, b.ch.currency), IdleWaste: amountOrNil(f.IdleWaste, b.ch.currency),
		}
	}
	return t
}

// quotient is a mean over time, nil when there is no time in which it is known.
func quotient(sum *big.Int, ms int64, decimals int) *string {
	if sum == nil || ms == 0 {
		return nil
	}
	return orNil(trimmed(new(big.Rat).SetFrac(sum, big.NewInt(ms)), decimals))
}

// ChargeList are the lines of a bill that an instance is charged.
type ChargeList struct {
	Items []ExplainCharge `json:"items" doc:"The latest first"`
	Next  *string         `json:"next" nullable:"true" doc:"The after of the next page; null on the last"`
}

// Charges lists the lines of an instance's bill in a span, some at a time.
func (s *Service) Charges(ctx context.Context, p InstanceParams) (*ChargeList, error) {
	limit, after := cmp.Or(p.Limit, DefaultPage), p.After
	q := p.of()
	q.By, q.Kind, q.Top, q.Limit, q.After = nil, "", 0, 0, ""
	req, err := Parse(q, s.Now())
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxPage {
		return nil, wrong("limit", "%d is not between 1 and %d", limit, MaxPage)
	}
	if err := s.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	ch, err := s.booked(ctx, &req)
	if err != nil {
		return nil, err
	}
	var lines []*pricing.Line
	for i := range ch.lines {
		if concerns(&ch.lines[i], &req) {
			lines = append(lines, &ch.lines[i])
		}
	}
	slices.SortStableFunc(lines, func(a, b *pricing.Line) int {
		return cmp.Or(cmp.Compare(b.FromMs, a.FromMs), cmp.Compare(a.Digest(), b.Digest()))
	})
	list := &ChargeList{Items: []ExplainCharge{}}
	if after != "" {
		at := slices.IndexFunc(lines, func(l *pricing.Line) bool { return l.Digest() == after })
		if at < 0 {
			return nil, wrong("after", "%q is not the next of a page: there is no such line any more; begin again without it", clip(after))
		}
		lines = lines[at+1:]
	}
	for _, l := range lines[:min(limit, len(lines))] {
		list.Items = append(list.Items, chargeOf(l))
	}
	if len(lines) > limit {
		list.Next = orNil(lines[limit-1].Digest())
	}
	return list, nil
}
