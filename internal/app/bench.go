package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/consumer"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/schema"
)

// BenchOptions configure BenchIngest.
type BenchOptions struct {
	Rows       int           // events
	Units      int           // GPUs they are of; each has one event a minute
	PerMessage int           // events per message on the stream
	Rate       int           // rows per second while freshness is measured; 0 = do not measure it
	For        time.Duration // how long freshness is measured
	Dir        string        // "" = a temporary directory
	Library    string        // of the engine, "" = search
	Native     bool          // native protocol instead of HTTP
	Progress   func(what string, done, total int)
	Profile    func() (stop func(), err error) // called around the full path
}

// BenchIngest measures, in one run on one machine, what share of a plain insert
// the whole pipeline reaches, and prints it. Everything is real: a stream that
// syncs to disk, the embedded engine, the code that `up` runs.
func BenchIngest(ctx context.Context, o BenchOptions, out io.Writer) error {
	if o.Rows < 1000 || o.Units < 1 || o.PerMessage < 1 {
		return fmt.Errorf("bench: at least 1000 rows, one unit and one event per message are needed, not %d, %d and %d", o.Rows, o.Units, o.PerMessage)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "gpumeter-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.Dir = dir
	}
	b := &bench{o: o, out: out, logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	e, err := engine.Start(ctx, engine.Options{Dir: filepath.Join(o.Dir, "clickhouse"), Library: o.Library, Command: benchCommand, Logger: b.logger})
	if err != nil {
		return err
	}
	defer e.Stop(context.WithoutCancel(ctx))
	b.engine = e
	fmt.Fprintf(out, "bench ingest: %d rows of %d units, %d per message, %d CPUs, %s\n", o.Rows, o.Units, o.PerMessage, runtime.NumCPU(), runtime.Version())
	yard, err := b.yardstick(ctx)
	if err != nil {
		return fmt.Errorf("yardstick: %w", err)
	}
	yard.print(out, "yardstick: clickhouse-go columnar, 100,000-row blocks", o.Rows)
	full, err := b.full(ctx)
	if err != nil {
		return fmt.Errorf("full path: %w", err)
	}
	full.print(out, "full path: publish, consume, raw + dirty, ack, recompute", o.Rows)
	fmt.Fprintf(out, "ratio of rows/s: %.3f\n", yard.wall.Seconds()/full.wall.Seconds())
	if o.Rate > 0 {
		return b.freshness(ctx)
	}
	return nil
}

// benchCommand re-executes the program as an engine; nil is the default.
var benchCommand []string

type bench struct {
	o      BenchOptions
	out    io.Writer
	engine *engine.Engine
	logger *slog.Logger
}

func (b *bench) dsn(database string) string {
	if b.o.Native {
		return "clickhouse://" + b.engine.TCPAddr() + "/" + database
	}
	return "http://" + b.engine.HTTPAddr() + "/" + database
}

func (b *bench) open(ctx context.Context, database string) (*clickhouse.DB, error) {
	db, err := clickhouse.Open(ctx, b.dsn(database))
	if err != nil {
		return nil, err
	}
	if _, err := db.Migrate(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// event makes the i-th event: minute after minute, every unit once a minute, as
// agents with their default settings send them.
func (b *bench) event(i int) schema.Usage {
	unit, minute := i%b.o.Units, i/b.o.Units
	node := unit / 8
	start := benchEpochMs + int64(minute)*schema.MinuteMs
	u := schema.Usage{
		Unit:    fmt.Sprintf("GPU-%08x-4b1d-4c3e-9f00-%012x", unit*2654435761%4294967296, unit),
		StartMs: start, EndMs: start + schema.MinuteMs,
		Instance: "pod-" + strconv.Itoa(node), Project: "project-" + strconv.Itoa(node%20),
		Node: "node-" + strconv.Itoa(node), Platform: "self", Region: "cn-east-" + strconv.Itoa(node%3), Model: "NVIDIA H100 80GB HBM3",
		Utilization: schema.Some(int64(i * 7919 % 1_000_001)), ActiveMs: schema.Some(int64(i * 31 % 60_001)), IdleMs: schema.Some(0),
		MemoryUsedBytes: schema.Some(int64(i%80) << 30), MemoryTotalBytes: schema.Some(80 << 30), EnergyMj: schema.Some(int64(6_000_000 + i%36_000_000)),
	}
	u.IdleMs = schema.Some(60_000 - u.ActiveMs.Value)
	u.Source, u.ID = "agent/rack-"+strconv.Itoa(unit/b.perSource()), schema.UsageID(u.Unit, start)
	u.TimeMs, u.Sequence = u.EndMs, uint64(i)+1
	return u
}

// perSource groups units so that one message is of one source.
func (b *bench) perSource() int { return max(b.o.PerMessage, 8) }

var benchEpochMs = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

func (b *bench) yardstick(ctx context.Context) (sample, error) {
	db, err := b.open(ctx, "bench_yardstick")
	if err != nil {
		return sample{}, err
	}
	defer db.Close()
	y, err := clickhouse.NewYardstick(ctx, "clickhouse://"+b.engine.TCPAddr()+"/bench_yardstick")
	if err != nil {
		return sample{}, err
	}
	defer y.Close()
	const block = 100_000
	events := make([]schema.Usage, 0, block)
	var total sample
	for from := 0; from < b.o.Rows; from += block {
		// Making the events is not part of either side's time.
		events = events[:0]
		for i := from; i < min(from+block, b.o.Rows); i++ {
			events = append(events, b.event(i))
		}
		begin := b.start()
		if err := y.Insert(ctx, events); err != nil {
			return sample{}, err
		}
		total.add(b.since(begin))
		b.o.Progress("yardstick", from+len(events), b.o.Rows)
	}
	return total, nil
}

// full runs the pipeline. The messages are encoded before the clock starts, as
// the yardstick's events are made before its clock: encoding is the agents' work,
// on other machines. Its cost is printed apart.
func (b *bench) full(ctx context.Context) (sample, error) {
	db, err := b.open(ctx, "bench_full")
	if err != nil {
		return sample{}, err
	}
	defer db.Close()
	begin := b.start()
	messages, err := b.messages(0, b.o.Rows)
	if err != nil {
		return sample{}, err
	}
	encoded := b.since(begin)
	fmt.Fprintf(b.out, "made and encoded %d messages: %.2f CPU s per million rows (not in the figures below)\n", len(messages), encoded.self.Seconds()/float64(b.o.Rows)*1e6)
	runtime.GC()
	p, err := b.pipeline(ctx, db, "full")
	if err != nil {
		return sample{}, err
	}
	defer p.stop()
	if b.o.Profile != nil {
		stop, err := b.o.Profile()
		if err != nil {
			return sample{}, err
		}
		defer stop()
	}
	begin = b.start()
	sent := make(chan error, 1)
	go func() { sent <- p.publish(ctx, messages) }()
	for {
		done := int(p.consumer.Stats().Events)
		b.o.Progress("full path", done, b.o.Rows)
		if done >= b.o.Rows {
			break
		}
		select {
		case err := <-sent:
			if err != nil {
				return sample{}, err
			}
			sent = nil
		case <-ctx.Done():
			return sample{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	stored := b.since(begin)
	p.rest() // two drivers at once would do everything twice
	if err := p.driver.Drain(ctx); err != nil {
		return sample{}, err
	}
	s := b.since(begin)
	fmt.Fprintf(b.out, "all stored and acknowledged after %.2f s, all recomputed after %.2f s\n", stored.wall.Seconds(), s.wall.Seconds())
	return s, b.check(ctx, db)
}

// check compares the sums with what the events say.
func (b *bench) check(ctx context.Context, db *clickhouse.DB) error {
	var want int64
	for i := range b.o.Rows {
		want += int64(i * 31 % 60_001)
	}
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	minutes := int64(b.o.Rows/b.o.Units) + 2
	rows, err := s.Usage(ctx, schema.UsageQuery{Tenant: schema.DefaultTenant, Cuts: []int64{benchEpochMs, benchEpochMs + minutes*schema.MinuteMs}})
	if err != nil {
		return err
	}
	var got schema.Sums
	for i := range rows {
		got.Add(&rows[i].Sums)
	}
	if got.ActiveMs != want || got.AllocatedMs() != int64(b.o.Rows)*schema.MinuteMs {
		return fmt.Errorf("the report says %d ms active of %d, the events say %d of %d", got.ActiveMs, got.AllocatedMs(), want, int64(b.o.Rows)*schema.MinuteMs)
	}
	fmt.Fprintf(b.out, "report checked: %d ms active of %d ms, exact\n", got.ActiveMs, got.AllocatedMs())
	return nil
}

func (b *bench) messages(from, to int) ([]schema.Message, error) {
	var list []schema.Message
	var events []schema.Usage
	flush := func() error {
		if len(events) == 0 {
			return nil
		}
		payload, err := schema.EncodeCompact(events)
		if err != nil {
			return err
		}
		first := &events[0]
		hash, _ := first.PayloadHash(nil)
		list = append(list, schema.Message{
			Subject:     schema.Address{Tenant: schema.DefaultTenant, Source: first.Source, Kind: "usage"}.Subject(),
			ID:          schema.MessageID(schema.DefaultTenant, &first.Header, hash),
			ContentType: schema.ContentTypeCompact, Payload: payload,
		})
		events = events[:0]
		return nil
	}
	for i := from; i < to; i++ {
		u := b.event(i)
		if len(events) > 0 && (events[0].Source != u.Source || len(events) >= b.o.PerMessage) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		events = append(events, u)
	}
	return list, flush()
}

// pipeline is the part of the program that the bench measures.
type pipeline struct {
	publisher *jetstream.Publisher
	consumer  *consumer.Consumer
	driver    *aggregator.Driver
	rest      func() // ends the driver's own passes
	stop      func()
}

func (b *bench) pipeline(ctx context.Context, db *clickhouse.DB, name string) (*pipeline, error) {
	server, err := jetstream.StartServer(jetstream.ServerOptions{Dir: filepath.Join(b.o.Dir, "nats-"+name)})
	if err != nil {
		return nil, err
	}
	nc, err := jetstream.Connect(server.URL(), "bench", b.logger, server.InProcess())
	if err != nil {
		server.Stop()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	g, gctx := errgroup.WithContext(ctx)
	p := &pipeline{stop: func() {
		cancel()
		_ = g.Wait()
		nc.Close()
		server.Stop()
	}}
	fail := func(err error) (*pipeline, error) {
		p.stop()
		return nil, err
	}
	if err := jetstream.EnsureStream(ctx, nc, jetstream.StreamOptions{}); err != nil {
		return fail(err)
	}
	if p.publisher, err = jetstream.NewPublisher(nc); err != nil {
		return fail(err)
	}
	sub, err := jetstream.NewSubscription(nc, jetstream.SubscribeOptions{Logger: b.logger})
	if err != nil {
		return fail(err)
	}
	if p.consumer, err = consumer.New(consumer.Options{
		Deliveries: sub.Deliveries(), Marks: db, Logger: b.logger,
		NewBatch: func() consumer.Batch { return db.NewBatch() },
	}); err != nil {
		return fail(err)
	}
	if p.driver, err = aggregator.NewDriver(aggregator.Options{Store: db, Logger: b.logger}); err != nil {
		return fail(err)
	}
	g.Go(func() error { return sub.Run(gctx) })
	g.Go(func() error { return p.consumer.Run(gctx) })
	passes, cancelPasses := context.WithCancel(gctx)
	rested := make(chan struct{})
	p.rest = func() {
		cancelPasses()
		<-rested
	}
	g.Go(func() error {
		defer close(rested)
		defer cancelPasses()
		return p.driver.Run(passes)
	})
	return p, nil
}

// maxAtOnce is the most messages of one atomic batch.
const maxAtOnce = 1000

// publish sends in atomic batches, as agents do: some are under way at once.
func (p *pipeline) publish(ctx context.Context, messages []schema.Message) error {
	const lanes = 4
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lanes)
	for part := range slices.Chunk(messages, max(1, min(maxAtOnce, len(messages)/lanes))) {
		g.Go(func() error { return p.send(ctx, part) })
	}
	return g.Wait()
}

func (p *pipeline) send(ctx context.Context, messages []schema.Message) error {
	for bytes, from, i := 0, 0, 0; i <= len(messages); i++ {
		if i == len(messages) || bytes+len(messages[i].Payload) > 8<<20 {
			receipts, err := p.publisher.Publish(ctx, messages[from:i])
			if err != nil {
				return err
			}
			for _, r := range receipts {
				if r.Err != nil {
					return r.Err
				}
			}
			from, bytes = i, 0
		}
		if i < len(messages) {
			bytes += len(messages[i].Payload)
		}
	}
	return nil
}

// sample is time spent: on the clock, and on the CPU by this process and by the
// engine.
type sample struct{ wall, self, engine time.Duration }

func (s *sample) add(b sample) {
	s.wall, s.self, s.engine = s.wall+b.wall, s.self+b.self, s.engine+b.engine
}

func (s sample) print(out io.Writer, what string, rows int) {
	perMillion := 1e6 / float64(rows)
	fmt.Fprintf(out, "%s\n  %9.0f rows/s in %.2f s; CPU s per million rows: gpumeter %.2f, engine %.2f, together %.2f\n", what,
		float64(rows)/s.wall.Seconds(), s.wall.Seconds(), s.self.Seconds()*perMillion, s.engine.Seconds()*perMillion, (s.self+s.engine).Seconds()*perMillion)
}

func (b *bench) start() sample {
	return sample{wall: time.Duration(time.Now().UnixNano()), self: cpuOf(os.Getpid()), engine: cpuOf(b.engine.PID())}
}

func (b *bench) since(begin sample) sample {
	now := b.start()
	return sample{now.wall - begin.wall, now.self - begin.self, now.engine - begin.engine}
}

// cpuOf returns the CPU time that a process has used, user and system.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Duration(user+system) * tick
}
