package schema

// Statement is a closed period as it is stored. Content is the statement itself;
// the other fields are in it too and can be read without it.
type Statement struct {
	Tenant     string
	Period     string // YYYY-MM, a calendar month in Zone
	Zone       string // IANA name
	FromMs     int64  // the period, [FromMs, ToMs)
	ToMs       int64
	AsOfMs     int64 // closing instant: what the stream had stored by then is in it
	ClosedAtMs int64 // when it was made, not before AsOfMs
	ClosedBy   string
	Reason     string
	Override   string // why it was closed in spite of something; empty = nothing was in the way
	Hash       string // SHA-256 of Content, lower-case hexadecimal
	Previous   string // Hash of the statement of the tenant before it; empty = the first
	Content    []byte // canonical JSON; nil where only the rest was asked for
}

// ArrivalQuery asks for what was first stored in a span of stream time,
// (AfterMs, AsOfMs], and can change the usage of a span of event time,
// [FromMs, ToMs).
type ArrivalQuery struct {
	Tenant  string
	FromMs  int64
	ToMs    int64
	AfterMs int64
	AsOfMs  int64
	Limit   int // most events to return; the total is not bounded by it
}
