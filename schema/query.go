package schema

import (
	"math/big"
	"slices"
)

// UsageQuery asks for sums of usage. It is answered exactly, to the millisecond,
// for any instants.
type UsageQuery struct {
	Tenant string
	// Cuts are strictly increasing instants; piece i is [Cuts[i], Cuts[i+1]).
	// At least two. Every sum is of one piece.
	Cuts []int64
	// By are the dimensions to group by: project, instance, unit, node, model,
	// platform, region, label:KEY. Model, platform and region are always kept
	// apart, because a price may depend on them.
	By []string
	// Filter keeps only rows whose dimension has exactly that value.
	Filter map[string]string
	// Projects keeps only rows of one of these projects, beside Filter: it is what the
	// asker may see. Nil = all, empty = none.
	Projects []string
	// Instances keeps only rows of these instances, beside Filter; nil = all.
	Instances []string
	// AsOfMs counts only events that the stream had stored by then; 0 = all.
	AsOfMs int64
	// Activity asks for Sums.LastActiveMs and Sums.LastKnownMs, too.
	Activity bool
	// NowMs is when the question is asked: leased time that lies later has not
	// happened and is not allocated. 0 = there is no later.
	NowMs int64
	// Rated are times of instances with a lease in which the same is paid for each of
	// their GPUs; rows are kept apart by it. Spans of an instance are in order and
	// do not overlap; whatever they leave out has the rate 0.
	Rated map[string][]RatedSpan
}

// RatedSpan is a time of an instance with one rate. What a rate is, the asker knows.
type RatedSpan struct {
	FromMs, ToMs int64
	Rate         int // from 1
}

// UsageRow is the usage of one group in one piece.
type UsageRow struct {
	Piece    int
	Keys     []string // values of the query's By, in its order
	Model    string
	Platform string
	Region   string
	Rate     int // of [UsageQuery].Rated; 0 = none
	Sums
}

// Sums are Amounts added up over many windows: what can exceed 64 bits is a big
// integer.
type Sums struct {
	ActiveMs       int64
	IdleMs         int64 // known and not active, held or free
	FreeMs         int64 // the part of IdleMs during which nobody held the unit
	UnknownMs      int64
	UtilizationMs  int64
	UtilizationSum *big.Int // millionths x ms
	MemoryMs       int64
	MemoryByteMs   *big.Int
	EnergyMj       int64
	EnergyMs       int64

	OverlapMs        int64 // as in Amounts
	OversubscribedMs int64

	// LastActiveMs is the end of the latest window that had any active time, LastKnownMs
	// of the latest with any known time; 0 = none, or not asked for. A window is an hour
	// or less, depending on how the sum was made: what happened last happened by then.
	LastActiveMs int64
	LastKnownMs  int64
}

// AllocatedMs is the whole time: known plus unknown.
func (s *Sums) AllocatedMs() int64 { return s.ActiveMs + s.IdleMs + s.UnknownMs }

// Add adds b to s.
func (s *Sums) Add(b *Sums) {
	s.ActiveMs += b.ActiveMs
	s.IdleMs += b.IdleMs
	s.FreeMs += b.FreeMs
	s.UnknownMs += b.UnknownMs
	s.UtilizationMs += b.UtilizationMs
	s.MemoryMs += b.MemoryMs
	s.EnergyMj += b.EnergyMj
	s.EnergyMs += b.EnergyMs
	s.OverlapMs += b.OverlapMs
	s.OversubscribedMs += b.OversubscribedMs
	s.UtilizationSum = plus(s.UtilizationSum, b.UtilizationSum)
	s.LastActiveMs, s.LastKnownMs = max(s.LastActiveMs, b.LastActiveMs), max(s.LastKnownMs, b.LastKnownMs)
	s.MemoryByteMs = plus(s.MemoryByteMs, b.MemoryByteMs)
}

func plus(a, b *big.Int) *big.Int {
	switch {
	case b == nil:
		return a
	case a == nil:
		return new(big.Int).Set(b)
	}
	return new(big.Int).Add(a, b)
}

// EventQuery asks for the stored usage events that overlap a span.
type EventQuery struct {
	Tenant string
	FromMs int64
	ToMs   int64
	Filter map[string]string // as in UsageQuery
	// Projects is as in UsageQuery.
	Projects []string
	AsOfMs   int64 // 0 = all
	Limit    int
	After    string // cursor: the last page's Next
}

// InScope says whether a project is one of those that may be seen: nil = all, empty =
// none. What is of no project has the project "", which only all holds.
func InScope(projects []string, project string) bool {
	return projects == nil || project != "" && slices.Contains(projects, project)
}

// Position says where an event lies: whose it is and which message of which
// stream brought it. It is the same on every redelivery of that message.
type Position struct {
	Tenant         string
	Stream         string
	Epoch          uint64 // creation of the stream, Unix nanoseconds
	StreamSequence uint64
	Place          uint32 // position of the event in the message
	StoredAtNs     int64  // when the stream stored the message
}

// StoredEvent is a usage event as it is stored, with where it came from.
type StoredEvent struct {
	Usage
	Payload Hash
	Position
	// LabelsText is Labels as canonical JSON, the form in which they are stored;
	// readers of many events leave Labels empty.
	LabelsText string
	// Counted is false for what is kept and not counted: a conflicting copy, and
	// what a correction took out.
	Counted bool
	// Settled says more about that; readers of many events leave it nil, and so is
	// it when there is nothing to say.
	Settled *Settled
	// NotHeld are the parts of the interval in which the lease of the instance does
	// not hold the unit, in order; they are not allocated. Readers of many events
	// leave it nil, and so it is for an instance without a lease.
	NotHeld []Interval
}

// Interval is a span of time, [FromMs, ToMs).
type Interval struct{ FromMs, ToMs int64 }

// Settled says why an event counts or not.
type Settled struct {
	First *Copy             // the copy that was stored first and has other content; nil = this one
	By    *StoredCorrection // took the identity out
	Void  *StoredCorrection // does not take effect, and the event is its replacement
	// Corrections are all that correct the identity or name it as replacement,
	// first stored first.
	Corrections []*StoredCorrection
}

// Conflict is an identity of which something was set aside.
type Conflict struct {
	Identity
	Contents []StoredEvent  // each content once, first stored first
	Leases   []LeaseContent // the same, of lease events
	// Corrections of the identity, the one that takes effect first. A single one
	// is there only with several contents, or because it is itself set aside.
	Corrections []*StoredCorrection
	Effective   bool // the first of Corrections takes effect
}

// Quality counts what a reader of a report has to know about its data.
type Quality struct {
	Conflicts   int64 `json:"conflicts"`   // identities of the span with more than one content
	Quarantined int64 `json:"quarantined"` // messages or events set aside, ever, not driven again since; without those held
	Late        int64 `json:"late"`        // events of the span that the stream got later than the grace time
	Gaps        int64 `json:"gaps"`        // sequence numbers missing between those a source sent, longer than the grace time
	Held        int64 `json:"held"`        // events that ended in the future when they came, and wait for their time
	// OutsideLeaseMs is unit time that was reported for an instance while its
	// lease did not hold any; it is not allocated.
	OutsideLeaseMs int64 `json:"outside_lease_ms"`
	// OpenIncidents counts what makes the span's data incomplete or doubtful.
	OpenIncidents int64 `json:"open_incidents"`
}

// MaxSources bounds how many sources a report of quality names.
const MaxSources = 100

// SourceQuality is what a reader has to know about one source. Events are the
// distinct usage events of the span, held ones those that waited during it.
type SourceQuality struct {
	Source       string
	Events       int64
	Late         int64 // of Events, those that the stream got later than the grace time
	Held         int64 // events that wait for their time
	WorstDelayMs Maybe // longest time from an event's end to its storing, 0 when none; unknown without events
	// ClockOffsetMs is by how much at least the source's clock is ahead, 0 when
	// nothing says that it is; unknown when no event says when it was made.
	ClockOffsetMs Maybe
	LastEventMs   int64 // when the stream last stored one of them
}

// QuarantinedItem is one row of the quarantine.
type QuarantinedItem struct {
	Tenant         string `json:"tenant"`
	StoredAt       string `json:"stored_at"`
	Stream         string `json:"stream"`
	Epoch          uint64 `json:"-"`
	StreamSequence uint64 `json:"stream_sequence"`
	Place          int32  `json:"place"`
	Subject        string `json:"subject"`
	ContentType    string `json:"content_type"`
	Kind           Kind   `json:"kind"`
	Reason         string `json:"reason"`
	Raw            string `json:"raw"`
	RedrivenAt     string `json:"redriven_at,omitempty"` // the first time
	DueAt          string `json:"due_at,omitempty"`      // of an event that is held: when it is driven again by itself
}

// Mark says that windows of some units have to be computed again. Marks are
// written before the events behind them are acknowledged.
type Mark struct {
	Grain    string // one of the grains below
	Tenant   string
	WindowMs int64    // start of the window; 0 for GrainIdentity
	ID       uint64   // random, so that one mark is never taken for another
	Units    []uint64 // [UnitHash] of units; [IdentityHash] for GrainIdentity
	// Count is the number of units of a mark that was read back, whose Units
	// stay in storage.
	Count      int
	MarkedAtMs int64
}

// Grains of a mark.
const (
	GrainMinute = "minute"
	GrainHour   = "hour"
	// GrainCopy is a minute to compute again because something elsewhere bears
	// on it: a copy of an identity, or a correction.
	GrainCopy = "copy"
	// GrainIdentity names identities that a correction is about: wherever their
	// copies lie has to be computed again.
	GrainIdentity = "identity"
)

// Incident is something that makes the data incomplete or doubtful until it ends.
// It is open until ClosedAtMs. Kind and Key together name it: the same fault seen
// again is the same incident.
type Incident struct {
	Tenant     string // empty when it touches all tenants
	Kind       string // one of the Incident kinds below
	Count      int64  // how many numbers, messages or contents it is about; of tail_lost the stream's last sequence then
	Key        string // what it is about: a source, a stream and sequence, ...
	Detail     string // what happened, to whom, and what to do
	FromMs     int64  // the event time it touches, [FromMs, ToMs); both 0 = any
	ToMs       int64
	OpenedAtMs int64
	ClosedAtMs int64  // 0 = open
	ClosedBy   string // who closed it; empty when it ended by itself
}

// Kinds of incident.
const (
	IncidentStreamHole = "stream_hole" // messages of the stream that are neither stored nor quarantined
	IncidentTailLost   = "tail_lost"   // the stream was restored, or lost its newest messages
	IncidentSourceGap  = "source_gap"  // numbers missing between the events of a source
	IncidentSilent     = "silent"      // a source that was heard of and is no longer
	IncidentConflict   = "conflict"    // one identity with several contents
	IncidentStorage    = "storage"     // two ways of reading the same rows disagree
	IncidentDerived    = "derived"     // stored usage differs from what its events give
)

// IncidentKinds lists all kinds.
var IncidentKinds = []string{
	IncidentStreamHole, IncidentTailLost, IncidentSourceGap, IncidentSilent, IncidentConflict, IncidentStorage, IncidentDerived,
}
