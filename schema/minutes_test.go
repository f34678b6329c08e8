package schema

import (
	"strconv"
	"testing"
)

// A message of a few hundred bytes per event must not be able to ask for
// unbounded work: what its events cover together is bounded, in every wire form,
// and only the events beyond the bound are refused.
func TestMessageCoversBoundedMinutes(t *testing.T) {
	var events []Usage
	var array []byte
	for i := range 20 {
		u := Usage{Unit: "GPU-" + strconv.Itoa(i), StartMs: 1_772_359_200_000, EndMs: 1_772_359_200_000 + MaxIntervalMs}
		u.Source, u.ID = "s", UsageID(u.Unit, u.StartMs)
		events = append(events, u)
		array = append(append(array, ','), EncodeEvent(&Event{Usage: &u})...)
	}
	compact, err := EncodeCompact(events)
	if err != nil {
		t.Fatal(err)
	}
	array[0] = '['
	for contentType, payload := range map[string][]byte{ContentTypeCompact: compact, ContentTypeBatch: append(array, ']')} {
		d := Decode(contentType, payload)
		fit := MaxMessageMinutes / (MaxIntervalMs / MinuteMs)
		if len(d.Usage) != fit || len(d.Rejects) != len(events)-fit {
			t.Errorf("%s: %d taken and %d refused, want %d and %d", contentType, len(d.Usage), len(d.Rejects), fit, len(events)-fit)
			continue
		}
		for _, r := range d.Rejects {
			if KindOf(r.Err) != KindTooLarge || r.Place < fit {
				t.Errorf("%s: place %d refused with %v", contentType, r.Place, r.Err)
			}
		}
	}
}
