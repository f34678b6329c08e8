package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// patience bounds every wait for something that must happen. It is only used up
// when a test fails.
const patience = 90 * time.Second

// start starts the program and returns when it says that it is ready.
func start(t testing.TB, env []string, args ...string) *process.Process {
	t.Helper()
	p := &process.Process{Name: args[0], Args: args, Env: env, Log: filepath.Join(t.TempDir(), "log"), Patience: patience}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.Name, p.Said())
		}
	})
	must(t, p.Start())
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until what returns nil, and says why it did not.
func await(t testing.TB, what string, f func() error) {
	t.Helper()
	awaitFor(t, patience, what, f)
}

func awaitFor(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	must(t, process.Await(limit, what, f))
}

// cluster is a pipeline of separate processes over one data directory.
type cluster struct {
	t                 testing.TB
	dir, prices       string
	natsAddr, natsURL string
	enginePort        string
	dsn, url          string
	broker, engine    *process.Process
	serve             *process.Process
	nc                *nats.Conn
	js                natsjs.JetStream
	publisher         *jetstream.Publisher
	db                *clickhouse.DB
}

// newCluster starts the parts that keep something, and the reports. Consumers
// and aggregators are started by the tests.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	ports, err := process.FreePorts(2)
	must(t, err)
	c := &cluster{t: t, dir: t.TempDir(), natsAddr: "127.0.0.1:" + ports[0], enginePort: ports[1]}
	c.prices = filepath.Join(c.dir, "prices.yaml")
	if err := os.WriteFile(c.prices, []byte(priceList), 0o644); err != nil {
		t.Fatal(err)
	}
	c.startBroker()
	c.startEngine()
	c.serve = start(t, nil, "serve", "--data", c.dir, "--listen", "127.0.0.1:0", "--prices", c.prices)
	var e struct{ HTTP, NATS, ClickHouse string }
	b, err := os.ReadFile(filepath.Join(c.dir, "endpoints.json"))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.url, c.natsURL, c.dsn = e.HTTP, e.NATS, e.ClickHouse
	if !strings.Contains(e.NATS, c.natsAddr) || !strings.Contains(e.ClickHouse, c.enginePort) {
		t.Fatalf("endpoints %+v, want NATS on %s and ClickHouse on port %s", e, c.natsAddr, c.enginePort)
	}
	if c.nc, err = jetstream.Connect(c.natsURL, "faults", testkit.Logger(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.nc.Close)
	if c.js, err = natsjs.New(c.nc); err != nil {
		t.Fatal(err)
	}
	if c.publisher, err = jetstream.NewPublisher(c.nc); err != nil {
		t.Fatal(err)
	}
	if c.db, err = clickhouse.Open(t.Context(), c.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.db.Close() })
	return c
}

func (c *cluster) startBroker() {
	c.t.Helper()
	c.broker = start(c.t, nil, "broker", "--data", c.dir, "--nats-listen", c.natsAddr)
}

func (c *cluster) startEngine() {
	c.t.Helper()
	c.engine = start(c.t, nil, "engine", "--data", c.dir, "--engine-http-port", c.enginePort)
}

// Small batches, so that a case has several, and a short wait for what a dead
// consumer had.
func (c *cluster) consume(t testing.TB, haltAt string) *process.Process {
	t.Helper()
	return c.consumeWaiting(t, haltAt, "2s")
}

func (c *cluster) consumeWaiting(t testing.TB, haltAt, ackWait string) *process.Process {
	t.Helper()
	return start(t, c.halt(haltAt), "consume", "--data", c.dir, "--batch-rows", "150", "--batch-age", "150ms", "--ack-wait", ackWait)
}

// Hours are summed up soon, so that both grains of usage take part.
func (c *cluster) aggregate(t testing.TB, haltAt string) *process.Process {
	t.Helper()
	return start(t, c.halt(haltAt), "aggregate", "--data", c.dir, "--recompute-every", "100ms", "--hour-every", "1s")
}

// halt is the environment of a process that is to halt at a point. Only one
// process at a time can.
func (c *cluster) halt(point string) []string {
	if point == "" {
		return nil
	}
	for _, name := range []string{"halted", "go"} {
		if err := os.Remove(filepath.Join(c.dir, name)); err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
	}
	return []string{"GPUMETER_HALT_AT=" + point}
}

func (c *cluster) awaitHalted(t testing.TB) {
	t.Helper()
	await(t, "a process halts", func() error {
		_, err := os.Stat(filepath.Join(c.dir, "halted"))
		return err
	})
}

// letGo lets the halted process go on.
func (c *cluster) letGo() {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// backlog is what is left to do before reports have everything.
func (c *cluster) backlog(ctx context.Context) (stream *natsjs.ConsumerInfo, minutes, hours int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// In this order: marks are written before their messages are acknowledged.
	consumer, err := c.js.Consumer(ctx, jetstream.StreamName, "store")
	if err != nil {
		return nil, 0, 0, err
	}
	minutes, hours, err = c.db.CountMarks(ctx)
	return consumer.CachedInfo(), minutes, hours, err
}

// settled waits until all that was published is stored, acknowledged and
// computed, hours included if asked for.
func (c *cluster) settled(t testing.TB, withHours bool) {
	t.Helper()
	await(t, "everything is settled", func() error {
		s, minutes, hours, err := c.backlog(t.Context())
		if err != nil {
			return err
		}
		if s.NumPending != 0 || s.NumAckPending != 0 || minutes != 0 || withHours && hours != 0 {
			return fmt.Errorf("%d messages wait, %d are unsettled, %d minutes and %d hours are to do", s.NumPending, s.NumAckPending, minutes, hours)
		}
		return nil
	})
}

// stored waits until all that was published is stored and acknowledged.
func (c *cluster) stored(t testing.TB) {
	t.Helper()
	await(t, "everything is stored", func() error {
		s, _, _, err := c.backlog(t.Context())
		if err == nil && s.NumPending+uint64(s.NumAckPending) != 0 {
			err = fmt.Errorf("%d messages wait, %d are unsettled", s.NumPending, s.NumAckPending)
		}
		return err
	})
}

// query asks ClickHouse directly, past the program.
func (c *cluster) query(t testing.TB, sql string) string {
	t.Helper()
	text, err := c.tryQuery(sql)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (c *cluster) tryQuery(sql string) (string, error) {
	base, database, _ := strings.Cut(strings.TrimPrefix(c.dsn, "http://"), "/")
	resp, err := http.Post("http://"+base+"/?database="+database, "text/plain", strings.NewReader(sql))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", sql, b)
	}
	return strings.TrimSpace(string(b)), err
}

func (c *cluster) number(t testing.TB, sql string) int64 {
	t.Helper()
	text := c.query(t, sql)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// inserts numbers the inserts into a table: it grows with each, whoever made it,
// and merges leave it alone.
func (c *cluster) inserts(t testing.TB, table string) int64 {
	t.Helper()
	return c.number(t, "SELECT max(max_block_number) FROM system.parts WHERE database = currentDatabase() AND table = '"+table+"'")
}

// run runs a command of the program to its end.
func run(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := process.Command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.String())
	}
	return out
}
