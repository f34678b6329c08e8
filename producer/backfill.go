package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// ErrNoHistory: the source only knows the present.
var ErrNoHistory = errors.New("the source has no history")

// backfillEvents is how many finished events one write to the spool carries: a
// write per tick would flush the disk for each.
const backfillEvents = 500

// Backfill meters the past of a source that is a [History], as Run would have
// done at the time: same events, same identities, through the same spool and
// stream. It begins at the next emit boundary after from, or where the spool's
// last tick is, so that a second call over the same time adds nothing and one
// that was interrupted goes on. A zero to means until now, so that Run follows
// without a gap.
//
// It returns when all is in the spool, and sends meanwhile. At the end of the
// context it returns the context's error; what is in the spool stays, and a new
// Producer over it goes on from there.
func (p *Producer) Backfill(ctx context.Context, from, to time.Time) error {
	past, ok := p.o.Source.(History)
	if !ok {
		return fmt.Errorf("producer: backfill: %w", ErrNoHistory)
	}
	if !p.running.CompareAndSwap(false, true) {
		return fmt.Errorf("producer: %w", ErrRunning)
	}
	defer p.running.Store(false)
	sending, stop := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() { sent <- p.sender.run(sending) }()
	err := p.replay(ctx, past, from, to)
	stop()
	return errors.Join(err, <-sent)
}

func (p *Producer) replay(ctx context.Context, past History, from, to time.Time) error {
	sampleMs, emitMs := p.o.SampleEvery.Milliseconds(), p.o.EmitEvery.Milliseconds()
	begin := max(schema.Floor(from.UnixMilli()+emitMs-1, emitMs), p.meter.LastTick())
	end := func() int64 {
		if to.IsZero() {
			return schema.Floor(p.o.Clock.Now().UnixMilli(), sampleMs)
		}
		return schema.Floor(to.UnixMilli(), sampleMs)
	}
	if begin >= end() {
		return nil
	}
	var finished []schema.Usage
	if begin != p.meter.LastTick() || !p.meter.holds() {
		finished = p.meter.Prime(begin, past.ReadAt(time.UnixMilli(begin).UTC()))
	}
	tick := schema.Floor(begin, sampleMs) + sampleMs
	for ; tick <= end(); tick += sampleMs {
		if ctx.Err() != nil {
			break
		}
		more, err := p.meter.Tick(tick, past.ReadAt(time.UnixMilli(tick).UTC()), nil)
		if err != nil {
			return fmt.Errorf("producer: backfill: %w", err)
		}
		if finished = append(finished, more...); len(finished) < backfillEvents {
			continue
		}
		if !p.store(ctx, tick, finished) {
			return ctx.Err()
		}
		finished = nil
	}
	if len(finished) > 0 || p.meter.LastTick() > begin {
		p.store(ctx, p.meter.LastTick(), finished)
	}
	return ctx.Err()
}
