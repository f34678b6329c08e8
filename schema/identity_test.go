package schema

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := genUsage().Draw(t, "usage")
		u.ID = UsageID(u.Unit, u.StartMs)
		unit, start, ok := PlaceOf(u.ID)
		if !u.Telling() || !ok || unit != u.Unit || start != u.StartMs || ToldMs(u.ID) != Floor(start, MinuteMs) {
			t.Fatalf("%q of %q at %d tells %q, %d, %v", u.ID, u.Unit, u.StartMs, unit, start, ok)
		}
		// Anything else is of another place, or tells none.
		other := u
		switch rapid.IntRange(0, 4).Draw(t, "spoilt") {
		case 0:
			other.StartMs++
		case 1:
			other.Unit += "x"
		case 2:
			other.ID += "x"
		case 3:
			other.ID = "x" + other.ID
		case 4:
			b := []byte(other.ID)
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1
			other.ID = string(b)
		}
		if other.Telling() {
			t.Fatalf("%q of %q at %d tells", other.ID, other.Unit, other.StartMs)
		}
		if unit, start, ok := PlaceOf(other.ID); ok && UsageID(unit, start) != other.ID {
			t.Fatalf("%q tells %q at %d, which is not its place", other.ID, unit, start)
		}
	})
	for _, id := range []string{"", "/", "e1", "/2026-03-01T10:00:00.000Z", "g/2026-02-30T10:00:00.000Z", "g/2026-03-01T10:00:00,000Z", "g/2026-03-01T24:00:00.000Z", "g/1999-12-31T23:59:59.999Z"} {
		if unit, start, ok := PlaceOf(id); ok {
			t.Errorf("%q tells %q at %d", id, unit, start)
		}
	}
	u := Usage{Unit: "GPU-1", StartMs: MinTimeMs}
	u.ID = UsageID(u.Unit, u.StartMs)
	if n := testing.AllocsPerRun(100, func() { u.Telling() }); n != 0 {
		t.Errorf("Telling allocates %v times", n)
	}
}

func TestIdentityHash(t *testing.T) {
	seen := map[uint64]Identity{}
	for _, i := range []Identity{{}, {"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"", "abc"}} {
		h := IdentityHash(i)
		if other, ok := seen[h]; ok {
			t.Errorf("%v and %v share a hash", i, other)
		}
		seen[h] = i
	}
}
