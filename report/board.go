package report

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// board is an answer of the store cut so finely that any of several spans can be added
// up from it.
type board struct {
	req   *Request
	ch    *charges
	cuts  []int64
	parts []boardPart
}

// boardPart is usage, or an amount, in one piece.
type boardPart struct {
	piece                          int
	project, model, platform, plan string
	row                            *schema.UsageRow // nil for an amount
	price                          *rate
	lump                           *lumpRow
}

// into adds a part to a sum. What add refuses, board has refused already.
func (p *boardPart) into(c *collector) {
	if p.lump != nil {
		c.lump(p.lump)
		return
	}
	_ = c.add(p.row, p.price)
}

// board asks the store once for all that an overview adds up.
func (s *Service) board(ctx context.Context, r *Request, ch *charges, o *overviewSpans) (*board, error) {
	b := &board{req: r, ch: ch}
	b.cuts = append(ch.cuts(r.FromMs, r.ToMs), r.FromMs, r.ToMs)
	for _, span := range o.all() {
		b.cuts = append(b.cuts, span.FromMs, span.ToMs)
	}
	for _, series := range []struct {
		step string
		span pricing.Span
	}{{"hour", o.hours}, {"day", o.week}, {stepOf(o.span), o.span}} {
		cuts, err := b.calendar(series.step, series.span).cuts(series.span.FromMs, series.span.ToMs)
		if err != nil {
			return nil, err
		}
		b.cuts = append(b.cuts, cuts...)
	}
	b.cuts = slices.DeleteFunc(b.cuts, func(ms int64) bool { return ms < r.FromMs || ms > r.ToMs })
	slices.Sort(b.cuts)
	if b.cuts = slices.Compact(b.cuts); len(b.cuts)-1 > MaxPieces {
		return nil, tooManyPieces(int64(len(b.cuts) - 1))
	}
	rows, err := s.Store.Usage(ctx, r.usage(b.cuts, r.By, ch))
	if err != nil {
		return nil, fmt.Errorf("overview: usage: %w", err)
	}
	return b, b.take(rows)
}

// usage is the request's question to the store.
func (r *Request) usage(cuts []int64, by []string, ch *charges) schema.UsageQuery {
	return schema.UsageQuery{
		Tenant: r.Tenant, Cuts: cuts, By: storedKeys(by), Filter: storedFilter(r.Filter), Projects: r.Projects,
		AsOfMs: r.AsOfMs, NowMs: r.NowMs, Rated: ch.spans,
	}
}

func (b *board) take(rows []schema.UsageRow) error {
	all := &collector{} // finds sums that do not fit
	for i := range rows {
		row := &rows[i]
		if row.Piece < 0 || row.Piece >= len(b.cuts)-1 || len(row.Keys) != 1 {
			return fmt.Errorf("overview: impossible usage row %+v", *row)
		}
		plan := b.ch.plan(row)
		if row.AllocatedMs() == 0 || !b.req.keepsPlan(plan) {
			continue
		}
		p := boardPart{piece: row.Piece, project: row.Keys[0], model: row.Model, platform: row.Platform, plan: plan, row: row, price: b.ch.rate(row, b.cuts[row.Piece])}
		if err := all.add(row, p.price); err != nil {
			return err
		}
		b.parts = append(b.parts, p)
	}
	lumps := b.ch.lumpRows(b.req, &calendar{}, b.cuts)
	for i := range lumps {
		l := &lumps[i]
		s := &l.lump.line.Segment
		b.parts = append(b.parts, boardPart{piece: l.piece, project: s.Project, model: s.Model, platform: s.Platform, plan: s.Plan, lump: l})
	}
	return nil
}

// panel is the sum of a span.
type panel struct {
	pricing.Span
	key string
	collector
}

func (p *panel) holds(b *board, piece int) bool {
	return b.cuts[piece] >= p.FromMs && b.cuts[piece+1] <= p.ToMs
}

// panel adds up a span, whose ends are among the cuts.
func (b *board) panel(span pricing.Span) *panel {
	p := &panel{Span: span}
	for i := range b.parts {
		if p.holds(b, b.parts[i].piece) {
			b.parts[i].into(&p.collector)
		}
	}
	return p
}

func (b *board) calendar(step string, span pricing.Span) *calendar {
	r := *b.req
	r.By, r.FromMs, r.ToMs = []string{step}, span.FromMs, span.ToMs
	return newCalendar(&r)
}

// panels adds up the steps of a span.
func (b *board) panels(step string, span pricing.Span) []*panel {
	cal := b.calendar(step, span)
	var list []*panel
	for i, from := range b.cuts[:len(b.cuts)-1] {
		if from < span.FromMs || b.cuts[i+1] > span.ToMs {
			continue
		}
		if key := cal.bucket(step, from).key; len(list) == 0 || list[len(list)-1].key != key {
			list = append(list, &panel{Span: pricing.Span{FromMs: from, ToMs: b.cuts[i+1]}, key: key})
		}
		list[len(list)-1].ToMs = b.cuts[i+1]
	}
	for i := range b.parts {
		from := b.cuts[b.parts[i].piece]
		at, found := slices.BinarySearchFunc(list, from, func(p *panel, ms int64) int { return int(max(-1, min(1, p.FromMs-ms))) })
		if !found {
			at--
		}
		if at >= 0 && list[at].holds(b, b.parts[i].piece) {
			b.parts[i].into(&list[at].collector)
		}
	}
	return list
}

// buckets are the steps of a span, rounded so that they add up to it.
func (b *board) buckets(step string, span pricing.Span) []KeyFigures {
	panels := b.panels(step, span)
	figures := make([]Figures, len(panels))
	rows := make([]*Figures, len(panels))
	for i, p := range panels {
		figures[i] = p.figures()
		rows[i] = &figures[i]
	}
	sum := b.panel(span).figures()
	roundColumns(rows, &sum)
	list := make([]KeyFigures, len(panels))
	for i, p := range panels {
		list[i] = KeyFigures{p.key, b.span(p.Span, figures[i])}
	}
	return list
}

func (b *board) one(span pricing.Span) SpanFigures { return b.shown(b.panel(span)) }

// shown rounds the figures of a panel by themselves.
func (b *board) shown(p *panel) SpanFigures {
	f := p.figures()
	alone := f
	roundColumns([]*Figures{&alone}, &f)
	return b.span(p.Span, f)
}

func (b *board) span(s pricing.Span, f Figures) SpanFigures {
	return SpanFigures{From: instantIn(utc, s.FromMs), To: instantIn(utc, s.ToMs), Figures: Shown{f, b.ch.currency}}
}
