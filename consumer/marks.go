package consumer

import (
	"cmp"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// touched collects which units have to be computed again in which minutes.
type touched struct {
	minutes map[minute]*units
	n       int // units of all minutes together
}

type minute struct {
	tenant string
	ms     int64
}

// units is a set of unit hashes. Events of one message often repeat the unit, so
// the last one is looked at before the set.
type units struct {
	list []uint64
	seen map[uint64]struct{}
}

func (t *touched) reset() {
	clear(t.minutes)
	t.n = 0
}

func (t *touched) add(tenant string, u *schema.Usage) {
	hash := schema.UnitHash(u.Unit)
	for ms := schema.Floor(u.StartMs, schema.MinuteMs); ms < u.EndMs; ms += schema.MinuteMs {
		set := t.minutes[minute{tenant, ms}]
		if set == nil {
			set = &units{seen: map[uint64]struct{}{}}
			t.minutes[minute{tenant, ms}] = set
		}
		if _, ok := set.seen[hash]; !ok {
			set.seen[hash] = struct{}{}
			set.list = append(set.list, hash)
			t.n++
		}
	}
}

// marks returns one mark per minute, in order.
func (t *touched) marks(id func() uint64, nowMs int64) []schema.Mark {
	marks := make([]schema.Mark, 0, len(t.minutes))
	flush := id()
	for m, set := range t.minutes {
		marks = append(marks, schema.Mark{
			Grain: schema.GrainMinute, Tenant: m.tenant, WindowMs: m.ms, ID: flush, Units: set.list, MarkedAtMs: nowMs,
		})
	}
	slices.SortFunc(marks, func(a, b schema.Mark) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.WindowMs, b.WindowMs))
	})
	return marks
}
