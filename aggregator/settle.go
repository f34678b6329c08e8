package aggregator

import (
	"cmp"
	"slices"

	"github.com/gpumeter/gpumeter/schema"
)

// settled is the events of one unit with what is known of their identities.
type settled struct {
	rows       []row      // each content once, by start
	identities []identity // empty when every row is an identity of its own that nothing else is known of
	components []int      // the last window that counted the corrections of a component
	facts      *schema.Settlement
}

// row is one content of an identity: of its copies the one stored first.
type row struct {
	event          *schema.StoredEvent
	startMs, endMs int64 // of the event, to pass over it without looking at it
	identity       int   // index of identities, -1 = it has none
}

func rowOf(e *schema.StoredEvent, identity int) row { return row{e, e.StartMs, e.EndMs, identity} }

type identity struct {
	of        schema.Identity
	rows      []*schema.StoredEvent // its contents among the events
	contents  int                   // its contents anywhere
	credit    uint64                // of these contents, each by its first copy
	component int                   // of corrections, -1 = none
	window    int                   // the last one that counted it
}

// settle decides which of the events count, and sorts them by start.
func (s *settled) settle(events []schema.StoredEvent, facts *schema.Settlement) {
	slices.SortFunc(events, func(a, b schema.StoredEvent) int {
		if a.StartMs != b.StartMs {
			return cmp.Compare(a.StartMs, b.StartMs)
		}
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Source, b.Source))
	})
	s.rows, s.identities, s.facts = slices.Grow(s.rows[:0], len(events)), s.identities[:0], facts
	clear(s.components)
	if plain(events, facts) {
		for i := range events {
			events[i].Counted = true
			s.rows = append(s.rows, rowOf(&events[i], -1))
		}
		return
	}
	byIdentity := make([]*schema.StoredEvent, len(events))
	for i := range events {
		byIdentity[i] = &events[i]
	}
	slices.SortFunc(byIdentity, func(a, b *schema.StoredEvent) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID), orderOf(a).Compare(orderOf(b)))
	})
	for i := 0; i < len(byIdentity); {
		j := i + 1
		for j < len(byIdentity) && byIdentity[j].Identity() == byIdentity[i].Identity() {
			j++
		}
		s.add(byIdentity[i:j])
		i = j
	}
	slices.SortFunc(s.rows, func(a, b row) int { return cmp.Compare(a.startMs, b.startMs) })
}

func orderOf(e *schema.StoredEvent) schema.Order { return schema.OrderOf(&e.Position, e.Payload) }

// plain says that all identities differ and nothing else is known of any. It
// looks at neighbours only: ids of agents rise with the start, and events that
// are not plain but look otherwise only take the longer way.
func plain(events []schema.StoredEvent, facts *schema.Settlement) bool {
	for i := range events {
		e := &events[i]
		if i > 0 && events[i-1].ID >= e.ID && (events[i-1].ID > e.ID || events[i-1].Source >= e.Source) {
			return false
		}
		if facts != nil && (len(facts.Copies(e.Identity())) > 0 || facts.Standing(e.Identity()).Component >= 0) {
			return false
		}
	}
	return true
}

// add takes the copies of one identity, first stored first.
func (s *settled) add(copies []*schema.StoredEvent) {
	id := identity{of: copies[0].Identity()}
	first := orderOf(copies[0])
	elsewhere := s.facts.Copies(id.of)
	if len(elsewhere) > 0 && elsewhere[0].Order().Compare(first) < 0 {
		first = elsewhere[0].Order()
	}
	standing := s.facts.Standing(id.of)
	for _, e := range copies {
		e.Counted = false
		if slices.ContainsFunc(id.rows, func(have *schema.StoredEvent) bool { return have.Payload == e.Payload }) {
			continue
		}
		e.Counted = e.Payload == first.Payload && standing.Counts()
		id.rows = append(id.rows, e)
		s.rows = append(s.rows, rowOf(e, len(s.identities)))
	}
	id.contents, id.component = len(id.rows), standing.Component
	for _, e := range id.rows {
		storedAt := e.StoredAtNs
		if at := slices.IndexFunc(elsewhere, func(c schema.Copy) bool { return c.Payload == e.Payload }); at >= 0 {
			storedAt = min(storedAt, elsewhere[at].StoredAtNs)
		}
		id.credit += schema.Credit(storedAt)
	}
	for i := range elsewhere {
		if !slices.ContainsFunc(id.rows, func(have *schema.StoredEvent) bool { return have.Payload == elsewhere[i].Payload }) {
			id.contents++
			id.credit += schema.Credit(elsewhere[i].StoredAtNs)
		}
	}
	if n := id.component + 1; n > len(s.components) {
		s.components = append(s.components, make([]int, n-len(s.components))...)
	}
	s.identities = append(s.identities, id)
}

// weight is what a row adds to the version of a window: the contents of its
// identity and the corrections that bear on it, unless the window has them.
func (s *settled) weight(r *row, window int) uint64 {
	if r.identity < 0 {
		return schema.Credit(r.event.StoredAtNs)
	}
	id := &s.identities[r.identity]
	if id.window == window {
		return 0
	}
	id.window = window
	n := id.credit
	if c := id.component; c >= 0 && s.components[c] != window {
		s.components[c] = window
		n += s.facts.Corrections(c)
	}
	return n
}

// contradicted returns the copies of those identities that have several
// contents, here and elsewhere.
func (s *settled) contradicted(list []schema.Copy) []schema.Copy {
	for i := range s.identities {
		id := &s.identities[i]
		if id.contents < 2 {
			continue
		}
		for _, e := range id.rows {
			list = append(list, schema.Copy{Identity: id.of, Unit: e.Unit, StartMs: e.StartMs, EndMs: e.EndMs, Payload: e.Payload, Position: e.Position})
		}
		list = append(list, s.facts.Copies(id.of)...)
	}
	return list
}
