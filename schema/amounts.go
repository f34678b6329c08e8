package schema

import "github.com/cespare/xxhash/v2"

// Amounts is what one owner used of one unit in one window. All integers;
// Active + Idle is the known time, plus Unknown the allocated time.
type Amounts struct {
	ActiveMs       int64
	IdleMs         int64 // known and not active
	UnknownMs      int64 // reported without a valid activity reading
	UtilizationMs  int64 // time with a known utilization: denominator of the mean
	UtilizationSum int64 // millionths x ms: numerator of the mean
	MemoryMs       int64
	MemoryByteMs   int64
	EnergyMj       int64
	EnergyMs       int64
	// OverlapMs is the part of the allocated time that more than one event of the
	// owner's instance reported; it is allocated once.
	OverlapMs int64
	// OversubscribedMs is the part of the allocated time in which the instances
	// that held the unit claimed more than all of it together.
	OversubscribedMs int64
}

// Add adds b to a.
func (a *Amounts) Add(b *Amounts) {
	a.ActiveMs += b.ActiveMs
	a.IdleMs += b.IdleMs
	a.UnknownMs += b.UnknownMs
	a.UtilizationMs += b.UtilizationMs
	a.UtilizationSum += b.UtilizationSum
	a.MemoryMs += b.MemoryMs
	a.MemoryByteMs += b.MemoryByteMs
	a.EnergyMj += b.EnergyMj
	a.EnergyMs += b.EnergyMs
	a.OverlapMs += b.OverlapMs
	a.OversubscribedMs += b.OversubscribedMs
}

// Owner says who held a unit and what the unit was: the attributes by which
// usage can be grouped. Instance "" is nobody.
type Owner struct {
	Instance string
	Project  string
	Node     string
	Platform string
	Region   string
	Model    string
	Labels   string // JSON object, keys sorted; empty = none
}

// Cell is the usage of one unit by one owner in one window.
type Cell struct {
	Unit     string
	WindowMs int64 // start of the window
	Owner
	Amounts
	// Version counts what the cell was computed from: the contents of all
	// identities that have one in the window, wherever those lie, and the
	// corrections that bear on them. All of these are only added, so whoever saw
	// all of them has the highest version.
	Version uint64
}

// Key is one value for what the cell is about: unit and owner, not the window.
func (c *Cell) Key(scratch []byte) (Hash, []byte) {
	b := scratch[:0]
	for _, s := range [...]string{c.Unit, c.Instance, c.Project, c.Node, c.Platform, c.Region, c.Model, c.Labels} {
		b = appendString(b, s)
	}
	return sum(b), b
}

// Lengths of the two windows that usage is kept in, in milliseconds.
const (
	MinuteMs = 60_000
	HourMs   = 3_600_000
)

// UnitHash selects the rows of a unit without comparing text. Two units may
// share a hash; that costs a recomputation and nothing else.
func UnitHash(unit string) uint64 { return xxhash.Sum64String(unit) }

// Span returns the length class of an interval. A window of class n only has to
// look back SpanMs[n] for intervals that reach into it.
func Span(lengthMs int64) uint8 {
	for class, most := range SpanMs {
		if lengthMs <= most {
			return uint8(class)
		}
	}
	return uint8(len(SpanMs) - 1)
}

// SpanMs holds the longest interval of each length class, in milliseconds.
var SpanMs = [...]int64{MinuteMs, HourMs, 24 * HourMs, MaxIntervalMs}

// Floor returns the start of the window of that length which holds the instant.
func Floor(ms, length int64) int64 {
	r := ms % length
	if r < 0 {
		r += length
	}
	return ms - r
}
