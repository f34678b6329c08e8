package pricing

import (
	"cmp"
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
	Currency string       // ISO 4217 code; empty in an empty book
	Entries  []Entry      // in the order of the file
	Meters   []MeterEntry // in the order of the file
	// Hash is the price version: the SHA-256 of what the book says about prices, in
	// hexadecimal. Order, comments, spelling (3.6 or "3.60") and attributes do not
	// change it.
	Hash string

	index  map[key][]*Entry // by FromMs; validities in one list never overlap
	meters map[meterKey][]*MeterEntry
}

// Entry is the price of one kind of unit during [FromMs, ToMs): PerGPUHour or, for a
// plan that is paid by the term, PerGPU. The other one is nil.
type Entry struct {
	SKU      string // exact name of an offer; empty = any unit of the model
	Model    string // exact name, or AnyModel; with a SKU a description, or empty
	Platform string // empty = any platform
	Region   string // empty = any region
	Plan     string // such as spot or month; empty = on demand

	PerGPUHour *big.Rat
	PerGPU     *big.Rat // of one GPU for one Term
	Term       Term     // TermDay to TermYear; empty when the price is per hour
	// PerNode is what the file states when it states the price of a node of
	// GpusPerNode GPUs, per hour or Term; nil when it is per GPU.
	PerNode     *big.Rat
	GpusPerNode int64  // 1..1024; 0 = not said
	Currency    string // of the prices: the book's, unless the entry has its own

	Attributes
	FromMs int64 // Always when the file has no valid_from
	ToMs   int64 // exclusive; Forever when the file has no valid_to
	Line   int   // where the entry begins in its file, from 1
	col    int
}

// Attributes say what an offer is. They are carried along and price nothing; what is
// not said is nil or empty.
type Attributes struct {
	GPUMemoryGiB *big.Rat // of one GPU
	VCPU         *big.Rat // of the offer, as are the next two
	RAMGiB       *big.Rat
	DiskGiB      *big.Rat
	Interconnect string
	DCTier       string
	Tenancy      string
	Source       string // where all of this is written
}

// MeterEntry is the price of a metered quantity during [FromMs, ToMs).
type MeterEntry struct {
	MeterPrice
	Platform string // empty = any platform
	Region   string // empty = any region
	Currency string // of the price: the book's, unless the entry has its own
	FromMs   int64  // Always when the file has no valid_from
	ToMs     int64  // exclusive; Forever when the file has no valid_to
	Line     int    // where the entry begins in its file, from 1
	col      int
}

// Item is what is looked up in a book. What is empty matches only entries that leave
// it open; an empty plan is on demand.
type Item struct{ SKU, Model, Platform, Region, Plan string }

// key is what entries of one price over time have in common.
type key struct{ sku, model, platform, region, plan string }

func (e *Entry) key() key {
	k := key{e.SKU, e.Model, e.Platform, e.Region, e.Plan}
	if k.sku != "" {
		k.model = "" // the offer says which model it is
	}
	return k
}

type meterKey struct{ meter, platform, region string }

func (m *MeterEntry) key() meterKey { return meterKey{m.Meter, m.Platform, m.Region} }

// Price is what a book says of an item: the entry, and its price of one GPU-hour, nil
// when the entry is paid by the term.
type Price struct {
	PerGPUHour *big.Rat
	Entry      *Entry
}

// newBook indexes entries that are valid each by itself. The errors name
// entries whose validities overlap: both would claim the same instant.
func newBook(currency string, entries []Entry, meters ...MeterEntry) (*Book, []*Fault) {
	b := &Book{Currency: currency, Entries: entries, Meters: meters}
	for i := range entries {
		entries[i].Currency = cmp.Or(entries[i].Currency, currency)
	}
	for i := range meters {
		meters[i].Currency = cmp.Or(meters[i].Currency, currency)
	}
	var faults, more []*Fault
	b.index, faults = indexed(entries, (*Entry).key, func(e *Entry) string {
		if e.SKU != "" {
			return "sku, platform, region and plan"
		}
		return "model, platform, region and plan"
	})
	b.meters, more = indexed(meters, (*MeterEntry).key, func(*MeterEntry) string { return "meter, platform and region" })
	b.Hash = b.hash()
	return b, append(faults, more...)
}

// Lookup returns the price of an item at an instant, and false when there is none.
//
// Entries of the item's plan come first; only when none is valid for it do those
// without a plan, which are all per hour. Among the entries of a plan that are valid
// at that instant the most specific one wins: an entry of the SKU before one of the
// model before an AnyModel entry; then one with platform and region, with platform,
// with region, with neither.
func (b *Book) Lookup(i Item, atMs int64) (Price, bool) {
	if b == nil {
		return Price{}, false
	}
	for _, k := range [...]key{{sku: i.SKU, plan: i.Plan}, {model: i.Model, plan: i.Plan}, {model: AnyModel, plan: i.Plan}} {
		if e := b.narrowest(k, i.Platform, i.Region, atMs); e != nil {
			return Price{PerGPUHour: e.PerGPUHour, Entry: e}, true
		}
	}
	if i.Plan == "" {
		return Price{}, false
	}
	i.Plan = ""
	return b.Lookup(i, atMs)
}

// narrowest looks for a key in a platform and region, from both to neither.
func (b *Book) narrowest(k key, platform, region string, atMs int64) *Entry {
	if k.sku == "" && k.model == "" {
		return nil
	}
	for _, in := range [...][2]string{{platform, region}, {platform, ""}, {"", region}, {"", ""}} {
		k.platform, k.region = in[0], in[1]
		if e := at(b.index[k], atMs); e != nil {
			return e
		}
	}
	return nil
}

// Price returns the price on demand of a unit at an instant, and false when there is
// none. It is [Book.Lookup] for callers that add up amounts in the book's currency: an
// entry in another one is no price for them.
func (b *Book) Price(model, platform, region string, atMs int64) (Price, bool) {
	p, ok := b.Lookup(Item{Model: model, Platform: platform, Region: region}, atMs)
	if !ok || p.Entry.Currency != b.Currency {
		return Price{}, false
	}
	return p, true
}

// Meter returns the price of a meter at an instant, and false when there is none. The
// most specific valid entry wins, as in [Book.Lookup].
func (b *Book) Meter(meter, platform, region string, atMs int64) (*MeterEntry, bool) {
	if b == nil {
		return nil, false
	}
	for _, k := range [...]meterKey{{meter, platform, region}, {meter, platform, ""}, {meter, "", region}, {meter, "", ""}} {
		if m := at(b.meters[k], atMs); m != nil {
			return m, true
		}
	}
	return nil, false
}

// Cuts returns the instants inside (fromMs, toMs) at which any price begins or
// ends, rising, none twice. Between two of them no price changes.
func (b *Book) Cuts(fromMs, toMs int64) []int64 {
	if b == nil {
		return nil
	}
	var cuts []int64
	add := func(list ...int64) {
		for _, ms := range list {
			if ms > fromMs && ms < toMs {
				cuts = append(cuts, ms)
			}
		}
	}
	for i := range b.Entries {
		add(b.Entries[i].FromMs, b.Entries[i].ToMs)
	}
	for i := range b.Meters {
		add(b.Meters[i].FromMs, b.Meters[i].ToMs)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}
