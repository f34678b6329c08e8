package producer

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/gpumeter/gpumeter/schema"
)

// Bounds of sending.
const (
	// maxBatchEvents keeps one refused event from holding up many.
	maxBatchEvents = 1000
	// maxBatchBytes leaves room below what any receiver must take.
	maxBatchBytes  = schema.MaxMessageBytes / 2
	publishTimeout = 30 * time.Second
	firstBackoff   = 100 * time.Millisecond
	maxBackoff     = 5 * time.Second
	// growAfter is how many batches a reduced size lasts before it is doubled.
	growAfter = 50
)

// sender offers the head of the spool to the stream until the stream has it. It
// sends one batch at a time, so that the stream gets the events in their order.
type sender struct {
	tenant  string
	stream  Stream
	spool   *Spool
	clock   Clock
	jitter  func() float64 // in [0, 1)
	log     *slog.Logger
	metrics *metrics

	kick   chan struct{} // ends a pause
	paused *backoff.ExponentialBackOff
	batch  []message // what is being offered; nil = take the next
	head   int       // events in it
	limit  int       // events of a batch; less after a refusal
	streak int       // batches since the limit changed

	mu      sync.Mutex
	lastAck time.Time
	lastErr error // of the latest attempt
}

func (s *sender) init() {
	s.limit, s.kick = maxBatchEvents, make(chan struct{}, 1)
	s.paused = &backoff.ExponentialBackOff{InitialInterval: firstBackoff, Multiplier: 2, MaxInterval: maxBackoff}
	s.paused.Reset()
}

// run sends until the context ends. It returns an error only when the spool
// cannot be read or written.
func (s *sender) run(ctx context.Context) error {
	for ctx.Err() == nil {
		sent, err := s.step(ctx)
		switch {
		case err != nil:
			return err
		case sent:
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.spool.Appended():
		}
	}
	return nil
}

// step sends one batch and says whether there was one. A batch that fails is
// offered again by the next step, after a pause, exactly as it was: the stream
// may have it already and knows it by its message ids.
func (s *sender) step(ctx context.Context) (bool, error) {
	if err := s.load(); err != nil || len(s.batch) == 0 {
		return false, err
	}
	failure, err := s.offer(ctx, s.batch)
	if err != nil {
		return false, err
	}
	s.note(failure)
	if failure == nil {
		s.batch = nil
		s.paused.Reset()
		s.grow()
		return true, nil
	}
	if ctx.Err() != nil {
		return true, nil
	}
	s.metrics.publishFailures.Inc()
	if s.batch == nil {
		return true, nil // a part got through; the rest heads the next batch
	}
	if isPermanent(failure) {
		return true, s.shrink(failure)
	}
	pause := time.Duration(float64(s.paused.NextBackOff()) * (0.5 + s.jitter()/2))
	s.log.Warn("the stream did not take a batch; trying again", "events", s.head, "pause", pause, "error", failure)
	select {
	case <-ctx.Done():
	case <-s.kick:
	case <-s.clock.After(pause):
	}
	return true, nil
}

// load takes the head of the spool for the next batch, unless one is pending.
func (s *sender) load() error {
	if s.batch != nil {
		return nil
	}
	head, err := s.spool.Head(s.limit, maxBatchBytes)
	if err != nil {
		return err
	}
	s.head = len(head)
	s.batch, err = s.messages(head)
	return err
}

// message is one message and the queue positions that it carries.
type message struct {
	schema.Message
	positions []uint64
}

// messages packs a head into one message for each source in it. Its id is a hash
// of its content: the same batch offered again has the same id.
func (s *sender) messages(head []Queued) ([]message, error) {
	bySource := map[string]int{}
	var events [][]schema.Usage
	var all []message
	for _, q := range head {
		i, ok := bySource[q.Event.Source]
		if !ok {
			i = len(all)
			bySource[q.Event.Source] = i
			all, events = append(all, message{}), append(events, nil)
		}
		events[i] = append(events[i], q.Event)
		all[i].positions = append(all[i].positions, q.Position)
	}
	for i := range all {
		payload, err := schema.EncodeCompact(events[i])
		if err != nil {
			return nil, fmt.Errorf("producer: encode a batch: %w", err)
		}
		address := schema.Address{Tenant: s.tenant, Source: events[i][0].Source, Kind: schema.Kinds[schema.TypeUsage]}
		sum := sha256.Sum256(append([]byte(address.Subject()+"\x00"), payload...))
		all[i].Message = schema.Message{
			Subject: address.Subject(), ID: base64.RawURLEncoding.EncodeToString(sum[:16]),
			ContentType: schema.ContentTypeCompact, Payload: payload,
		}
	}
	return all, nil
}

// offer publishes, and releases what lies before the first event that was not
// confirmed. failure is why not all was; err is a fault of the spool.
func (s *sender) offer(ctx context.Context, parts []message) (failure, err error) {
	messages := make([]schema.Message, len(parts))
	last := uint64(0)
	for i, p := range parts {
		messages[i] = p.Message
		last = max(last, p.positions[len(p.positions)-1])
	}
	publishing, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	receipts, failure := s.stream.Publish(publishing, messages)
	if failure == nil && len(receipts) != len(messages) {
		failure = fmt.Errorf("the stream gave %d receipts for %d messages", len(receipts), len(messages))
	}
	if failure != nil {
		return failure, nil
	}
	for i, r := range receipts {
		if r.Err != nil {
			last = min(last, parts[i].positions[0]-1)
			failure = errors.Join(failure, r.Err)
		}
	}
	confirmed := 0
	for _, p := range parts {
		n, _ := slices.BinarySearch(p.positions, last+1)
		confirmed += n
	}
	// Confirmed events behind the first unconfirmed one stay and are sent again:
	// that may repeat them, and never loses or reorders one.
	if confirmed > 0 {
		if err := s.spool.Release(last); err != nil {
			return nil, err
		}
		s.metrics.sent.Add(float64(confirmed))
		s.ack()
		s.batch = nil
	}
	return failure, nil
}

// shrink reacts to a refusal for good: halve the batch until the event at fault
// stands alone, then set it aside, loudly.
func (s *sender) shrink(failure error) error {
	position := s.batch[0].positions[0]
	s.batch, s.streak = nil, 0
	if s.head > 1 {
		s.limit = s.head / 2
		s.log.Warn("the stream refuses a batch for good; trying a smaller one", "events", s.head, "next", s.limit, "error", failure)
		return nil
	}
	s.log.Error("the stream refuses an event for good; it is set aside in the spool and missing from all reports",
		"position", position, "error", failure)
	return s.spool.SetAside(position, failure.Error())
}

func (s *sender) grow() {
	if s.streak++; s.streak >= growAfter && s.limit < maxBatchEvents {
		s.limit, s.streak = min(2*s.limit, maxBatchEvents), 0
	}
}

func isPermanent(err error) bool {
	var content *schema.Error
	var p interface{ Permanent() bool }
	return errors.As(err, &content) || errors.As(err, &p) && p.Permanent()
}

// wake ends a pause, for a last attempt before the program stops.
func (s *sender) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *sender) ack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAck = s.clock.Now()
}

func (s *sender) note(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = failure
}

// progress returns when the stream last confirmed something and what the latest
// attempt failed of.
func (s *sender) progress() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastAck, s.lastErr
}
