// Package e2e_test runs the whole program: events and scrapes go in at one end,
// reports come out at the other, and both ends are the ones that users have. The
// server runs in the test's process, or as the built binary; stream and database
// are the embedded ones. Nothing is imitated.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/engine/enginetest"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/internal/testkit/process"
	"github.com/gpumeter/gpumeter/schema"
)

func TestMain(m *testing.M) {
	enginetest.Child()
	process.Main(m)
}

// patience bounds every wait for something that must come: long, because a busy
// machine is slow and only a broken program never gets there.
const patience = 40 * time.Second

// ackWait is short, so that what a killed consumer had is delivered again soon.
const ackWait = 2 * time.Second

// server is a running gpumeter, or a part of one, in the test's process.
type server struct {
	t    testing.TB
	dir  string
	http string
	nats string
	db   string // DSN

	cancel context.CancelFunc
	done   chan error
	js     jetstream.JetStream
}

// start runs the program until the test ends or stop is called. What the options
// leave open is chosen for speed.
func start(t testing.TB, o app.Options) *server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.Roles == (app.Roles{}) {
		o.Roles = app.AllRoles
	}
	o.Listen = "127.0.0.1:0"
	o.EngineCommand = []string{exe, engine.ChildCommand}
	o.DebounceFor, o.HourEvery, o.BatchAge, o.AckWait = 100*time.Millisecond, 300*time.Millisecond, 50*time.Millisecond, ackWait
	o.Logger = testkit.Logger(t)
	ready := make(chan struct{})
	o.Out = &readyLine{ready: ready}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{t: t, dir: o.Data, cancel: cancel, done: make(chan error, 1)}
	go func() { s.done <- app.Run(ctx, o) }()
	t.Cleanup(s.stop)
	select {
	case <-ready:
	case err := <-s.done:
		s.done <- nil
		t.Fatalf("the program ended before it was ready: %v", err)
	case <-time.After(patience):
		t.Fatal("the program did not become ready")
	}
	s.find()
	return s
}

// find reads where the parts of the program are. One that has no part that others
// could look for writes nothing.
func (s *server) find() {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "endpoints.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var e struct{ HTTP, NATS, ClickHouse string }
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.http, s.nats, s.db = e.HTTP, e.NATS, e.ClickHouse
}

// stop asks the program to end, as a signal would, and waits until it has.
func (s *server) stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	select {
	case err := <-s.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("the program ended with: %v", err)
		}
	case <-time.After(patience):
		s.t.Error("the program did not stop")
	}
}

type readyLine struct {
	mu    sync.Mutex
	seen  bytes.Buffer
	ready chan struct{}
}

func (r *readyLine) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Write(p)
	if r.ready != nil && strings.Contains(r.seen.String(), "gpumeter is ready:") {
		close(r.ready)
		r.ready = nil
	}
	return len(p), nil
}

type status struct {
	Waiting     int64  `json:"waiting_messages"`
	Unsettled   int64  `json:"unsettled_messages"`
	DirtyMinute int    `json:"dirty_minutes"`
	DirtyHour   int    `json:"dirty_hours"`
	Events      int64  `json:"events"`
	Held        int64  `json:"held_events"`
	Prices      string `json:"prices"`
	Spool       int64  `json:"spool_events"`
	Error       string `json:"error"`
}

func (s *server) status() (st status) {
	s.t.Helper()
	if err := json.Unmarshal(s.get("/api/v1/status", nil), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// settled waits until everything that was published is in the minutes, and with
// hours in the hours too.
func (s *server) settled(hours bool) {
	s.t.Helper()
	var st status
	within(s.t, fmt.Sprintf("everything is settled (hours: %v)", hours), func() bool {
		st = s.status()
		return st.Error == "" && st.Waiting+st.Unsettled+st.Spool == 0 && st.DirtyMinute == 0 && (!hours || st.DirtyHour == 0)
	})
}

// within waits until the condition holds.
func within(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
	}
}

func (s *server) get(path string, query url.Values) []byte {
	s.t.Helper()
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	res, err := http.Get(s.http + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s, %v\n%s", path, res.Status, err, body)
	}
	return body
}

func (s *server) post(path, contentType string, body []byte) (int, string) {
	s.t.Helper()
	res, err := http.Post(s.http+path, contentType, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// sql runs a statement in the database and returns what it answers, one row a
// line, without the last end of line.
func (s *server) sql(statement string) string {
	s.t.Helper()
	u, err := url.Parse(s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	target := "http://" + u.Host + "/?" + url.Values{"database": {strings.TrimPrefix(u.Path, "/")}, "async_insert": {"0"}}.Encode()
	res, err := http.Post(target, "text/plain", strings.NewReader(statement))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v\n%s", statement, res.Status, err, body)
	}
	return strings.TrimSuffix(string(body), "\n")
}

// publish puts one message on the stream past everything that checks it, and
// waits until the stream has it. It returns its sequence.
func (s *server) publish(m *nats.Msg) uint64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ack, err := s.stream().PublishMsg(ctx, m)
	if err != nil {
		s.t.Fatalf("publish to %s: %v", m.Subject, err)
	}
	return ack.Sequence
}

func (s *server) stream() jetstream.JetStream {
	s.t.Helper()
	if s.js == nil {
		nc, err := nats.Connect(s.nats, nats.Name(s.t.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(nc.Close)
		if s.js, err = jetstream.New(nc); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.js
}

// lastSequence returns the sequence of the last message on the stream.
func (s *server) lastSequence() uint64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := s.stream().Stream(ctx, "USAGE_0")
	if err != nil {
		s.t.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

// message makes a message for the stream. The content type may be empty, and so
// may the id, so that the stream's own deduplication does not help.
func message(tenant, source, contentType, id string, payload []byte) *nats.Msg {
	m := nats.NewMsg(schema.Address{Tenant: tenant, Source: source, Kind: "usage"}.Subject())
	m.Data = payload
	if contentType != "" {
		m.Header.Set("Content-Type", contentType)
	}
	if id != "" {
		m.Header.Set(nats.MsgIdHdr, id)
	}
	return m
}

// run runs the real program against the server and returns its exit code and
// what it wrote.
func (s *server) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	return runWith(s.t, s.dir, nil, args...)
}

func runWith(t testing.TB, dir string, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := command(dir, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stuck.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func command(dir string, args ...string) *exec.Cmd {
	cmd := process.Command(args...)
	cmd.Env = append(cmd.Env, "GPUMETER_DATA="+dir, "GPUMETER_URL=")
	// A test that dies must not leave processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// file writes a file for the test and returns its path.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer is a report as its reader sees it.
type answer struct {
	Rows    []map[string]any `json:"rows"`
	Totals  map[string]any   `json:"totals"`
	Quality map[string]any   `json:"quality"`
}

func parse(t tester, document []byte) (a answer) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	return a
}

var asOf = regexp.MustCompile(`"as_of":"[^"]*"`)

// timeless takes out of a report the only thing that depends on when it was asked.
func timeless(document []byte) string { return asOf.ReplaceAllString(string(document), `"as_of":"-"`) }

// everyReport asks for many reports and returns them one after the other, each
// after its question. Two states of a database that give the same text look the
// same to every reader.
func (s *server) everyReport(from, to string) string {
	s.t.Helper()
	var b strings.Builder
	for _, q := range []string{
		"spend?by=project", "usage?by=instance", "utilization?by=unit", "spend?by=model,platform,region", "usage?by=hour",
		"waste?by=instance,day&zone=America/New_York", "spend?by=unit,hour&zone=Asia/Kolkata", "usage?by=node,label:team", "usage", "quality",
	} {
		kind, rest, _ := strings.Cut(q, "?")
		query, err := url.ParseQuery(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		query.Set("from", from)
		query.Set("to", to)
		fmt.Fprintf(&b, "%s\n%s", q, timeless(s.get("/api/v1/reports/"+kind, query)))
	}
	return b.String()
}

// tester is what a check needs of a test; a property has another kind of test.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// same fails and shows the first line that differs.
func same(t tester, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			question := ""
			if i > 0 {
				question = g[i-1]
			}
			t.Fatalf("%s: %s\n got %s\nwant %s", what, question, g[i], strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
		}
	}
	t.Fatalf("%s: shorter than it should be", what)
}
