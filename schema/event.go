package schema

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sort"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Types of event, as CloudEvents "type".
const (
	TypeUsage      = "gpumeter.usage.v1"
	TypeLease      = "gpumeter.lease.v1"
	TypeMeter      = "gpumeter.meter.v1"
	TypeOutage     = "gpumeter.outage.v1"
	TypeCorrection = "gpumeter.correction.v1"
)

// Kinds maps an event type to the last token of its subject.
var Kinds = map[string]string{
	TypeUsage: "usage", TypeLease: "lease", TypeMeter: "meter",
	TypeOutage: "outage", TypeCorrection: "correction",
}

// Bounds of the event format. They keep one bad publisher from filling memory
// or storage; every one of them is far above what a real source sends.
const (
	MaxNameBytes       = 512       // source, id, unit, instance, project, ...
	MaxLabelKeyBytes   = 256       // a label key
	MaxLabelValueBytes = 4096      // a label value
	MaxLabels          = 64        // labels of one event
	MaxMessageBytes    = 1_000_000 // one message on the stream, all events of a batch
	// MaxIntervalMs bounds one event: a calendar month and a day. Every minute of
	// an event has to be computed, and this bounds how many that are.
	MaxIntervalMs = 32 * 24 * 3600 * 1000
	// MaxMessageMinutes bounds the minutes that all usage events of one message
	// cover together, so that a small message cannot ask for a lot of work at once.
	MaxMessageMinutes = 500_000

	// MinTimeMs and MaxTimeMs bound every instant: 2000-01-01 to 2100-01-01.
	// A time outside is a unit mistake (seconds taken for milliseconds lands in
	// the year 58101, milliseconds taken for seconds in January 1970).
	MinTimeMs = 946_684_800_000
	MaxTimeMs = 4_102_444_800_000

	// UtilizationOne is a utilization of 1: the unit was busy throughout.
	UtilizationOne = 1_000_000
	// ShareOne is a share of 1: the owner holds the whole unit.
	ShareOne = 1_000_000_000
)

// Header is what every event has. (tenant, Source, ID) is its identity: the
// producer makes it before the first send and repeats it on every retry. The
// tenant is not here because it comes from the subject, never from the payload.
type Header struct {
	Source   string
	ID       string
	TimeMs   int64  // when the producer made the event; 0 when it did not say
	Sequence uint64 // the source's own count of its events, from 1; 0 when it does not count
}

// Usage is what one unit did over one interval.
//
// ActiveMs + IdleMs never exceed the interval; what is left is unknown. Where
// both are unknown the whole interval takes its state from Utilization.
// Instance "" means that nobody holds the unit.
type Usage struct {
	Header
	Unit     string
	StartMs  int64
	EndMs    int64
	Instance string
	Project  string
	Node     string
	Platform string
	Region   string
	Model    string

	Utilization      Maybe // millionths, mean over the known part
	ActiveMs         Maybe
	IdleMs           Maybe
	MemoryUsedBytes  Maybe
	MemoryTotalBytes Maybe
	EnergyMj         Maybe
	Share            Maybe // billionths of the unit that the owner holds; unknown = not given

	Labels Labels
}

// LengthMs returns the length of the interval.
func (u *Usage) LengthMs() int64 { return u.EndMs - u.StartMs }

// Split returns how much of the interval is active, idle and unknown, given the
// activity threshold in millionths below which a unit counts as idle.
func (u *Usage) Split(thresholdMillionths int64) (active, idle, unknown int64) {
	length := u.LengthMs()
	switch {
	case u.ActiveMs.Known || u.IdleMs.Known:
		active, idle = u.ActiveMs.Value, u.IdleMs.Value
		return active, idle, length - active - idle
	case !u.Utilization.Known:
		return 0, 0, length
	case u.Utilization.Value >= thresholdMillionths:
		return length, 0, 0
	default:
		return 0, length, 0
	}
}

// UsageID makes the identity of an agent's usage event from the unit and the
// start of its interval, so that a retry, a restart and a second run over the
// same interval all make the same one.
func UsageID(unit string, startMs int64) string {
	return unit + "/" + FormatTime(startMs)
}

// Lease says that an instance changed its state at an instant. Attributes that
// are left out carry over from the instance's previous lease event.
type Lease struct {
	Header
	Instance string
	AtMs     int64
	State    string
	Project  string
	Platform string
	Region   string
	Model    string
	Gpus     Maybe
	SKU      string
	Plan     string
	Tenancy  string
	DCTier   string
	Workload string
	Labels   Labels
}

// LeaseStates lists the states that a lease event may name.
var LeaseStates = []string{
	"provisioning", "running", "running_no_gpu", "stopping", "stopped_keep",
	"stopped_free", "interrupted", "released", "expired", "frozen",
}

// Meter is another metered quantity over an interval, such as bytes of egress.
type Meter struct {
	Header
	Instance string
	Project  string
	Meter    string
	StartMs  int64
	EndMs    int64
	Quantity string // exact decimal, not negative, as it was given
}

// Outage is a span during which a platform did not deliver.
type Outage struct {
	Header
	Platform string
	Region   string
	Instance string
	StartMs  int64
	EndMs    int64
	Reason   string
}

// Correction takes back or replaces an earlier event. It never edits: the
// corrected event stays stored and the correction points at it.
type Correction struct {
	Header
	CorrectsSource string
	CorrectsID     string
	Action         string // retract or replace
	Replacement    *Event // for replace
	Actor          string
	Reason         string
}

// Event is one event of any type. Exactly one of the pointers is set.
type Event struct {
	Usage      *Usage
	Lease      *Lease
	Meter      *Meter
	Outage     *Outage
	Correction *Correction
}

// Header returns the header of whichever event it is.
func (e *Event) Header() *Header {
	switch {
	case e.Usage != nil:
		return &e.Usage.Header
	case e.Lease != nil:
		return &e.Lease.Header
	case e.Meter != nil:
		return &e.Meter.Header
	case e.Outage != nil:
		return &e.Outage.Header
	case e.Correction != nil:
		return &e.Correction.Header
	}
	return &Header{}
}

// Type returns the CloudEvents type of the event.
func (e *Event) Type() string {
	switch {
	case e.Usage != nil:
		return TypeUsage
	case e.Lease != nil:
		return TypeLease
	case e.Meter != nil:
		return TypeMeter
	case e.Outage != nil:
		return TypeOutage
	case e.Correction != nil:
		return TypeCorrection
	}
	return ""
}

// Labels are free key-value pairs of an event, sorted by key, no key twice.
type Labels []Label

// Label is one pair.
type Label struct{ Key, Value string }

// Sort brings labels into their canonical order.
func (l Labels) Sort() { sort.Slice(l, func(i, j int) bool { return l[i].Key < l[j].Key }) }

// Hash is the first 128 bits of a SHA-256.
type Hash [16]byte

// PayloadHash is the hash of what a usage event says: everything except its
// time and sequence, which a producer may set anew on a retry without saying
// anything different. Two events of one identity with different hashes are a
// conflict.
func (u *Usage) PayloadHash(scratch []byte) (Hash, []byte) {
	b := scratch[:0]
	b = appendString(b, TypeUsage)
	b = appendString(b, u.Unit)
	b = binary.AppendVarint(b, u.StartMs)
	b = binary.AppendVarint(b, u.EndMs)
	for _, s := range [...]string{u.Instance, u.Project, u.Node, u.Platform, u.Region, u.Model} {
		b = appendString(b, s)
	}
	for _, m := range [...]Maybe{u.Utilization, u.ActiveMs, u.IdleMs, u.MemoryUsedBytes, u.MemoryTotalBytes, u.EnergyMj, u.Share} {
		b = appendMaybe(b, m)
	}
	b = appendLabels(b, u.Labels)
	return sum(b), b
}

// PayloadHash is the hash of what the event says, as for [Usage.PayloadHash].
func (e *Event) PayloadHash() Hash {
	var b []byte
	switch {
	case e.Usage != nil:
		h, _ := e.Usage.PayloadHash(nil)
		return h
	case e.Lease != nil:
		l := e.Lease
		b = appendString(b, TypeLease)
		b = binary.AppendVarint(b, l.AtMs)
		for _, s := range [...]string{l.Instance, l.State, l.Project, l.Platform, l.Region, l.Model, l.SKU, l.Plan, l.Tenancy, l.DCTier, l.Workload} {
			b = appendString(b, s)
		}
		b = appendMaybe(b, l.Gpus)
		b = appendLabels(b, l.Labels)
	case e.Meter != nil:
		m := e.Meter
		b = appendString(b, TypeMeter)
		b = binary.AppendVarint(b, m.StartMs)
		b = binary.AppendVarint(b, m.EndMs)
		for _, s := range [...]string{m.Instance, m.Project, m.Meter, m.Quantity} {
			b = appendString(b, s)
		}
	case e.Outage != nil:
		o := e.Outage
		b = appendString(b, TypeOutage)
		b = binary.AppendVarint(b, o.StartMs)
		b = binary.AppendVarint(b, o.EndMs)
		for _, s := range [...]string{o.Platform, o.Region, o.Instance, o.Reason} {
			b = appendString(b, s)
		}
	case e.Correction != nil:
		c := e.Correction
		b = appendString(b, TypeCorrection)
		for _, s := range [...]string{c.CorrectsSource, c.CorrectsID, c.Action, c.Actor, c.Reason} {
			b = appendString(b, s)
		}
		if c.Replacement != nil {
			// Its identity too: the correction says under which one the new
			// event counts.
			b = appendString(appendString(b, c.Replacement.Header().Source), c.Replacement.Header().ID)
			h := c.Replacement.PayloadHash()
			b = append(b, h[:]...)
		}
	}
	return sum(b)
}

// MessageID is what goes into Nats-Msg-Id: a hash of identity and payload. It
// holds the tenant because tenants share a stream. It holds the payload too because
// the stream drops a repeated message id for two minutes: by identity alone it
// would drop the second version of a conflicting event, and nobody would ever
// hear of the conflict.
func MessageID(tenant string, h *Header, payload Hash) string {
	b := appendString(nil, tenant)
	b = appendString(b, h.Source)
	b = appendString(b, h.ID)
	b = append(b, payload[:]...)
	s := sum(b)
	return base64.RawURLEncoding.EncodeToString(s[:])
}

func sum(b []byte) Hash {
	full := sha256.Sum256(b)
	return Hash(full[:16])
}

// appendString writes the length before the bytes, so that ("ab","c") and
// ("a","bc") never give the same hash.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendMaybe(b []byte, m Maybe) []byte {
	if !m.Known {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), m.Value)
}

func appendLabels(b []byte, labels Labels) []byte {
	b = binary.AppendUvarint(b, uint64(len(labels)))
	for _, l := range labels {
		b = appendString(appendString(b, l.Key), l.Value)
	}
	return b
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// FormatTime writes an instant as RFC 3339 in UTC with milliseconds.
func FormatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(timeLayout) }

// LabelsJSON writes labels as a JSON object with its keys in order, the form in
// which they are stored and grouped by. No labels are the empty string.
func LabelsJSON(labels Labels) string {
	if len(labels) == 0 {
		return ""
	}
	b := []byte{'{'}
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, l.Key)
		b = append(b, ':')
		b, _ = jsontext.AppendQuote(b, l.Value)
	}
	return string(append(b, '}'))
}
