package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// usageStore answers the report stage. It puts an answer together from what is
// kept per hour, what is kept per minute where an hour is cut or not yet summed
// up, and raw events where a minute is cut or an hour is that has no minutes: the
// same core computes all three, so any span is exact to the millisecond.
type usageStore struct {
	db        *clickhouse.DB
	threshold int64
	grace     Grace
}

// maxCutMinutes bounds how many minutes are computed from raw events for one
// question.
const maxCutMinutes = 5000

// Usage implements report.Store.
func (s *usageStore) Usage(ctx context.Context, q schema.UsageQuery) ([]schema.UsageRow, error) {
	if len(q.Cuts) < 2 {
		return nil, fmt.Errorf("usage of %d cuts: at least two are needed", len(q.Cuts))
	}
	v, err := s.leases(ctx, &q, false)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return s.answer(ctx, &q, nil)
	}
	rows, err := s.answer(ctx, &v.q, v)
	if err != nil {
		return nil, err
	}
	return v.finish(rows)
}

// answer adds up usage; v, which may be nil, says what leases allow.
func (s *usageStore) answer(ctx context.Context, q *schema.UsageQuery, v *leaseView) ([]schema.UsageRow, error) {
	if q.AsOfMs > 0 {
		return s.asOf(ctx, q, v)
	}
	p, err := s.plan(ctx, q)
	if err != nil {
		return nil, err
	}
	if v != nil {
		if err := s.planLeases(ctx, v, p); err != nil {
			return nil, err
		}
	}
	var sums rowSums
	rows, err := s.db.Usage(ctx, q, clickhouse.Hours, p.hours)
	if err != nil {
		return nil, err
	}
	sums.add(rows...)
	rows, err = s.db.Usage(ctx, q, clickhouse.Minutes, p.minutes)
	if err != nil {
		return nil, err
	}
	sums.add(rows...)
	for _, span := range p.cut {
		if err := s.fromEvents(ctx, q, span.StartMs, span.EndMs, v, &sums); err != nil {
			return nil, err
		}
	}
	if v != nil {
		for _, finer := range []struct {
			grain   clickhouse.Grain
			windows []clickhouse.InstanceWindow
		}{{clickhouse.Hours, v.coarseHours}, {clickhouse.Minutes, v.finerMinutes}} {
			if err := s.windowDetails(ctx, v, finer.grain, finer.windows, &sums); err != nil {
				return nil, err
			}
		}
	}
	return sums.rows, nil
}

// plan says where the parts of an answer come from.
type plan struct {
	hours, minutes clickhouse.Windows
	cut            []aggregator.Window // computed from raw events
	coarse         []schema.Interval   // hours that have no minutes, in order
}

// hasMinutes says whether the minutes of an hour are kept.
func (p *plan) hasMinutes(hourMs int64) bool {
	at, found := slices.BinarySearchFunc(p.coarse, hourMs, func(i schema.Interval, ms int64) int { return cmp.Compare(i.FromMs, ms) })
	return !found && (at == 0 || p.coarse[at-1].ToMs <= hourMs)
}

func (s *usageStore) plan(ctx context.Context, q *schema.UsageQuery) (*plan, error) {
	from, to := q.Cuts[0], q.Cuts[len(q.Cuts)-1]
	pending, err := s.db.PendingHours(ctx, q.Tenant, from, to)
	if err != nil {
		return nil, err
	}
	brokenHours, brokenMinutes := broken(q.Cuts, schema.HourMs), broken(q.Cuts, schema.MinuteMs)
	if len(brokenMinutes) > maxCutMinutes {
		return nil, fmt.Errorf("the question cuts %d minutes, at most %d can be computed at once", len(brokenMinutes), maxCutMinutes)
	}
	open := slices.Compact(sorted(append(brokenHours, pending...)))
	p := &plan{
		hours:   clickhouse.Windows{FromMs: schema.Floor(from, schema.HourMs), ToMs: to, Except: open},
		minutes: clickhouse.Windows{FromMs: schema.Floor(from, schema.MinuteMs), ToMs: to, Except: brokenMinutes, Hours: []int64{}},
	}
	if p.coarse, err = s.db.CoarseSpans(ctx, q.Tenant, from, to); err != nil {
		return nil, err
	}
	for _, hour := range open {
		if p.hasMinutes(hour) {
			p.minutes.Hours = append(p.minutes.Hours, hour)
		} else { // one at a time, so that memory is bounded
			p.cut = append(p.cut, aggregator.Window{StartMs: max(hour, from), EndMs: min(hour+schema.HourMs, to)})
		}
	}
	fine := slices.DeleteFunc(brokenMinutes, func(ms int64) bool { return !p.hasMinutes(schema.Floor(ms, schema.HourMs)) })
	for _, span := range runs(fine, schema.MinuteMs) {
		p.cut = append(p.cut, aggregator.Window{StartMs: max(span.StartMs, from), EndMs: min(span.EndMs, to)})
	}
	return p, nil
}

// fromEvents computes [fromMs, toMs) from raw events, an hour's part of a piece
// after the other, and adds it to sums.
func (s *usageStore) fromEvents(ctx context.Context, q *schema.UsageQuery, fromMs, toMs int64, v *leaseView, sums *rowSums) error {
	var windows []aggregator.Window
	var pieces []int
	for i := range q.Cuts[:len(q.Cuts)-1] {
		a, b := max(q.Cuts[i], fromMs), min(q.Cuts[i+1], toMs)
		for a < b {
			next := min(schema.Floor(a, schema.HourMs)+schema.HourMs, b)
			windows, pieces = append(windows, aggregator.Window{StartMs: a, EndMs: next}), append(pieces, i)
			a = next
		}
	}
	covering := coverage{v: v}
	err := s.db.RangeEvents(ctx, q.Tenant, fromMs, toMs, q.AsOfMs, q.Filter["unit"], func(events []schema.StoredEvent, facts *schema.Settlement) error {
		cut := windows
		if v != nil {
			cut = v.split(events, windows)
		}
		for _, cell := range aggregator.Compute(events, cut, s.threshold, facts) {
			at := indexOf(windows, cell.WindowMs)
			var span *leaseSpan
			if v != nil {
				span = v.at(cell.Instance, cell.WindowMs)
				if !v.wants(span) {
					continue
				}
				covering.add(&cell, span, windows[at])
			}
			if keeps(q, &cell) {
				sums.add(ratedRow(&cell, pieces[at], q.By, span, last(q, windows[at].EndMs)))
			}
		}
		return nil
	})
	if err != nil || v == nil {
		return err
	}
	return s.details(ctx, v, covering.settle(), nil)
}

// rowSums adds up the rows of one group and piece, and keeps the order in which
// the groups came first.
type rowSums struct {
	rows []schema.UsageRow
	at   map[string]int
}

func (s *rowSums) add(rows ...schema.UsageRow) {
	if s.at == nil {
		s.at = map[string]int{}
	}
	for _, r := range rows {
		key := fmt.Sprint(r.Piece, "\x00", r.Rate, "\x00", r.Model, "\x00", r.Platform, "\x00", r.Region, "\x00", strings.Join(r.Keys, "\x00"))
		if at, ok := s.at[key]; ok {
			s.rows[at].Add(&r.Sums)
			continue
		}
		s.at[key] = len(s.rows)
		s.rows = append(s.rows, r)
	}
}

func rowOf(c *schema.Cell, piece int, by []string) schema.UsageRow {
	r := schema.UsageRow{Piece: piece, Model: c.Model, Platform: c.Platform, Region: c.Region, Keys: make([]string, len(by))}
	for i, name := range by {
		r.Keys[i] = valueOf(c, name)
	}
	r.Sums = schema.Sums{
		ActiveMs: c.ActiveMs, IdleMs: c.IdleMs, UnknownMs: c.UnknownMs,
		UtilizationMs: c.UtilizationMs, UtilizationSum: big.NewInt(c.UtilizationSum),
		MemoryMs: c.MemoryMs, MemoryByteMs: big.NewInt(c.MemoryByteMs), EnergyMj: c.EnergyMj, EnergyMs: c.EnergyMs,
		OverlapMs: c.OverlapMs, OversubscribedMs: c.OversubscribedMs,
	}
	if c.Instance == "" {
		r.FreeMs = c.IdleMs
	}
	return r
}

// last is the end of a window if the question asks for it.
func last(q *schema.UsageQuery, endMs int64) int64 {
	if q.Activity {
		return endMs
	}
	return 0
}

// ratedRow is a row of the usage of an instance under a lease, nil = under none. The
// window of the usage ends at endMs; 0 = nobody asks.
func ratedRow(c *schema.Cell, piece int, by []string, span *leaseSpan, endMs int64) schema.UsageRow {
	r := rowOf(c, piece, by)
	if r.ActiveMs > 0 {
		r.LastActiveMs = endMs
	}
	if r.ActiveMs+r.IdleMs > 0 {
		r.LastKnownMs = endMs
	}
	if span != nil {
		r.Rate = span.rate
	}
	return r
}

// keeps says whether usage is part of the answer to a question.
func keeps(q *schema.UsageQuery, c *schema.Cell) bool {
	return matches(c, q.Filter) && schema.InScope(q.Projects, c.Project) && (q.Instances == nil || slices.Contains(q.Instances, c.Instance))
}

func matches(c *schema.Cell, filter map[string]string) bool {
	for name, want := range filter {
		if valueOf(c, name) != want {
			return false
		}
	}
	return true
}

func valueOf(c *schema.Cell, dimension string) string {
	switch dimension {
	case "project":
		return c.Project
	case "instance":
		return c.Instance
	case "unit":
		return c.Unit
	case "node":
		return c.Node
	case "model":
		return c.Model
	case "platform":
		return c.Platform
	case "region":
		return c.Region
	}
	if key, ok := strings.CutPrefix(dimension, "label:"); ok && c.Labels != "" {
		return labelOf(c.Labels, key)
	}
	return ""
}

// broken returns the windows of that length that any cut lies inside of.
func broken(cuts []int64, length int64) []int64 {
	var list []int64
	for _, c := range cuts {
		if w := schema.Floor(c, length); w != c && (len(list) == 0 || list[len(list)-1] != w) {
			list = append(list, w)
		}
	}
	return list
}

// runs joins neighbouring windows.
func runs(windows []int64, length int64) []aggregator.Window {
	var list []aggregator.Window
	for _, w := range windows {
		if n := len(list); n > 0 && list[n-1].EndMs == w {
			list[n-1].EndMs = w + length
		} else {
			list = append(list, aggregator.Window{StartMs: w, EndMs: w + length})
		}
	}
	return list
}

func sorted(list []int64) []int64 {
	slices.Sort(list)
	return list
}

// Events implements report.Store.
func (s *usageStore) Events(ctx context.Context, q schema.EventQuery) ([]schema.StoredEvent, string, error) {
	events, next, err := s.db.Events(ctx, q)
	if errors.Is(err, clickhouse.ErrBadCursor) {
		return nil, "", &report.RequestError{Param: "after", Msg: err.Error()}
	}
	if err != nil {
		return nil, "", err
	}
	lines, err := s.timelines(ctx, q.Tenant, only(q.Filter, nil), q.AsOfMs)
	if err != nil {
		return nil, "", err
	}
	markNotHeld(events, lines)
	return events, next, nil
}

// Quality implements report.Store.
func (s *usageStore) Quality(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (schema.Quality, error) {
	q, err := s.db.Quality(ctx, tenant, fromMs, toMs, asOfMs, s.grace.Of(tenant))
	if err == nil {
		q.OutsideLeaseMs, err = s.outsideLease(ctx, tenant, fromMs, toMs, asOfMs)
	}
	return q, err
}

// Sources implements report.Store.
func (s *usageStore) Sources(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) ([]schema.SourceQuality, int64, error) {
	return s.db.Sources(ctx, tenant, fromMs, toMs, asOfMs, s.grace.Of(tenant))
}

// Conflicts implements report.Store.
func (s *usageStore) Conflicts(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, limit int) ([]schema.Conflict, error) {
	return s.db.Conflicts(ctx, tenant, fromMs, toMs, asOfMs, limit)
}

// Incidents implements report.Store.
func (s *usageStore) Incidents(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) ([]schema.Incident, error) {
	return s.db.Incidents(ctx, tenant, fromMs, toMs, asOfMs)
}

// labelOf reads one label out of the canonical JSON of a cell's labels.
func labelOf(labels, key string) string {
	var m map[string]string
	if json.Unmarshal([]byte(labels), &m) != nil {
		return ""
	}
	return m[key]
}
