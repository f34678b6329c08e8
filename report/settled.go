package report

import (
	"context"
	"fmt"
)

// Settled says whether an answer "as of" an instant can still change.
type Settled interface {
	// AwaitSettled returns nil when everything that was stored by the instant is
	// known to the Store. It may wait a little for that; then it fails with an
	// *UnsettledError.
	AwaitSettled(ctx context.Context, asOfMs int64) error
}

// UnsettledError says that an answer as of an instant could still change. Asking
// again later helps.
type UnsettledError struct {
	AsOfMs  int64
	Waiting int64 // messages that the stream stored and nobody processed yet
	Err     error // why that is not known, or nil
}

// Error says what the answer waits for.
func (e *UnsettledError) Error() string {
	s := "the answer as of " + instantIn(utc, e.AsOfMs) + " could still change: "
	if e.Err != nil {
		return s + "it is not known what the stream stored by then and is not processed yet: " + e.Err.Error()
	}
	return s + fmt.Sprintf("%d messages of the stream are not processed yet; ask again when the consumer is done, or as of an earlier instant", e.Waiting)
}

// Unwrap returns why it is not known what is unprocessed.
func (e *UnsettledError) Unwrap() error { return e.Err }

// nobody stands in where nothing was given that could tell.
type nobody struct{}

func (nobody) AwaitSettled(_ context.Context, asOfMs int64) error {
	return &UnsettledError{AsOfMs: asOfMs, Err: fmt.Errorf("this program has no access to the stream")}
}

// known returns nil when the answer as of the instant (0 = no instant asked for)
// is for ever.
func (s *Service) known(ctx context.Context, asOfMs, nowMs int64) error {
	if asOfMs == 0 {
		return nil
	}
	if asOfMs > nowMs {
		return wrong("as_of", "%s is in the future; it is %s", instantIn(utc, asOfMs), instantIn(utc, nowMs))
	}
	return s.Settled.AwaitSettled(ctx, asOfMs)
}
