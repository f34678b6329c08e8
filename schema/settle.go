package schema

import (
	"cmp"
	"slices"
)

// Copy is one content of a usage identity: where it lies and when it was stored.
type Copy struct {
	Identity
	Unit    string
	StartMs int64
	EndMs   int64
	Payload Hash
	Position
}

// Order returns when the copy was stored.
func (c *Copy) Order() Order { return OrderOf(&c.Position, c.Payload) }

// StoredCorrection is a correction as it is stored.
type StoredCorrection struct {
	By              Identity // of the correction itself
	Payload         Hash
	Target          Identity // what it corrects
	Action          string
	Replacement     Identity // of the event that counts instead; zero when retracted
	ReplacementType string   // type of that event
	Actor           string
	Reason          string
	Position
}

// Order returns when the correction was stored.
func (c *StoredCorrection) Order() Order { return OrderOf(&c.Position, c.Payload) }

// Facts are what decides about identities beside the events at hand. Both lists
// may hold repetitions and come in any order. Copies of an identity are all or
// none of those that are not at hand; Corrections hold whole components: with a
// correction, all that name its target, its replacement or itself, and so on.
type Facts struct {
	Copies      []Copy
	Corrections []StoredCorrection
}

// Settlement answers which identities count. The rules do not depend on the
// order in which facts arrive:
//
//   - Of several contents of one identity the one stored first counts, be they
//     events or corrections.
//   - Of several corrections of one identity the replacement stored first takes
//     effect, or, when none replaces it, the retraction stored first: whoever takes
//     something back may still put something in its place. The identity then counts
//     nothing, in all of its copies.
//   - An identity that corrections name as their replacement counts only if one
//     of them takes effect and what that one corrects is not itself a
//     replacement that does not count. In a circle nothing counts.
//
// A nil Settlement knows no facts: everything counts.
type Settlement struct {
	copies     map[Identity][]Copy
	identities map[Identity]*corrected
	components []uint64 // sum of the credits of the corrections in each
}

// corrected is an identity that corrections are about.
type corrected struct {
	component int
	by        []*StoredCorrection // that correct it, the one that takes effect first; those of a second content left out
	invalid   []*StoredCorrection // that would correct it and are a second content of their own identity
	as        []*StoredCorrection // that name it as replacement, first stored first
	live      bool                // no replacement, or one that takes effect
}

// Standing is what is known of an identity.
type Standing struct {
	// By is the correction that took the identity out; nil when there is none.
	By *StoredCorrection
	// Void is the correction whose replacement the identity is, when none such
	// takes effect.
	Void *StoredCorrection
	// Component numbers the corrections that bear on the identity, -1 = none.
	// See [Settlement.Corrections].
	Component int
}

// Counts says whether the identity counts at all.
func (s Standing) Counts() bool { return s.By == nil && s.Void == nil }

// Settle draws the conclusions. It returns nil when there are no facts.
func (f *Facts) Settle() *Settlement {
	if f == nil || len(f.Copies) == 0 && len(f.Corrections) == 0 {
		return nil
	}
	s := &Settlement{copies: map[Identity][]Copy{}, identities: map[Identity]*corrected{}}
	for _, c := range f.Copies {
		s.copies[c.Identity] = addCopy(s.copies[c.Identity], c)
	}
	s.correct(distinctCorrections(f.Corrections))
	return s
}

// addCopy keeps the list distinct by content and in the order of storing.
func addCopy(list []Copy, c Copy) []Copy {
	if i := slices.IndexFunc(list, func(have Copy) bool { return have.Payload == c.Payload }); i >= 0 {
		if have := list[i]; have.Order().Compare(c.Order()) <= 0 {
			return list
		}
		list = slices.Delete(list, i, i+1)
	}
	at, _ := slices.BinarySearchFunc(list, c, func(a, b Copy) int { return a.Order().Compare(b.Order()) })
	return slices.Insert(list, at, c)
}

// distinctCorrections returns each content once, by identity and first stored
// first.
func distinctCorrections(list []StoredCorrection) []*StoredCorrection {
	type content struct {
		by      Identity
		payload Hash
	}
	first := map[content]*StoredCorrection{}
	for i := range list {
		c := &list[i]
		k := content{c.By, c.Payload}
		if have := first[k]; have == nil || c.Order().Compare(have.Order()) < 0 {
			first[k] = c
		}
	}
	distinct := make([]*StoredCorrection, 0, len(first))
	for _, c := range first {
		distinct = append(distinct, c)
	}
	slices.SortFunc(distinct, func(a, b *StoredCorrection) int {
		return cmp.Or(cmp.Compare(a.By.Source, b.By.Source), cmp.Compare(a.By.ID, b.By.ID), a.Order().Compare(b.Order()))
	})
	return distinct
}

func (s *Settlement) correct(list []*StoredCorrection) {
	at := func(i Identity) *corrected {
		c := s.identities[i]
		if c == nil {
			c = &corrected{component: -1}
			s.identities[i] = c
		}
		return c
	}
	valid := make([]bool, len(list))
	for i, c := range list {
		valid[i] = i == 0 || list[i-1].By != c.By
		target := at(c.Target)
		if valid[i] {
			target.by = append(target.by, c)
		} else {
			target.invalid = append(target.invalid, c)
		}
		if c.Replacement != (Identity{}) {
			r := at(c.Replacement)
			r.as = append(r.as, c)
		}
	}
	inOrder := func(a, b *StoredCorrection) int { return a.Order().Compare(b.Order()) }
	for _, c := range s.identities {
		slices.SortFunc(c.by, func(a, b *StoredCorrection) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), inOrder(a, b)) })
		slices.SortFunc(c.invalid, inOrder)
		slices.SortFunc(c.as, inOrder)
	}
	s.enliven()
	s.join(list)
}

// rank is 0 for a correction that replaces, which comes before any that does not.
func rank(c *StoredCorrection) int {
	if c.Replacement != (Identity{}) {
		return 0
	}
	return 1
}

// enliven finds the identities that are alive: beginning with those that nobody
// names as replacement, along the corrections that take effect. What lies on a
// circle is never reached.
func (s *Settlement) enliven() {
	var reached []*corrected
	for _, c := range s.identities {
		if c.live = len(c.as) == 0; c.live {
			reached = append(reached, c)
		}
	}
	for len(reached) > 0 {
		c := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		if len(c.by) == 0 || c.by[0].Replacement == (Identity{}) {
			continue
		}
		if next := s.identities[c.by[0].Replacement]; !next.live {
			next.live = true
			reached = append(reached, next)
		}
	}
}

// join numbers the components: identities that a correction names belong together,
// and so do the contents of one correction.
func (s *Settlement) join(list []*StoredCorrection) {
	parent := make([]int, len(list))
	var root func(i int) int
	root = func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[Identity]int{} // a correction that names the identity
	for i, c := range list {
		parent[i] = i
		for _, id := range [...]Identity{c.By, c.Target, c.Replacement} {
			if id == (Identity{}) {
				continue
			}
			if other, ok := first[id]; ok {
				parent[root(i)] = root(other)
			} else {
				first[id] = i
			}
		}
	}
	number := map[int]int{}
	for i, c := range list {
		r := root(i)
		if _, ok := number[r]; !ok {
			number[r] = len(s.components)
			s.components = append(s.components, 0)
		}
		s.components[number[r]] += Credit(c.StoredAtNs)
	}
	for id, c := range s.identities {
		c.component = number[root(first[id])]
	}
}

// Copies returns the known copies of an identity, each content once, first stored
// first. The caller may not change them.
func (s *Settlement) Copies(id Identity) []Copy {
	if s == nil {
		return nil
	}
	return s.copies[id]
}

// Standing returns what corrections say of an identity.
func (s *Settlement) Standing(id Identity) Standing {
	if s == nil {
		return Standing{Component: -1}
	}
	c := s.identities[id]
	if c == nil {
		return Standing{Component: -1}
	}
	standing := Standing{Component: c.component}
	if len(c.by) > 0 {
		standing.By = c.by[0]
	}
	if !c.live {
		standing.Void = c.as[0]
	}
	return standing
}

// Corrections returns the sum of the credits of the corrections, second contents
// included, that bear on the identities of a component.
func (s *Settlement) Corrections(component int) uint64 { return s.components[component] }

// CorrectionsOf returns the corrections of an identity, the one that takes effect
// first, second contents of a correction last.
func (s *Settlement) CorrectionsOf(id Identity) []*StoredCorrection {
	if s == nil || s.identities[id] == nil {
		return nil
	}
	c := s.identities[id]
	return slices.Concat(c.by, c.invalid)
}

// Explain says what bears on a stored copy of an identity; nil when nothing does.
func (s *Settlement) Explain(claim Claim) *Settled {
	if s == nil {
		return nil
	}
	standing := s.Standing(claim.Identity)
	e := Settled{By: standing.By, Void: standing.Void}
	if known := s.copies[claim.Identity]; len(known) > 0 && known[0].Payload != claim.Payload && known[0].Order().Compare(claim.Order) < 0 {
		e.First = &known[0]
	}
	if c := s.identities[claim.Identity]; c != nil {
		e.Corrections = slices.Concat(c.by, c.invalid, c.as)
		slices.SortFunc(e.Corrections, func(a, b *StoredCorrection) int { return a.Order().Compare(b.Order()) })
		e.Corrections = slices.Compact(e.Corrections)
	}
	if e.First == nil && e.By == nil && e.Void == nil && e.Corrections == nil {
		return nil
	}
	return &e
}

// Effective says whether a correction takes effect.
func (s *Settlement) Effective(c *StoredCorrection) bool {
	by := s.Standing(c.Target).By
	return by != nil && by.By == c.By && by.Payload == c.Payload
}

// Claim is one stored copy of an event of any type.
type Claim struct {
	Identity
	Order
}

// Counted says of each claim whether it counts: whether it has the content that
// was stored first, among the claims and the copies that the settlement knows,
// and its identity is not taken out by a correction.
func (s *Settlement) Counted(claims []Claim) []bool {
	first := make(map[Identity]Order, len(claims))
	for i := range claims {
		c := &claims[i]
		if have, ok := first[c.Identity]; !ok || c.Order.Compare(have) < 0 {
			first[c.Identity] = c.Order
		}
	}
	counted := make([]bool, len(claims))
	for i := range claims {
		c := &claims[i]
		best := first[c.Identity]
		if known := s.Copies(c.Identity); len(known) > 0 && known[0].Order().Compare(best) < 0 {
			best = known[0].Order()
		}
		counted[i] = c.Payload == best.Payload && s.Standing(c.Identity).Counts()
	}
	return counted
}
