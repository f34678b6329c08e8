package schema

import (
	"errors"
	"fmt"
)

// Kind says what the receiver of a bad event does with it. Each kind calls for
// one reaction, so that no caller has to read the text.
type Kind string

const (
	// KindMalformed: not readable as an event at all (broken JSON, duplicate
	// keys, truncated protobuf). The bytes are quarantined as they came.
	KindMalformed Kind = "malformed"
	// KindUnknownType: a well-formed event of a type that this version does not
	// know. Quarantined; a later version can take it by re-drive.
	KindUnknownType Kind = "unknown_type"
	// KindMissing: a required field is absent or empty.
	KindMissing Kind = "missing_field"
	// KindInvalid: a field has a value that it may not have.
	KindInvalid Kind = "invalid_value"
	// KindMisdirected: the event claims a source that the subject it came on
	// does not belong to.
	KindMisdirected Kind = "misdirected"
	// KindTooLarge: a field or a message is above its bound.
	KindTooLarge Kind = "too_large"
	// KindFuture: a good event that ends later than it may. Held aside, and
	// offered again when its time has come.
	KindFuture Kind = "future"
)

// Error is the one error that decoding and validating an event returns.
type Error struct {
	Kind  Kind
	Field string // JSON path of the field, empty when the whole event is meant
	Msg   string // what is wrong and what would be right
	ID    string // identity of the event as "source/id" where it could be read
	err   error
}

// Error names the event, the field and the fault.
func (e *Error) Error() string {
	s := string(e.Kind)
	if e.Field != "" {
		s += ": " + e.Field
	}
	s += ": " + e.Msg
	if e.ID != "" {
		s += " (event " + e.ID + ")"
	}
	return s
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.err }

// KindOf returns the kind of err, or KindMalformed for an error of another
// package, which only a decoder below us can have made.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindMalformed
}

func fault(kind Kind, field, format string, args ...any) *Error {
	return &Error{Kind: kind, Field: field, Msg: fmt.Sprintf(format, args...)}
}
