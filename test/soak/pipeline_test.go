package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// patience bounds every wait for something that must happen. It is only used up
// when a test fails, or when the machine is very busy.
const patience = 5 * time.Minute

// part is a process that has one fault at a time: whoever makes one happen holds
// the lock.
type part struct {
	sync.Mutex
	process.Process
}

// pipeline is all parts as separate processes over one data directory.
type pipeline struct {
	dir       string
	parts     map[string]*part
	disks     map[string]*disk
	clock     *clock
	url       string // of the server
	natsURL   string
	dbURL     string
	publisher *jetstream.Publisher
	js        natsjs.JetStream
	closers   []func()
	client    http.Client
}

const (
	agentSource  = "agent/scraping"
	agentProject = "p-agent"
)

// workers are the parts that are killed one by one; broker and engine are beside
// them. Two of a kind show that nobody is alone.
var workers = []string{"consume-1", "consume-2", "aggregate-1", "aggregate-2", "serve", "agent", "simulate"}

var agents = []string{"agent", "simulate"}

func newPipeline(dir, exporterURL string) (*pipeline, error) {
	p := &pipeline{dir: dir, parts: map[string]*part{}, disks: map[string]*disk{}, client: http.Client{Timeout: patience}}
	for name, sub := range map[string]string{"broker": "nats", "engine": "clickhouse", "agent": "agent"} {
		d, err := newDisk(filepath.Join(dir, sub))
		if err != nil {
			return p, err
		}
		p.disks[name] = d
	}
	var err error
	if p.clock, err = newClock(filepath.Join(dir, "clock")); err != nil {
		return p, err
	}
	prices := filepath.Join(dir, "prices.yaml")
	if err := os.WriteFile(prices, []byte(priceList), 0o644); err != nil {
		return p, err
	}
	ports, err := process.FreePorts(3)
	if err != nil {
		return p, err
	}
	broker, engine, server := ports[0], ports[1], ports[2]
	p.natsURL = "nats://127.0.0.1:" + broker
	p.url = "http://127.0.0.1:" + server
	p.dbURL = "http://127.0.0.1:" + engine
	p.add("broker", "broker", "--nats-listen", "127.0.0.1:"+broker)
	p.add("engine", "engine", "--engine-http-port", engine)
	p.add("serve", "serve", "--listen", "127.0.0.1:"+server, "--prices", prices)
	for _, n := range []string{"1", "2"} {
		p.add("consume-"+n, "consume", "--batch-rows", "300", "--batch-age", "150ms", "--ack-wait", "2s", "--future-tolerance", futureTolerance.String())
		p.add("aggregate-"+n, "aggregate", "--recompute-every", "200ms", "--hour-every", "1s")
	}
	// Agents have a directory of their own, as if on another machine.
	p.add("agent", "agent", "--data", filepath.Join(dir, "agent"), "--nats", p.natsURL, "--scrape", exporterURL,
		"--source", agentSource, "--instance", "i-agent", "--project", agentProject, "--sample-every", "500ms", "--emit-every", "1s")
	p.add("simulate", "agent", "--data", filepath.Join(dir, "simulate"), "--nats", p.natsURL, "--simulate", "1", "--sample-every", "1s", "--emit-every", "5s")
	if err := p.startAll("broker", "engine"); err != nil {
		return p, err
	}
	if err := p.startAll(workers...); err != nil {
		return p, err
	}
	return p, p.connect()
}

func (p *pipeline) add(name string, args ...string) {
	if len(args) < 2 || args[1] != "--data" {
		args = append(args, "--data", p.dir)
	}
	p.parts[name] = &part{Process: process.Process{
		Name: name, Args: args, Env: []string{"GPUMETER_CLOCK=" + p.clock.path}, Log: filepath.Join(p.dir, name+".log"), Patience: patience,
	}}
}

// startAll starts those that do not run and waits until they are ready.
func (p *pipeline) startAll(names ...string) error {
	var faults []error
	for _, name := range names {
		if part := p.parts[name]; !part.Alive() {
			faults = append(faults, part.Launch())
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	for _, name := range names {
		faults = append(faults, p.parts[name].AwaitReady())
	}
	return errors.Join(faults...)
}

func (p *pipeline) connect() error {
	nc, err := jetstream.Connect(p.natsURL, "soak", silent{})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, nc.Close)
	if p.js, err = natsjs.New(nc); err != nil {
		return err
	}
	p.publisher, err = jetstream.NewPublisher(nc)
	if err == nil {
		p.publisher.Timeout = 5 * time.Second
		err = process.Await(patience, "connected to NATS", func() error {
			if nc.Status() != nats.CONNECTED {
				return errors.New(nc.Status().String())
			}
			return nil
		})
	}
	return err
}

type silent struct{}

func (silent) Warn(string, ...any) {}

// close ends everything. Data is copied off its disks when it is to be kept.
func (p *pipeline) close(keep bool) error {
	for _, f := range p.closers {
		f()
	}
	for _, part := range p.parts {
		part.Kill()
	}
	var faults []error
	for _, d := range p.disks {
		faults = append(faults, d.remove(keep))
	}
	if !keep {
		faults = append(faults, os.RemoveAll(p.dir))
	}
	return errors.Join(faults...)
}

// panicked looks through what the parts said. One that crashed while it was to be
// killed anyway would not be missed otherwise.
func (p *pipeline) panicked() error {
	for _, name := range sortedKeys(p.parts) {
		text, err := os.ReadFile(p.parts[name].Log)
		if err != nil {
			return err
		}
		for _, sign := range []string{"panic: ", "fatal error: ", "unexpected fault address"} {
			if i := strings.Index(string(text), sign); i >= 0 {
				return fmt.Errorf("%s crashed: %s", name, text[i:min(len(text), i+3000)])
			}
		}
	}
	return nil
}

// query asks ClickHouse directly, past the program.
func (p *pipeline) query(ctx context.Context, sql string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.dbURL+"/?database=gpumeter", strings.NewReader(sql))
	if err != nil {
		return "", err
	}
	return p.do(req)
}

// ask asks the server when all is calm: then it has to answer, but a busy machine
// may take it longer than it gives itself.
func (p *pipeline) ask(ctx context.Context, path string) (text string, err error) {
	err = process.Await(patience, "the server answers", func() (err error) {
		text, err = p.get(ctx, path)
		var refused *statusError
		if errors.As(err, &refused) && refused.code < 500 {
			return process.Final{Err: err}
		}
		return err
	})
	return text, err
}

// get asks the server.
func (p *pipeline) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return "", err
	}
	return p.do(req)
}

func (p *pipeline) do(req *http.Request) (string, error) {
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &statusError{resp.StatusCode, string(b)}
	}
	return strings.TrimSpace(string(b)), err
}

type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.body) }

// lag is what is left to do before reports have everything.
type lag struct {
	Waiting, Unsettled, Minutes, Hours, Held int64
}

func (l lag) total() int64 { return l.Waiting + l.Unsettled + l.Minutes + l.Hours + l.Held }

func (p *pipeline) lag(ctx context.Context) (l lag, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// In this order: what is held is published again before it is noted as such, and
	// marks are written before their messages are acknowledged.
	if l.Held, err = p.held(ctx); err != nil {
		return l, err
	}
	consumer, err := p.js.Consumer(ctx, jetstream.StreamName, "store")
	if err != nil {
		return l, err
	}
	l.Waiting, l.Unsettled = int64(consumer.CachedInfo().NumPending), int64(consumer.CachedInfo().NumAckPending)
	text, err := p.query(ctx, "SELECT countIf(grain != 'hour') AS minutes, countIf(grain = 'hour') AS hours FROM "+
		"(SELECT grain FROM dirty GROUP BY grain, tenant, `window`, mark HAVING sum(sign) > 0) FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0")
	if err == nil {
		err = json.Unmarshal([]byte(text), &l)
	}
	return l, err
}

// held counts the events that wait for their time.
func (p *pipeline) held(ctx context.Context) (n int64, err error) {
	text, err := p.query(ctx, "SELECT count() FROM (SELECT max(redriven_at) AS again FROM quarantine "+
		"GROUP BY tenant, stream, epoch, stream_sequence, place HAVING max(due_at) > 0 AND again = 0) FORMAT TSV")
	if err == nil {
		n, err = strconv.ParseInt(text, 10, 64)
	}
	return n, err
}

// settled waits until all that was published is in the reports. It is patient as
// long as there is progress: a busy machine is slow, and that is no fault.
func (p *pipeline) settled(ctx context.Context) error {
	least, since := int64(-1), time.Now()
	for ; ; time.Sleep(50 * time.Millisecond) {
		l, err := p.lag(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && l.total() == 0:
			return nil
		case err == nil && (least < 0 || l.total() < least):
			least, since = l.total(), time.Now()
		case time.Since(since) > patience:
			return errors.Join(fmt.Errorf("nothing was stored or computed for %v: %+v", patience, l), err)
		}
	}
}

// clock moves the program's clock for all processes at once, by a file that they
// share. The machine's clock stays as it is.
type clock struct {
	path string

	// pair is held for reading while the first and then the second content of one
	// identity are published: between the two the clock must not step, or it could
	// be the second that has the earlier time and counts.
	pair sync.RWMutex

	mu    sync.Mutex
	real  time.Time
	ahead time.Duration
}

func newClock(path string) (*clock, error) {
	return &clock{path: path}, os.WriteFile(path, nil, 0o644)
}

// step moves the clock. It returns the program's time right after the step, at
// which all processes agree: the step lies a little in the future when it is
// written down, so that no instant is ever translated in two ways.
func (c *clock) step(by time.Duration, before func(says time.Time)) error {
	c.pair.Lock()
	defer c.pair.Unlock()
	real := time.Now().Add(300 * time.Millisecond).Truncate(time.Millisecond)
	c.mu.Lock()
	ahead := c.ahead + by
	c.mu.Unlock()
	before(real.Add(ahead))
	line, err := json.Marshal(map[string]time.Time{"real": real.UTC(), "says": real.Add(ahead).UTC()})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return errors.Join(err, f.Close())
	}
	time.Sleep(time.Until(real) + 50*time.Millisecond)
	c.mu.Lock()
	c.ahead = ahead
	c.mu.Unlock()
	return f.Close()
}

// instant returns a time of the program's clock that lies between what was stored
// before and what is stored after. Reports know milliseconds.
func (c *clock) instant() time.Time {
	time.Sleep(2 * time.Millisecond)
	c.mu.Lock()
	now := time.Now().Add(c.ahead).Truncate(time.Millisecond)
	c.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	return now
}
