package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// topicRate carries jobs of rating. The control stream hands out one at a time, whatever
// number of processes there are, so that no two book the same at once; should that fail,
// they give the same entries.
const topicRate = "rate"

// rateJob asks for the ledger of a tenant to be made to say what its lines say.
type rateJob struct {
	Tenant    string   `json:"tenant"`
	Instances []string `json:"instances,omitempty"` // none = all
	FromMs    int64    `json:"from_ms"`             // lines that end later
	Why       string   `json:"why"`
}

// Bounds of jobs.
const (
	maxRatedInstances = 50     // beyond it a job is of all
	maxEntries        = 20_000 // stored at once: each carries a few kilobytes of text
	rateWindow        = 35 * 24 * time.Hour
	overlapRated      = time.Minute // that what several consumers store may come out of order
)

// raterStore is the ledger, and what tells that it may be behind.
type raterStore interface {
	PutCharges(ctx context.Context, entries []schema.Charge) error
	ChargedLines(ctx context.Context, tenant string, instances []string, fromMs int64) ([]schema.ChargedLine, error)
	ChargeRows(ctx context.Context, tenant string, lines []string) (map[string]schema.Charge, error)
	RatedArrivals(ctx context.Context) ([]clickhouse.Arrived, error)
	InstancesSince(ctx context.Context, tenant string, afterNs int64, limit int) ([]string, error)
}

// rater books charges. It looks for what came in and asks for jobs over the control path;
// the jobs come back to whoever is free.
type rater struct {
	store raterStore
	rated func(ctx context.Context, tenant string, instances []string, nowMs int64) (*pricing.Usage, error)
	terms func(ctx context.Context, tenant string, asOfMs int64) (*pricing.Terms, error)
	ask   func(ctx context.Context, job rateJob) error
	clock Clock
	log   *slog.Logger
	at    func(point string)

	seen map[string]clickhouse.Arrived // by tenant; what jobs were asked for
	hour map[string]int64              // by tenant; the last one that all was asked for in

	asked, done, entries atomic.Int64
	failed               atomic.Pointer[error]
}

// Points at which rater.at is called.
const (
	atRated      = "rated"       // the entries are made and not stored
	atRatedNoted = "rated-noted" // they are stored, and the job is not acknowledged
)

// rateEvery is the time between two looks for what came in.
const rateEvery = time.Second

func (a *app) newRater() *rater {
	rated := ratedStore{&usageStore{db: a.db, threshold: a.o.Threshold, grace: a.o.Grace}}
	return &rater{
		store: a.db, rated: rated.some, terms: a.terms.Terms, clock: a.o.Clock, log: a.o.Logger.With("part", "rater"), at: haltPoints(a.o.Data),
		ask: func(ctx context.Context, job rateJob) error {
			b, err := json.Marshal(job)
			if err != nil {
				return err
			}
			m := message.NewMessage(watermill.NewUUID(), b)
			m.SetContext(ctx)
			return a.control.Publish(topicRate, m)
		},
		seen: map[string]clickhouse.Arrived{}, hour: map[string]int64{},
	}
}

// run looks until the context ends.
func (r *rater) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.look(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("what is to be rated was not found out and is looked for again", "err", err)
		}
		r.note(err)
		select {
		case <-ctx.Done():
		case <-time.After(rateEvery):
		}
	}
	return nil
}

func (r *rater) note(err error) {
	if err == nil {
		r.failed.Store(nil)
	} else {
		r.failed.Store(&err)
	}
}

// look asks for a job wherever something came in since the last one, and once an hour
// for all of a tenant: time has gone by, and whatever slipped through is found.
func (r *rater) look(ctx context.Context) error {
	list, err := r.store.RatedArrivals(ctx)
	if err != nil {
		return err
	}
	now := r.clock.Now()
	for _, is := range list {
		was, known := r.seen[is.Tenant]
		job := rateJob{Tenant: is.Tenant}
		switch hour := schema.Floor(now.UnixMilli(), schema.HourMs); {
		case !known || is.Terms != was.Terms:
			job.Why = "terms"
		case is.Others != was.Others:
			job.Why = "outages and corrections"
		case is.Leases != was.Leases || is.Meters != was.Meters:
			job.Why = "events"
			job.Instances, err = r.store.InstancesSince(ctx, is.Tenant, was.LatestNs-overlapRated.Nanoseconds(), maxRatedInstances+1)
			if err != nil {
				return err
			}
			if n := len(job.Instances); n == 0 || n > maxRatedInstances || slices.Contains(job.Instances, "") {
				job.Instances = nil
			}
		case hour > r.hour[is.Tenant]:
			job.Why, job.FromMs = "an hour has passed", now.Add(-rateWindow).UnixMilli()
		default:
			continue
		}
		if err := r.ask(ctx, job); err != nil {
			return err
		}
		r.asked.Add(1)
		r.seen[is.Tenant] = is
		if job.Instances == nil {
			r.hour[is.Tenant] = schema.Floor(now.UnixMilli(), schema.HourMs)
		}
	}
	return nil
}

// handle does a job. It is handled at least once: what is booked already is not booked
// again.
func (r *rater) handle(m *message.Message) error {
	var job rateJob
	if err := json.Unmarshal(m.Payload, &job); err != nil {
		return fmt.Errorf("rating job: %w", err)
	}
	n, err := r.rate(m.Context(), &job)
	if err != nil {
		return fmt.Errorf("rating %q (%s): %w", job.Tenant, job.Why, err)
	}
	r.done.Add(1)
	r.entries.Add(int64(n))
	return nil
}

// rate books what is settled by now and is not in the ledger, and takes back what is
// there and says something else. It returns how many entries that took.
func (r *rater) rate(ctx context.Context, job *rateJob) (int, error) {
	terms, err := r.terms(ctx, job.Tenant, 0)
	if err != nil {
		return 0, err
	}
	now := r.clock.Now().UnixMilli()
	instances := job.Instances
	usage, posted, err := r.read(ctx, job, instances, now)
	if err == nil && instances != nil && !alone(terms, usage) {
		instances = nil
		usage, posted, err = r.read(ctx, job, nil, now)
	}
	if err != nil {
		return 0, err
	}
	if first, any := terms.Begins(usage); any && first < now {
		usage.Cuts = append(usage.Cuts, pricing.Midnights(pricing.Span{FromMs: first, ToMs: now})...)
	}
	lines := terms.Settled(terms.Rate(usage), now)
	if instances != nil {
		// What contracts buy is nobody's, and not of this job.
		lines = slices.DeleteFunc(lines, func(l pricing.Line) bool { return !slices.Contains(instances, l.Instance) })
	}
	lines = slices.DeleteFunc(lines, func(l pricing.Line) bool { return l.ToMs <= job.FromMs })
	postings := pricing.Post(lines, postedOf(posted), now)
	for part := range slices.Chunk(postings, maxEntries) {
		entries, err := r.entriesOf(ctx, job, part, now)
		if err != nil {
			return 0, err
		}
		r.at(atRated)
		if err := r.store.PutCharges(ctx, entries); err != nil {
			return 0, err
		}
		r.at(atRatedNoted)
	}
	return len(postings), nil
}

// read returns what was used by instances, nil = all, and what the ledger says of them.
func (r *rater) read(ctx context.Context, job *rateJob, instances []string, now int64) (usage *pricing.Usage, posted []schema.ChargedLine, err error) {
	g, within := errgroup.WithContext(ctx)
	g.Go(func() (err error) { usage, err = r.rated(within, job.Tenant, instances, now); return err })
	g.Go(func() (err error) {
		posted, err = r.store.ChargedLines(within, job.Tenant, instances, job.FromMs)
		return err
	})
	return usage, posted, g.Wait()
}

// alone says whether the instances can be rated without others.
func alone(terms *pricing.Terms, u *pricing.Usage) bool {
	for _, rental := range u.Rentals {
		for i := range rental.Segments {
			if !terms.Alone(rental.Segments[i].Platform) {
				return false
			}
		}
	}
	return true
}

func postedOf(list []schema.ChargedLine) []pricing.Posted {
	posted := make([]pricing.Posted, len(list))
	for i := range list {
		c := &list[i]
		posted[i] = pricing.Posted{
			Line: c.Line, Instance: c.Instance, Commitment: c.Commitment, Entries: c.Entries, HorizonMs: c.HorizonMs,
		}
	}
	return posted
}

// entriesOf writes postings as the ledger keeps them. An entry that takes a line back
// says all that the line said.
func (r *rater) entriesOf(ctx context.Context, job *rateJob, postings []pricing.Posting, nowMs int64) ([]schema.Charge, error) {
	var back []string
	for i := range postings {
		if postings[i].Reversal {
			back = append(back, postings[i].Line)
		}
	}
	taken := map[string]schema.Charge{}
	for part := range slices.Chunk(back, 1000) {
		rows, err := r.store.ChargeRows(ctx, job.Tenant, part)
		if err != nil {
			return nil, err
		}
		for line, row := range rows {
			taken[line] = row
		}
	}
	entries := make([]schema.Charge, len(postings))
	for i := range postings {
		p := &postings[i]
		c, known := taken[p.Line]
		if p.Reversal && !known {
			return nil, fmt.Errorf("the line %s is in the ledger and cannot be read", p.Line)
		}
		if !p.Reversal {
			c = chargeOf(p.Of)
		}
		c.Tenant, c.Entry, c.Line, c.Reversal, c.Number = job.Tenant, p.ID, p.Line, p.Reversal, p.Number
		c.BookedAtMs, c.HorizonMs, c.Correction, c.Why = nowMs, p.HorizonMs, p.Correction, job.Why
		entries[i] = c
	}
	return entries, nil
}

func chargeOf(l *pricing.Line) schema.Charge {
	s := &l.Segment
	return schema.Charge{
		Category: string(l.Category), Status: string(l.Status), Meter: l.Meter, FromMs: l.FromMs, ToMs: l.ToMs, Instance: l.Instance,
		Project: s.Project, Platform: s.Platform, Region: s.Region, Model: s.Model, Plan: s.Plan, Gpus: s.Gpus, Commitment: l.Commitment, Contract: l.Contract,
		MeteredMs: l.MeteredMs, ExcludedMs: l.ExcludedMs, BillableMs: l.BillableMs, Quantity: exactText(l.Quantity), Currency: l.Currency,
		ListPrice: exactText(l.List), Price: exactText(l.Price), Version: l.Version, ListCost: exactText(l.ListCost), Cost: exactText(l.Cost),
		Billed: exactText(l.Billed), Effective: exactText(l.Effective), Evidence: l.Evidence, Content: report.ChargeJSON(l),
	}
}

// component says whether rating makes progress.
func (r *rater) component() (err error, fine string) {
	if p := r.failed.Load(); p != nil {
		err = *p
	}
	return err, fmt.Sprintf("%d entries booked in %d jobs", r.entries.Load(), r.done.Load())
}
