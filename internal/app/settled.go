package app

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/report"
)

// settled tells the report stage up to which instant the raw tables hold all that
// the stream stored. It implements report.Settled.
//
// It relies on time stamps of the stream that do not go back by more than
// [jetstream.SettleMargin], as a server's clock does not unless somebody sets it.
type settled struct {
	look  func(context.Context) (jetstream.Settlement, error)
	clock Clock
	// patience is how long an answer waits for the consumer, of the machine's
	// time. The default is settlePatience.
	patience time.Duration

	// until is the highest instant seen settled. What is settled stays so.
	until atomic.Int64
}

const (
	settlePatience = 5 * time.Second
	settlePoll     = 100 * time.Millisecond
)

func newSettled(look func(context.Context) (jetstream.Settlement, error), clock Clock) *settled {
	s := &settled{look: look, clock: clock, patience: settlePatience}
	s.until.Store(math.MinInt64)
	return s
}

// SettledUntil returns the latest instant, in milliseconds, up to and including
// which everything that the stream stored is in the raw tables, and how many
// messages it waits for.
func (s *settled) SettledUntil(ctx context.Context) (untilMs, waiting int64, err error) {
	look, err := s.look(ctx)
	if err != nil {
		return s.until.Load(), 0, err
	}
	if !look.Until.IsZero() {
		// Until itself is excluded: a message may bear that very stamp.
		ms := s.clock.At(look.Until).Add(-1).UnixMilli()
		for {
			seen := s.until.Load()
			if ms <= seen || s.until.CompareAndSwap(seen, ms) {
				break
			}
		}
	}
	return s.until.Load(), int64(look.Waiting), nil
}

// AwaitSettled returns nil when everything that the stream had stored by the
// instant is in the raw tables. It waits a few seconds for the consumer, and then
// fails with a *report.UnsettledError.
func (s *settled) AwaitSettled(ctx context.Context, asOfMs int64) error {
	if asOfMs <= s.until.Load() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	unsettled := &report.UnsettledError{AsOfMs: asOfMs}
	for {
		until, waiting, err := s.SettledUntil(wait)
		switch {
		case err == nil && asOfMs <= until:
			return nil
		case err == nil:
			unsettled.Waiting, unsettled.Err = waiting, nil
		case wait.Err() == nil || unsettled.Err == nil && unsettled.Waiting == 0:
			unsettled.Err = err
		}
		select {
		case <-wait.Done():
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), unsettled)
			}
			return unsettled
		case <-time.After(settlePoll):
		}
	}
}
