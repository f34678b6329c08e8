package consumer

import (
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// DefaultFutureTolerance is how far after its storing an event may end: clocks
// of nodes differ by seconds, and minutes are a wrong clock.
const DefaultFutureTolerance = 5 * time.Minute

// hold says whether an event came before its time, and until when it waits. It
// looks at nothing but the message and the tolerance, so that a redelivery and a
// replay decide the same. An event that ends exactly at the tolerance is taken.
func hold(at *schema.Position, e *schema.Event, tolerance time.Duration) *schema.Held {
	endMs := endOf(e)
	// Bounded times of events and of the stream cannot overflow here, and their
	// difference neither; storing plus tolerance could.
	if endMs*int64(time.Millisecond)-at.StoredAtNs <= int64(tolerance) {
		return nil
	}
	h := e.Header()
	// What the source says it made this at is at most its clock's time of
	// sending, so it and the end are both bounds of how far the clock is ahead.
	ahead := max(endMs, h.TimeMs)*int64(time.Millisecond) - at.StoredAtNs
	return &schema.Held{Source: h.Source, DueMs: endMs, AheadMs: ahead / int64(time.Millisecond)}
}

// endOf returns when the event is over; 0 for events that may lie in the future:
// an announced outage, and a correction, which is about an event that was taken.
func endOf(e *schema.Event) int64 {
	switch {
	case e.Usage != nil:
		return e.Usage.EndMs
	case e.Lease != nil:
		return e.Lease.AtMs
	case e.Meter != nil:
		return e.Meter.EndMs
	}
	return 0
}

// held quarantines an event until its time has come.
func (l *load) held(at *schema.Position, d *schema.Delivery, place uint32, e *schema.Event, until *schema.Held) {
	h := e.Header()
	field := "data.end"
	if e.Lease != nil {
		field = "data.at"
	}
	l.quarantine(at, d, &schema.Reject{Place: int(place), Raw: schema.EncodeEvent(e), Held: until, Err: &schema.Error{
		Kind: schema.KindFuture, Field: field, ID: h.Source + "/" + h.ID,
		Msg: fmt.Sprintf("%s was still to come when the stream stored the event at %s: the clock of %q is ahead by at least %s; the event is held until then and counts from then on",
			schema.FormatTime(until.DueMs), schema.FormatTime(at.StoredAtNs/int64(time.Millisecond)), h.Source, time.Duration(until.AheadMs)*time.Millisecond),
	}})
}
