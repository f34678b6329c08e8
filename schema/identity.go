package schema

import (
	"bytes"
	"cmp"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Identity names an event inside its tenant: the producer makes it before the
// first send and repeats it on every retry.
type Identity struct {
	Source string
	ID     string
}

// Identity returns the identity of the event.
func (h *Header) Identity() Identity { return Identity{h.Source, h.ID} }

// IdentityHash selects rows of an identity without comparing text. Two
// identities may share a hash; that costs a recomputation and nothing else.
func IdentityHash(i Identity) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(len(i.Source))) // ("ab","c") is not ("a","bc")
	_, _ = d.WriteString(i.Source)
	_, _ = d.WriteString(i.ID)
	return d.Sum64()
}

// Order says when the stream stored a copy of an event. Of several copies of one
// identity the lowest counts.
type Order struct {
	StoredAtNs     int64
	StreamSequence uint64
	Place          uint32
	Payload        Hash // decides when all else is equal, so that the order is total
}

// OrderOf makes the order of a copy.
func OrderOf(at *Position, payload Hash) Order {
	return Order{at.StoredAtNs, at.StreamSequence, at.Place, payload}
}

// Compare returns a negative number when o was stored before p.
func (o Order) Compare(p Order) int {
	return cmp.Or(
		cmp.Compare(o.StoredAtNs, p.StoredAtNs),
		cmp.Compare(o.StreamSequence, p.StreamSequence),
		cmp.Compare(o.Place, p.Place),
		bytes.Compare(o.Payload[:], p.Payload[:]))
}

// Credit is what a fact that was stored at an instant adds to the version of what
// is computed from it: the time from then to 2100, in milliseconds. Adding a fact
// raises a sum of credits, and so does learning that one was stored earlier than
// the copy that was known: the first copy decides who counts. The sum of four
// million facts fits into 64 bits.
func Credit(storedAtNs int64) uint64 { return uint64(max(1, MaxTimeMs-storedAtNs/1e6)) }

// tellLength is the length of the instant at the end of an id that tells.
const tellLength = len("2006-01-02T15:04:05.000Z")

// Telling says whether the event has the id that [UsageID] makes of its unit and
// start. Then every other telling event of the identity is of the same unit and
// begins at the same instant, so that all of them lie at one place. It does not
// allocate.
func (u *Usage) Telling() bool {
	n := len(u.Unit)
	if len(u.ID) != n+1+tellLength || u.ID[:n] != u.Unit || u.ID[n] != '/' {
		return false
	}
	var text [tellLength]byte
	return string(appendTime(text[:0], u.StartMs)) == u.ID[n+1:]
}

// PlaceOf returns the unit and the start that an id tells, if it has the form
// that [UsageID] makes, whether or not the event that bears it lies there.
func PlaceOf(id string) (unit string, startMs int64, ok bool) {
	n := len(id) - tellLength - 1
	if n < 1 || id[n] != '/' || id[len(id)-1] != 'Z' {
		return "", 0, false
	}
	text := id[n+1:]
	t, err := time.Parse(timeLayout, text)
	if err != nil {
		return "", 0, false
	}
	ms := t.UnixMilli()
	var back [tellLength]byte
	if ms < MinTimeMs || ms >= MaxTimeMs || string(appendTime(back[:0], ms)) != text {
		return "", 0, false
	}
	return id[:n], ms, true
}

// ToldMs returns the minute of the place that an id tells, 0 when it tells none.
func ToldMs(id string) int64 {
	_, startMs, ok := PlaceOf(id)
	if !ok {
		return 0
	}
	return Floor(startMs, MinuteMs)
}
