package schema

// StreamState is where a stream and its durable consumer stand.
type StreamState struct {
	Stream string
	Epoch  uint64
	First  uint64 // oldest sequence that is kept
	Last   uint64 // newest sequence ever given out
	Floor  uint64 // everything up to here is settled; 0 when there is no durable
}

// StreamProof is how far a stream is known to be complete in storage. It is a
// cache: losing it costs a check from the oldest message on.
type StreamProof struct {
	Stream   string
	Epoch    uint64
	Verified uint64 // every message up to here was found stored or quarantined, or is in an incident
}

// NumberRun is an unbroken run of the numbers that a source gave its events,
// with what is needed to say where in time a hole beside it lies.
type NumberRun struct {
	First, Last              uint64
	FirstStartMs, FirstEndMs int64 // of the event with number First
	LastStartMs, LastEndMs   int64 // of the event with number Last
	FirstStoredMs            int64 // when the stream stored the first of its events
}

// SourceProof is which numbers of a source were seen in one stream and epoch up
// to a sequence. Proofs of several streams and epochs of a source add up.
type SourceProof struct {
	Tenant, Source string
	Stream         string
	Epoch          uint64
	Verified       uint64      // stream sequence up to which Runs is whole
	Runs           []NumberRun // in order, neither touching nor overlapping
	LiveEnds       int64       // ends of intervals that were reported soon after they ended
	IntervalMs     int64       // length of the intervals it reports
	HeardMs        int64       // when the stream stored its newest event
}

// EventConflict is an identity that was stored with several contents.
type EventConflict struct {
	Tenant, Source, ID string
	Contents           int64
	FromMs, ToMs       int64 // hull of the copies
}

// TenantHour names an hour of a tenant.
type TenantHour struct {
	Tenant string
	HourMs int64
}

// Expected is something that a message of the stream must have left in storage:
// an event, or a quarantined part.
type Expected struct {
	Tenant  string
	Event   *Event // nil for a quarantined part
	Subject string // that the message came on
	Raw     []byte // the bytes of a quarantined part
}
