package app

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// ratedStore answers what there is to rate: the leases, meters and outages of a tenant,
// settled like usage is.
type ratedStore struct{ *usageStore }

// Usage implements report.Rated. What is open ends at nowMs, or at asOfMs if that is
// earlier and not 0.
func (s ratedStore) Usage(ctx context.Context, tenant string, asOfMs, nowMs int64) (*pricing.Usage, error) {
	if asOfMs > 0 {
		nowMs = min(nowMs, asOfMs)
	}
	return s.usage(ctx, tenant, nil, asOfMs, nowMs)
}

// some is Usage of some instances, or of all when instances is nil.
func (s ratedStore) some(ctx context.Context, tenant string, instances []string, nowMs int64) (*pricing.Usage, error) {
	return s.usage(ctx, tenant, instances, 0, nowMs)
}

func (s ratedStore) usage(ctx context.Context, tenant string, instances []string, asOfMs, nowMs int64) (*pricing.Usage, error) {
	var lines [][]schema.LeaseSegment
	var meters, outages []schema.StoredOther
	g, within := errgroup.WithContext(ctx)
	g.Go(func() (err error) { lines, err = s.timelines(within, tenant, instances, asOfMs); return err })
	g.Go(func() (err error) {
		meters, err = s.settledOthers(within, s.db.Meters, tenant, instances, nowMs, asOfMs)
		return err
	})
	g.Go(func() (err error) {
		outages, err = s.settledOthers(within, s.db.Outages, tenant, nil, nowMs, asOfMs)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	u := &pricing.Usage{NowMs: nowMs}
	for _, line := range lines {
		if r := rentalOf(line, nowMs); len(r.Segments) > 0 {
			u.Rentals = append(u.Rentals, r)
		}
	}
	for i := range meters {
		if m := meters[i].Meter; m.EndMs <= nowMs {
			reading, err := readingOf(&meters[i], lines)
			if err != nil {
				return nil, err
			}
			u.Readings = append(u.Readings, *reading)
		}
	}
	for i := range outages {
		o := outages[i].Outage
		u.Outages = append(u.Outages, pricing.Outage{
			Span: pricing.Span{FromMs: o.StartMs, ToMs: min(o.EndMs, nowMs)}, Platform: o.Platform, Region: o.Region, Instance: o.Instance, Reason: o.Reason,
			Evidence: hex.EncodeToString(outages[i].Payload[:]),
		})
	}
	return u, nil
}

func exactText(x *big.Rat) string {
	if x == nil {
		return ""
	}
	return pricing.Exact(x)
}

// rentalOf is a timeline as far as it has happened.
func rentalOf(line []schema.LeaseSegment, nowMs int64) *pricing.Rental {
	r := &pricing.Rental{Instance: line[0].Instance}
	for i := range line {
		s := &line[i]
		if s.FromMs >= nowMs {
			break
		}
		r.Segments = append(r.Segments, pricing.Segment{
			Span: pricing.Span{FromMs: s.FromMs, ToMs: min(s.ToMs, nowMs)}, State: s.State, Project: s.Project, Platform: s.Platform, Region: s.Region, Model: s.Model,
			SKU: s.SKU, Plan: s.Plan, Tenancy: s.Tenancy, DCTier: s.DCTier, Workload: s.Workload, Labels: s.Labels, Gpus: s.Gpus,
			Evidence: hex.EncodeToString(s.Payload[:]),
		})
	}
	return r
}

// readingOf is a meter event; what it does not say of its owner the lease of its
// instance does.
func readingOf(e *schema.StoredOther, lines [][]schema.LeaseSegment) (*pricing.Reading, error) {
	m := e.Meter
	quantity, ok := new(big.Rat).SetString(m.Quantity)
	if !ok {
		return nil, fmt.Errorf("meter event %s/%s: the stored quantity %q is no decimal", m.Source, m.ID, m.Quantity)
	}
	r := &pricing.Reading{
		Span: pricing.Span{FromMs: m.StartMs, ToMs: m.EndMs}, Meter: m.Meter, Quantity: quantity, Instance: m.Instance, Project: m.Project,
		Evidence: hex.EncodeToString(e.Payload[:]),
	}
	at, found := slices.BinarySearchFunc(lines, m.Instance, func(line []schema.LeaseSegment, name string) int { return cmp.Compare(line[0].Instance, name) })
	if !found {
		return r, nil
	}
	for i := range lines[at] {
		if s := &lines[at][i]; s.FromMs <= m.StartMs && m.StartMs < s.ToMs || i == 0 && m.StartMs < s.FromMs {
			r.Project, r.Platform, r.Region, r.Labels = cmp.Or(m.Project, s.Project), s.Platform, s.Region, s.Labels
		}
	}
	return r, nil
}

// settledOthers returns the events that count, one for each identity.
func (s *usageStore) settledOthers(ctx context.Context, read func(context.Context, string, []string, int64, int64) ([]schema.StoredOther, error), tenant string, instances []string, toMs, asOfMs int64) ([]schema.StoredOther, error) {
	events, err := read(ctx, tenant, instances, toMs, asOfMs)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	ids := make([]schema.Identity, len(events))
	claims := make([]schema.Claim, len(events))
	for i := range events {
		e := &events[i]
		ids[i] = e.Event.Header().Identity()
		claims[i] = schema.Claim{Identity: ids[i], Order: schema.OrderOf(&e.Position, e.Payload)}
	}
	facts, err := s.db.Settlement(ctx, tenant, ids, asOfMs)
	if err != nil {
		return nil, err
	}
	counted := facts.Counted(claims)
	var settled []schema.StoredOther
	for i := range events {
		if counted[i] {
			settled = append(settled, events[i])
		}
	}
	compare := func(a, b schema.StoredOther) int {
		x, y := a.Event.Header().Identity(), b.Event.Header().Identity()
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.ID, y.ID))
	}
	slices.SortFunc(settled, func(a, b schema.StoredOther) int {
		return cmp.Or(compare(a, b), schema.OrderOf(&a.Position, a.Payload).Compare(schema.OrderOf(&b.Position, b.Payload)))
	})
	return slices.CompactFunc(settled, func(a, b schema.StoredOther) bool { return compare(a, b) == 0 }), nil
}
