package app

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// quarantineStore is where items wait, see clickhouse.DB.
type quarantineStore interface {
	Held(ctx context.Context, nowMs int64) (waiting, due int64, err error)
	Due(ctx context.Context, nowMs int64, limit, maxBytes int) ([]schema.QuarantinedItem, error)
	MarkRedriven(ctx context.Context, items []schema.QuarantinedItem, nowMs int64) error
}

// releaser publishes held events again when their time has come. The stream then
// stores them after their end, so that they are taken.
//
// Any number of processes may do so at once, and each may die at any point: an
// event that was published and not noted is published again, and its identity
// makes that harmless.
type releaser struct {
	store   quarantineStore
	publish func(context.Context, []schema.Message) ([]schema.Receipt, error)
	clock   Clock
	log     *slog.Logger
	at      func(point string)

	held     atomic.Int64 // that wait, as last seen
	released atomic.Int64
}

// Points at which releaser.at is called.
const (
	atReleased      = "released" // the stream has the events
	atReleasedNoted = "released-noted"
)

// Bounds of one round of a release or a re-drive.
const (
	againItems = 1000
	againBytes = 8 << 20
)

// releaseEvery is the time between two looks for what is due.
const releaseEvery = time.Second

// run releases until the context ends.
func (r *releaser) run(ctx context.Context) error {
	for ctx.Err() == nil {
		more, err := r.pass(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("held events that are due were not all released and are tried again", "err", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(releaseEvery):
		}
	}
	return nil
}

// pass releases one round of what is due now, and says whether there may be more.
func (r *releaser) pass(ctx context.Context) (more bool, err error) {
	nowMs := r.clock.Now().UnixMilli()
	waiting, due, err := r.store.Held(ctx, nowMs)
	if err != nil {
		return false, err
	}
	r.held.Store(waiting)
	if due == 0 {
		return false, nil
	}
	items, err := r.store.Due(ctx, nowMs, againItems, againBytes)
	if err != nil {
		return false, err
	}
	done, err := offerAgain(ctx, r.publish, items, "release")
	r.at(atReleased)
	if noted := r.store.MarkRedriven(ctx, done, r.clock.Now().UnixMilli()); noted != nil {
		return false, errors.Join(err, noted)
	}
	r.at(atReleasedNoted)
	r.released.Add(int64(len(done)))
	r.held.Add(-int64(len(done)))
	return due > int64(len(done)), err
}

// offerAgain publishes items again on the subjects that they came on and returns
// those that the stream took. Their message ids are made of the round, which tells
// one request to drive again from another, and of the item, so that a repetition
// within the stream's window is dropped there.
func offerAgain(ctx context.Context, publish func(context.Context, []schema.Message) ([]schema.Receipt, error),
	items []schema.QuarantinedItem, round string,
) ([]schema.QuarantinedItem, error) {
	messages := make([]schema.Message, len(items))
	for i := range items {
		it := &items[i]
		id := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d/%d", round, it.Stream, it.Epoch, it.StreamSequence, it.Place))
		messages[i] = schema.Message{
			Subject: it.Subject, ContentType: it.ContentType, Payload: []byte(it.Raw),
			ID: base64.RawURLEncoding.EncodeToString(id[:16]),
		}
	}
	receipts, err := publish(ctx, messages)
	done := make([]schema.QuarantinedItem, 0, len(receipts))
	faults := []error{err}
	for i := range receipts {
		if receipts[i].Err == nil {
			done = append(done, items[i])
		} else if len(faults) < 4 { // the others say the same
			faults = append(faults, receipts[i].Err)
		}
	}
	return done, errors.Join(faults...)
}
