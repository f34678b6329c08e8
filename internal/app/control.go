package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

const topicRedrive = "redrive"

// redriveJob asks for some quarantined items to be driven again. It names the
// items and does not carry their bytes: they may be no text, and too many for a
// message.
type redriveJob struct {
	Items []redriveItem `json:"items"`
}

type redriveItem struct {
	Tenant   string `json:"tenant"`
	Stream   string `json:"stream"`
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
	Place    int32  `json:"place"`
}

// maxJobItems bounds one job, so that its message stays far below what the
// stream takes.
const maxJobItems = 500

// buildControl starts the control path: a Watermill router whose handlers are
// retried, and whose failures go to a poison topic instead of blocking the rest.
func (a *app) buildControl(ctx context.Context) error {
	logger := watermill.NewSlogLogger(slog.New(quiet{a.o.Logger.With("part", "control").Handler()}))
	err := a.retry(ctx, "waiting for NATS", func(ctx context.Context) (err error) {
		a.control, err = jetstream.NewControl(ctx, a.nc, logger, topicRate)
		return err
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, logger)
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueue(a.control, "failed")
	if err != nil {
		return err
	}
	// The poison queue is outermost: it sees an error only when the retries
	// inside it are used up.
	router.AddMiddleware(poison,
		middleware.Retry{MaxRetries: 5, InitialInterval: 200 * time.Millisecond, MaxInterval: 5 * time.Second, Multiplier: 2, Logger: logger}.Middleware,
		middleware.Recoverer)
	router.AddConsumerHandler("redrive", topicRedrive, a.control, a.redrive)
	a.rater = a.newRater()
	router.AddConsumerHandler("rate", topicRate, a.control, a.rater.handle)
	a.background = append(a.background, a.rater.run)
	a.background = append(a.background, func(ctx context.Context) error {
		defer a.control.Close()
		return router.Run(ctx)
	})
	return nil
}

// quiet keeps the router's chatter below warnings out of the log.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// redrive publishes quarantined items again on the subjects they came on. It is
// handled at least once; the message ids make a repeat within two minutes a
// duplicate, and identity makes a later one harmless.
func (a *app) redrive(m *message.Message) error {
	var job redriveJob
	if err := json.Unmarshal(m.Payload, &job); err != nil {
		return fmt.Errorf("re-drive job: %w", err)
	}
	rest := make([]schema.QuarantinedItem, len(job.Items))
	for i, it := range job.Items {
		rest[i] = schema.QuarantinedItem{Tenant: it.Tenant, Stream: it.Stream, Epoch: it.Epoch, StreamSequence: it.Sequence, Place: it.Place}
	}
	for len(rest) > 0 {
		items, err := a.db.Reread(m.Context(), rest, againBytes)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return fmt.Errorf("re-drive job: none of its %d items is in the quarantine, %s/%d of tenant %q neither", len(rest), rest[0].Stream, rest[0].StreamSequence, rest[0].Tenant)
		}
		done, err := offerAgain(m.Context(), a.publisher.Publish, items, "redrive/"+m.UUID)
		if err := errors.Join(err, a.db.MarkRedriven(m.Context(), done, a.o.Clock.Now().UnixMilli())); err != nil {
			return err
		}
		rest = without(rest, items)
	}
	return nil
}

// without returns the items of list that are not in taken.
func without(list, taken []schema.QuarantinedItem) []schema.QuarantinedItem {
	gone := make(map[redriveItem]bool, len(taken))
	for i := range taken {
		gone[refOf(&taken[i])] = true
	}
	return slices.DeleteFunc(list, func(it schema.QuarantinedItem) bool { return gone[refOf(&it)] })
}

func refOf(it *schema.QuarantinedItem) redriveItem {
	return redriveItem{Tenant: it.Tenant, Stream: it.Stream, Epoch: it.Epoch, Sequence: it.StreamSequence, Place: it.Place}
}

// quarantine gives the HTTP API access to what could not be accepted.
type quarantine struct{ a *app }

// List implements web.Quarantine. The cursor is the number of items already seen.
func (q *quarantine) List(ctx context.Context, tenant string, limit int, after string) ([]schema.QuarantinedItem, string, error) {
	skip := 0
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 {
			return nil, "", fmt.Errorf("cursor %q: %w", after, web.ErrNotFound)
		}
		skip = n
	}
	items, err := q.a.db.Quarantine(ctx, tenant, skip+limit+1, false)
	if err != nil || len(items) <= skip {
		return nil, "", err
	}
	items = items[skip:]
	if len(items) > limit {
		return items[:limit], strconv.Itoa(skip + limit), nil
	}
	return items, "", nil
}

// Redrive implements web.Quarantine: it hands the items to the control path and
// returns when that has them.
func (q *quarantine) Redrive(ctx context.Context, tenant string, refs []web.Ref) (int, error) {
	items, err := q.a.db.Quarantine(ctx, tenant, maxRedrive, len(refs) == 0)
	if err != nil {
		return 0, err
	}
	if len(refs) > 0 {
		if items, err = pick(items, refs); err != nil {
			return 0, err
		}
	}
	given := 0
	for part := range slices.Chunk(items, maxJobItems) {
		job := redriveJob{}
		for i := range part {
			job.Items = append(job.Items, refOf(&part[i]))
		}
		b, err := json.Marshal(job)
		if err != nil {
			return given, err
		}
		m := message.NewMessage(watermill.NewUUID(), b)
		m.SetContext(ctx)
		if err := q.a.control.Publish(topicRedrive, m); err != nil {
			return given, err
		}
		given += len(part)
	}
	return len(items), nil
}

// maxRedrive bounds one request; asking again takes the rest.
const maxRedrive = 10_000

func pick(items []schema.QuarantinedItem, refs []web.Ref) ([]schema.QuarantinedItem, error) {
	byRef := make(map[web.Ref]int, len(items))
	for i := range items {
		byRef[web.RefOf(&items[i])] = i
	}
	var picked []schema.QuarantinedItem
	for _, r := range refs {
		i, ok := byRef[r]
		if !ok {
			return nil, fmt.Errorf("quarantined item %s: %w", r, web.ErrNotFound)
		}
		picked = append(picked, items[i])
	}
	return picked, nil
}
