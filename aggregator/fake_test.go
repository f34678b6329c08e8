package aggregator_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit/aggregatortest"
	"github.com/gpumeter/gpumeter/schema"
)

// memory is a Store that keeps everything in maps.
type memory struct {
	mu    sync.Mutex
	raw   []schema.StoredEvent
	fixes []schema.StoredCorrection
	marks []schema.Mark
	sums  map[markKey]int // by mark: written minus cleared
	cells map[cellKey]schema.Cell

	coarse []schema.Interval
}

type markKey struct {
	grain, tenant string
	window        int64
	id            uint64
}

type cellKey struct {
	grain, tenant, unit string
	window              int64
	owner               schema.Owner
}

func keyOf(m schema.Mark) markKey { return markKey{m.Grain, m.Tenant, m.WindowMs, m.ID} }

func (s *memory) write(marks []schema.Mark, sign int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range marks {
		if sign > 0 {
			s.marks = append(s.marks, m)
		}
		s.sums[keyOf(m)] += sign
	}
	return nil
}

func (s *memory) Marks(_ context.Context, grain string, limit int) ([]schema.Mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[markKey]bool{}
	var list []schema.Mark
	for _, m := range s.marks {
		if m.Grain == grain && s.sums[keyOf(m)] > 0 && !seen[keyOf(m)] {
			seen[keyOf(m)] = true
			m.Count, m.Units = len(m.Units), nil
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b schema.Mark) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.WindowMs, b.WindowMs), cmp.Compare(a.ID, b.ID))
	})
	return list[:min(limit, len(list))], nil
}

// unitsOf returns the units that marks name, which stay in storage.
func (s *memory) unitsOf(marks []schema.Mark) map[uint64]bool {
	units := map[uint64]bool{}
	for _, want := range marks {
		for _, m := range s.marks {
			if keyOf(m) == keyOf(want) {
				for _, u := range m.Units {
					units[u] = true
				}
			}
		}
	}
	return units
}

func (s *memory) UnitEvents(_ context.Context, marks []schema.Mark, visit func([]schema.StoredEvent, *schema.Settlement) error) error {
	s.mu.Lock()
	units := s.unitsOf(marks)
	byUnit := map[string][]schema.StoredEvent{}
	for _, e := range s.raw {
		if e.Tenant != marks[0].Tenant || !units[schema.UnitHash(e.Unit)] {
			continue
		}
		if slices.ContainsFunc(marks, func(m schema.Mark) bool { return e.StartMs < m.WindowMs+schema.MinuteMs && e.EndMs > m.WindowMs }) {
			byUnit[e.Unit] = append(byUnit[e.Unit], e)
		}
	}
	facts := s.facts(marks[0].Tenant)
	s.mu.Unlock()
	for _, events := range byUnit {
		if err := visit(events, facts.Settle()); err != nil {
			return err
		}
	}
	return nil
}

// facts returns all that is known of a tenant.
func (s *memory) facts(tenant string) (f schema.Facts) {
	for _, e := range s.raw {
		if e.Tenant == tenant {
			f.Copies = append(f.Copies, schema.Copy{Identity: e.Identity(), Unit: e.Unit, StartMs: e.StartMs, EndMs: e.EndMs, Payload: e.Payload, Position: e.Position})
		}
	}
	for _, c := range s.fixes {
		if c.Tenant == tenant {
			f.Corrections = append(f.Corrections, c)
		}
	}
	return f
}

func (s *memory) Affected(_ context.Context, marks []schema.Mark) ([]schema.Copy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	facts, hashes := s.facts(marks[0].Tenant), s.unitsOf(marks)
	reached := map[schema.Identity]bool{}
	for _, c := range facts.Corrections {
		reached[c.Target] = reached[c.Target] || hashes[schema.IdentityHash(c.Target)]
	}
	for n := -1; n != len(reached); {
		n = len(reached)
		for _, c := range facts.Corrections {
			by := schema.Identity{Source: "by", ID: c.By.Source + "/" + c.By.ID}
			if reached[c.Target] || reached[c.Replacement] || reached[by] {
				reached[c.Target], reached[c.Replacement], reached[by] = true, true, true
				delete(reached, schema.Identity{})
			}
		}
	}
	return slices.DeleteFunc(facts.Copies, func(c schema.Copy) bool { return !reached[c.Identity] }), nil
}

func (s *memory) CoarseSpans(_ context.Context, _ string, fromMs, toMs int64) ([]schema.Interval, error) {
	return slices.DeleteFunc(slices.Clone(s.coarse), func(i schema.Interval) bool { return i.FromMs >= toMs || i.ToMs <= fromMs }), nil
}

func (s *memory) WriteMarks(_ context.Context, marks []schema.Mark) error { return s.write(marks, 1) }

func (s *memory) put(grain, tenant string, c schema.Cell) {
	k := cellKey{grain, tenant, c.Unit, c.WindowMs, c.Owner}
	if have, ok := s.cells[k]; !ok || c.Version >= have.Version {
		s.cells[k] = c
	}
}

func (s *memory) PutMinutes(_ context.Context, tenant string, cells []schema.Cell) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cells {
		s.put(schema.GrainMinute, tenant, c)
	}
	return nil
}

func (s *memory) MarkHours(_ context.Context, marks []schema.Mark, id uint64, nowMs int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range marks {
		h := schema.Mark{Grain: schema.GrainHour, Tenant: m.Tenant, WindowMs: schema.Floor(m.WindowMs, schema.HourMs), ID: id, MarkedAtMs: nowMs}
		for u := range s.unitsOf([]schema.Mark{m}) {
			h.Units = append(h.Units, u)
		}
		if s.sums[keyOf(h)] == 0 {
			s.sums[keyOf(h)] = 1
		}
		s.marks = append(s.marks, h)
	}
	return nil
}

func (s *memory) PutHours(_ context.Context, marks []schema.Mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	units := s.unitsOf(marks)
	hours := map[cellKey]schema.Cell{}
	for k, c := range s.cells {
		window := schema.Floor(k.window, schema.HourMs)
		if k.grain != schema.GrainMinute || k.tenant != marks[0].Tenant || !units[schema.UnitHash(c.Unit)] ||
			!slices.ContainsFunc(marks, func(m schema.Mark) bool { return m.WindowMs == window }) {
			continue
		}
		k.grain, k.window = schema.GrainHour, window
		h := hours[k]
		h.Unit, h.Owner, h.WindowMs = c.Unit, c.Owner, window
		h.Add(&c.Amounts)
		h.Version += c.Version
		hours[k] = h
	}
	for _, h := range hours {
		s.put(schema.GrainHour, marks[0].Tenant, h)
	}
	return nil
}

func (s *memory) ClearMarks(_ context.Context, marks []schema.Mark) error { return s.write(marks, -1) }

func TestMemoryStore(t *testing.T) {
	aggregatortest.Run(t, func(*testing.T) aggregatortest.Subject {
		s := &memory{sums: map[markKey]int{}, cells: map[cellKey]schema.Cell{}}
		return aggregatortest.Subject{
			Store: s,
			AddRaw: func(_ context.Context, events []schema.StoredEvent) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.raw = append(s.raw, events...)
				return nil
			},
			AddCorrection: func(_ context.Context, at schema.Position, c *schema.Correction) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				fix := schema.StoredCorrection{
					By: c.Identity(), Payload: (&schema.Event{Correction: c}).PayloadHash(), Action: c.Action, Actor: c.Actor, Reason: c.Reason, Position: at,
					Target: schema.Identity{Source: c.CorrectsSource, ID: c.CorrectsID},
				}
				if r := c.Replacement; r != nil {
					fix.Replacement, fix.ReplacementType = r.Header().Identity(), r.Type()
					if r.Usage != nil {
						e := schema.StoredEvent{Usage: *r.Usage, Position: at, LabelsText: schema.LabelsJSON(r.Usage.Labels)}
						e.Payload, _ = e.PayloadHash(nil)
						s.raw = append(s.raw, e)
					}
				}
				s.fixes = append(s.fixes, fix)
				return nil
			},
			WriteMarks: s.WriteMarks,
			Amounts: func(_ context.Context, tenant, grain string, fromMs, toMs int64) (map[aggregatortest.Key]aggregatortest.Times, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				sums := map[aggregatortest.Key]aggregatortest.Times{}
				for k, c := range s.cells {
					if k.grain != grain || k.tenant != tenant || k.window < fromMs || k.window >= toMs || c.ActiveMs+c.IdleMs+c.UnknownMs == 0 {
						continue
					}
					key := aggregatortest.Key{Unit: c.Unit, Instance: c.Instance}
					sums[key] = sums[key].Add(aggregatortest.TimesOf(&c.Amounts))
				}
				return sums, nil
			},
		}
	})
}
