package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/audit"
	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/producer"
	"github.com/gpumeter/gpumeter/web"
)

// Run runs the program until the context ends, then stops it in two steps: first
// what takes in (agents, HTTP), then what works it off.
//
//	agents --> spool --> NATS --> consumer --> ClickHouse <-- aggregator
//	                      ^                        |
//	          HTTP ingest-+                        +--> reports over HTTP
func Run(ctx context.Context, o Options) error {
	if err := o.fill(); err != nil {
		return err
	}
	a := &app{o: o, registry: prometheus.NewRegistry()}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer a.close()
	if err := a.build(ctx); err != nil {
		return err
	}
	return a.run(ctx)
}

type app struct {
	o        Options
	registry *prometheus.Registry
	prices   []web.PriceFile
	budgets  *budgets
	terms    *termsStore
	closers  []func() // last in, first out

	engine     *engine.Engine
	broker     *jetstream.Server
	nc         *nats.Conn
	publisher  *jetstream.Publisher
	control    *jetstream.Control
	db         *clickhouse.DB
	dsn        string // of other processes
	sub        *jetstream.Subscription
	consumer   *consumer.Consumer
	driver     *aggregator.Driver
	releaser   *releaser
	rater      *rater
	auditor    *audit.Auditor
	incidents  *watchedIncidents
	tokens     *tokensFile // nil = no sign-in
	producers  []*producer.Producer
	histories  []*producer.Producer // those with a past to fill in first
	http       *http.Server
	listener   net.Listener
	background []func(context.Context) error // end with the pipeline
	spools     []*producer.Spool
}

func (a *app) allProducers() []*producer.Producer {
	return append(slices.Clone(a.producers), a.histories...)
}

// spooled counts the events that wait at this process's agents.
func (a *app) spooled() (n int64) {
	for _, s := range a.spools {
		n += s.Stats().Events
	}
	return n
}

func (a *app) onClose(f func()) { a.closers = append(a.closers, f) }

func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
	a.closers = nil
}

// build makes everything in the order in which one thing needs the other. What
// was built is closed again when a later part fails.
func (a *app) build(ctx context.Context) error {
	var err error
	if a.prices, err = readPriceFiles(a.o.priceFiles()); err != nil {
		return err
	}
	if a.budgets, err = readBudgets(a.o.Budgets); err != nil {
		return err
	}
	known := readEndpoints(a.o.Data)
	if err := a.startEngine(ctx, known); err != nil {
		return err
	}
	if err := a.startBroker(ctx, known); err != nil {
		return err
	}
	if a.o.Roles.needsDB() {
		if err := a.openDB(ctx); err != nil {
			return err
		}
	}
	if a.o.Roles.Consume {
		if err := a.buildConsumer(); err != nil {
			return err
		}
	}
	if a.o.Roles.Aggregate {
		if err := a.buildAggregator(ctx); err != nil {
			return err
		}
		if err := a.buildAuditor(); err != nil {
			return err
		}
	}
	if a.o.Roles.Agent {
		if err := a.buildProducers(); err != nil {
			return err
		}
	}
	if a.o.Roles.Serve {
		if err := a.buildServer(ctx); err != nil {
			return err
		}
	}
	a.registerMetrics()
	return nil
}

func (a *app) startEngine(ctx context.Context, known endpoints) error {
	switch {
	case a.o.ClickHouseDSN != "":
		a.dsn = a.o.ClickHouseDSN
	case a.o.Roles.Engine:
		e, err := engine.Start(ctx, engine.Options{
			Dir: a.o.path("clickhouse"), Library: a.o.EngineLibrary, HTTPPort: a.o.EngineHTTPPort, Command: a.o.EngineCommand, Logger: a.o.Logger.With("part", "engine"),
			MaxMemory: a.o.EngineMemory,
		})
		if err != nil {
			return err
		}
		a.engine = e
		a.onClose(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				a.o.Logger.Error("stopping the engine", "err", err)
			}
		})
		a.dsn = "http://" + e.HTTPAddr() + "/" + clickhouse.DefaultDatabase
	case a.o.Roles.needsDB():
		if known.ClickHouse == "" {
			return fmt.Errorf("no --clickhouse given, and no running gpumeter in %s to take it from", a.o.Data)
		}
		a.dsn = known.ClickHouse
	}
	return nil
}

func (a *app) startBroker(ctx context.Context, known endpoints) error {
	var options []nats.Option
	target := a.o.NATSURL
	switch {
	case target != "":
	case a.o.Roles.Broker:
		s, err := jetstream.StartServer(jetstream.ServerOptions{Dir: a.o.path("nats"), Listen: a.o.NATSListen, Unsynced: a.o.UnsyncedStream})
		if err != nil {
			return err
		}
		a.broker, target, options = s, s.URL(), []nats.Option{s.InProcess()}
		a.onClose(s.Stop)
	case a.o.Roles.needsStream():
		if target = known.NATS; target == "" {
			return fmt.Errorf("no --nats given, and no running gpumeter in %s to take it from", a.o.Data)
		}
	case a.o.Roles.Aggregate && a.o.AuditEvery > 0 && known.NATS != "":
		target = known.NATS
	default:
		return nil
	}
	a.o.NATSURL = target
	nc, err := jetstream.Connect(target, "gpumeter", a.o.Logger.With("part", "nats"), options...)
	if err != nil {
		return err
	}
	a.nc = nc
	a.onClose(nc.Close)
	if a.publisher, err = jetstream.NewPublisher(nc); err != nil {
		return err
	}
	if !a.o.Roles.needsStream() && !a.o.Roles.Broker {
		return nil
	}
	ensure := func(ctx context.Context) error { return jetstream.EnsureStream(ctx, nc, jetstream.StreamOptions{}) }
	if a.o.Roles.Agent && a.broker == nil {
		// An agent must be able to start, sample and spool while the stream is
		// away; it only publishes and needs nothing of it.
		return nil
	}
	return a.retry(ctx, "waiting for NATS", ensure)
}

// retry tries until it works or the context ends, and says what it waits for.
func (a *app) retry(ctx context.Context, what string, f func(context.Context) error) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !clickhouse.Transient(err) {
			return err
		}
		a.o.Logger.Warn(what, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (a *app) openDB(ctx context.Context) error {
	return a.retry(ctx, "waiting for ClickHouse", func(ctx context.Context) error {
		db, err := clickhouse.Open(ctx, a.dsn)
		if err != nil {
			return err
		}
		if _, err := db.Migrate(ctx); err != nil {
			db.Close()
			return err
		}
		a.db = db
		a.onClose(func() { db.Close() })
		return nil
	})
}

func (a *app) buildConsumer() error {
	sub, err := jetstream.NewSubscription(a.nc, jetstream.SubscribeOptions{AckWait: a.o.AckWait, Clock: a.o.Clock,
		History: &history{db: a.db, now: a.o.Clock.Now}, Logger: a.o.Logger.With("part", "consumer")})
	if err != nil {
		return err
	}
	at := haltPoints(a.o.Data)
	a.db.OnMidInsert = func() { at("mid-insert") }
	c, err := consumer.New(consumer.Options{
		Deliveries: sub.Deliveries(), Marks: a.db, MaxRows: a.o.BatchRows, MaxAge: a.o.BatchAge,
		NewBatch: func() consumer.Batch { return a.db.NewBatch() },
		Now:      a.o.Clock.Now, Logger: a.o.Logger.With("part", "consumer"), At: at, FutureTolerance: a.o.FutureTolerance,
	})
	if err != nil {
		return err
	}
	a.sub, a.consumer = sub, c
	a.background = append(a.background, sub.Run, c.Run,
		func(ctx context.Context) error { return sub.Watch(ctx, time.Second) })
	return nil
}

func (a *app) buildAggregator(ctx context.Context) error {
	d, err := aggregator.NewDriver(aggregator.Options{
		Store: a.db, Every: a.o.DebounceFor, HourEvery: a.o.HourEvery, Threshold: a.o.Threshold,
		Now: a.o.Clock.Now, Logger: a.o.Logger.With("part", "aggregator"), At: haltPoints(a.o.Data),
	})
	if err != nil {
		return err
	}
	a.driver = d
	a.background = append(a.background, d.Run)
	// A rebuild that was interrupted is finished before anything else is built on
	// half of it.
	return a.retry(ctx, "finishing an interrupted rebuild", func(ctx context.Context) error {
		pending, err := a.db.RebuildPending(ctx)
		if err != nil || !pending {
			return err
		}
		a.o.Logger.Warn("an interrupted rebuild is resumed")
		return a.db.Rebuild(context.WithoutCancel(ctx), func(int, int) {})
	})
}

// run starts what was built and waits for the end.
func (a *app) run(ctx context.Context) error {
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	pipeline, stopPipeline := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPipeline()

	in, intake := errgroup.WithContext(intake)
	work, pipeline := errgroup.WithContext(pipeline)
	for _, f := range a.background {
		work.Go(func() error { return f(pipeline) })
	}
	for _, p := range a.producers {
		in.Go(func() error { return p.Run(intake) })
	}
	if len(a.histories) > 0 {
		in.Go(func() error { return a.backfill(intake) })
	}
	if a.http != nil {
		in.Go(func() error {
			if err := a.http.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("http: %w", err)
			}
			return nil
		})
		in.Go(func() error {
			<-intake.Done()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return a.http.Shutdown(ctx)
		})
	}
	if err := a.announce(); err != nil {
		return err
	}
	select {
	case <-intake.Done(): // asked to stop, or a part of the intake failed
	case <-pipeline.Done(): // a part of the pipeline failed
		stopIntake()
	}
	if ctx.Err() != nil {
		a.o.Logger.Info("stopping: what is taken in goes to the stream, then to storage")
	}
	err := in.Wait()
	a.settle(pipeline)
	stopPipeline()
	return errors.Join(err, work.Wait())
}

// settle gives the consumer a moment to store what the stream has. What it does
// not manage stays in the stream.
func (a *app) settle(ctx context.Context) {
	if a.consumer == nil {
		return
	}
	deadline := time.Now().Add(3 * time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if err := a.sub.Look(ctx); err != nil {
			return
		}
		waiting, unsettled, _ := a.sub.Backlog()
		if waiting+unsettled == 0 || a.consumer.Stats().Waiting != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// endpoints tells other processes where this one's parts are.
type endpoints struct {
	HTTP       string `json:"http"`
	NATS       string `json:"nats"`
	ClickHouse string `json:"clickhouse"`
}

const endpointsFile = "endpoints.json"

func readEndpoints(dir string) (e endpoints) {
	b, err := os.ReadFile(Options{Data: dir}.endpointsPath())
	if err == nil {
		_ = json.Unmarshal(b, &e)
	}
	return e
}

func (o Options) endpointsPath() string { return o.path(endpointsFile) }

// announce prints the ready line and writes endpoints.json. A process that owns
// neither HTTP nor an embedded part leaves the file to the one that does.
func (a *app) announce() error {
	e := endpoints{NATS: a.o.NATSURL, ClickHouse: a.dsn}
	if a.listener != nil {
		e.HTTP = "http://" + a.listener.Addr().String()
	}
	if a.http != nil || a.broker != nil || a.engine != nil {
		if have := readEndpoints(a.o.Data); a.http == nil || a.broker == nil || a.engine == nil {
			set(&e.HTTP, have.HTTP)
			set(&e.NATS, have.NATS)
			set(&e.ClickHouse, have.ClickHouse)
		}
		b, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			return err
		}
		tmp := a.o.endpointsPath() + ".tmp"
		if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
			return err
		}
		if err := os.Rename(tmp, a.o.endpointsPath()); err != nil {
			return err
		}
	}
	line := []string{"gpumeter is ready:"}
	if e.HTTP != "" && a.http != nil {
		line = append(line, e.HTTP)
	}
	if a.nc != nil {
		line = append(line, "nats "+e.NATS)
	}
	if a.o.Roles.needsDB() || a.engine != nil {
		line = append(line, "clickhouse "+hidePassword(e.ClickHouse))
	}
	line = append(line, "data "+a.o.Data)
	if a.http != nil {
		line = append(line, a.o.SignIn.note(a.o.Listen))
	}
	_, err := fmt.Fprintln(a.o.Out, strings.Join(line, "  "))
	return err
}

func hidePassword(dsn string) string {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if user, host, found := strings.Cut(rest, "@"); ok && found {
		name, _, _ := strings.Cut(user, ":")
		return scheme + "://" + name + ":...@" + host
	}
	return dsn
}
