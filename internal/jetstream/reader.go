package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/schema"
)

// Reader reads the stream without consuming from it.
type Reader struct {
	js      jetstream.JetStream
	durable string
	clock   Clock
}

// NewReader returns a reader that knows how far a durable has settled. A nil clock
// is the machine's.
func NewReader(nc *nats.Conn, durable string, clock Clock) (*Reader, error) {
	if durable == "" {
		durable = defaultDurable
	}
	if clock == nil {
		clock = machineClock{}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Reader{js: js, durable: durable, clock: clock}, nil
}

// State says where the stream and the durable stand. A durable that is of another
// epoch has settled nothing of this one.
func (r *Reader) State(ctx context.Context) (schema.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := schema.StreamState{Stream: StreamName}
	var reads *jetstream.ConsumerInfo
	c, err := r.js.Consumer(ctx, StreamName, r.durable)
	switch {
	case err == nil:
		reads = c.CachedInfo()
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return s, fmt.Errorf("consumer %s of %s: %w", r.durable, StreamName, err)
	}
	stream, err := r.js.Stream(ctx, StreamName)
	if err != nil {
		return s, fmt.Errorf("stream %s: %w", StreamName, err)
	}
	info := stream.CachedInfo()
	s.Epoch, s.First, s.Last = epochOf(info), info.State.FirstSeq, info.State.LastSeq
	if reads != nil && readsEpoch(reads, s.Epoch) && reads.AckFloor.Stream <= s.Last {
		s.Floor = reads.AckFloor.Stream
	}
	return s, nil
}

// Message reads one message; nil when the stream does not have it any more.
func (r *Reader) Message(ctx context.Context, sequence uint64) (*schema.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := r.js.Stream(ctx, StreamName)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", StreamName, err)
	}
	m, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("message %d of %s: %w", sequence, StreamName, err)
	}
	d := &schema.Delivery{
		Subject: m.Subject, Payload: m.Data,
		Position: schema.Position{
			Stream: StreamName, Epoch: epochOf(stream.CachedInfo()), StreamSequence: sequence, StoredAtNs: r.clock.At(m.Time).UnixNano(),
		},
	}
	if m.Header != nil {
		d.ContentType = m.Header.Get(contentTypeHeader)
	}
	return d, nil
}
