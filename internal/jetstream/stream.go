package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/schema"
)

// StreamName is the stream of the one partition of a single-node installation.
const StreamName = "USAGE_0"

// StreamOptions bound the stream of events.
type StreamOptions struct {
	Replicas int           // default 1
	MaxBytes int64         // default 12 GiB; when it is full publishing is refused
	MaxAge   time.Duration // default 72 h: how long a rebuild can replay
}

// EnsureStream creates the stream of events or brings its settings up to date.
//
// discard=new: a full stream refuses, the sender's spool keeps; discard=old
// would silently delete what nobody has read yet. Deleting and purging are
// denied for the same reason.
func EnsureStream(ctx context.Context, nc *nats.Conn, o StreamOptions) error {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 12 << 30
	}
	if o.MaxAge == 0 {
		o.MaxAge = 72 * time.Hour
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// The settings also hold the epoch, which must outlive a start.
	var metadata map[string]string
	switch old, err := js.Stream(ctx, StreamName); {
	case err == nil:
		metadata = old.CachedInfo().Config.Metadata
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("stream %s: %w", StreamName, err)
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:               StreamName,
		Description:        "gpumeter events",
		Subjects:           []string{schema.SubjectAll},
		Storage:            jetstream.FileStorage,
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		Replicas:           o.Replicas,
		MaxBytes:           o.MaxBytes,
		MaxAge:             o.MaxAge,
		Duplicates:         2 * time.Minute,
		DenyDelete:         true,
		DenyPurge:          true,
		AllowAtomicPublish: true,
		Metadata:           metadata,
	})
	if err != nil {
		return fmt.Errorf("create stream %s: %w", StreamName, err)
	}
	return nil
}

// defaultDurable is the durable that storing consumes through.
const defaultDurable = "store"

// SubscribeOptions configure a Subscription.
type SubscribeOptions struct {
	Durable string // default "store"
	// AckWait is how long a message may stay unsettled before it is delivered
	// again. Default 30 s.
	AckWait time.Duration
	// MaxUnsettled bounds the messages of the durable that are delivered and not
	// settled, over all its consumers. It must exceed the messages of two
	// batches, or no batch ever fills. Default 400,000.
	MaxUnsettled int
	// Prefetch bounds what waits in this process. Defaults 20,000 messages,
	// 16 MiB.
	PrefetchMessages int
	PrefetchBytes    int
	Clock            Clock // default: the machine's
	// History is what storage remembers of the stream. Without one a loss that
	// happened while no process was there to see it shows only where the durable
	// is ahead of the stream.
	History History
	Logger  interface{ Warn(string, ...any) }
}

// Clock tells the time, and what it was at an instant of the machine's clock, by
// which the stream's server notes when it stored a message.
type Clock interface {
	Now() time.Time
	At(real time.Time) time.Time
}

type machineClock struct{}

func (machineClock) Now() time.Time              { return time.Now() }
func (machineClock) At(real time.Time) time.Time { return real }

// Subscription delivers the stream's messages through a durable pull consumer.
// Any number of processes may share the durable. Messages are settled one by
// one (AckExplicit): acknowledging "everything up to here" would also
// acknowledge what another process has and may not have stored.
type Subscription struct {
	o          SubscribeOptions
	nc         *nats.Conn
	js         jetstream.JetStream
	deliveries chan schema.Delivery

	epoch     atomic.Uint64
	pending   atomic.Int64 // not yet delivered
	unsettled atomic.Int64 // delivered and not settled
	idle      atomic.Int64 // Unix nanoseconds of the last look that found nothing to do
	info      atomic.Pointer[error]

	mu        sync.Mutex
	newest    seen   // of the messages that were delivered
	interrupt func() // makes delivering begin again
}

// NewSubscription returns a subscription; Run starts it.
func NewSubscription(nc *nats.Conn, o SubscribeOptions) (*Subscription, error) {
	if o.Durable == "" {
		o.Durable = defaultDurable
	}
	if o.AckWait == 0 {
		o.AckWait = 30 * time.Second
	}
	if o.MaxUnsettled == 0 {
		o.MaxUnsettled = 400_000
	}
	if o.PrefetchMessages == 0 {
		o.PrefetchMessages = 20_000
	}
	if o.PrefetchBytes == 0 {
		o.PrefetchBytes = 16 << 20
	}
	if o.Clock == nil {
		o.Clock = machineClock{}
	}
	if o.History == nil {
		o.History = noHistory{}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s := &Subscription{o: o, nc: nc, js: js, deliveries: make(chan schema.Delivery, 256)}
	s.idle.Store(o.Clock.Now().UnixNano())
	return s, nil
}

// Deliveries is where messages arrive. It is never closed.
func (s *Subscription) Deliveries() <-chan schema.Delivery { return s.deliveries }

// Backlog returns how many messages wait in the stream and how many are
// delivered and not settled, as last seen, and the error if that is not known.
func (s *Subscription) Backlog() (waiting, unsettled int64, err error) {
	if e := s.info.Load(); e != nil {
		err = *e
	}
	return s.pending.Load(), s.unsettled.Load(), err
}

// LastIdle returns when there was last no backlog at all, or when the subscription
// was made.
func (s *Subscription) LastIdle() time.Time { return time.Unix(0, s.idle.Load()) }

// Run delivers until the context ends. It reconnects, re-creates the durable
// where it is gone, and never gives up.
func (s *Subscription) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.deliver(ctx)
		if ctx.Err() != nil {
			break
		}
		s.o.Logger.Warn("consuming from the stream was interrupted and goes on", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

func (s *Subscription) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, StreamName)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", StreamName, err)
	}
	epoch, err := s.checkEpoch(ctx, stream)
	if err != nil {
		return nil, err
	}
	// Before the durable is made anew: from here on no acknowledgement of an
	// earlier epoch goes out, which could settle another message of the same
	// sequence.
	s.epoch.Store(epoch)
	return s.durable(ctx, stream, epoch)
}

func (s *Subscription) deliver(ctx context.Context) error {
	c, err := s.consumer(ctx)
	if err != nil {
		return err
	}
	it, err := c.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(s.o.PrefetchMessages, s.o.PrefetchBytes),
		// A request of a process that was stopped still draws messages until it
		// expires, so it is short.
		jetstream.PullExpiry(3*time.Second),
		jetstream.PullHeartbeat(time.Second),
	)
	if err != nil {
		return err
	}
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.interrupt = cancel
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	defer it.Stop()
	for {
		m, err := it.Next()
		if err != nil {
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) && ctx.Err() != nil {
				return interrupted(whole)
			}
			return err
		}
		d, err := s.delivery(m)
		if err != nil {
			return err
		}
		select {
		case s.deliveries <- d:
		case <-ctx.Done():
			return interrupted(whole)
		}
	}
}

// interrupted says why delivering ends that was told to: for good, or to look at
// the stream again.
func interrupted(whole context.Context) error {
	if whole.Err() != nil {
		return nil
	}
	return errSuspect
}

func (s *Subscription) delivery(m jetstream.Msg) (schema.Delivery, error) {
	meta, err := m.Metadata()
	if err != nil {
		return schema.Delivery{}, fmt.Errorf("a message without metadata: %w", err)
	}
	epoch, storedNs := s.epoch.Load(), s.o.Clock.At(meta.Timestamp).UnixNano()
	if err := s.remember(meta.Sequence.Stream, storedNs); err != nil {
		return schema.Delivery{}, err
	}
	d := schema.Delivery{
		Subject:  m.Subject(),
		Payload:  m.Data(),
		Position: schema.Position{Stream: meta.Stream, Epoch: epoch, StreamSequence: meta.Sequence.Stream, StoredAtNs: storedNs},
		Settle: func() error {
			if s.epoch.Load() != epoch {
				return errOldEpoch
			}
			return m.Ack()
		},
	}
	if h := m.Headers(); h != nil {
		d.ContentType = h.Get(contentTypeHeader)
	}
	return d, nil
}

// Watch keeps the backlog figures fresh until the context ends.
func (s *Subscription) Watch(ctx context.Context, every time.Duration) error {
	for {
		err := s.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.info.Store(&err)
		} else {
			s.info.Store(nil)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// Look reads the backlog figures now.
func (s *Subscription) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := s.js.Consumer(ctx, StreamName, s.o.Durable)
	if err != nil {
		return fmt.Errorf("backlog of %s: %w", s.o.Durable, err)
	}
	info := c.CachedInfo()
	waiting := int64(info.NumPending)
	if waiting == 0 {
		// The server counts a message for its consumers a moment after it has
		// confirmed it to its publisher. How far the stream goes is known at once.
		stream, err := s.js.Stream(ctx, StreamName)
		if err != nil {
			return fmt.Errorf("stream %s: %w", StreamName, err)
		}
		state := stream.CachedInfo().State
		waiting = max(0, int64(state.LastSeq)-max(int64(info.Delivered.Stream), int64(state.FirstSeq)-1))
	}
	s.pending.Store(waiting)
	s.unsettled.Store(int64(info.NumAckPending))
	if waiting == 0 && info.NumAckPending == 0 {
		s.idle.Store(s.o.Clock.Now().UnixNano())
	}
	return s.watchEpoch(ctx)
}
