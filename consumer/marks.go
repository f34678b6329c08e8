package consumer

import (
	"cmp"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// touched collects which units have to be computed again in which minutes, and
// which identities were corrected. Where the copies of those lie is not known
// here: whoever computes looks for them.
type touched struct {
	minutes   map[minute]*units
	corrected map[string]*units // by tenant, hashes of identities
	n         int               // units of all minutes and identities together
}

func newTouched() touched {
	return touched{minutes: map[minute]*units{}, corrected: map[string]*units{}}
}

type minute struct {
	tenant string
	ms     int64
}

// units is a set of hashes, in the order in which they came.
type units struct {
	list []uint64
	seen map[uint64]struct{}
}

func (t *touched) reset() {
	clear(t.minutes)
	clear(t.corrected)
	t.n = 0
}

// correct takes a correction: the identity that it corrects, and the minutes of
// the event that it puts in place of it.
func (t *touched) correct(tenant string, c *schema.Correction) {
	set := t.corrected[tenant]
	if set == nil {
		set = &units{seen: map[uint64]struct{}{}}
		t.corrected[tenant] = set
	}
	t.put(set, schema.IdentityHash(schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID}))
	if c.Replacement != nil && c.Replacement.Usage != nil {
		t.add(tenant, c.Replacement.Usage)
	}
}

func (t *touched) put(set *units, hash uint64) {
	if _, ok := set.seen[hash]; !ok {
		set.seen[hash] = struct{}{}
		set.list = append(set.list, hash)
		t.n++
	}
}

func (t *touched) add(tenant string, u *schema.Usage) {
	hash := schema.UnitHash(u.Unit)
	for ms := schema.Floor(u.StartMs, schema.MinuteMs); ms < u.EndMs; ms += schema.MinuteMs {
		set := t.minutes[minute{tenant, ms}]
		if set == nil {
			set = &units{seen: map[uint64]struct{}{}}
			t.minutes[minute{tenant, ms}] = set
		}
		t.put(set, hash)
	}
}

// marks returns one mark per minute and one per tenant with corrections, in order.
func (t *touched) marks(id func() uint64, nowMs int64) []schema.Mark {
	marks := make([]schema.Mark, 0, len(t.minutes)+len(t.corrected))
	flush := id()
	for m, set := range t.minutes {
		marks = append(marks, schema.Mark{
			Grain: schema.GrainMinute, Tenant: m.tenant, WindowMs: m.ms, ID: flush, Units: set.list, MarkedAtMs: nowMs,
		})
	}
	for tenant, set := range t.corrected {
		marks = append(marks, schema.Mark{Grain: schema.GrainIdentity, Tenant: tenant, ID: flush, Units: set.list, MarkedAtMs: nowMs})
	}
	slices.SortFunc(marks, func(a, b schema.Mark) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.WindowMs, b.WindowMs))
	})
	return marks
}
