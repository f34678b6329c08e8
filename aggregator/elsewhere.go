package aggregator

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// elsewhere collects by minute the units that have to be computed again because
// something bears on them that is not an event of theirs.
type elsewhere map[int64]map[uint64]struct{}

// add takes the minutes of the copies, without those windows of the unit that are
// being computed already.
func (m elsewhere) add(copies []schema.Copy, unit string, here []Window) {
	for i := range copies {
		c := &copies[i]
		hash := schema.UnitHash(c.Unit)
		for ms := schema.Floor(c.StartMs, schema.MinuteMs); ms < c.EndMs; ms += schema.MinuteMs {
			if c.Unit == unit {
				if _, found := slices.BinarySearchFunc(here, ms, func(w Window, ms int64) int { return cmp.Compare(w.StartMs, ms) }); found {
					continue
				}
			}
			if m[ms] == nil {
				m[ms] = map[uint64]struct{}{}
			}
			m[ms][hash] = struct{}{}
		}
	}
}

// mark marks the places with one mark of GrainCopy per minute.
func (d *Driver) mark(ctx context.Context, tenant string, places elsewhere) error {
	if len(places) == 0 {
		return nil
	}
	marks, id, now := make([]schema.Mark, 0, len(places)), rand.Uint64(), d.o.Now().UnixMilli()
	for ms, units := range places {
		m := schema.Mark{Grain: schema.GrainCopy, Tenant: tenant, WindowMs: ms, ID: id, MarkedAtMs: now}
		for hash := range units {
			m.Units = append(m.Units, hash)
		}
		marks = append(marks, m)
	}
	return d.o.Store.WriteMarks(ctx, marks)
}

// identities turns the marks of corrected identities into marks of the minutes
// where their copies lie, and returns how many there were. They are cleared only
// when those are on disk.
func (d *Driver) identities(ctx context.Context) (int, error) {
	marks, err := d.o.Store.Marks(ctx, schema.GrainIdentity, maxMarks)
	if err != nil {
		return 0, err
	}
	n := len(marks)
	for len(marks) > 0 {
		end := slices.IndexFunc(marks, func(m schema.Mark) bool { return m.Tenant != marks[0].Tenant })
		if end < 0 {
			end = len(marks)
		}
		d.o.At("before-identities")
		copies, err := d.o.Store.Affected(ctx, marks[:end])
		if err != nil {
			return 0, err
		}
		places := elsewhere{}
		places.add(copies, "", nil)
		if err := d.mark(ctx, marks[0].Tenant, places); err != nil {
			return 0, err
		}
		d.o.At("identities-before-clear")
		if err := d.o.Store.ClearMarks(ctx, marks[:end]); err != nil {
			return 0, err
		}
		marks = marks[end:]
	}
	return n, nil
}
