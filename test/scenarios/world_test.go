package scenarios_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// patience bounds every wait for something that must come. A scenario uses it up
// only when it fails.
const patience = 2 * time.Minute

// defaultPrices is the price of metering.md: 3.60 USD per GPU-hour, which is
// 1,000 micro-dollars per GPU-second.
const defaultPrices = "currency: USD\nprices:\n  - model: \"*\"\n    per_gpu_hour: \"3.60\"\n"

const startOfTime = "2026-03-20T12:00:00Z" // unless the scenario says otherwise

// sharedEngine is the database process of all scenarios that do not touch theirs.
type sharedEngine struct{ base string } // http://host:port

func startShared(t *testing.T) *sharedEngine {
	t.Helper()
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &process.Process{
		Name: "the shared engine", Args: []string{"engine", "--data", dir, "--engine-http-port", ports[0]},
		Log: filepath.Join(dir, "log"), Patience: patience,
	}
	t.Cleanup(p.Kill)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return &sharedEngine{base: "http://127.0.0.1:" + ports[0]}
}

// world is what one scenario has for itself.
type world struct {
	t                    testscript.T
	dir, clock, prices   string
	dsn                  string // of the database
	shared               *sharedEngine
	broker               string // URL of a separate broker
	natsPort, enginePort string
	procs                map[string]*process.Process
	use                  string // the server that is asked; empty: the newest
	newest               string
	last                 []byte // JSON of the last answer
}

type worldKey struct{}

func newWorld(e *testscript.Env, shared *sharedEngine) (err error) {
	base := filepath.Join(e.WorkDir, ".world")
	ports, err := process.FreePorts(2)
	if err != nil {
		return err
	}
	w := &world{
		t: e.T(), shared: shared, procs: map[string]*process.Process{},
		dir: filepath.Join(base, "data"), clock: filepath.Join(base, "clock"), prices: filepath.Join(base, "prices.yaml"),
		natsPort: ports[0], enginePort: ports[1],
	}
	database := "s" + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, filepath.Base(e.WorkDir))
	w.dsn = shared.base + "/" + database
	e.Defer(func() {
		for _, p := range w.procs {
			p.Kill()
		}
		if strings.HasPrefix(w.dsn, shared.base) {
			_, _ = w.sql("DROP DATABASE IF EXISTS " + database + " SYNC")
		}
	})
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	text := []byte(defaultPrices)
	if own, err := os.ReadFile(filepath.Join(e.WorkDir, "prices.yaml")); err == nil {
		text = own
	}
	if err := os.WriteFile(w.prices, text, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(w.clock, nil, 0o644); err != nil {
		return err
	}
	e.Values[worldKey{}] = w
	e.Setenv("DSN", w.dsn)
	e.Setenv("DATA", w.dir)
	e.Setenv("PRICES", w.prices)
	return w.setClock(startOfTime)
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

// environ is what the scenario's processes have in their environment.
func (w *world) environ(more ...string) []string {
	return append([]string{"GPUMETER_DATA=" + w.dir, "GPUMETER_URL=", "GPUMETER_CLOCK=" + w.clock}, more...)
}

// setClock makes it that time now for all processes of the scenario.
func (w *world) setClock(says string) error {
	at, err := time.Parse(time.RFC3339Nano, says)
	if err != nil {
		return fmt.Errorf("%q is not a time such as 2026-03-01T10:00:00Z", says)
	}
	step, err := json.Marshal(map[string]time.Time{"real": time.Now(), "says": at})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(w.clock, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(append(step, '\n'))
	return errors.Join(err, f.Close())
}

// parts are the processes that a scenario can start, with the flags that they get
// when the scenario says nothing: short waits.
var parts = map[string]struct {
	flags                        []string
	listens, prices, nats, table bool
}{
	"up":        {[]string{"--batch-age", "20ms", "--ack-wait", "2s", "--recompute-every", "50ms", "--hour-every", "200ms"}, true, true, true, true},
	"serve":     {nil, true, true, true, true},
	"consume":   {[]string{"--batch-age", "20ms", "--ack-wait", "2s"}, false, false, true, true},
	"aggregate": {[]string{"--recompute-every", "50ms", "--hour-every", "200ms"}, false, false, false, true},
	"agent":     {nil, false, false, true, false},
	"broker":    {nil, false, false, false, false},
	"engine":    {nil, false, false, false, false},
}

// start starts a part. Words of the form halt=POINT, engine=own and NAME=VALUE
// (an environment variable) come before or between the flags.
func (w *world) start(words []string) (*process.Process, error) {
	part, name := "up", "up"
	if len(words) > 0 {
		kind, _, _ := strings.Cut(words[0], ":")
		if _, known := parts[kind]; known {
			part, name, words = kind, words[0], words[1:]
		}
	}
	if p := w.procs[name]; p != nil && p.Alive() {
		return nil, fmt.Errorf("%s runs already", name)
	}
	kind := parts[part]
	args, env := append([]string{part, "--data", w.dir}, kind.flags...), []string{}
	if kind.listens {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	if kind.prices {
		args = append(args, "--prices", w.prices)
	}
	if kind.nats && w.broker != "" {
		args = append(args, "--nats", w.broker)
	}
	switch part {
	case "broker":
		args = append(args, "--nats-listen", "127.0.0.1:"+w.natsPort)
	case "engine":
		args = append(args, "--engine-http-port", w.enginePort)
		w.dsn = "http://127.0.0.1:" + w.enginePort + "/gpumeter"
	}
	own := false
	for _, word := range words {
		switch key, value, assigned := strings.Cut(word, "="); {
		case word == "engine=own":
			own = true
		case key == "halt" && assigned:
			for _, file := range []string{"halted", "go"} {
				_ = os.Remove(filepath.Join(w.dir, file)) // of a halt before
			}
			env = append(env, "GPUMETER_HALT_AT="+value)
		case assigned && key == strings.ToUpper(key) && !strings.HasPrefix(key, "-"):
			env = append(env, word)
		default:
			args = append(args, word)
		}
	}
	if kind.table && !own {
		// First, so that a scenario can name another one.
		args = append([]string{part, "--clickhouse", w.dsn}, args[1:]...)
	}
	p := &process.Process{Name: name, Args: args, Env: w.environ(env...), Log: filepath.Join(filepath.Dir(w.dir), name+".log"), Patience: patience}
	w.procs[name] = p
	if err := p.Start(); err != nil {
		return p, err
	}
	if part == "broker" {
		w.broker = address(p, ofBroker)
	}
	if address(p, ofServer) != "" {
		w.newest = name
	}
	if own {
		w.dsn = w.endpoints()["clickhouse"]
	}
	return p, nil
}

var (
	ofServer = regexp.MustCompile(`ready: +(http://\S+)`)
	ofBroker = regexp.MustCompile(` nats (\S+)`)
)

// address is where a part says that it answers; empty when it does not.
func address(p *process.Process, pattern *regexp.Regexp) string {
	if found := pattern.FindStringSubmatch(p.Ready()); found != nil {
		return found[1]
	}
	return ""
}

func (w *world) endpoints() (e map[string]string) {
	if b, err := os.ReadFile(filepath.Join(w.dir, "endpoints.json")); err == nil {
		_ = json.Unmarshal(b, &e)
	}
	return e
}

// running returns a process that was started and has not been ended.
func (w *world) running(name string) (*process.Process, error) {
	p := w.procs[name]
	if p == nil || !p.Alive() {
		return nil, fmt.Errorf("%s does not run", name)
	}
	return p, nil
}

// server returns the URL of the server that is asked.
func (w *world) server() (string, error) {
	name := w.newest
	if w.use != "" {
		name = w.use
	}
	p, err := w.running(name)
	if err != nil {
		return "", err
	}
	url := address(p, ofServer)
	if url == "" {
		return "", fmt.Errorf("%s answers no questions", name)
	}
	return url, nil
}

// fetch asks the server and returns its answer, whatever the status.
func (w *world) fetch(path string) (status int, body []byte, err error) {
	base, err := w.server()
	if err != nil {
		return 0, nil, process.Final{Err: err}
	}
	res, err := (&http.Client{Timeout: patience}).Get(base + path)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// sql asks the database directly, past the program.
func (w *world) sql(statement string) (string, error) {
	base, database, _ := strings.Cut(strings.TrimPrefix(w.dsn, "http://"), "/")
	database, _, _ = strings.Cut(database, "?")
	if strings.HasPrefix(statement, "DROP DATABASE") {
		database = "default"
	}
	resp, err := http.Post("http://"+base+"/?database="+database, "text/plain", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", statement, b)
	}
	return string(b), err
}

// connect connects to the stream that the scenario's processes use.
func (w *world) connect() (*nats.Conn, jetstream.JetStream, error) {
	url := w.broker
	if url == "" {
		url = w.endpoints()["nats"]
	}
	nc, err := nats.Connect(url, nats.Timeout(5*time.Second), nats.RetryOnFailedConnect(false))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return nc, js, err
}

// settled says what is left to do before reports have everything.
func (w *world) settled(ctx context.Context) error {
	nc, js, err := w.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	// In this order: marks are written before their messages are acknowledged.
	stream, err := js.Stream(ctx, "USAGE_0")
	if err != nil {
		return err
	}
	c, err := stream.Consumer(ctx, "store")
	if err != nil {
		return err
	}
	last, done := stream.CachedInfo().State.LastSeq, c.CachedInfo().AckFloor.Stream
	if done < last {
		return fmt.Errorf("the stream's last message is %d, and all up to %d are settled", last, done)
	}
	code, body, err := w.fetch("/api/v1/status")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("the status is %d: %w", code, err)
	}
	var status struct {
		Waiting int64  `json:"waiting_messages"`
		Unsettl int64  `json:"unsettled_messages"`
		Minutes int64  `json:"dirty_minutes"`
		Hours   int64  `json:"dirty_hours"`
		Spool   int64  `json:"spool_events"`
		Error   string `json:"error"`
	}
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	if status.Error != "" || status.Waiting+status.Unsettl+status.Minutes+status.Hours+status.Spool != 0 {
		return fmt.Errorf("not settled: %s", body)
	}
	return nil
}
