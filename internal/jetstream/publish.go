package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/gpumeter/gpumeter/schema"
)

const contentTypeHeader = "Content-Type"

// Publisher puts messages on the stream and waits until they are durable there.
// It is safe for concurrent use.
type Publisher struct {
	nc *nats.Conn
	js jetstream.JetStream
	// Timeout bounds the wait for one answer of the stream.
	Timeout time.Duration
}

// NewPublisher returns a publisher on the connection.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	return &Publisher{nc: nc, js: js, Timeout: 10 * time.Second}, nil
}

// maxAtomic is the server's default bound of one atomic batch.
const maxAtomic = 1000

// Publish offers the messages and returns one receipt for each, in their order.
//
// Several messages go as an atomic batch, which the server syncs to disk once.
// The server refuses a batch of which it has any message already, and does not
// say which; then, and whenever the outcome of a batch is unknown, each message
// is offered alone under the same id, which tells stored from duplicate.
func (p *Publisher) Publish(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, 0, len(messages))
	for from := 0; from < len(messages); from += maxAtomic {
		part := messages[from:min(from+maxAtomic, len(messages))]
		got, err := p.batch(ctx, part)
		if err != nil {
			if ctx.Err() != nil {
				return receipts, err
			}
			got, err = p.single(ctx, part)
		}
		if err != nil {
			return receipts, err
		}
		receipts = append(receipts, got...)
	}
	return receipts, nil
}

var errAlone = errors.New("a batch of one goes alone")

func (p *Publisher) batch(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	if len(messages) < 2 || p.nc.Status() != nats.CONNECTED {
		return nil, errAlone // single says what is wrong with the connection
	}
	msgs := make([]*nats.Msg, len(messages))
	for i := range messages {
		msgs[i] = natsMsg(&messages[i])
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	ack, err := jetstreamext.PublishMsgBatch(ctx, p.js, msgs)
	if err != nil {
		return nil, err
	}
	receipts := make([]schema.Receipt, len(messages))
	for i := range receipts {
		receipts[i].Sequence = ack.Sequence - uint64(len(messages)-1-i)
	}
	return receipts, nil
}

func (p *Publisher) single(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	if p.nc.Status() != nats.CONNECTED {
		return nil, fmt.Errorf("publish: no connection to NATS (%s)", p.nc.Status())
	}
	receipts := make([]schema.Receipt, len(messages))
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i := range messages {
		f, err := p.js.PublishMsgAsync(natsMsg(&messages[i]), jetstream.WithStallWait(p.Timeout))
		if err != nil {
			receipts[i].Err = publishError(&messages[i], err)
			continue
		}
		futures[i] = f
	}
	for i, f := range futures {
		if f == nil {
			continue
		}
		select {
		case ack := <-f.Ok():
			receipts[i].Sequence, receipts[i].Duplicate = ack.Sequence, ack.Duplicate
		case err := <-f.Err():
			receipts[i].Err = publishError(&messages[i], err)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return receipts, nil
}

// publishError says which refusals are for good: offering such a message again
// would only keep everything behind it waiting.
func publishError(m *schema.Message, err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return &schema.Error{Kind: schema.KindTooLarge, Msg: fmt.Sprintf("message of %d bytes is larger than the NATS server allows", len(m.Payload))}
	}
	return fmt.Errorf("publish %s: %w", m.Subject, err)
}

func natsMsg(m *schema.Message) *nats.Msg {
	msg := nats.NewMsg(m.Subject)
	msg.Data = m.Payload
	if m.ID != "" {
		msg.Header.Set(nats.MsgIdHdr, m.ID)
	}
	if m.ContentType != "" {
		msg.Header.Set(contentTypeHeader, m.ContentType)
	}
	return msg
}
