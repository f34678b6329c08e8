package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

// fakeServer is the real HTTP handler over a stream and a store in memory.
type fakeServer struct {
	*httptest.Server
	mu       sync.Mutex
	taken    map[string]bool
	order    []string // event ids as the stream got them
	requests int
	// before runs ahead of a request to the events route and may answer it.
	before func(w http.ResponseWriter, r *http.Request, request int) (answered bool)
	// ingest may answer in place of the stream.
	ingest   func(messages []schema.Message, request int) ([]schema.Receipt, error)
	redriven []web.Ref
}

func startServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{taken: map[string]bool{}}
	service, err := report.New(report.Options{Store: emptyStore{}})
	if err != nil {
		t.Fatal(err)
	}
	handler := web.Handler(web.Deps{Reports: service, Ingest: s.take, Quarantine: s, Log: slog.New(slog.DiscardHandler)})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/events" {
			s.mu.Lock()
			s.requests++
			n, before := s.requests, s.before
			s.mu.Unlock()
			if before != nil && before(w, r, n) {
				return
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) take(_ context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ingest != nil {
		if receipts, err := s.ingest(messages, s.requests); receipts != nil || err != nil {
			return receipts, err
		}
	}
	return s.store(messages), nil
}

func (s *fakeServer) store(messages []schema.Message) []schema.Receipt {
	receipts := make([]schema.Receipt, len(messages))
	for i, m := range messages {
		receipts[i].Duplicate = s.taken[m.ID]
		s.taken[m.ID] = true
		if e, err := schema.DecodeEvent(m.Payload); err == nil {
			s.order = append(s.order, e.Header().ID)
		}
	}
	return receipts
}

func (s *fakeServer) List(context.Context, string, int, string) ([]schema.QuarantinedItem, string, error) {
	return []schema.QuarantinedItem{{Stream: "S", Epoch: 1, StreamSequence: 2, Place: 3, Reason: "bad\x1b[31m", Subject: "gpumeter.v1.default.s.usage"}}, "n", nil
}

func (s *fakeServer) Redrive(_ context.Context, _ string, refs []web.Ref) (int, error) {
	s.redriven = refs
	return max(1, len(refs)), nil
}

type emptyStore struct{}

func (emptyStore) Usage(context.Context, schema.UsageQuery) ([]schema.UsageRow, error) {
	return nil, nil
}

func (emptyStore) Events(context.Context, schema.EventQuery) ([]schema.StoredEvent, string, error) {
	return nil, "", nil
}

func (emptyStore) Leases(context.Context, schema.EventQuery) ([]schema.LeaseSegment, error) {
	return nil, nil
}

func (emptyStore) Sources(context.Context, string, int64, int64, int64) ([]schema.SourceQuality, int64, error) {
	return nil, 0, nil
}

func (emptyStore) Conflicts(context.Context, string, int64, int64, int64, int) ([]schema.Conflict, error) {
	return nil, nil
}

func (emptyStore) Incidents(context.Context, string, int64, int64, int64) ([]schema.Incident, error) {
	return nil, nil
}

func (emptyStore) Quality(context.Context, string, int64, int64, int64) (schema.Quality, error) {
	return schema.Quality{Late: 4}, nil
}

// gpumeter runs a command line and returns exit code, output and errors.
func gpumeter(t *testing.T, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	code = run(t.Context(), args, stdin, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	t.Setenv(envData, t.TempDir())
	t.Setenv(envURL, "")
	for line, want := range map[string]string{
		"reprot":                           `unknown command "reprot" of gpumeter; did you mean report?`,
		"report cost":                      `unknown command "cost" of gpumeter report`,
		"report spend --by projekt":        "--by: unknown key \"projekt\"; the keys are project, instance",
		"report spend --zone Mars/Olympus": "--zone: \"Mars/Olympus\" is not a time zone",
		"report spend --from 2026-04-01 --to 2026-03-01": "--from:",
		"report spend --as-of soon":                      "--as-of:",
		"report spend --filter x":                        "--filter:",
		"report spend --format xml":                      "table, json, csv",
		"report spend extra":                             "unknown command",
		"report spend --nope":                            "unknown flag",
		"report spend --url ftp://x":                     "is not the URL of a server",
		"report plans --filter instance=i":               "--filter: \"instance\" is not a key that plans have",
		"report plans --step 8":                          "unknown flag",
		"report advise --step -1":                        "--step: -1 is not between",
		"report advise --spot-rework much":               "--spot-rework: \"much\" is not a decimal",
		"explain --limit 0":                              "--limit:",
		"ingest":                                         "accepts 1 arg",
		"quarantine redrive":                             "either --all or",
		"quarantine redrive --all S/1/2/3":               "either --all or",
		"quarantine redrive x":                           "STREAM/EPOCH/SEQUENCE/PLACE",
		"quarantine list --format csv":                   "table, json",
		"prices check":                                   "requires at least 1 arg",
		"prices profiles nope":                           "no profile \"nope\" comes with gpumeter; there are alibaba-ecs,",
		"prices profiles aws gcp":                        "accepts at most 1 arg",
		"statement close":                                "--period: \"\" is not a month such as 2026-03",
		"statement close --period 2026-03 --actor=":      "--actor:",
		"statement show --period march":                  "--period: \"march\"",
		"statement diff --period 2026-03 --format xml":   "--format: \"xml\" is not one of table, json, csv",
		"statement reopen":                               "unknown command \"reopen\" of gpumeter statement",
		"audit close silent":                             "accepts 2 arg",
		"audit close silent agent/1":                     "--by says who closes it, and why",
		"audit close silent agent/1 --by=":               "--by says who closes it, and why",
		"version x":                                      "",
	} {
		code, stdout, stderr := gpumeter(t, nil, strings.Fields(line)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "gpumeter: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
	for _, line := range []string{"", "report", "--help", "ingest --help", "version"} {
		if code, stdout, stderr := gpumeter(t, nil, strings.Fields(line)...); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("%q: exit %d, %q, %q", line, code, stdout, stderr)
		}
	}
}

func TestFindingTheServer(t *testing.T) {
	server := startServer(t)
	dead := httptest.NewServer(nil)
	dead.Close()
	endpoints := func(text string) string {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "endpoints.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	running := endpoints(`{"http":"` + server.URL + `","nats":"x","clickhouse":"y"}`)
	hostOnly := endpoints(`{"http":"` + strings.TrimPrefix(server.URL, "http://") + `"}`)
	stale := endpoints(`{"http":"` + dead.URL + `"}`)
	none := endpoints("")
	for _, c := range []struct {
		name, url, data, envData, envURL string
		code                             int
		want                             string
	}{
		{"--url first", server.URL + "/", stale, stale, dead.URL, 0, ""},
		{"--data", "", running, stale, dead.URL, 0, ""},
		{"host and port only", "", hostOnly, "", "", 0, ""},
		{"data directory from the environment", "", "", running, "", 0, ""},
		{"URL from the environment", "", none, "", server.URL, 0, ""},
		{"left over from a killed process", "", stale, "", server.URL, 0, ""},
		{"nothing runs", "", none, "", "", 1, "no running gpumeter found: there is no "},
		{"nothing runs any more", "", stale, "", "", 1, `is "gpumeter up" still running?`},
		{"broken file", "", endpoints("{"), "", server.URL, 1, "endpoints.json"},
		{"no http in it", "", endpoints("{}"), "", server.URL, 1, `no "http" endpoint`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(envData, c.envData)
			t.Setenv(envURL, c.envURL)
			code, stdout, stderr := gpumeter(t, nil, "report", "quality", "--format", "json", "--url", c.url, "--data", c.data)
			if code != c.code || !strings.Contains(stderr, c.want) || (code == 0) != strings.Contains(stdout, `"late":4`) {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestAsking(t *testing.T) {
	server := startServer(t)
	for line, want := range map[string]string{
		"report spend --from 2026-03-01 --to 2026-04-01 --by project,day --format json --filter label:a=b,c=d": `{"from":"2026-03-01T00:00:00Z","to":"2026-04-01T00:00:00Z"`,
		"report waste --by project --by day --format csv":                                                      "project,day,allocated_ms",
		"report utilization": "utilization from ",
		"explain --format json --filter project= --limit 3": `"filter":{"project":""}`,
		"quarantine list":               "S/1/2/3",
		"quarantine list --format json": `"ref":"S/1/2/3"`,
		"quarantine redrive S/1/2/3":    `{"redriven":1}`,
		"quarantine redrive --all":      `{"redriven":1}`,
	} {
		code, stdout, stderr := gpumeter(t, nil, append(strings.Fields(line), "--url", server.URL)...)
		if code != 0 || !strings.Contains(stdout, want) || strings.Contains(stdout, "\x1b") {
			t.Errorf("%s: exit %d, %q, %q", line, code, stdout, stderr)
		}
	}
	// What only the server finds wrong is a usage error too.
	code, _, stderr := gpumeter(t, nil, "quarantine", "list", "--limit", "5000", "--url", server.URL)
	if code != exitUsage || !strings.Contains(stderr, "1000") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestPricesCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("currency: USD\nprices:\n  - {model: m, per_gpu_hour: 3.60, valid_from: 2026-03-01}\n")
	code, stdout, _ := gpumeter(t, nil, "prices", "check", file)
	if code != 0 || !strings.Contains(stdout, "1 entries in USD, version ") || !strings.Contains(stdout, "3.6 USD") || !strings.Contains(stdout, "until further notice") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	write("currency: USD\nprices:\n  - {model: m, per_gpu_hour: -1, vaild_from: 2026-03-01}\n")
	code, _, stderr := gpumeter(t, nil, "prices", "check", file)
	if code != exitFailed || !strings.Contains(stderr, file+":3:30: ") || !strings.Contains(stderr, `did you mean "valid_from"?`) {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, _, _ = gpumeter(t, nil, "prices", "check", file+"x"); code != exitFailed {
		t.Errorf("missing file: exit %d", code)
	}
}

func TestProgressLines(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := newProgress(&out, 4000, func() time.Time { return now })
	for range 10 {
		now = now.Add(time.Second)
		p.add(100)
	}
	want := "ingest: 5 lines, 1 lines/s, 12 %, about 35s left\ningest: 10 lines, 1 lines/s, 25 %, about 30s left\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	p.say("line %d", 7)
	if !strings.HasSuffix(out.String(), "line 7\n") {
		t.Error(out.String())
	}
}

var errUnavailable = errors.New("stream is gone")

func usageLine(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","type":"gpumeter.usage.v1","source":"s","id":%q,"data":{"unit":"GPU-1","start":"2026-03-01T10:00:00Z","end":"2026-03-01T10:01:00Z","utilization":0.5}}`, id)
}
