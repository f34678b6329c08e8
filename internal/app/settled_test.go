package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/report"
)

// laterClock is a clock that is ahead of the machine's.
type laterClock time.Duration

func (c laterClock) Now() time.Time              { return c.At(time.Now()) }
func (c laterClock) At(real time.Time) time.Time { return real.Add(time.Duration(c)) }

// An instant is settled when it lies before the bound that the stream gives, on
// the program's clock. What was settled stays so without asking again.
func TestAwaitSettled(t *testing.T) {
	until := time.UnixMilli(testkit.At("2026-04-05T00:00:00Z"))
	looks := 0
	answer := func() (jetstream.Settlement, error) { return jetstream.Settlement{Until: until, Waiting: 2}, nil }
	s := newSettled(func(context.Context) (jetstream.Settlement, error) { looks++; return answer() }, laterClock(time.Hour))
	s.patience = 0
	const bound = "2026-04-05T01:00:00Z"
	var unsettled *report.UnsettledError
	err := s.AwaitSettled(t.Context(), testkit.At(bound))
	if !errors.As(err, &unsettled) || unsettled.Waiting != 2 || unsettled.Err != nil {
		t.Errorf("the bound itself: %v", err)
	}
	if err := s.AwaitSettled(t.Context(), testkit.At(bound)-1); err != nil {
		t.Errorf("just before: %v", err)
	}
	before := looks
	answer = func() (jetstream.Settlement, error) { return jetstream.Settlement{}, errors.New("no servers") }
	if err := s.AwaitSettled(t.Context(), testkit.At(bound)-1); err != nil || looks != before {
		t.Errorf("asked again: %v, %d looks", err, looks-before)
	}
	if err := s.AwaitSettled(t.Context(), testkit.At(bound)); !errors.As(err, &unsettled) || !strings.Contains(err.Error(), "no servers") {
		t.Errorf("without the stream: %v", err)
	}
	// The oldest message's time may not be known; then nothing new is settled.
	answer = func() (jetstream.Settlement, error) { return jetstream.Settlement{Waiting: 1}, nil }
	if err := s.AwaitSettled(t.Context(), testkit.At(bound)); !errors.As(err, &unsettled) {
		t.Errorf("with a message of unknown time: %v", err)
	}
	s.patience = time.Minute
	answer = func() (jetstream.Settlement, error) {
		until = until.Add(time.Millisecond)
		return jetstream.Settlement{Until: until}, nil
	}
	if err := s.AwaitSettled(t.Context(), testkit.At(bound)+2); err != nil {
		t.Errorf("after waiting: %v", err)
	}
}
