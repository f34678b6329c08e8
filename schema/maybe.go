package schema

import "strconv"

// Maybe is an integer that may be unknown. The zero Maybe is unknown, so a
// field that nobody filled in can never be mistaken for a reading of zero.
type Maybe struct {
	Value int64
	Known bool
}

// Some returns a known value.
func Some(v int64) Maybe { return Maybe{Value: v, Known: true} }

// String returns the value in decimal, or "unknown".
func (m Maybe) String() string {
	if !m.Known {
		return "unknown"
	}
	return strconv.FormatInt(m.Value, 10)
}
