package report

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// MaxRows bounds Params.Top and Params.Limit, and with them what a report that
// shows some of its rows needs of memory.
const MaxRows = 10_000

// OrderedStore is a Store that can give its rows in an order. Reports that show
// some of their rows use it to be bounded by the rows that they show, not by the
// rows that there are; of a Store without it all rows are sorted in memory.
type OrderedStore interface {
	// UsageInOrder calls visit with the rows in the order of the scan. It ends
	// early, without an error of its own, with the first error of visit.
	UsageInOrder(ctx context.Context, q schema.UsageScan, visit func(*schema.UsageRow) error) error
}

// checkPart checks what says that some of the rows are asked for.
func (r *Request) checkPart(p Params) error {
	r.Top, r.Limit = p.Top, p.Limit
	switch {
	case p.Top < 0 || p.Top > MaxRows:
		return wrong("top", "%d is not between 1 and %d", p.Top, MaxRows)
	case p.Limit < 0 || p.Limit > MaxRows:
		return wrong("limit", "%d is not between 1 and %d", p.Limit, MaxRows)
	case p.Top > 0 && p.Limit > 0:
		return wrong("top", "the largest rows and a page of rows are two different questions; use top or limit")
	case p.After != "" && p.Limit == 0:
		return wrong("after", "it goes on with pages; say with limit how many rows a page has")
	case p.Top+p.Limit > 0 && len(p.By) == 0:
		return wrong("by", "there is one row only; say what the rows are by")
	case p.Top+p.Limit > 0 && r.Kind == "quality":
		return wrong("kind", "quality has no rows to show some of")
	}
	if p.After == "" {
		return nil
	}
	var err error
	if r.after, err = readCursor(p.After, p.By); err != nil {
		return wrong("after", "%q is not the next of a page of this question: %v", clip(p.After), err)
	}
	return nil
}

// partial is a report of some rows. Its totals are of all rows.
func (r *Report) partial() bool { return r.Top+r.Limit > 0 }

// cursor is where a page ended: the keys asked by, and what the last row sorts by.
// It holds no number of a row, so it stays right when rows come or go.
type cursor struct {
	By    []string `json:"by"`
	After []string `json:"after"`
}

func writeCursor(by, order []string) string {
	b, err := json.Marshal(cursor{by, order})
	if err != nil {
		return "" // text always can be written
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(text string, by []string) ([]string, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("it was changed on the way")
	}
	var c cursor
	if err := json.Unmarshal(b, &c); err != nil || len(c.After) != len(c.By) {
		return nil, errors.New("it was changed on the way")
	}
	if !slices.Equal(c.By, by) {
		return nil, fmt.Errorf("it is of rows by %s", clip(strings.Join(c.By, ",")))
	}
	return c.After, nil
}

// some answers a question for some of its rows.
func (s *Service) some(ctx context.Context, r *Report, ch *charges) error {
	if slices.Contains(r.By, planKey) {
		return s.someOfAll(ctx, r, ch)
	}
	cal := newCalendar(&r.Request)
	cuts, err := allCuts(&r.Request, cal, ch)
	if err != nil {
		return err
	}
	w := &walk{r: r, cal: cal, cuts: cuts, ch: ch, stored: storedKeys(r.By), totals: &collector{}}
	w.lumps = w.after(ch.lumpRows(&r.Request, cal, cuts))
	scan := w.scan()
	if r.Limit > 0 {
		// A page reads no more rows than it shows, so its totals are asked for apart.
		all := scan.UsageQuery
		all.By = nil
		rows, err := s.Store.Usage(ctx, all)
		if err != nil {
			return fmt.Errorf("report: usage: %w", err)
		}
		of := r.Request
		of.By = nil
		if _, w.totals, err = group(&of, newCalendar(&of), cuts, rows, ch); err != nil {
			return err
		}
	}
	err = inOrder(ctx, s.Store, &scan, w.row)
	if err == nil {
		err = w.until(nil)
	}
	if err == nil {
		err = w.flush()
	}
	if err != nil && !errors.Is(err, errPageFull) {
		return fmt.Errorf("report: usage: %w", err)
	}
	w.finish()
	return nil
}

// someOfAll is some for rows that the store cannot put in order. It needs memory for
// all of them.
func (s *Service) someOfAll(ctx context.Context, r *Report, ch *charges) error {
	groups, totals, err := s.collect(ctx, &r.Request, ch)
	if err != nil {
		return err
	}
	w := &walk{r: r, totals: totals}
	for _, g := range groups {
		if r.after != nil && slices.Compare(g.order, r.after) <= 0 {
			continue
		}
		w.group = g
		if err := w.flush(); errors.Is(err, errPageFull) {
			break
		}
	}
	w.finish()
	return nil
}

func inOrder(ctx context.Context, store Store, scan *schema.UsageScan, visit func(*schema.UsageRow) error) error {
	if ordered, ok := store.(OrderedStore); ok {
		return ordered.UsageInOrder(ctx, *scan, visit)
	}
	rows, err := store.Usage(ctx, scan.UsageQuery)
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b schema.UsageRow) int {
		return schema.CompareOrder(scan.Values(&a, nil), scan.Values(&b, nil))
	})
	for i := range rows {
		if scan.After != nil && schema.CompareOrder(scan.Values(&rows[i], nil), scan.After) <= 0 {
			continue
		}
		if err := visit(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// walk goes through the store's rows once, one group at a time.
type walk struct {
	r      *Report
	cal    *calendar
	cuts   []int64
	ch     *charges
	stored []string
	lumps  []lumpRow // not added yet, in the order of their keys

	totals *collector // of all groups
	group  *collected // the one that rows are being added to; nil before the first
	groups []*collected
	count  int64 // groups seen
}

// errPageFull ends a walk that has its rows.
var errPageFull = errors.New("the page is full")

// scan is the question to the store. Its order is the one that group sorts by: a
// time goes by the order of its bucket, because the text of hours is not in the
// order of time and a date can come twice.
func (w *walk) scan() schema.UsageScan {
	scan := schema.UsageScan{UsageQuery: w.r.usage(w.cuts, w.r.By, w.ch)}
	next := 0
	for i, key := range w.r.By {
		var after schema.OrderValue
		if slices.Contains(timeKeys, key) {
			orders := make([]string, len(w.cuts)-1)
			for p := range orders {
				orders[p] = w.cal.bucket(key, w.cuts[p]).order
			}
			known := slices.Compact(slices.Sorted(slices.Values(orders)))
			ranks := make([]int64, len(orders))
			for p, o := range orders {
				at, _ := slices.BinarySearch(known, o)
				ranks[p] = int64(2*at + 1)
			}
			scan.Order = append(scan.Order, schema.OrderKey{Ranks: ranks})
			if w.r.after != nil {
				// A bucket that this span does not have lies between two others.
				at, found := slices.BinarySearch(known, w.r.after[i])
				after.Rank = int64(2 * at)
				if found {
					after.Rank++
				}
			}
		} else {
			scan.Order = append(scan.Order, schema.OrderKey{By: next})
			if next++; w.r.after != nil {
				after.Text = w.r.after[i]
			}
		}
		if w.r.after != nil {
			scan.After = append(scan.After, after)
		}
	}
	return scan
}

// row adds one row of the store.
func (w *walk) row(row *schema.UsageRow) error {
	if row.Piece < 0 || row.Piece >= len(w.cuts)-1 || len(row.Keys) != len(w.stored) {
		return fmt.Errorf("impossible usage row %+v", *row)
	}
	if row.AllocatedMs() == 0 || !w.r.keepsPlan(w.ch.plan(row)) {
		return nil
	}
	start := w.cuts[row.Piece]
	keys, order := rowKeys(w.r.By, row.Keys, "", w.cal, start)
	if err := w.until(order); err != nil {
		return err
	}
	if err := w.enter(keys, order); err != nil {
		return err
	}
	price := w.ch.rate(row, start)
	if err := w.group.add(row, price); err != nil {
		return err
	}
	if w.r.Limit > 0 {
		return nil
	}
	return w.totals.add(row, price)
}

// enter makes the group of a row the one that rows are added to.
func (w *walk) enter(keys, order []string) error {
	if w.group != nil && slices.Equal(order, w.group.order) {
		return nil
	}
	if w.group != nil && slices.Compare(order, w.group.order) < 0 {
		return fmt.Errorf("the store gave %q after %q", order, w.group.order)
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.group = &collected{Row: Row{Keys: keys, order: order}}
	return nil
}

// until adds the lumps of groups up to that of a row; nil = all.
func (w *walk) until(order []string) error {
	for len(w.lumps) > 0 && (order == nil || slices.Compare(w.lumps[0].order, order) <= 0) {
		l := &w.lumps[0]
		if err := w.enter(l.keys, l.order); err != nil {
			return err
		}
		w.group.lump(l)
		if w.r.Limit == 0 {
			w.totals.lump(l)
		}
		w.lumps = w.lumps[1:]
	}
	return nil
}

// after leaves out the lumps of earlier pages.
func (w *walk) after(lumps []lumpRow) []lumpRow {
	if w.r.after == nil {
		return lumps
	}
	return slices.DeleteFunc(lumps, func(l lumpRow) bool { return slices.Compare(l.order, w.r.after) <= 0 })
}

// flush ends a group: it is one more row, of which those asked for are kept.
func (w *walk) flush() error {
	g := w.group
	if g == nil {
		return nil
	}
	w.group = nil
	w.count++
	if w.r.Limit > 0 {
		if w.count > int64(w.r.Limit) {
			return errPageFull
		}
		w.groups = append(w.groups, g)
		return nil
	}
	g.Figures = g.figures()
	top := &smallestFirst{w.groups, w.r.Kind}
	if heap.Push(top, g); len(top.groups) > w.r.Top {
		heap.Pop(top)
	}
	w.groups = top.groups
	return nil
}

// finish rounds every shown amount by itself, half away from zero. All rows are
// not there to be rounded together, so the shown rows need not add up to the
// totals even when there are no others; the totals are those of the whole report.
func (w *walk) finish() {
	r := w.r
	r.Totals = w.totals.figures()
	rest := r.Totals.largest()
	r.Rows = make([]Row, len(w.groups))
	if r.Top > 0 {
		r.RowCount = w.count
		slices.SortFunc(w.groups, func(a, b *collected) int { return compareSize(r.Kind, b, a) })
	} else if w.count > int64(r.Limit) {
		r.Next = writeCursor(r.By, w.groups[len(w.groups)-1].order)
	}
	for i, g := range w.groups {
		r.Rows[i] = g.Row
		r.Rows[i].Figures = g.figures()
		roundEach(&r.Rows[i].Figures, rest)
	}
	roundEach(&r.Totals, rest)
}

func roundEach(f *Figures, rest class) {
	for _, column := range amountColumns {
		if x := column(f); *x != nil {
			_, *x = pricing.RoundParts([]*big.Rat{*x}, pricing.Decimals)
		}
	}
	f.balance(rest)
}

// compareSize compares rows by what makes one the top: waste or cost, unrounded,
// unknown below all; then time; and among equals the first in key order is larger.
func compareSize(kind string, a, b *collected) int {
	x, y := a.Cost, b.Cost
	if kind == "waste" {
		x, y = a.IdleWaste, b.IdleWaste
	}
	c := cmp.Compare(boolInt(x != nil), boolInt(y != nil))
	if x != nil && y != nil {
		c = x.Cmp(y)
	}
	return cmp.Or(c, cmp.Compare(a.AllocatedMs, b.AllocatedMs), slices.Compare(b.order, a.order))
}

// smallestFirst is a heap of the largest groups so far.
type smallestFirst struct {
	groups []*collected
	kind   string
}

func (h *smallestFirst) Len() int { return len(h.groups) }
func (h *smallestFirst) Less(i, j int) bool {
	return compareSize(h.kind, h.groups[i], h.groups[j]) < 0
}
func (h *smallestFirst) Swap(i, j int) { h.groups[i], h.groups[j] = h.groups[j], h.groups[i] }
func (h *smallestFirst) Push(x any)    { h.groups = append(h.groups, x.(*collected)) }
func (h *smallestFirst) Pop() any {
	last := len(h.groups) - 1
	g := h.groups[last]
	h.groups[last] = nil
	h.groups = h.groups[:last]
	return g
}
