package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/schema"
)

// The control path runs over Watermill: re-drives, rating jobs, notifications.
// It needs retries and a poison queue per message and not much speed. This is an
// own Publisher and Subscriber because watermill-nats publishes without a
// message id, consumes through a consumer that is gone 5 s after its process,
// and ends the process on a header that is there twice.

const (
	controlStream = "CONTROL"
	controlRoot   = "gpumeter.control."
	uuidHeader    = "Watermill-Uuid"
)

// serialWait is how long a message of a serial topic is left to a process that does not
// say that it is at work.
const serialWait = 10 * time.Second

// Control is a Watermill publisher and subscriber on a JetStream stream of its
// own. Topics are subject tokens. Delivery is at least once.
type Control struct {
	js     jetstream.JetStream
	logger watermill.LoggerAdapter
	serial []string

	mu     sync.Mutex
	closed bool
	cancel []context.CancelFunc
	wait   sync.WaitGroup
}

var (
	_ message.Publisher  = (*Control)(nil)
	_ message.Subscriber = (*Control)(nil)
)

// NewControl creates the control stream and returns its publisher and subscriber. Of the
// serial topics one message at a time is handled, by all processes together.
func NewControl(ctx context.Context, nc *nats.Conn, logger watermill.LoggerAdapter, serial ...string) (*Control, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: controlStream, Subjects: []string{controlRoot + ">"}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, MaxAge: 24 * time.Hour, MaxBytes: 256 << 20, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("create stream %s: %w", controlStream, err)
	}
	return &Control{js: js, logger: logger, serial: serial}, nil
}

// Publish returns when the stream has the messages.
func (c *Control) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		msg := nats.NewMsg(controlRoot + schema.Token(topic))
		msg.Data = m.Payload
		for k, v := range m.Metadata {
			msg.Header.Set(k, v)
		}
		// The topic is part of the id: a poison queue publishes a message under
		// its own UUID on another topic, and the stream must not take that for a
		// repetition and drop it.
		msg.Header.Set(nats.MsgIdHdr, schema.Token(topic)+"/"+m.UUID)
		msg.Header.Set(uuidHeader, m.UUID)
		ctx, cancel := context.WithTimeout(m.Context(), 10*time.Second)
		_, err := c.js.PublishMsg(ctx, msg)
		cancel()
		if err != nil {
			return fmt.Errorf("publish to %s: %w", topic, err)
		}
	}
	return nil
}

// Subscribe delivers the messages of a topic through a durable of the topic's
// name, so that several processes share them.
func (c *Control) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		cancel()
		return nil, errors.New("control: subscribe after close")
	}
	c.cancel = append(c.cancel, cancel)
	c.wait.Add(1)
	c.mu.Unlock()

	out := make(chan *message.Message)
	go func() {
		defer c.wait.Done()
		defer close(out)
		c.pull(ctx, topic, out)
	}()
	return out, nil
}

// pull delivers until the context ends. The stream may be away at any time, from
// the beginning on: that is waited for.
func (c *Control) pull(ctx context.Context, topic string, out chan<- *message.Message) {
	var consumer jetstream.Consumer
	for ctx.Err() == nil {
		var batch jetstream.MessageBatch
		var err error
		if consumer == nil {
			consumer, err = c.consumer(ctx, topic)
		}
		if err == nil {
			batch, err = consumer.Fetch(16, jetstream.FetchMaxWait(2*time.Second))
		}
		if err != nil {
			if ctx.Err() == nil {
				c.logger.Error("fetch from the control stream failed and is tried again", err, watermill.LogFields{"topic": topic})
			}
			consumer = nil // perhaps it is gone
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for m := range batch.Messages() {
			if !c.hand(ctx, m, out) {
				return
			}
		}
	}
}

func (c *Control) consumer(ctx context.Context, topic string) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	pending, wait := 256, time.Minute
	if slices.Contains(c.serial, topic) {
		pending, wait = 1, serialWait // all others wait for the one of a process that died
	}
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, controlStream, jetstream.ConsumerConfig{
		Durable: schema.Token(topic), FilterSubject: controlRoot + schema.Token(topic),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait, MaxAckPending: pending, MaxDeliver: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
	}
	return consumer, nil
}

// hand gives one message to the handler and waits for its verdict. It tells the
// stream that the handler is still at work, so that a slow handler does not get
// the same message twice at once.
func (c *Control) hand(ctx context.Context, m jetstream.Msg, out chan<- *message.Message) bool {
	w := message.NewMessage("", m.Data())
	for k, v := range m.Headers() {
		if len(v) == 0 || k == nats.MsgIdHdr {
			continue
		}
		if k == uuidHeader {
			w.UUID = v[0]
			continue
		}
		w.Metadata.Set(k, v[0])
	}
	w.SetContext(ctx)
	select {
	case out <- w:
	case <-ctx.Done():
		return false
	}
	alive := time.NewTicker(serialWait / 3)
	defer alive.Stop()
	for {
		select {
		case <-w.Acked():
			if err := m.Ack(); err != nil {
				c.logger.Error("acknowledge failed, the message will come again", err, nil)
			}
			return true
		case <-w.Nacked():
			_ = m.NakWithDelay(time.Second)
			return true
		case <-alive.C:
			_ = m.InProgress()
		case <-ctx.Done():
			return false
		}
	}
}

// Pending returns how many messages of a topic are not handled yet.
func (c *Control) Pending(ctx context.Context, topic string) (int64, error) {
	consumer, err := c.js.Consumer(ctx, controlStream, schema.Token(topic))
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", topic, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", topic, err)
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}

// Close ends all subscriptions and waits for them.
func (c *Control) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, cancel := range c.cancel {
		cancel()
	}
	c.mu.Unlock()
	c.wait.Wait()
	return nil
}
