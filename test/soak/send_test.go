package soak_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
	"github.com/gpumeter/gpumeter/schema"
)

// sent counts what went out.
type sent struct {
	events, messages, retries atomic.Int64
}

// producers is how many send at the same time.
const producers = 3

// send sends all shipments of a round at their time, and returns when all are
// confirmed: each is offered until it is, as a producer has to.
func (p *pipeline) send(ctx context.Context, r *round, count *sent) error {
	begin := time.Now()
	errs := make([]error, producers)
	var all sync.WaitGroup
	for n := range producers {
		all.Go(func() {
			for i := n; i < len(r.shipments) && errs[n] == nil; i += producers {
				s := &r.shipments[i]
				select {
				case <-ctx.Done():
					errs[n] = ctx.Err()
				case <-time.After(time.Until(begin.Add(s.at))):
					errs[n] = p.ship(ctx, s, count)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (p *pipeline) ship(ctx context.Context, s *shipment, count *sent) error {
	if s.then != nil {
		p.clock.pair.RLock()
		defer p.clock.pair.RUnlock()
	}
	err := p.offer(ctx, s, s.list, count)
	if err == nil && s.again {
		err = p.offer(ctx, s, s.list, count)
	}
	if err == nil && s.then != nil {
		err = p.offer(ctx, s, []schema.Event{*s.then}, count)
	}
	return err
}

func (p *pipeline) offer(ctx context.Context, s *shipment, list []schema.Event, count *sent) error {
	messages, err := pack(list, s.form, s.named)
	if err != nil {
		return err
	}
	for {
		err := p.offerOnce(ctx, s.form, messages)
		if err == nil {
			count.events.Add(int64(len(list)))
			count.messages.Add(int64(len(messages)))
			return nil
		}
		var end process.Final
		if errors.As(err, &end) || ctx.Err() != nil {
			return err
		}
		count.retries.Add(1)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (p *pipeline) offerOnce(ctx context.Context, f form, messages []schema.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if f == formHTTP {
		return p.post(ctx, messages[0].Payload)
	}
	receipts, err := p.publisher.Publish(ctx, messages)
	if err != nil {
		return err
	}
	for _, r := range receipts {
		var refused *schema.Error
		if errors.As(r.Err, &refused) {
			return process.Final{Err: r.Err}
		}
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (p *pipeline) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", schema.ContentTypeBatch)
	_, err = p.do(req)
	var refused *statusError
	if errors.As(err, &refused) && refused.code < 500 {
		return process.Final{Err: fmt.Errorf("events refused for good: %w", err)}
	}
	return err
}

// pack puts events of one source into messages; for HTTP it makes one message,
// the payload of which is the request. The compact form holds usage only.
func pack(events []schema.Event, f form, named bool) ([]schema.Message, error) {
	singles := make([]schema.Message, len(events))
	parts := make([][]byte, len(events))
	usage := make([]schema.Usage, 0, len(events))
	for i := range events {
		singles[i] = schema.MessageOf(schema.DefaultTenant, &events[i])
		parts[i] = singles[i].Payload
		if !named {
			singles[i].ID = ""
		}
		if u := events[i].Usage; u != nil {
			usage = append(usage, *u)
		}
	}
	if f == formSingle {
		return singles, nil
	}
	m := singles[0]
	if f == formCompact && len(usage) == len(events) {
		var err error
		if m.Payload, err = schema.EncodeCompact(usage); err != nil {
			return nil, err
		}
		m.ContentType = schema.ContentTypeCompact
	} else {
		m.ContentType = schema.ContentTypeBatch
		m.Payload = slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	}
	if m.ID != "" {
		sum := sha256.Sum256(m.Payload)
		m.ID = hex.EncodeToString(sum[:])
	}
	return []schema.Message{m}, nil
}

// futureTolerance is that of the consumers: what ends later than that after it was
// stored is held.
const futureTolerance = 8 * time.Second

// sendFuture publishes events of a source whose clock is ahead. They have to come
// into the reports when their time has come. A round waits for that, so the time is
// short.
func (p *pipeline) sendFuture(ctx context.Context, round int, count *sent) error {
	p.clock.pair.RLock()
	start := p.clock.instant().Add(futureTolerance + 5*time.Second).UnixMilli()
	p.clock.pair.RUnlock()
	var list []schema.Event
	for i := range futureEvents {
		u := schema.Usage{Unit: fmt.Sprintf("GPU-future-%d", round), Project: "p-future", Model: "H100", StartMs: start + int64(i)*1000, EndMs: start + int64(i+1)*1000,
			ActiveMs: schema.Some(int64(i) * 100), IdleMs: schema.Some(50)}
		u.Source = "agent/ahead"
		u.Sequence = uint64(round*futureEvents + i + 1)
		u.ID = schema.UsageID(u.Unit, u.StartMs)
		list = append(list, schema.Event{Usage: &u})
	}
	for _, f := range []form{formBatch, formSingle} {
		if err := p.offer(ctx, &shipment{form: f, named: true}, list, count); err != nil {
			return err
		}
	}
	return nil
}

const futureEvents = 5
