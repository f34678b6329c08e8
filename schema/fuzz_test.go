package schema

import (
	"reflect"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// What is accepted must survive being written and read again: a re-drive, an
// export and the spool all do that.
func checkStable(t *testing.T, e *Event) {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Fatalf("accepted, and Validate refuses it: %v", err)
	}
	raw := EncodeEvent(e)
	again, err := DecodeEvent(raw)
	if err != nil {
		t.Fatalf("accepted, and refused when written again: %v\n%s", err, raw)
	}
	if !reflect.DeepEqual(e, again) || e.PayloadHash() != again.PayloadHash() {
		t.Fatalf("another event after a round trip\n%s\n%s", raw, EncodeEvent(again))
	}
	if e.Usage != nil {
		payload, err := EncodeCompact([]Usage{*e.Usage})
		if err != nil {
			t.Fatal(err)
		}
		d := Decode(ContentTypeCompact, payload)
		if len(d.Usage) != 1 || !reflect.DeepEqual(d.Usage[0].Event, *e.Usage) {
			t.Fatalf("another event after the compact form\n%s\n%+v", raw, d)
		}
	}
}

func seeds(f *testing.F) (list []string) {
	for _, c := range readDecodeCases(f) {
		list = append(list, c.raw)
	}
	for _, e := range golden() {
		list = append(list, string(EncodeEvent(e)))
	}
	return list
}

func FuzzDecodeEvent(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := DecodeEvent(raw)
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("the message is not valid UTF-8: %q", err)
			}
			return
		}
		checkStable(t, e)
	})
}

func FuzzDecode(f *testing.F) {
	types := []string{"", ContentTypeEvent, ContentTypeBatch, ContentTypeCompact, "x"}
	for _, s := range seeds(f)[:40] {
		f.Add(uint8(1), []byte(s))
		f.Add(uint8(2), []byte("["+s+","+s+"]"))
	}
	for _, p := range []proto.Message{twoEvents()} {
		payload, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(3), payload)
	}
	u := golden()["usage"].Usage
	payload, err := EncodeCompact([]Usage{*u, *golden()["usage, nothing known"].Usage, *u})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(3), payload)
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		d := Decode(types[int(kind)%len(types)], payload)
		if len(d.Usage)+len(d.Other)+len(d.Rejects) == 0 {
			t.Fatal("a message of which nothing is left is lost")
		}
		places := map[int]bool{}
		for i := range d.Usage {
			checkStable(t, &Event{Usage: &d.Usage[i].Event})
			places[int(d.Usage[i].Place)] = true
		}
		for i := range d.Other {
			checkStable(t, &d.Other[i].Event)
			places[int(d.Other[i].Place)] = true
		}
		for _, r := range d.Rejects {
			if _, ok := r.Err.(*Error); !ok {
				t.Fatalf("a reject without a kind: %T %v", r.Err, r.Err)
			}
			if !utf8.ValidString(r.Err.Error()) {
				t.Fatalf("the reason is not valid UTF-8: %q", r.Err)
			}
			places[r.Place] = true
		}
		if len(places) != len(d.Usage)+len(d.Other)+len(d.Rejects) {
			t.Fatal("two parts of a message have one place")
		}
	})
}

func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"gpumeter.v1.default.agent~2Fnode-7.usage", "gpumeter.v1.~.~.x", "gpumeter.v1.a~.b.c", "gpumeter.v1.~00.~FF.usage"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseSubject(s)
		if err == nil && a.Subject() != s {
			t.Fatalf("%q is a second form of %q", s, a.Subject())
		}
	})
}
