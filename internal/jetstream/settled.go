package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// SettleMargin is how much later than its time stamp a message may show in its
// stream. The server stamps messages of a batch, and on a cluster every message,
// before it takes the lock under which they get their place.
const SettleMargin = time.Second

// Settlement says how far the messages of the stream are stored at the next
// stage. All times are of the stream's server.
type Settlement struct {
	// Until is the latest instant of which this is known: every message with an
	// earlier time stamp was acknowledged, or lost by the stream before anybody
	// could. SettleMargin is subtracted already.
	Until time.Time
	// Waiting counts the messages that were not acknowledged, as far as they
	// lie behind the first such message.
	Waiting uint64
}

// Settled asks the server how far the durable ("" = the default one of
// [SubscribeOptions]) has acknowledged the stream. It needs no Subscription: the
// process that asks is often not the one that stores.
func Settled(ctx context.Context, nc *nats.Conn, durable string) (Settlement, error) {
	if durable == "" {
		durable = "store"
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return Settlement{}, err
	}
	// The order matters. The durable comes first: a message stamped before its
	// answer is on the stream by the time the stream is asked, and a floor that
	// reaches the stream's end then is not an old one of a stream that grew.
	floor, pending, at, err := ackFloor(ctx, js, durable)
	if err != nil {
		return Settlement{}, err
	}
	stream, err := js.Stream(ctx, StreamName)
	if err != nil {
		return Settlement{}, fmt.Errorf("stream %s: %w", StreamName, err)
	}
	info := stream.CachedInfo()
	if at.IsZero() {
		at = info.TimeStamp // no durable, so only an empty stream has nothing waiting
	}
	// What the stream dropped for its age can be stored by nobody any more,
	// unless it was delivered before.
	if pending == 0 && info.State.FirstSeq > 0 {
		floor = max(floor, info.State.FirstSeq-1)
	}
	s := Settlement{Until: at.Add(-SettleMargin)}
	if floor >= info.State.LastSeq {
		return s, nil
	}
	s.Waiting = info.State.LastSeq - floor
	first, err := stream.GetMsg(ctx, floor+1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		// Delivered, dropped for its age and not settled: its time is not known.
		s.Until = time.Time{}
		return s, nil
	}
	if err != nil {
		return Settlement{}, fmt.Errorf("message %d of %s: %w", floor+1, StreamName, err)
	}
	if oldest := first.Time.Add(-SettleMargin); oldest.Before(s.Until) {
		s.Until = oldest
	}
	return s, nil
}

// ackFloor returns the sequence up to which everything is acknowledged, how many
// messages are delivered and not acknowledged, and when that was so. Without the
// durable nothing is acknowledged, and the time is zero.
func ackFloor(ctx context.Context, js jetstream.JetStream, durable string) (floor uint64, pending int, at time.Time, err error) {
	c, err := js.Consumer(ctx, StreamName, durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, 0, time.Time{}, nil
	}
	if err != nil {
		return 0, 0, time.Time{}, fmt.Errorf("consumer %s of %s: %w", durable, StreamName, err)
	}
	info := c.CachedInfo()
	return info.AckFloor.Stream, info.NumAckPending, info.TimeStamp, nil
}
