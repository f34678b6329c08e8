package aggregator

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// DefaultGpus is how many GPUs a lease holds when none of its events says so.
const DefaultGpus = 1

// SettleLeases returns the lease events that count, one per identity: of its
// contents the one stored first, unless a correction takes the identity out (see
// [schema.Settlement]; nil knows no corrections). The order of the answer is that
// of the identities.
func SettleLeases(events []schema.StoredLease, facts *schema.Settlement) []schema.StoredLease {
	claims := make([]schema.Claim, len(events))
	for i := range events {
		e := &events[i]
		claims[i] = schema.Claim{Identity: e.Identity(), Order: schema.OrderOf(&e.Position, e.Payload)}
	}
	counted := facts.Counted(claims)
	var settled []schema.StoredLease
	for i := range events {
		if counted[i] {
			settled = append(settled, events[i])
		}
	}
	slices.SortFunc(settled, func(a, b schema.StoredLease) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID), compareStored(&a, &b))
	})
	return slices.CompactFunc(settled, func(a, b schema.StoredLease) bool { return a.Source == b.Source && a.ID == b.ID })
}

func compareStored(a, b *schema.StoredLease) int {
	return cmp.Or(
		cmp.Compare(a.StoredAtNs, b.StoredAtNs),
		cmp.Compare(a.StreamSequence, b.StreamSequence),
		cmp.Compare(a.Place, b.Place),
		bytes.Compare(a.Payload[:], b.Payload[:]))
}

// Timelines returns the states of every instance that the settled events name,
// by instance and time. The first segment of an instance begins with its first
// event, before which it holds nothing; each ends where the next begins and the
// last is open. What an event leaves out, labels as a whole among it, carries
// over from the event before.
//
// Of several events at one instant all give their attributes and the last one
// its state, in the order of source, the source's own sequence, and id. When the
// stream stored them does not matter: the same events have to give the same
// states however they were delayed.
func Timelines(settled []schema.StoredLease) [][]schema.LeaseSegment {
	slices.SortFunc(settled, func(a, b schema.StoredLease) int {
		return cmp.Or(
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.AtMs, b.AtMs),
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.ID, b.ID))
	})
	var list [][]schema.LeaseSegment
	for from := 0; from < len(settled); {
		to := from + 1
		for to < len(settled) && settled[to].Instance == settled[from].Instance {
			to++
		}
		list = append(list, timeline(settled[from:to]))
		from = to
	}
	return list
}

// timeline makes the segments of one instance from its events in order.
func timeline(events []schema.StoredLease) []schema.LeaseSegment {
	segments := make([]schema.LeaseSegment, 0, len(events))
	now := schema.LeaseSegment{Gpus: DefaultGpus, ToMs: schema.LeaseOpen}
	for i := range events {
		now = after(now, &events[i])
		if n := len(segments); n > 0 && segments[n-1].FromMs == now.FromMs {
			segments[n-1] = now
			continue
		} else if n > 0 {
			segments[n-1].ToMs = now.FromMs
		}
		segments = append(segments, now)
	}
	return segments
}

// after returns the segment that an event begins.
func after(s schema.LeaseSegment, e *schema.StoredLease) schema.LeaseSegment {
	s.FromMs, s.State, s.Source, s.ID, s.Payload, s.Position = e.AtMs, e.State, e.Source, e.ID, e.Payload, e.Position
	s.Instance = e.Instance
	s.Project = cmp.Or(e.Project, s.Project)
	s.Platform = cmp.Or(e.Platform, s.Platform)
	s.Region = cmp.Or(e.Region, s.Region)
	s.Model = cmp.Or(e.Model, s.Model)
	s.SKU = cmp.Or(e.SKU, s.SKU)
	s.Plan = cmp.Or(e.Plan, s.Plan)
	s.Tenancy = cmp.Or(e.Tenancy, s.Tenancy)
	s.DCTier = cmp.Or(e.DCTier, s.DCTier)
	s.Workload = cmp.Or(e.Workload, s.Workload)
	s.Labels = cmp.Or(schema.LabelsJSON(e.Labels), s.Labels)
	if e.Gpus.Known {
		s.Gpus = e.Gpus.Value
	}
	return s
}
