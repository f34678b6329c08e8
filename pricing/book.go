package pricing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// AnyModel as the model of an entry stands for every model that has no valid
// entry of its own, including units that name no model. It is the only
// wildcard: a price for unlisted hardware exists only where somebody wrote it.
const AnyModel = "*"

// Unbounded validity of an entry.
const (
	Always  = math.MinInt64 // FromMs of an entry that has no valid_from
	Forever = math.MaxInt64 // ToMs of an entry that has no valid_to
)

// Book is a price list. The zero Book and a nil *Book price nothing.
//
// A Book is not changed after it was made; it may be used by many goroutines.
type Book struct {
	Currency string  // ISO 4217 code; empty in an empty book
	Entries  []Entry // in the order of the file
	// Hash is the price version: the SHA-256 of what the book says, in
	// hexadecimal. Order, comments and spelling (3.6 or "3.60") do not change it.
	Hash string

	index map[key][]*Entry // by FromMs; validities in one list never overlap
}

// Entry is the price of one kind of unit during [FromMs, ToMs).
type Entry struct {
	Model      string // exact name, or AnyModel
	Platform   string // empty = any platform
	Region     string // empty = any region
	PerGPUHour *big.Rat
	PerGPU     *big.Rat
	FromMs     int64 // Always when the file has no valid_from
	ToMs       int64 // exclusive; Forever when the file has no valid_to
	Line       int   // where the entry begins in its file, from 1
}

type key struct{ model, platform, region string }

func (e *Entry) key() key { return key{e.Model, e.Platform, e.Region} }

// Price is the price of one GPU-hour and the entry that set it.
type Price struct {
	PerGPUHour *big.Rat
	Entry      *Entry
}

// newBook indexes entries that are valid each by itself. The errors name
// entries whose validities overlap: both would claim the same instant.
func newBook(currency string, entries []Entry) (*Book, []*Fault) {
	b := &Book{Currency: currency, Entries: entries, index: map[key][]*Entry{}}
	for i := range entries {
		k := entries[i].key()
		b.index[k] = append(b.index[k], &entries[i])
	}
	var faults []*Fault
	for _, list := range b.index {
		slices.SortFunc(list, func(x, y *Entry) int {
			return cmp.Or(cmp.Compare(x.FromMs, y.FromMs), cmp.Compare(x.Line, y.Line))
		})
		for i := 1; i < len(list); i++ {
			if list[i].FromMs < list[i-1].ToMs {
				faults = append(faults, overlap(list[i-1], list[i]))
			}
		}
	}
	b.Hash = b.hash()
	return b, faults
}

func overlap(a, b *Entry) *Fault {
	first, second := min(a.Line, b.Line), max(a.Line, b.Line)
	return &Fault{Line: second, Msg: fmt.Sprintf(
		"the entries of lines %d and %d are both valid from %s for the same model, platform and region; end the earlier one with valid_to",
		first, second, instantText(b.FromMs))}
}

// Price returns the price of a unit at an instant, and false when there is none.
//
// Among the entries valid at that instant the most specific one wins: an entry
// of the model before an AnyModel entry; then one with platform and region,
// with platform, with region, with neither. An empty platform, region or model
// of the unit matches only entries that leave it open.
func (b *Book) Price(model, platform, region string, atMs int64) (Price, bool) {
	if b == nil {
		return Price{}, false
	}
	for _, m := range [...]string{model, AnyModel} {
		for _, k := range [...]key{{m, platform, region}, {m, platform, ""}, {m, "", region}, {m, "", ""}} {
			if e := at(b.index[k], atMs); e != nil {
				return Price{PerGPUHour: e.PerGPUHour, Entry: e}, true
			}
		}
	}
	return Price{}, false
}

// at returns the entry of the list that is valid at the instant, or nil.
func at(list []*Entry, atMs int64) *Entry {
	i, found := slices.BinarySearchFunc(list, atMs, func(e *Entry, ms int64) int { return cmp.Compare(e.FromMs, ms) })
	if !found {
		i--
	}
	if i < 0 || atMs >= list[i].ToMs {
		return nil
	}
	return list[i]
}

// Cuts returns the instants inside (fromMs, toMs) at which any price begins or
// ends, rising, none twice. Between two of them no price changes.
func (b *Book) Cuts(fromMs, toMs int64) []int64 {
	if b == nil {
		return nil
	}
	var cuts []int64
	for i := range b.Entries {
		for _, ms := range [...]int64{b.Entries[i].FromMs, b.Entries[i].ToMs} {
			if ms > fromMs && ms < toMs {
				cuts = append(cuts, ms)
			}
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// hash digests the entries in a canonical order. Every text is preceded by its
// length, so that no two books share a digest by moving a boundary.
func (b *Book) hash() string {
	lines := make([]string, 0, len(b.Entries))
	for i := range b.Entries {
		e := &b.Entries[i]
		lines = append(lines, fmt.Sprintf("%d:%s%d:%s%d:%s%s %d %d", len(e.Model), e.Model, len(e.Platform), e.Platform,
			len(e.Region), e.Region, e.PerGPUHour.RatString(), e.FromMs, e.ToMs))
	}
	slices.Sort(lines)
	h := sha256.New()
	fmt.Fprintf(h, "gpumeter prices 1\n%s\n", b.Currency)
	for _, l := range lines {
		fmt.Fprintf(h, "%d:%s\n", len(l), l)
	}
	return hex.EncodeToString(h.Sum(nil))
}
