package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/schema"
)

// epochKey is where the stream's settings hold its epoch once that is no longer
// its creation, and where a durable holds the epoch that it reads.
const epochKey = "gpumeter-epoch"

// TailLoss says that a stream has lost its newest messages, or was restored from
// an older copy: it gives sequences to new messages that others had before.
type TailLoss struct {
	Stream string
	Epoch  uint64 // that begins with it
	Last   uint64 // newest sequence of the stream when it was seen
	Detail string
}

// History is what storage remembers of a stream.
type History interface {
	// Newest returns the newest message of an epoch that left rows, and when the
	// stream stored it; 0 when there is none.
	Newest(ctx context.Context, stream string, epoch uint64) (sequence uint64, storedNs int64, err error)
	// TailLost notes a loss. Until it returns nil nothing is delivered.
	TailLost(ctx context.Context, l TailLoss) error
}

// noHistory remembers nothing.
type noHistory struct{}

func (noHistory) Newest(context.Context, string, uint64) (uint64, int64, error) { return 0, 0, nil }
func (noHistory) TailLost(context.Context, TailLoss) error                      { return nil }

// epochOf returns the epoch of a stream. Sequences of two epochs are of two
// histories and say nothing about each other.
func epochOf(info *jetstream.StreamInfo) uint64 {
	if epoch, err := strconv.ParseUint(info.Config.Metadata[epochKey], 10, 64); err == nil {
		return epoch
	}
	return uint64(info.Created.UnixNano())
}

// seen is a message that this process or storage knows.
type seen struct {
	epoch    uint64
	sequence uint64
	storedNs int64
}

// checkEpoch returns the epoch to deliver under, and begins a new one when the
// stream is not the one that this process and storage remember.
func (s *Subscription) checkEpoch(ctx context.Context, stream jetstream.Stream) (uint64, error) {
	epoch := epochOf(stream.CachedInfo())
	var known []seen
	sequence, storedNs, err := s.o.History.Newest(ctx, StreamName, epoch)
	if err != nil {
		return 0, err
	}
	known = append(known, s.remembered(), seen{epoch, sequence, storedNs})
	fault, err := s.fault(ctx, stream, epoch, known)
	if err != nil {
		return 0, err
	}
	if fault == "" {
		s.forget()
		return epoch, nil
	}
	return s.renew(ctx, stream, epoch, fault)
}

// fault says how the stream differs from what is known of it ("" = it does not).
// What is known has to be read before: the stream only grows, so it can never
// show less than what was read earlier.
func (s *Subscription) fault(ctx context.Context, stream jetstream.Stream, epoch uint64, known []seen) (string, error) {
	var floor uint64
	c, err := stream.Consumer(ctx, s.o.Durable)
	switch {
	case err == nil:
		if info := c.CachedInfo(); readsEpoch(info, epoch) {
			floor = max(info.Delivered.Stream, info.AckFloor.Stream)
		}
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return "", fmt.Errorf("consumer %s of %s: %w", s.o.Durable, StreamName, err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", StreamName, err)
	}
	if epochOf(info) != epoch {
		return "", fmt.Errorf("stream %s: another process began a new epoch", StreamName)
	}
	if floor > info.State.LastSeq {
		return fmt.Sprintf("it ends at message %d, and message %d was delivered before", info.State.LastSeq, floor), nil
	}
	for _, k := range known {
		if k.epoch != epoch || k.sequence == 0 {
			continue
		}
		fault, err := s.differs(ctx, stream, &info.State, k)
		if fault != "" || err != nil {
			return fault, err
		}
	}
	return "", nil
}

// readsEpoch says whether a durable was made for the epoch, or for no certain one.
func readsEpoch(info *jetstream.ConsumerInfo, epoch uint64) bool {
	text := info.Config.Metadata[epochKey]
	return text == "" || text == strconv.FormatUint(epoch, 10)
}

// differs compares a known message with what the stream has in its place. A
// message is known by the nanosecond at which the stream stored it.
func (s *Subscription) differs(ctx context.Context, stream jetstream.Stream, state *jetstream.StreamState, k seen) (string, error) {
	if k.sequence > state.LastSeq {
		return fmt.Sprintf("it ends at message %d, and message %d was read before", state.LastSeq, k.sequence), nil
	}
	if k.sequence < state.FirstSeq {
		return "", nil
	}
	m, err := stream.GetMsg(ctx, k.sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", nil // lost to its age just now
	}
	if err != nil {
		return "", fmt.Errorf("message %d of %s: %w", k.sequence, StreamName, err)
	}
	if at := s.o.Clock.At(m.Time).UnixNano(); at != k.storedNs {
		return fmt.Sprintf("its message %d was stored %s, and the one that was read before %s",
			k.sequence, schema.FormatTime(at/1e6), schema.FormatTime(k.storedNs/1e6)), nil
	}
	return "", nil
}

// renew begins a new epoch. The number follows from the old one, so that
// processes that find the same fault begin the same epoch; one that an earlier
// restoring used for another history is left out.
func (s *Subscription) renew(ctx context.Context, stream jetstream.Stream, epoch uint64, fault string) (uint64, error) {
	next := epoch
	for used := true; used; {
		next++
		sequence, storedNs, err := s.o.History.Newest(ctx, StreamName, next)
		if err != nil {
			return 0, err
		}
		used = false
		if sequence > 0 {
			info, err := stream.Info(ctx)
			if err != nil {
				return 0, fmt.Errorf("stream %s: %w", StreamName, err)
			}
			other, err := s.differs(ctx, stream, &info.State, seen{next, sequence, storedNs})
			if err != nil {
				return 0, err
			}
			used = other != ""
		}
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", StreamName, err)
	}
	if epochOf(info) != epoch {
		return 0, fmt.Errorf("stream %s: another process began a new epoch", StreamName)
	}
	loss := TailLoss{Stream: StreamName, Epoch: next, Last: info.State.LastSeq, Detail: fmt.Sprintf(
		"%s was restored from an older copy or has lost its newest messages: %s. Everything that it has is read again; "+
			"what only the lost messages had shows as numbers missing at their sources", StreamName, fault)}
	if err := s.o.History.TailLost(ctx, loss); err != nil {
		return 0, fmt.Errorf("note that the tail of %s is lost: %w", StreamName, err)
	}
	c := info.Config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[epochKey] = strconv.FormatUint(next, 10)
	if _, err := s.js.UpdateStream(ctx, c); err != nil {
		return 0, fmt.Errorf("begin a new epoch of %s: %w", StreamName, err)
	}
	s.o.Logger.Warn("the stream has lost messages, it is read again from its oldest one", "stream", StreamName, "fault", fault, "epoch", next)
	return next, nil
}

// durable returns the durable of an epoch. One that reads another epoch is made
// anew, whoever began the epoch and however far that came: its place in the
// stream is one in another history.
func (s *Subscription) durable(ctx context.Context, stream jetstream.Stream, epoch uint64) (jetstream.Consumer, error) {
	name := s.o.Durable
	old, err := stream.Consumer(ctx, name)
	if err == nil && !readsEpoch(old.CachedInfo(), epoch) {
		loss := TailLoss{Stream: StreamName, Epoch: epoch, Last: stream.CachedInfo().State.LastSeq,
			Detail: StreamName + " was restored or made anew; everything that it has is read again"}
		if err := s.o.History.TailLost(ctx, loss); err != nil {
			return nil, fmt.Errorf("note that %s was made anew: %w", StreamName, err)
		}
		err = stream.DeleteConsumer(ctx, name)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("consumer %s of %s: %w", name, StreamName, err)
	}
	c, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       name,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.o.AckWait,
		MaxAckPending: s.o.MaxUnsettled,
		MaxDeliver:    -1,
		Metadata:      map[string]string{epochKey: strconv.FormatUint(epoch, 10)},
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %s of %s: %w", name, StreamName, err)
	}
	return c, nil
}

var (
	errSuspect  = errors.New("the stream looks different from before; it is compared with storage")
	errOldEpoch = errors.New("the message is of an earlier epoch of the stream; what the stream has is delivered again")
)

// remember keeps the newest message that was delivered. It fails for one that
// cannot be of the same history: in one history a later message has the higher
// sequence.
func (s *Subscription) remember(sequence uint64, storedNs int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.newest
	if epoch := s.epoch.Load(); n.epoch != epoch {
		*n = seen{epoch: epoch}
	}
	switch {
	case sequence > n.sequence:
		n.sequence, n.storedNs = sequence, storedNs
	case sequence == n.sequence && storedNs != n.storedNs, sequence < n.sequence && storedNs > n.storedNs:
		return errSuspect
	}
	return nil
}

func (s *Subscription) remembered() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// forget drops what was delivered last, after it was found to agree.
func (s *Subscription) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = seen{}
}

// watchEpoch makes delivering begin again, with a comparison with storage, when
// the stream is not what it was.
func (s *Subscription) watchEpoch(ctx context.Context) error {
	delivering := s.epoch.Load()
	if delivering == 0 {
		return nil
	}
	known := []seen{s.remembered()}
	stream, err := s.js.Stream(ctx, StreamName)
	if err != nil {
		return fmt.Errorf("stream %s: %w", StreamName, err)
	}
	changed := epochOf(stream.CachedInfo()) != delivering
	if !changed {
		fault, err := s.fault(ctx, stream, delivering, known)
		if err != nil {
			return err
		}
		changed = fault != ""
	}
	if changed {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.interrupt != nil {
			s.interrupt()
		}
	}
	return nil
}
