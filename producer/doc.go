// Package producer turns readings into usage events and offers them until the
// stream has them.
//
//	Source --readings--> Meter --events--> Spool --batches--> Sender --> Stream
//	          every 10 s         a minute    disk     head first, released on PubAck
//
// What it promises:
//
//   - An event's identity is made before the first attempt to send it, and its
//     content never changes afterwards.
//   - What the spool took is on disk. It leaves the spool when the stream has
//     confirmed it, and for no other reason: a full spool stops the sampling and
//     says so, it never drops.
//   - Killed at any moment, the agent loses at most the sample period it was in.
//     The spool holds the unfinished events of every tick and queues them at the
//     next start.
//   - Events may be sent twice, with the same identity and content. Counting
//     them once is the receiver's part.
//   - A time that no sample covers is in no event; a time for which nothing could
//     be read is in an event as unknown. Neither is ever idle.
package producer

import (
	"context"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Source is where readings come from. An error means that nothing is known of
// any unit at this instant.
//
// A source may also have Rejected() map[string]uint64, the lines it had to skip
// since its start by reason, and Disagreements() uint64, the readings in which
// two signals contradicted each other; the producer then exports them as metrics.
type Source interface {
	Read(ctx context.Context) ([]schema.Reading, error)
}

// History is a source that knows the past too. The producer asks it for the
// nominal instant of a tick, and [Producer.Backfill] for past ones.
type History interface {
	ReadAt(t time.Time) []schema.Reading
}

// Stream takes messages. Receipts are aligned with the messages. A returned
// error means that the outcome is unknown for all of them.
//
// A message that can never be taken as it is has an error in its receipt that is
// a [schema.Error] (kind too_large for one above the server's limit) or that has
// a method Permanent() bool. Any other error is offered again, for ever.
type Stream interface {
	Publish(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error)
}

// Clock is what the producer knows of time.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// SystemClock is the computer's clock.
type SystemClock struct{}

// Now returns the current time.
func (SystemClock) Now() time.Time { return time.Now() }

// After delivers once after d.
func (SystemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
