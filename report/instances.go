package report

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// InstanceTable is every instance of a question with its figures, to be shown in pages.
// It is not changed after it was made, and may be used by many goroutines.
type InstanceTable struct {
	req        Request
	currency   string
	rows       []instanceRow // by instance
	totals     Figures
	unassigned *Figures // time that nobody held, and amounts of no instance; nil = there are none

	mu     sync.Mutex
	orders map[InstanceOrder][]int32
}

// instanceRow is an instance, small enough for a million of them.
type instanceRow struct {
	instance, project, platform, region, model string
	plan, state, owner                         string
	gpus                                       int64 // 0 = not said
	sinceMs                                    int64 // of the state; 0 = there is no lease
	lastActiveMs, lastKnownMs                  int64 // 0 = never in the span
	idleSinceMs                                int64 // 0 = it is not known to be idle
	price                                      *big.Rat
	figures                                    smallFigures
}

// InstanceTable computes the table. Filters, span, zone and as-of are those of a report.
func (s *Service) InstanceTable(ctx context.Context, p Params) (*InstanceTable, error) {
	p.Kind, p.By, p.Top, p.Limit, p.After = "", []string{"instance", "project"}, 0, 0, ""
	now := s.Now()
	req, err := Parse(p, now.Truncate(time.Second)) // so that the span can be asked for again
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
	cuts, err := allCuts(&req, newCalendar(&req), ch)
	if err != nil {
		return nil, err
	}
	q := req.usage(cuts, req.By, ch)
	q.Activity = true
	rows, err := s.Store.Usage(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("instances: usage: %w", err)
	}
	leases, err := s.Store.Leases(ctx, req.events())
	if err != nil {
		return nil, fmt.Errorf("instances: leases: %w", err)
	}
	leases = slices.DeleteFunc(leases, func(l schema.LeaseSegment) bool { return l.FromMs >= req.until() || !req.keepsPlan(l.Plan) })
	t := &InstanceTable{req: req, orders: map[InstanceOrder][]int32{}}
	if err := t.fill(ch, cuts, rows, leases); err != nil {
		return nil, err
	}
	t.currency = ch.currency
	return t, ch.err()
}

// events is the request's question for events and leases.
func (r *Request) events() schema.EventQuery {
	return schema.EventQuery{Tenant: r.Tenant, FromMs: r.FromMs, ToMs: r.ToMs, Filter: storedFilter(r.Filter), Projects: r.Projects, AsOfMs: r.AsOfMs}
}

// fill goes through usage, amounts and leases together, an instance at a time.
func (t *InstanceTable) fill(ch *charges, cuts []int64, rows []schema.UsageRow, leases []schema.LeaseSegment) error {
	slices.SortStableFunc(rows, func(a, b schema.UsageRow) int { return cmp.Compare(a.Keys[0], b.Keys[0]) })
	slices.SortStableFunc(leases, func(a, b schema.LeaseSegment) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.FromMs, b.FromMs))
	})
	lumps := ch.lumpRows(&t.req, &calendar{}, cuts)
	b := &instanceBuilder{t: t, ch: ch, cuts: cuts}
	if err := b.total(rows, lumps); err != nil {
		return err
	}
	for len(rows)+len(lumps)+len(leases) > 0 {
		var next []string
		if len(rows) > 0 {
			next = append(next, rows[0].Keys[0])
		}
		if len(lumps) > 0 {
			next = append(next, lumps[0].keys[0])
		}
		if len(leases) > 0 {
			next = append(next, leases[0].Instance)
		}
		b.begin(slices.Min(next))
		for len(leases) > 0 && leases[0].Instance == b.name {
			b.leases, leases = append(b.leases, &leases[0]), leases[1:]
		}
		for len(rows) > 0 && rows[0].Keys[0] == b.name {
			if err := b.usage(&rows[0]); err != nil {
				return err
			}
			rows = rows[1:]
		}
		for len(lumps) > 0 && lumps[0].keys[0] == b.name {
			b.amount(&lumps[0])
			lumps = lumps[1:]
		}
		if err := b.end(); err != nil {
			return err
		}
	}
	return nil
}

// instanceBuilder makes one row after the other.
type instanceBuilder struct {
	t    *InstanceTable
	ch   *charges
	cuts []int64
	rest class // that takes what rounding leaves over, as in a report

	name   string
	row    instanceRow
	sum    collector
	seen   bool // it has usage or an amount
	mostMs int64
	leases []*schema.LeaseSegment
}

// total adds all up. Which class takes what rounding leaves over is known only then.
func (b *instanceBuilder) total(rows []schema.UsageRow, lumps []lumpRow) error {
	var sum collector
	for i := range rows {
		row := &rows[i]
		if row.Piece < 0 || row.Piece >= len(b.cuts)-1 || len(row.Keys) != 2 {
			return fmt.Errorf("instances: impossible usage row %+v", *row)
		}
		if b.keeps(row) {
			if err := sum.add(row, b.ch.rate(row, b.cuts[row.Piece])); err != nil {
				return err
			}
		}
	}
	for i := range lumps {
		sum.lump(&lumps[i])
	}
	b.t.totals = sum.figures()
	b.rest = b.t.totals.largest()
	roundEach(&b.t.totals, b.rest)
	return nil
}

func (b *instanceBuilder) keeps(row *schema.UsageRow) bool {
	return row.AllocatedMs() != 0 && b.t.req.keepsPlan(b.ch.plan(row))
}

func (b *instanceBuilder) begin(name string) {
	b.name, b.row, b.sum, b.seen, b.mostMs, b.leases = name, instanceRow{instance: name}, collector{}, false, 0, b.leases[:0]
}

// usage adds a row of the store. What an instance without a lease is, its usage says:
// what most of it says, when it does not agree.
func (b *instanceBuilder) usage(row *schema.UsageRow) error {
	if !b.keeps(row) {
		return nil
	}
	if err := b.sum.add(row, b.ch.rate(row, b.cuts[row.Piece])); err != nil {
		return err
	}
	b.seen = true
	r := &b.row
	r.lastActiveMs, r.lastKnownMs = max(r.lastActiveMs, row.LastActiveMs), max(r.lastKnownMs, row.LastKnownMs)
	if ms := row.AllocatedMs(); ms > b.mostMs {
		b.mostMs = ms
		r.project, r.platform, r.region, r.model = row.Keys[1], row.Platform, row.Region, row.Model
	}
	return nil
}

func (b *instanceBuilder) amount(l *lumpRow) {
	b.sum.lump(l)
	b.seen = true
	if s := &l.lump.line.Segment; b.mostMs == 0 {
		b.row.project, b.row.platform, b.row.region, b.row.model = s.Project, s.Platform, s.Region, s.Model
	}
}

// end finishes the row. An instance of which nothing is left but that it has ended is
// not in the table.
func (b *instanceBuilder) end() error {
	if !b.seen && !slices.ContainsFunc(b.leases, func(l *schema.LeaseSegment) bool { return !ended(l.State) }) {
		return nil
	}
	f := b.sum.figures()
	roundEach(&f, b.rest)
	if b.name == "" {
		b.t.unassigned = &f
		return nil
	}
	r := &b.row
	held := len(b.leases) == 0
	for i, l := range b.leases {
		if i == 0 || b.leases[i-1].State != l.State {
			r.sinceMs = l.FromMs
		}
		r.project, r.platform, r.region, r.model = l.Project, l.Platform, l.Region, l.Model
		r.plan, r.state, r.gpus, r.owner, held = l.Plan, l.State, l.Gpus, labelIn(l.Labels, "owner"), l.Held()
	}
	if held {
		r.price = b.price()
		r.idleSinceMs = b.idleSince()
	}
	var err error
	if r.figures, err = small(&f); err != nil {
		return fmt.Errorf("instance %q: %w", b.name, err)
	}
	b.t.rows = append(b.t.rows, *r)
	return nil
}

func ended(state string) bool { return state == "released" || state == "expired" }

// idleSince is the end of the last window that had any active time, or the time from
// which on the span knows of nothing but idleness; 0 when it was active to the last.
func (b *instanceBuilder) idleSince() int64 {
	r := &b.row
	switch {
	case r.lastKnownMs == 0 || r.lastActiveMs == r.lastKnownMs:
		return 0
	case r.lastActiveMs > 0:
		return r.lastActiveMs
	}
	return max(b.t.req.FromMs, r.sinceMs)
}

// price is what a GPU-hour costs at the end of the span, nil when that is not known.
func (b *instanceBuilder) price() *big.Rat {
	at := min(b.t.req.ToMs, b.t.req.until()) - 1
	row := schema.UsageRow{Model: b.row.model, Platform: b.row.platform, Region: b.row.region}
	for _, s := range b.ch.spans[b.name] {
		if s.FromMs <= at && at < s.ToMs {
			row.Rate = s.Rate
		}
	}
	rate := b.ch.rate(&row, at)
	if rate == nil || rate.effective == nil {
		return nil
	}
	return new(big.Rat).Mul(rate.effective, big.NewRat(schema.HourMs, 1))
}

// smallFigures are figures in integers: amounts in their last decimal, -1<<63 = unknown.
type smallFigures struct {
	allocatedMs, activeMs, idleMs, freeMs, unknownMs, unpricedMs, overlapMs, oversubscribedMs int64
	utilization                                                                               schema.Maybe
	energyMj                                                                                  int64
	amounts                                                                                   [len(amountColumns)]int64
}

const noAmount = -1 << 63

var amountScale = new(big.Int).Exp(big.NewInt(10), big.NewInt(pricing.Decimals), nil)

// small fails on what does not fit: nine trillion of the currency, or a thousand years
// of a power station.
func small(f *Figures) (smallFigures, error) {
	s := smallFigures{
		allocatedMs: f.AllocatedMs, activeMs: f.ActiveMs, idleMs: f.IdleMs, freeMs: f.FreeMs, unknownMs: f.UnknownMs, unpricedMs: f.UnpricedMs,
		overlapMs: f.OverlapMs, oversubscribedMs: f.OversubscribedMs, utilization: f.Utilization, energyMj: noAmount,
	}
	if f.EnergyMj != nil {
		if !f.EnergyMj.IsInt64() {
			return s, fmt.Errorf("an energy of %s mJ exceeds 64 bits; ask for a shorter span", f.EnergyMj)
		}
		s.energyMj = f.EnergyMj.Int64()
	}
	for i, column := range amountColumns {
		s.amounts[i] = noAmount
		if x := *column(f); x != nil {
			n := new(big.Int).Mul(x.Num(), amountScale)
			if n.Quo(n, x.Denom()); !n.IsInt64() {
				return s, fmt.Errorf("an amount of %s exceeds 64 bits; ask for a shorter span", x.FloatString(0))
			}
			s.amounts[i] = n.Int64()
		}
	}
	return s, nil
}

// figures is the inverse of small.
func (s *smallFigures) figures() Figures {
	f := Figures{
		AllocatedMs: s.allocatedMs, ActiveMs: s.activeMs, IdleMs: s.idleMs, KnownMs: s.activeMs + s.idleMs, FreeMs: s.freeMs, UnknownMs: s.unknownMs,
		UnpricedMs: s.unpricedMs, OverlapMs: s.overlapMs, OversubscribedMs: s.oversubscribedMs, Utilization: s.utilization,
	}
	if s.energyMj != noAmount {
		f.EnergyMj = big.NewInt(s.energyMj)
	}
	for i, column := range amountColumns {
		if s.amounts[i] != noAmount {
			*column(&f) = new(big.Rat).SetFrac(big.NewInt(s.amounts[i]), amountScale)
		}
	}
	return f
}
