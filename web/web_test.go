package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

var clock = time.Date(2026, 4, 2, 12, 0, 0, 0, time.UTC)

// store is a Store that remembers what it was asked.
type store struct {
	query  schema.UsageQuery
	events schema.EventQuery
	err    error
}

func (s *store) Usage(_ context.Context, q schema.UsageQuery) ([]schema.UsageRow, error) {
	s.query = q
	row := schema.UsageRow{Keys: make([]string, len(q.By)), Sums: schema.Sums{ActiveMs: 60_000}}
	return []schema.UsageRow{row}, s.err
}

func (s *store) Events(_ context.Context, q schema.EventQuery) ([]schema.StoredEvent, string, error) {
	s.events = q
	return nil, "more", s.err
}

func (s *store) Leases(context.Context, schema.EventQuery) ([]schema.LeaseSegment, error) {
	return nil, nil
}

func (s *store) Sources(context.Context, string, int64, int64, int64) ([]schema.SourceQuality, int64, error) {
	return nil, 0, nil
}

func (s *store) Conflicts(context.Context, string, int64, int64, int64, int) ([]schema.Conflict, error) {
	return nil, nil
}

func (s *store) Incidents(context.Context, string, int64, int64, int64) ([]schema.Incident, error) {
	return nil, nil
}

func (s *store) Quality(context.Context, string, int64, int64, int64) (schema.Quality, error) {
	return schema.Quality{}, s.err
}

// quarantine holds one item.
type quarantine struct {
	driven []Ref
	after  string
}

var item = schema.QuarantinedItem{Stream: "USAGE_0", Epoch: 7, StreamSequence: 9, Place: -1, Kind: schema.KindMalformed, Reason: "broken", Raw: "\xff{"}

func (q *quarantine) List(_ context.Context, _ string, limit int, after string) ([]schema.QuarantinedItem, string, error) {
	q.after = after
	return []schema.QuarantinedItem{item}[:min(1, limit)], "n1", nil
}

func (q *quarantine) Redrive(_ context.Context, _ string, refs []Ref) (int, error) {
	for _, r := range refs {
		if r != RefOf(&item) {
			return 0, fmt.Errorf("item %s: %w", r, ErrNotFound)
		}
	}
	q.driven = refs
	return 1, nil
}

// stream takes messages as a stream does: a message id once.
type stream struct {
	taken map[string]bool
	order []string
	err   error
	full  int // messages to take before the rest is refused; 0 = all
}

func (s *stream) ingest(_ context.Context, messages []schema.Message) ([]schema.Receipt, error) {
	if s.err != nil {
		return nil, s.err
	}
	receipts := make([]schema.Receipt, len(messages))
	for i, m := range messages {
		if s.full > 0 && i >= s.full {
			receipts[i].Err = errors.New("stream is full")
			continue
		}
		receipts[i] = schema.Receipt{Sequence: uint64(i), Duplicate: s.taken[m.ID]}
		s.taken[m.ID] = true
		s.order = append(s.order, string(m.Payload))
	}
	return receipts, nil
}

type bench struct {
	*httptest.Server
	store      *store
	stream     *stream
	quarantine *quarantine
	components []Component
}

func start(t *testing.T) *bench {
	t.Helper()
	b := &bench{store: &store{}, stream: &stream{taken: map[string]bool{}}, quarantine: &quarantine{}}
	service, err := report.New(report.Options{Store: b.store, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	b.Server = httptest.NewServer(Handler(Deps{
		Reports: service, Statements: &statements{}, Prices: &prices{}, Ingest: b.stream.ingest, Quarantine: b.quarantine,
		Status:  func(context.Context) (any, error) { return map[string]any{"backlog": 3}, nil },
		Ready:   func() []Component { return b.components },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "gpumeter_up 1") }),
		Log:     slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(b.Close)
	return b
}

// do sends a request and returns status, header and body.
func (b *bench) do(t *testing.T, method, path, contentType, body string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

func (b *bench) get(t *testing.T, path string) (int, http.Header, string) {
	t.Helper()
	return b.do(t, http.MethodGet, path, "", "")
}

func TestReport(t *testing.T) {
	b := start(t)
	code, header, body := b.get(t, "/api/v1/reports/spend?from=2026-03-01&to=2026-04-01&zone=Asia/Shanghai&by=project,day,label:a&project=&label=team=x%3Dy&filter=node%3Dn%2C1")
	want := `{"from":"2026-02-28T16:00:00Z","to":"2026-03-31T16:00:00Z","as_of":"2026-04-02T12:00:00Z","zone":"Asia/Shanghai","currency":null,"by":["project","day","label:a"],"rows":[{"project":"","day":"2026-03-01","label:a":"","allocated_ms":60000,`
	if code != 200 || !strings.HasPrefix(body, want) || header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %s", code, header.Get("Content-Type"), body)
	}
	if got, want := fmt.Sprint(b.store.query.Filter), "map[label:team:x=y node:n,1 project:]"; got != want {
		t.Errorf("filter %s, want %s", got, want)
	}
	if _, header, body = b.get(t, "/api/v1/reports/usage?format=csv"); !strings.HasPrefix(body, "allocated_ms,") || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
		t.Errorf("csv: %s %s", header.Get("Content-Type"), body)
	}
	if _, _, body = b.get(t, "/api/v1/reports/waste?format=table"); !strings.HasPrefix(body, "waste from 2026-04-01T00:00:00Z to 2026-04-02T12:00:00Z (UTC)") {
		t.Errorf("table: %s", body)
	}
	if len(b.store.query.Filter) != 0 {
		t.Errorf("filter %v of a question without one", b.store.query.Filter)
	}
	if code, _, body = b.get(t, "/api/v1/explain?limit=5&after=x&instance=i1"); code != 200 || !strings.Contains(body, `"next":"more"`) || b.store.events.Limit != 5 || b.store.events.After != "x" || b.store.events.Filter["instance"] != "i1" {
		t.Errorf("explain: %d %s, asked %+v", code, body, b.store.events)
	}
}

func TestReportRefuses(t *testing.T) {
	b := start(t)
	for path, want := range map[string]string{
		"/api/v1/reports/cost":                                "spend, waste",
		"/api/v1/reports/spend?by=projekt":                    "project, instance",
		"/api/v1/reports/spend?projekt=a":                     "unknown query parameter",
		"/api/v1/reports/spend?zone=Mars/Olympus":             "is not a time zone",
		"/api/v1/reports/spend?from=2026-03-02&to=2026-03-01": "is not before to",
		"/api/v1/reports/spend?project=a&project=b":           "is there twice",
		"/api/v1/reports/spend?filter=x":                      "is not KEY=VALUE",
		"/api/v1/reports/spend?format=xml":                    "json",
		"/api/v1/explain?limit=100000":                        "1000",
		"/api/v1/explain?filter=day=2026-03-01":               "choose times",
	} {
		code, header, body := b.get(t, path)
		if code != 422 || header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s %s", path, code, header.Get("Content-Type"), body)
		}
	}
	b.store.err = errors.New("store is down")
	if code, _, body := b.get(t, "/api/v1/reports/spend"); code != 500 || !strings.Contains(body, "store is down") {
		t.Errorf("%d %s", code, body)
	}
	b.store.err = fmt.Errorf("slow: %w", context.DeadlineExceeded)
	if code, _, body := b.get(t, "/api/v1/reports/spend"); code != 504 {
		t.Errorf("%d %s", code, body)
	}
}

func event(id string) string {
	return `{"specversion":"1.0","type":"gpumeter.usage.v1","source":"s","id":"` + id + `","data":{"unit":"GPU-1","start":"2026-03-01T10:00:00Z","end":"2026-03-01T10:01:00Z"}}`
}

func outcome(t *testing.T, body string) string {
	t.Helper()
	var p EventsProblem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var parts []string
	for _, r := range p.Results {
		parts = append(parts, fmt.Sprintf("%d %s %s", r.Index, r.Status, r.Kind))
	}
	return strings.TrimSpace(fmt.Sprintf("%d/%d/%d/%d %s", p.Accepted, p.Duplicate, p.Rejected, p.Unavailable, strings.Join(parts, ", ")))
}

const batch = "application/cloudevents-batch+json"

func TestEvents(t *testing.T) {
	late := `{"specversion":"1.0","type":"gpumeter.lease.v1","source":"s","id":"l","data":{"instance":"i","at":"2026-03-01T10:00:00Z","state":"running"}}`
	percent := strings.Replace(event("p"), `"unit"`, `"utilization":42,"unit"`, 1)
	for _, c := range []struct {
		name, contentType, body string
		code                    int
		want                    string
	}{
		{"one", schema.ContentTypeEvent + "; charset=utf-8", event("a"), 200, "1/0/0/0 0 accepted"},
		{"plain JSON", "application/json", event("a"), 200, "1/0/0/0 0 accepted"},
		{"batch with a repetition", batch, "[" + event("a") + "," + late + "," + event("a") + "]", 200, "2/1/0/0 0 accepted , 1 accepted , 2 duplicate"},
		{"some rejected", batch, "[" + percent + "," + event("b") + ",5]", 207, "1/0/2/0 0 rejected invalid_value, 1 accepted , 2 rejected invalid_value"},
		{"one rejected", schema.ContentTypeEvent, percent, 422, "0/0/1/0 0 rejected invalid_value"},
		{"unknown type", schema.ContentTypeEvent, strings.Replace(event("a"), "usage.v1", "usage.v9", 1), 422, "0/0/1/0 0 rejected unknown_type"},
		{"all rejected", batch, "[{},{}]", 422, "0/0/2/0 0 rejected invalid_value, 1 rejected invalid_value"},
		{"no batch", batch, event("a"), 422, "0/0/1/0 -1 rejected malformed"},
		{"empty batch", batch, "[]", 422, "0/0/1/0 -1 rejected missing_field"},
		{"key twice", schema.ContentTypeEvent, `{"id":"a","id":"b"}`, 422, "0/0/1/0 0 rejected malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, body := start(t).do(t, http.MethodPost, "/api/v1/events", c.contentType, c.body)
			if code != c.code {
				t.Fatalf("%d %s", code, body)
			}
			if got := outcome(t, body); got != c.want {
				t.Errorf("%s, want %s\n%s", got, c.want, body)
			}
		})
	}
}

func TestEventsKeepTheirOrder(t *testing.T) {
	b := start(t)
	late := strings.ReplaceAll(`{"specversion":"1.0","type":"gpumeter.lease.v1","source":"s","id":"ID","data":{"instance":"i","at":"2026-03-01T10:00:00Z","state":"running"}}`, "ID", "2")
	b.do(t, http.MethodPost, "/api/v1/events", batch, "["+event("1")+","+late+","+event("3")+"]")
	var ids []string
	for _, payload := range b.stream.order {
		e, err := schema.DecodeEvent([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.Header().ID)
	}
	if !slices.Equal(ids, []string{"1", "2", "3"}) {
		t.Errorf("the stream got %v", ids)
	}
}

func TestEventsThatTheStreamCannotTake(t *testing.T) { // H7
	b := start(t)
	b.stream.full = 1
	code, header, body := b.do(t, http.MethodPost, "/api/v1/events", batch, "["+event("a")+","+event("b")+",{}]")
	if code != 503 || header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", code, header)
	}
	if got := outcome(t, body); got != "1/0/1/1 0 accepted , 1 unavailable , 2 rejected invalid_value" {
		t.Error(got)
	}
	b.stream.full, b.stream.err = 0, errors.New("no responders")
	if code, _, body = b.do(t, http.MethodPost, "/api/v1/events", batch, "["+event("c")+"]"); code != 503 || outcome(t, body) != "0/0/0/1 0 unavailable" {
		t.Errorf("%d %s", code, body)
	}
}

func TestEventsBounds(t *testing.T) {
	b := start(t)
	if code, _, body := b.do(t, http.MethodPost, "/api/v1/events", batch, strings.Repeat("x", schema.MaxMessageBytes+1)); code != 413 {
		t.Errorf("%d %s", code, body)
	}
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", schema.ContentTypeCompact, "/;;"} {
		if code, _, body := b.do(t, http.MethodPost, "/api/v1/events", contentType, event("a")); code != 415 {
			t.Errorf("%s: %d %s", contentType, code, body)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/api/v1/events", strings.NewReader(event("a")))
	req.Header.Set("Content-Type", schema.ContentTypeEvent)
	req.Header.Set("Origin", "https://elsewhere.example")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 403 || len(b.stream.taken) != 0 {
		t.Errorf("a request on behalf of another site: %d, %d events taken", res.StatusCode, len(b.stream.taken))
	}
}

func TestQuarantine(t *testing.T) {
	b := start(t)
	code, _, body := b.get(t, "/api/v1/quarantine?limit=10&after=n0")
	if code != 200 || !strings.Contains(body, `"ref":"USAGE_0/7/9/-1"`) || !strings.Contains(body, `"next":"n1"`) || b.quarantine.after != "n0" || !json.Valid([]byte(body)) {
		t.Errorf("%d %s", code, body)
	}
	for request, want := range map[string]int{
		`{"all":true}`: 200, `{"refs":["USAGE_0/7/9/-1"]}`: 200, `{"refs":["USAGE_0/7/9/0"]}`: 404,
		`{}`: 422, `{"all":true,"refs":["USAGE_0/7/9/-1"]}`: 422, `{"refs":["x"]}`: 422, `{"refs":["s/-1/2/3"]}`: 422, `{"al":true}`: 422, `[`: 400,
	} {
		if code, _, body := b.do(t, http.MethodPost, "/api/v1/quarantine/redrive", "application/json", request); code != want {
			t.Errorf("%s: %d %s", request, code, body)
		}
	}
}

func TestHealth(t *testing.T) {
	b := start(t)
	for path, want := range map[string]string{
		"/healthz": `{"status":"ok"}`, "/readyz": `{"ready":true,"components":[]}`, "/api/v1/status": `{"backlog":3}`,
		"/metrics": "gpumeter_up 1", "/": "gpumeter",
	} {
		code, header, body := b.get(t, path)
		if code != 200 || !strings.Contains(body, want) || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	b.components = []Component{{Name: "stream", Ready: true}, {Name: "consumer", Detail: "no acknowledgement for 40s"}}
	if code, _, body := b.get(t, "/readyz"); code != 503 || strings.TrimSpace(body) != `{"ready":false,"components":[{"name":"stream","ready":true,"detail":""},{"name":"consumer","ready":false,"detail":"no acknowledgement for 40s"}]}` {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := b.get(t, "/api/v1/nowhere"); code != 404 {
		t.Errorf("/api/v1/nowhere: %d", code)
	}
}

func TestOpenAPI(t *testing.T) {
	_, _, body := start(t).get(t, "/openapi.json")
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct{ Content map[string]any }
			Responses   map[string]struct{ Content map[string]any }
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{
		"/api/v1/reports/{kind}": "get", "/api/v1/explain": "get", "/api/v1/events": "post", "/api/v1/quarantine": "get",
		"/api/v1/statements": "post", "/api/v1/statements/{period}": "get", "/api/v1/statements/{period}/diff": "get", "/api/v1/quarantine/redrive": "post", "/api/v1/status": "get", "/healthz": "get", "/readyz": "get",
	} {
		if _, ok := doc.Paths[path][method]; !ok {
			t.Errorf("no %s %s", method, path)
		}
	}
	for kind, content := range map[string]map[string]any{
		"report": doc.Paths["/api/v1/reports/{kind}"]["get"].Responses["200"].Content, "explain": doc.Paths["/api/v1/explain"]["get"].Responses["200"].Content,
	} {
		if len(content) != 3 || content["text/csv"] == nil || content["application/json"] == nil {
			t.Errorf("%s is answered as %v", kind, content)
		}
	}
	if content := doc.Paths["/api/v1/events"]["post"].RequestBody.Content; len(content) != 2 || content[batch] == nil {
		t.Errorf("events are sent as %v", content)
	}
	if bytes.Contains([]byte(body), []byte("application/octet-stream")) {
		t.Error("a body of unnamed bytes is left in the document")
	}
}

func TestRoutesWithoutDependencyDoNotExist(t *testing.T) {
	h := Handler(Deps{Log: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"/api/v1/reports/spend": 404, "/api/v1/quarantine": 404, "/metrics": 404, "/readyz": 200} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestPanicCostsOneRequest(t *testing.T) {
	h := Handler(Deps{Log: slog.New(slog.DiscardHandler), Ready: func() []Component { panic("bug") }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if w.Code != 500 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
