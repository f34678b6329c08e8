package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// Report is the answer to a Request. A report of kind quality has no rows.
type Report struct {
	Request
	Currency string // empty when nothing is priced
	Rows     []Row
	Totals   Figures
	Quality  schema.Quality // not known when the request has a scope
	// Sources are in reports of kind quality: at most schema.MaxSources of the
	// SourcesTotal that there are.
	Sources      []schema.SourceQuality
	SourcesTotal int64

	RowCount int64  // rows that there are, of which a question for the top shows some
	Next     string // of a page: what the next one is asked for with; empty on the last
	// Conflicts are the first MaxConflicts ones; only of kind quality.
	Conflicts []schema.Conflict
	// Incidents are in a report of kind quality only, at most MaxIncidents.
	Incidents []schema.Incident
}

// MaxIncidents bounds how many incidents a report lists; the quality counts all.
const MaxIncidents = 1000

// Row is the usage of one group. Keys are the values of the request's By.
type Row struct {
	Keys []string
	Figures
	order []string // what the keys sort by
}

// Report answers a question. A *RequestError says that the question is wrong;
// any other error comes from the store.
func (s *Service) Report(ctx context.Context, p Params) (*Report, error) {
	req, err := Parse(p, s.Now())
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
	switch {
	case req.Kind == "quality":
	case r.partial():
		err = s.some(ctx, r, ch)
	default:
		err = s.usage(ctx, r, ch)
	}
	if err == nil {
		err = ch.err()
	}
	if err != nil {
		return nil, err
	}
	r.Currency = ch.currency
	if r.scoped() {
		return r, nil
	}
	r.Quality, err = s.Store.Quality(ctx, req.Tenant, req.FromMs, req.ToMs, req.AsOfMs)
	if err != nil {
		return nil, fmt.Errorf("report: quality: %w", err)
	}
	if req.Kind == "quality" {
		if r.Sources, r.SourcesTotal, err = s.Store.Sources(ctx, req.Tenant, req.FromMs, req.ToMs, req.AsOfMs); err != nil {
			return nil, fmt.Errorf("report: sources: %w", err)
		}
		list, err := s.Store.Incidents(ctx, req.Tenant, req.FromMs, req.ToMs, req.AsOfMs)
		if err != nil {
			return nil, fmt.Errorf("report: incidents: %w", err)
		}
		r.Incidents = list[:min(len(list), MaxIncidents)]
	}
	if req.Kind == "quality" && r.Quality.Conflicts > 0 {
		r.Conflicts, err = s.Store.Conflicts(ctx, req.Tenant, req.FromMs, req.ToMs, req.AsOfMs, MaxConflicts)
		if err != nil {
			return nil, fmt.Errorf("report: conflicts: %w", err)
		}
	}
	return r, nil
}

func (s *Service) usage(ctx context.Context, r *Report, ch *charges) error {
	groups, totals, err := s.collect(ctx, &r.Request, ch)
	if err != nil {
		return err
	}
	r.finish(groups, totals)
	return nil
}

// collect adds up the usage of a request per group, in the order of the groups'
// keys, and in total. Nothing is rounded yet.
func (s *Service) collect(ctx context.Context, r *Request, ch *charges) ([]*collected, *collector, error) {
	cal := newCalendar(r)
	cuts, err := allCuts(r, cal, ch)
	if err != nil {
		return nil, nil, err
	}
	rows, err := s.Store.Usage(ctx, r.usage(cuts, r.By, ch))
	if err != nil {
		return nil, nil, fmt.Errorf("report: usage: %w", err)
	}
	return group(r, cal, cuts, rows, ch)
}

// cost is collect with the terms of the request.
func (s *Service) cost(ctx context.Context, r *Request) ([]*collected, error) {
	ch, err := s.charges(ctx, r)
	if err != nil {
		return nil, err
	}
	groups, _, err := s.collect(ctx, r, ch)
	return groups, cmp.Or(err, ch.err())
}

// allCuts returns the span's ends, the changes of every time key asked for and
// the changes of any price, so that each piece has one key and one price.
func allCuts(r *Request, cal *calendar, ch *charges) ([]int64, error) {
	cuts, err := cal.cuts(r.FromMs, r.ToMs)
	if err != nil {
		return nil, err
	}
	cuts = append(cuts, ch.cuts(r.FromMs, r.ToMs)...)
	cuts = append(cuts, r.FromMs, r.ToMs)
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if pieces := len(cuts) - 1; pieces > MaxPieces {
		return nil, tooManyPieces(int64(pieces))
	}
	return cuts, nil
}

// storedKeys returns the keys that the store groups by; times and plans are ours.
func storedKeys(by []string) []string {
	keys := make([]string, 0, len(by))
	for _, key := range by {
		if !slices.Contains(timeKeys, key) && key != planKey {
			keys = append(keys, key)
		}
	}
	return keys
}

// storedFilter is the part of a filter that the store knows.
func storedFilter(filter map[string]string) map[string]string {
	if _, ours := filter[planKey]; !ours {
		return filter
	}
	stored := maps.Clone(filter)
	delete(stored, planKey)
	return stored
}

// keepsPlan says whether a filter lets usage and lines of a plan through.
func (r *Request) keepsPlan(plan string) bool {
	want, asked := r.Filter[planKey]
	return !asked || plan == want
}

// collected is a row in the making.
type collected struct {
	Row
	collector
}

// group adds up the store's rows per group and in total. Groups come in the
// order of their keys.
func group(r *Request, cal *calendar, cuts []int64, rows []schema.UsageRow, ch *charges) ([]*collected, *collector, error) {
	byKey := map[string]*collected{}
	totals := &collector{}
	stored := storedKeys(r.By)
	var id []byte
	groupOf := func(keys, order []string) *collected {
		id = id[:0]
		for _, k := range keys {
			id = strconv.AppendInt(id, int64(len(k)), 10)
			id = append(append(id, ':'), k...)
		}
		g := byKey[string(id)]
		if g == nil {
			g = &collected{Row: Row{Keys: keys, order: order}}
			byKey[string(id)] = g
		}
		return g
	}
	for i := range rows {
		row := &rows[i]
		if row.Piece < 0 || row.Piece >= len(cuts)-1 || len(row.Keys) != len(stored) {
			return nil, nil, fmt.Errorf("report: impossible usage row %+v", *row)
		}
		plan := ch.plan(row)
		if row.AllocatedMs() == 0 || !r.keepsPlan(plan) {
			// A group without time is no row, and its price prices nothing.
			continue
		}
		start := cuts[row.Piece]
		price := ch.rate(row, start)
		g := groupOf(rowKeys(r.By, row.Keys, plan, cal, start))
		if err := g.add(row, price); err != nil {
			return nil, nil, err
		}
		if err := totals.add(row, price); err != nil {
			return nil, nil, err
		}
	}
	for _, l := range ch.lumpRows(r, cal, cuts) {
		groupOf(l.keys, l.order).lump(&l)
		totals.lump(&l)
	}
	groups := make([]*collected, 0, len(byKey))
	for _, g := range byKey {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *collected) int { return slices.Compare(a.order, b.order) })
	return groups, totals, nil
}

// rowKeys puts the store's keys, the plan and the time keys of the piece into the
// order that was asked for.
func rowKeys(by, stored []string, plan string, cal *calendar, startMs int64) (keys, order []string) {
	if len(by) == len(stored) {
		return stored, stored
	}
	keys, order = make([]string, 0, len(by)), make([]string, 0, len(by))
	next := 0
	for _, key := range by {
		if slices.Contains(timeKeys, key) {
			b := cal.bucket(key, startMs)
			keys, order = append(keys, b.key), append(order, b.order)
			continue
		}
		if key == planKey {
			keys, order = append(keys, plan), append(order, plan)
			continue
		}
		keys, order = append(keys, stored[next]), append(order, stored[next])
		next++
	}
	return keys, order
}

// finish rounds the amounts and brings the rows into their order. Rounding
// comes first and in key order, so that a row shows the same amounts whatever
// order the kind of report gives it.
func (r *Report) finish(groups []*collected, totals *collector) {
	r.Totals = totals.figures()
	r.Rows = make([]Row, len(groups))
	figures := make([]*Figures, len(groups))
	for i, g := range groups {
		r.Rows[i] = g.Row
		r.Rows[i].Figures = g.figures()
		figures[i] = &r.Rows[i].Figures
	}
	roundColumns(figures, &r.Totals)
	if r.Kind == "waste" {
		slices.SortStableFunc(r.Rows, func(a, b Row) int { return compareWaste(&b, &a) })
	}
}

// compareWaste puts unknown waste below every known one.
func compareWaste(a, b *Row) int {
	if a.IdleWaste == nil || b.IdleWaste == nil {
		return cmp.Compare(boolInt(a.IdleWaste != nil), boolInt(b.IdleWaste != nil))
	}
	return a.IdleWaste.Cmp(b.IdleWaste)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// asOf returns the instant that the report is as of: the one asked for, or now.
func (r *Request) asOf() int64 {
	if r.AsOfMs != 0 {
		return r.AsOfMs
	}
	return r.NowMs
}

func filterText(filter map[string]string) string {
	keys := make([]string, 0, len(filter))
	for k := range filter {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		keys[i] = k + "=" + filter[k]
	}
	return strings.Join(keys, ", ")
}
