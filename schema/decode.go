package schema

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Reject is a part of a message that could not be accepted.
type Reject struct {
	Place int    // position of the event in its message, -1 when the whole message is meant
	Raw   []byte // the bytes as they came
	Err   error  // an *Error
	// Held is set for a good event that only has to wait.
	Held *Held
}

// Held says until when a good event waits that came before its time.
type Held struct {
	Source  string
	DueMs   int64 // the event's end
	AheadMs int64 // by how much at least the clock of the source was ahead
}

// Decoded is what one message holds, each event with its place in the message.
type Decoded struct {
	Usage   []Placed[Usage]
	Other   []Placed[Event]
	Rejects []Reject

	minutes int64 // that the usage events cover together
}

// cover counts the minutes of a usage event against the message's bound.
func (d *Decoded) cover(u *Usage) error {
	n := (Floor(u.EndMs-1, MinuteMs)-Floor(u.StartMs, MinuteMs))/MinuteMs + 1
	if d.minutes+n > MaxMessageMinutes {
		f := fault(KindTooLarge, "", "the events of the message cover more than %d minutes together; send this one in another message", MaxMessageMinutes)
		f.ID = u.Source + "/" + u.ID
		return f
	}
	d.minutes += n
	return nil
}

// Placed is an event and its position in the message that it came in.
type Placed[E any] struct {
	Event E
	Place uint32
}

// Decode reads and validates one message of the stream. It never fails as a
// whole: what cannot be accepted is in Rejects, and everything else is taken.
//
// contentType may be empty; then a leading "[" says batch and "{" says event.
func Decode(contentType string, payload []byte) Decoded {
	var d Decoded
	if len(payload) > MaxMessageBytes {
		d.reject(-1, payload, fault(KindTooLarge, "", "message of %d bytes, at most %d are allowed", len(payload), MaxMessageBytes))
		return d
	}
	// A media type is written in any case and may carry parameters: many send
	// "; charset=utf-8".
	contentType, _, _ = strings.Cut(strings.ToLower(contentType), ";")
	contentType = strings.TrimSpace(contentType)
	if contentType == "" {
		contentType = sniff(payload)
	}
	switch contentType {
	case ContentTypeCompact:
		d.compact(payload)
	case ContentTypeEvent:
		d.event(0, payload)
	case ContentTypeBatch:
		elements, err := splitArray(payload)
		if err != nil {
			d.reject(-1, payload, err)
			return d
		}
		for i, raw := range elements {
			d.event(i, raw)
		}
	default:
		d.reject(-1, payload, fault(KindMalformed, "content-type", "%q is none of %s, %s, %s",
			clip(contentType), ContentTypeEvent, ContentTypeBatch, ContentTypeCompact))
	}
	return d
}

func sniff(payload []byte) string {
	if trimmed := bytes.TrimLeft(payload, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return ContentTypeBatch
	}
	return ContentTypeEvent
}

func (d *Decoded) compact(payload []byte) {
	events, err := decodeCompact(payload)
	if err != nil {
		d.reject(-1, payload, err)
		return
	}
	d.Usage = make([]Placed[Usage], 0, len(events))
	for i := range events {
		err := events[i].Validate()
		if err == nil {
			err = d.cover(&events[i])
		}
		if err != nil {
			// The one bad event is kept in a form that a person can read and
			// that can be driven again.
			d.reject(i, EncodeEvent(&Event{Usage: &events[i]}), err)
			continue
		}
		d.Usage = append(d.Usage, Placed[Usage]{events[i], uint32(i)})
	}
}

func (d *Decoded) event(place int, raw []byte) {
	e, err := DecodeEvent(raw)
	if err == nil && e.Usage != nil {
		err = d.cover(e.Usage)
	}
	if err != nil {
		d.reject(place, raw, err)
		return
	}
	if e.Usage != nil {
		d.Usage = append(d.Usage, Placed[Usage]{*e.Usage, uint32(place)})
		return
	}
	d.Other = append(d.Other, Placed[Event]{*e, uint32(place)})
}

func (d *Decoded) reject(place int, raw []byte, err error) {
	d.Rejects = append(d.Rejects, Reject{Place: place, Raw: raw, Err: err})
}

// splitArray cuts a JSON array into its elements without looking into them, so
// that one bad element does not take the others with it.
func splitArray(payload []byte) ([]json.RawMessage, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(payload, &elements); err != nil {
		f := fault(KindMalformed, "", "not a JSON array of events: %v", err)
		f.err = err
		return nil, f
	}
	if len(elements) == 0 {
		return nil, fault(KindMissing, "", "a batch without events")
	}
	return elements, nil
}
