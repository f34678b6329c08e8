package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

func (a *app) buildServer(ctx context.Context) error {
	service, statements, err := a.buildReports()
	if err != nil {
		return err
	}
	if err := a.applyPriceFiles(ctx); err != nil {
		return err
	}
	if err := a.buildControl(ctx); err != nil {
		return err
	}
	signIn, tokens, err := a.o.SignIn.build(a.o.Listen, a.o.Clock, a.o.Logger.With("part", "sign-in"))
	if err != nil {
		return err
	}
	a.tokens = tokens
	a.releaser = &releaser{
		store: a.db, publish: a.publisher.Publish, clock: a.o.Clock,
		log: a.o.Logger.With("part", "release"), at: haltPoints(a.o.Data),
	}
	a.background = append(a.background, a.releaser.run)
	listener, err := net.Listen("tcp", a.o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	a.listener = listener
	a.incidents = &watchedIncidents{}
	a.background = append(a.background, func(ctx context.Context) error { return a.incidents.watch(ctx, a.db, 5*time.Second) })
	a.onClose(func() { listener.Close() })
	a.http = web.Server(web.Handler(web.Deps{
		Reports: service, Board: service, Plans: service, Statements: statements, Prices: a.terms, Ingest: a.publisher.Publish, Quarantine: &quarantine{a: a},
		Status: a.status, Ready: a.ready, Changed: a.db.Changed, Background: func(run func(context.Context) error) { a.background = append(a.background, run) }, Tenant: a.o.Tenant, Version: a.o.Version, Log: a.o.Logger, SignIn: signIn,
		Metrics: promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}),
	}))
	return nil
}

func (a *app) buildReports() (*report.Service, *report.Statements, error) {
	terms, err := newTermsStore(a.db, a.o.Clock)
	if err != nil {
		return nil, nil, err
	}
	a.terms = terms
	service, err := report.New(report.Options{
		Store:  &usageStore{db: a.db, threshold: a.o.Threshold, grace: a.o.Grace},
		Terms:  terms.Terms,
		Budget: a.budgets.of,
		Ledger: a.db, Rated: ratedStore{&usageStore{db: a.db, threshold: a.o.Threshold, grace: a.o.Grace}},
		Settled: newSettled(func(ctx context.Context) (jetstream.Settlement, error) {
			return jetstream.Settled(ctx, a.nc, "")
		}, a.o.Clock),
		Now: a.o.Clock.Now, ThresholdMillionths: a.o.Threshold,
	})
	if err != nil {
		return nil, nil, err
	}
	statements, err := report.NewStatements(report.StatementOptions{
		Service: service, Store: a.db, Incidents: openIncidents{a.db}, Grace: a.o.Grace.Of(a.o.Tenant), Versions: a.db.TermsVersions,
	})
	if err != nil {
		return nil, nil, err
	}
	terms.closed = statements.Closed
	return service, statements, nil
}

// openIncidents are those that are open now.
type openIncidents struct{ db *clickhouse.DB }

// Incidents implements report.Incidents.
func (o openIncidents) Incidents(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Incident, error) {
	return o.db.Incidents(ctx, tenant, fromMs, toMs, 0)
}

// Status is what an operator wants to see at a glance; it is also how a script
// waits until everything that was published is in the reports.
type Status struct {
	Waiting     int64  `json:"waiting_messages"`   // in the stream, not delivered
	Unsettled   int64  `json:"unsettled_messages"` // delivered, not acknowledged
	DirtyMinute int    `json:"dirty_minutes"`      // marks of minutes to recompute
	DirtyHour   int    `json:"dirty_hours"`        // marks of hours to sum up
	Messages    int64  `json:"messages"`           // settled since the start
	Events      int64  `json:"events"`             // stored since the start
	Quarantined int64  `json:"quarantined"`        // set aside since the start
	Failures    int64  `json:"failures"`           // failed attempts to store
	Rating      int64  `json:"rating_jobs"`        // asked for and not done
	Held        int64  `json:"held_events"`        // that ended in the future when they came, and wait for their time
	SpoolEvents int64  `json:"spool_events"`       // waiting at the agents of this process
	Restarts    int    `json:"engine_restarts"`
	Prices      string `json:"prices,omitempty"` // version of the price book in force
	Error       string `json:"error,omitempty"`
}

func (a *app) status(ctx context.Context) (any, error) {
	var s Status
	var faults []error
	if a.sub != nil {
		faults = append(faults, a.sub.Look(ctx))
		s.Waiting, s.Unsettled, _ = a.sub.Backlog()
	}
	if a.consumer != nil {
		st := a.consumer.Stats()
		s.Messages, s.Events, s.Quarantined, s.Failures = st.Messages, st.Events, st.Quarantined, st.Failures
		faults = append(faults, st.Waiting)
	}
	var err error
	s.DirtyMinute, s.DirtyHour, err = a.db.CountMarks(ctx)
	faults = append(faults, err)
	s.Held = a.releaser.held.Load()
	s.Rating, err = a.control.Pending(ctx, topicRate)
	faults = append(faults, err)
	s.SpoolEvents = a.spooled()
	if a.engine != nil {
		s.Restarts = a.engine.Restarts()
	}
	versions, err := a.db.TermsVersions(ctx, a.o.Tenant, 0)
	faults = append(faults, err)
	if v := current(versions, documentName{schema.TermsBook, schema.DefaultBook}); v != nil {
		s.Prices = v.Version
	}
	if err := errors.Join(faults...); err != nil {
		s.Error = err.Error()
	}
	return s, nil
}

// ready says of every part whether it makes progress (I9).
func (a *app) ready() []web.Component {
	var parts []web.Component
	add := func(name string, err error, fine string) {
		c := web.Component{Name: name, Ready: err == nil, Detail: fine}
		if err != nil {
			c.Detail = err.Error()
		}
		parts = append(parts, c)
	}
	if a.engine != nil {
		add("clickhouse engine", a.engine.Ready(), "running, restarted "+strconv.Itoa(a.engine.Restarts())+" times")
	}
	if a.nc != nil {
		var err error
		if !a.nc.IsConnected() {
			err = fmt.Errorf("not connected to NATS: %s", a.nc.Status())
		}
		add("nats", err, "connected")
	}
	if a.consumer != nil {
		waiting, unsettled, err := a.sub.Backlog()
		add("consumer", a.consumerStuck(waiting, unsettled, err), fmt.Sprintf("%d messages waiting, %d unsettled", waiting, unsettled))
	}
	if a.driver != nil {
		st := a.driver.Status()
		var err error
		if st.Err != nil && a.o.Clock.Now().Sub(st.Last) > a.o.StuckAfter {
			err = fmt.Errorf("nothing recomputed since %s: %w", st.Last.UTC().Format(time.RFC3339), st.Err)
		}
		add("aggregator", err, fmt.Sprintf("%d hours wait to be summed up", st.Pending))
	}
	if a.rater != nil {
		err, fine := a.rater.component()
		add("rater", err, fine)
	}
	if a.incidents != nil {
		parts = append(parts, a.incidents.component())
	}
	if a.tokens != nil {
		parts = append(parts, a.tokens.component())
	}
	for _, p := range a.allProducers() {
		add("agent", p.Ready(), "sampling and sending")
	}
	add("disk", a.diskFull(), "room left")
	return parts
}

// consumerStuck says why the consumer makes no progress: there is backlog, and
// nothing was acknowledged for a while. A healthy connection is no progress.
func (a *app) consumerStuck(waiting, unsettled int64, err error) error {
	st := a.consumer.Stats()
	switch {
	case err != nil:
		return err
	case st.Waiting != nil:
		return fmt.Errorf("%d messages waiting and %d unsettled: %w", waiting, unsettled, st.Waiting)
	case waiting+unsettled > 0 && a.o.Clock.Now().Sub(later(st.LastSettled, a.sub.LastIdle())) > a.o.StuckAfter:
		return fmt.Errorf("%d messages waiting and %d unsettled, and nothing was acknowledged for over %v", waiting, unsettled, a.o.StuckAfter)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// minFree is the room below which the data directory counts as full: a few
// minutes of writing at full speed.
const minFree = 512 << 20

func (a *app) diskFull() error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(a.o.Data, &fs); err != nil {
		return fmt.Errorf("room in %s: %w", a.o.Data, err)
	}
	if free := int64(fs.Bavail) * int64(fs.Bsize); free < minFree {
		return fmt.Errorf("%d MiB left in %s, at least %d are needed", free>>20, a.o.Data, minFree>>20)
	}
	return nil
}

func (a *app) registerMetrics() {
	a.registerAuditMetrics()
	gauge := func(name, help string, f func() float64) {
		a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gpumeter", Name: name, Help: help}, f))
	}
	counter := func(name, help string, f func() float64) {
		a.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "gpumeter", Name: name, Help: help}, f))
	}
	if a.consumer != nil {
		counter("consumer_messages_total", "Messages stored and acknowledged.", func() float64 { return float64(a.consumer.Stats().Messages) })
		counter("consumer_events_total", "Events stored, duplicates included.", func() float64 { return float64(a.consumer.Stats().Events) })
		counter("consumer_quarantined_total", "Messages and events set aside.", func() float64 { return float64(a.consumer.Stats().Quarantined) })
		counter("consumer_batches_total", "Batches stored.", func() float64 { return float64(a.consumer.Stats().Batches) })
		counter("consumer_failures_total", "Failed attempts to store a batch.", func() float64 { return float64(a.consumer.Stats().Failures) })
		gauge("consumer_waiting_messages", "Messages in the stream that were not delivered yet.", func() float64 { n, _, _ := a.sub.Backlog(); return float64(n) })
		gauge("consumer_unsettled_messages", "Messages delivered and not acknowledged.", func() float64 { _, n, _ := a.sub.Backlog(); return float64(n) })
	}
	if a.driver != nil {
		counter("aggregator_windows_total", "Marks of minutes recomputed.", func() float64 { return float64(a.driver.Status().Windows) })
		counter("aggregator_cells_total", "Rows of usage per minute written.", func() float64 { return float64(a.driver.Status().Minutes) })
		gauge("aggregator_pending_hours", "Marks of hours that wait to be summed up.", func() float64 { return float64(a.driver.Status().Pending) })
	}
	if a.releaser != nil {
		gauge("held_events", "Events that ended in the future when they came, and wait for their time.", func() float64 { return float64(a.releaser.held.Load()) })
		counter("released_total", "Held events published again when their time had come.", func() float64 { return float64(a.releaser.released.Load()) })
	}
	if a.engine != nil {
		counter("engine_restarts_total", "Restarts of the embedded ClickHouse.", func() float64 { return float64(a.engine.Restarts()) })
	}
}
