package app

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/schema"
)

// leaseView is what the leases of a tenant mean for one question. Of an instance
// that has any lease event, at whatever time, usage counts while it is held, and
// of the leased GPUs what usage does not cover is added: to every millisecond
//
//	gpus - units of the instance in that millisecond
//
// or nothing when more units report than are leased. That is added up from the
// kept windows wherever they tell, see [clickhouse.DB.LeaseCovered], and else
// from events; so the sum is the same however a span is cut.
type leaseView struct {
	q       schema.UsageQuery // its pieces end where time that has happened does
	pieceOf []int             // the asker's piece of each of q's
	clipMs  int64             // what is added lies before it
	outside bool              // turned round: only usage that is not held

	spans   map[string][]leaseSpan
	table   *clickhouse.LeaseTable
	groups  []leaseGroup
	groupOf map[string]int

	// What usage_hour and usage_minute cannot tell, outside of the windows that
	// the question itself cuts.
	finerHours, finerMinutes []clickhouse.InstanceWindow
	// Hours of single instances that usage_hour cannot tell and that have no minutes.
	coarseHours []clickhouse.InstanceWindow
}

// leaseSpan is a time in which an instance's lease says the same about its usage.
type leaseSpan struct {
	fromMs, toMs int64
	held         bool
	gpus         int64
	group        int // position in groups, from 1; 0 = nothing is added
	rate         int // that the asker gave for it; 0 = none
}

// leaseGroup is a row in the making: leased time that nobody reported, per piece.
type leaseGroup struct {
	row  schema.UsageRow
	idle bool
	ms   []int64
}

// leases returns the view for a question, or nil when the tenant has no leases.
func (s *usageStore) leases(ctx context.Context, q *schema.UsageQuery, outside bool) (*leaseView, error) {
	lines, err := s.timelines(ctx, q.Tenant, only(q.Filter, q.Instances), q.AsOfMs)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	return newLeaseView(q, lines, outside)
}

// only returns the instances that a filter, and a list that is nil for all, let through;
// nil for all.
func only(filter map[string]string, instances []string) []string {
	one, filtered := filter["instance"]
	switch {
	case !filtered || one == "":
		return instances // a lease is of an instance, so none are without one
	case instances == nil || slices.Contains(instances, one):
		return []string{one}
	}
	return []string{}
}

// timelines returns the states of some instances, or of all when instances is nil.
func (s *usageStore) timelines(ctx context.Context, tenant string, instances []string, asOfMs int64) ([][]schema.LeaseSegment, error) {
	events, err := s.db.LeaseEvents(ctx, tenant, instances, asOfMs)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, nil
	}
	ids := make([]schema.Identity, len(events))
	for i := range events {
		ids[i] = events[i].Identity()
	}
	facts, err := s.db.Settlement(ctx, tenant, ids, asOfMs)
	if err != nil {
		return nil, err
	}
	lines := aggregator.Timelines(aggregator.SettleLeases(events, facts))
	if instances != nil {
		lines = slices.DeleteFunc(lines, func(l []schema.LeaseSegment) bool { return !slices.Contains(instances, l[0].Instance) })
	}
	return lines, nil
}

func newLeaseView(q *schema.UsageQuery, lines [][]schema.LeaseSegment, outside bool) (*leaseView, error) {
	from, to := q.Cuts[0], q.Cuts[len(q.Cuts)-1]
	v := &leaseView{q: *q, clipMs: to, outside: outside, spans: make(map[string][]leaseSpan, len(lines)), groupOf: map[string]int{}}
	for _, limit := range []int64{q.NowMs, q.AsOfMs} {
		if limit > 0 {
			v.clipMs = min(v.clipMs, limit)
		}
	}
	v.cut(q.Cuts)
	var rows []clickhouse.LeaseSpan
	for _, line := range lines {
		spans := v.spansOf(line, from, to)
		v.spans[line[0].Instance] = spans
		for i, s := range spans {
			at := s.fromMs
			if i == 0 {
				at = 0
			}
			rows = append(rows, clickhouse.LeaseSpan{Instance: line[0].Instance, AtMs: at, Held: s.held, Gpus: s.gpus, Group: s.group, Rate: s.rate})
			if err := v.lease(&s); err != nil {
				return nil, fmt.Errorf("lease of instance %q: %w", line[0].Instance, err)
			}
		}
	}
	v.table = clickhouse.NewLeaseTable(rows, outside)
	return v, nil
}

// cut adds the end of what has happened to the pieces.
func (v *leaseView) cut(cuts []int64) {
	v.q.Cuts = slices.Clone(cuts)
	if at, found := slices.BinarySearch(cuts, v.clipMs); !found && at > 0 && !v.outside {
		v.q.Cuts = slices.Insert(v.q.Cuts, at, v.clipMs)
	}
	for piece := 0; len(v.pieceOf) < len(v.q.Cuts)-1; {
		if v.q.Cuts[len(v.pieceOf)] >= cuts[piece+1] {
			piece++
		}
		v.pieceOf = append(v.pieceOf, piece)
	}
}

// spansOf returns what a timeline means for [from, to). The first span reaches
// back as far as anybody may ask.
func (v *leaseView) spansOf(line []schema.LeaseSegment, from, to int64) []leaseSpan {
	spans := []leaseSpan{{toMs: math.MaxInt64}}
	for part := range rated(line, v.q.Rated[line[0].Instance]) {
		s := &part.LeaseSegment
		if s.FromMs >= to {
			break
		}
		next := leaseSpan{fromMs: s.FromMs, toMs: schema.LeaseOpen, held: s.Held()}
		if next.held {
			next.rate = part.rate
		}
		if next.held && s.Gpus > 0 && max(s.FromMs, from) < min(s.ToMs, v.clipMs) {
			next.group = v.group(s, next.rate)
		}
		if next.group > 0 {
			next.gpus = s.Gpus
		}
		last := &spans[len(spans)-1]
		switch {
		case next.held == last.held && next.gpus == last.gpus && next.group == last.group && next.rate == last.rate:
			continue
		case s.FromMs <= from: // what came before lies before the question
			spans = append(spans[:0], next)
		default:
			last.toMs = s.FromMs
			spans = append(spans, next)
		}
	}
	return spans
}

// ratedSegment is a part of a lease's segment with one rate.
type ratedSegment struct {
	schema.LeaseSegment
	rate int
}

// rated cuts the segments of an instance where its rate changes.
func rated(line []schema.LeaseSegment, spans []schema.RatedSpan) iter.Seq[ratedSegment] {
	return func(yield func(ratedSegment) bool) {
		next := 0
		for i := range line {
			part := ratedSegment{LeaseSegment: line[i]}
			end := part.ToMs
			for part.FromMs < end {
				for next < len(spans) && spans[next].ToMs <= part.FromMs {
					next++
				}
				part.rate, part.ToMs = 0, end
				if next < len(spans) {
					if s := spans[next]; s.FromMs <= part.FromMs {
						part.rate, part.ToMs = s.Rate, min(end, s.ToMs)
					} else {
						part.ToMs = min(end, s.FromMs)
					}
				}
				if !yield(part) {
					return
				}
				part.FromMs = part.ToMs
			}
		}
	}
}

// group returns the row to which a segment's time is added, 0 when the question
// does not ask for it.
func (v *leaseView) group(s *schema.LeaseSegment, rate int) int {
	cell := schema.Cell{Owner: s.Owner}
	if v.outside || !keeps(&v.q, &cell) {
		return 0
	}
	row := rowOf(&cell, 0, v.q.By)
	row.Rate = rate
	key := strconv.FormatBool(s.Idle()) + "\x00" + strconv.Itoa(rate) + "\x00" + strings.Join(append([]string{row.Model, row.Platform, row.Region}, row.Keys...), "\x00")
	if have := v.groupOf[key]; have > 0 {
		return have
	}
	v.groups = append(v.groups, leaseGroup{row: row, idle: s.Idle(), ms: make([]int64, len(v.q.Cuts)-1)})
	v.groupOf[key] = len(v.groups)
	return len(v.groups)
}

// lease adds the whole leased time of a span; covered takes from it.
func (v *leaseView) lease(s *leaseSpan) error {
	if s.group == 0 {
		return nil
	}
	from, to := max(s.fromMs, v.q.Cuts[0]), min(s.toMs, v.clipMs)
	for piece := v.piece(from); from < to; piece++ {
		end := min(v.q.Cuts[piece+1], to)
		hi, ms := bits.Mul64(uint64(s.gpus), uint64(end-from))
		sum := &v.groups[s.group-1].ms[piece]
		if hi > 0 || ms > math.MaxInt64 || *sum > math.MaxInt64-int64(ms) {
			return fmt.Errorf("%d GPUs over the span exceed 64 bits of milliseconds; ask for a shorter span", s.gpus)
		}
		*sum += int64(ms)
		from = end
	}
	return nil
}

func (v *leaseView) covered(group, piece int, ms int64) { v.groups[group-1].ms[piece] -= ms }

// piece returns the piece of the view's question that holds the instant.
func (v *leaseView) piece(ms int64) int {
	at, found := slices.BinarySearch(v.q.Cuts, ms)
	if found {
		return at
	}
	return at - 1
}

// at returns the span of an instance at an instant, nil when it has no lease.
func (v *leaseView) at(instance string, ms int64) *leaseSpan {
	spans := v.spans[instance]
	if len(spans) == 0 {
		return nil
	}
	at, found := slices.BinarySearchFunc(spans[1:], ms, func(s leaseSpan, ms int64) int {
		switch {
		case s.fromMs < ms:
			return -1
		case s.fromMs > ms:
			return 1
		}
		return 0
	})
	if found {
		at++
	}
	return &spans[at]
}

// wants says whether usage in a span is part of the answer.
func (v *leaseView) wants(s *leaseSpan) bool {
	if v.outside {
		return s != nil && !s.held
	}
	return s == nil || s.held
}

// finish adds the leased time that nobody reported and puts all rows into the
// pieces that were asked for.
func (v *leaseView) finish(rows []schema.UsageRow) ([]schema.UsageRow, error) {
	var sums rowSums
	for _, r := range rows {
		r.Piece = v.pieceOf[r.Piece]
		sums.add(r)
	}
	for i := range v.groups {
		g := &v.groups[i]
		for piece, ms := range g.ms {
			switch {
			case ms < 0:
				return nil, fmt.Errorf("usage covers %d ms more than leases hold from %s on; stored usage changed in an impossible way", -ms, schema.FormatTime(v.q.Cuts[piece]))
			case ms == 0:
				continue
			}
			r := g.row
			r.Piece = v.pieceOf[piece]
			if g.idle {
				r.IdleMs = ms
			} else {
				r.UnknownMs = ms
			}
			sums.add(r)
		}
	}
	return sums.rows, nil
}

// changes finds the windows in which the lease of an instance changes. Those that
// are computed finer anyway are left out.
func (v *leaseView) changes(p *plan) {
	openHours, brokenMinutes := p.hours.Except, p.minutes.Except
	for instance, spans := range v.spans {
		for _, s := range spans[1:] {
			hour, minute := schema.Floor(s.fromMs, schema.HourMs), schema.Floor(s.fromMs, schema.MinuteMs)
			if _, open := slices.BinarySearch(openHours, hour); hour != s.fromMs && !open {
				v.finerHours = append(v.finerHours, clickhouse.InstanceWindow{Instance: instance, StartMs: hour})
			}
			if _, broken := slices.BinarySearch(brokenMinutes, minute); minute != s.fromMs && !broken && p.hasMinutes(hour) {
				v.finerMinutes = append(v.finerMinutes, clickhouse.InstanceWindow{Instance: instance, StartMs: minute})
			}
		}
	}
	v.finerHours, v.finerMinutes = distinct(v.finerHours), distinct(v.finerMinutes)
}

func distinct(list []clickhouse.InstanceWindow) []clickhouse.InstanceWindow {
	slices.SortFunc(list, func(a, b clickhouse.InstanceWindow) int {
		if a.StartMs != b.StartMs {
			return int(a.StartMs - b.StartMs)
		}
		return strings.Compare(a.Instance, b.Instance)
	})
	return slices.Compact(list)
}

// compare takes from the leased time what the windows of a grain cover, and
// returns the windows that have to be looked at finer.
func (s *usageStore) compare(ctx context.Context, v *leaseView, grain clickhouse.Grain, w clickhouse.Windows) ([]clickhouse.InstanceWindow, error) {
	if len(v.groups) == 0 {
		return nil, nil
	}
	w.ToMs = min(w.ToMs, v.clipMs)
	list, unclear, err := s.db.LeaseCovered(ctx, v.q.Tenant, v.q.Cuts, grain, w)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		v.covered(c.Group, c.Piece, c.Ms)
	}
	return unclear, nil
}

// planLeases says of both grains which windows are added up, and takes what they cover
// from the leased time.
func (s *usageStore) planLeases(ctx context.Context, v *leaseView, p *plan) error {
	hours, minutes := &p.hours, &p.minutes
	v.changes(p)
	hours.Leases, minutes.Leases = v.table, v.table
	hours.Finer = v.finerHours
	unclear, err := s.compare(ctx, v, clickhouse.Hours, *hours)
	if err != nil {
		return err
	}
	hours.Finer = append(hours.Finer, unclear...)
	for _, w := range hours.Finer {
		if p.hasMinutes(w.StartMs) {
			minutes.Also = append(minutes.Also, w)
		} else {
			v.coarseHours = append(v.coarseHours, w)
		}
	}
	minutes.Finer = v.finerMinutes
	if unclear, err = s.compare(ctx, v, clickhouse.Minutes, *minutes); err != nil {
		return err
	}
	v.finerMinutes = append(v.finerMinutes, unclear...)
	minutes.Finer = v.finerMinutes
	return nil
}

// outsideLease returns how much unit time of [fromMs, toMs) was reported for
// instances whose lease did not hold any.
func (s *usageStore) outsideLease(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (ms int64, err error) {
	q := schema.UsageQuery{Tenant: tenant, Cuts: []int64{fromMs, toMs}, AsOfMs: asOfMs}
	v, err := s.leases(ctx, &q, true)
	if err != nil || v == nil {
		return 0, err
	}
	rows, err := s.answer(ctx, &v.q, v)
	for i := range rows {
		ms += rows[i].AllocatedMs()
	}
	return ms, err
}

// Leases implements report.Store.
func (s *usageStore) Leases(ctx context.Context, q schema.EventQuery) ([]schema.LeaseSegment, error) {
	lines, err := s.timelines(ctx, q.Tenant, only(q.Filter, nil), q.AsOfMs)
	if err != nil {
		return nil, err
	}
	var list []schema.LeaseSegment
	for _, line := range lines {
		for i := range line {
			in := schema.InScope(q.Projects, line[i].Project) && line[i].FromMs < q.ToMs && line[i].ToMs > q.FromMs
			if in && matches(&schema.Cell{Owner: line[i].Owner}, q.Filter) {
				list = append(list, line[i])
			}
		}
	}
	return list, nil
}
