package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// The ledger keeps what was charged: entries that book a line or take one back, and are
// never changed. What a line says now and what the ledger says of it differ only until
// the next booking; then a line that changed is taken back whole and its new version
// booked, so that every amount that was ever shown stays where it was.

// Posting is an entry of the ledger.
type Posting struct {
	ID        string // of the entry: the same for whoever books the same
	Line      string // digest of the line
	Reversal  bool   // it takes the line back
	Number    int    // how many entries the line had before
	HorizonMs int64  // until when everything was booked by this entry's booking
	// Correction says that the line is of a time that had been booked before.
	Correction bool
	Of         *Line // nil for a reversal that was read back
}

// Posted is what the ledger says of a line.
type Posted struct {
	Line       string
	Instance   string
	Commitment string
	Entries    int   // that the line has; odd = it is booked, and not taken back since
	HorizonMs  int64 // the latest of its entries
}

// owner is what is booked as one.
type owner struct{ instance, commitment string }

// Settled returns the lines that do not become longer as time goes by: those that end
// before the instant that they were rated at, and of amounts that a platform rounds
// together only those of settlements that are over.
func (t *Terms) Settled(lines []Line, nowMs int64) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool {
		switch {
		case l.Category == CategoryPurchase:
			return l.FromMs >= nowMs
		case l.ToMs >= nowMs:
			return true
		}
		p := t.Profile(l.Segment.Platform)
		alone := l.Meter != MeterGPU || l.Commitment != "" || p.Amount.Rounding == "" || p.Settle == "" || l.Settlements > 1
		return !alone && p.Settle.next(l.FromMs, p.Zone) > nowMs
	})
}

// Midnights returns the cuts at which the ledger divides lines in a time: those of UTC,
// with the last one before it and the first one after. A line of an instance that runs on
// ends there, so that what it says of a day is said once and for all.
func Midnights(span Span) []int64 {
	var list []int64
	at := span.FromMs - span.FromMs%dayMs
	for ; at < span.ToMs; at += dayMs {
		list = append(list, at)
	}
	return append(list, at)
}

// Begins returns when the first of what is rated does: a rental, a reading, or what a
// contract buys; false when there is nothing.
func (t *Terms) Begins(u *Usage) (int64, bool) {
	first := int64(Forever)
	for _, r := range u.Rentals {
		if len(r.Segments) > 0 {
			first = min(first, r.Segments[0].FromMs)
		}
	}
	for i := range u.Readings {
		first = min(first, u.Readings[i].FromMs)
	}
	if t != nil {
		for _, c := range t.Contracts {
			if len(c.Commitments)+len(c.Quotes)+len(c.Credits) > 0 {
				first = min(first, int64(c.From))
			}
		}
	}
	return first, first != Forever
}

// Alone says whether the lines of an instance on a platform depend on no other one.
func (t *Terms) Alone(platform string) bool {
	if t == nil {
		return true
	}
	return !slices.ContainsFunc(t.Contracts, func(c *Contract) bool {
		return c.Platform == platform && (len(c.Commitments)+len(c.Quotes) > 0 || slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.MinGpus > 0 || len(r.With) > 0 }))
	})
}

// Post returns the entries that make the ledger say what lines do. Lines that it has
// and that are not among them are taken back; it has to be given only what posted is
// about. Without a difference there are none.
func Post(lines []Line, posted []Posted, horizonMs int64) []Posting {
	known := make(map[string]*Posted, len(posted))
	booked := map[owner]int64{} // until when an owner's lines were booked before
	for i := range posted {
		p := &posted[i]
		known[p.Line] = p
		of := owner{p.Instance, p.Commitment}
		booked[of] = max(booked[of], p.HorizonMs)
	}
	var list []Posting
	wanted := make(map[string]bool, len(lines))
	for i := range lines {
		l := &lines[i]
		digest := l.Digest()
		if wanted[digest] {
			continue // it says the same twice: such as two readings of nothing
		}
		wanted[digest] = true
		p := known[digest]
		if p != nil && p.Entries%2 == 1 {
			continue
		}
		e := Posting{Line: digest, HorizonMs: horizonMs, Of: l, Correction: l.ToMs <= booked[owner{l.Instance, l.Commitment}]}
		if p != nil {
			e.Number = p.Entries
		}
		list = append(list, e.named())
	}
	for i := range posted {
		if p := &posted[i]; p.Entries%2 == 1 && !wanted[p.Line] {
			e := Posting{Line: p.Line, Reversal: true, Number: p.Entries, HorizonMs: horizonMs, Correction: true}
			list = append(list, e.named())
		}
	}
	slices.SortFunc(list, func(a, b Posting) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// named gives an entry the name that everybody gives to it, so that two who book at
// once, or one who books again after a crash, book it once.
func (e Posting) named() Posting {
	sum := sha256.Sum256(fmt.Appendf(nil, "gpumeter entry 1 %s %d", e.Line, e.Number))
	e.ID = hex.EncodeToString(sum[:16])
	return e
}
