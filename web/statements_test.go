package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/report"
)

// statements has one closed month, 2026-03, and says what it was asked.
type statements struct{}

func (*statements) Close(_ context.Context, p report.CloseParams) (*report.Frozen, error) {
	switch p.Period {
	case "2026-03":
		return nil, &report.ConflictError{Msg: "closed by ann"}
	case "2026-04":
		return nil, fmt.Errorf("deep: %w", &report.UnsettledError{Waiting: 7})
	case "2026-05":
		return &report.Frozen{Hash: "abc", Statement: report.Statement{ClosedBy: p.Actor, By: p.By, Override: p.Override, Tenant: p.Tenant}}, nil
	}
	return nil, &report.RequestError{Param: "period", Msg: "is not a month"}
}

func (*statements) Show(_ context.Context, p report.StatementParams) (*report.Frozen, error) {
	if p.Period == "2026-06" {
		return nil, errors.New("disk gone")
	}
	return &report.Frozen{Hash: "abc", Statement: report.Statement{Period: p.Period, Zone: p.Zone, By: append([]string{"x"}, p.By...)}}, nil
}

func (*statements) List(context.Context, string) (*report.StatementList, error) {
	return &report.StatementList{Statements: []report.StatementSummary{{Period: "2026-03", Hash: "abc"}}}, nil
}

func (*statements) Diff(_ context.Context, p report.DiffParams) (*report.StatementDiff, error) {
	if p.Period != "2026-03" {
		return nil, &report.NotClosedError{Period: p.Period, Tenant: p.Tenant}
	}
	return &report.StatementDiff{Period: p.Period, AsOf: p.AsOf, By: []string{"project"}}, nil
}

func TestStatements(t *testing.T) {
	b := start(t)
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "", `{"period":"2026-05","actor":"ann","by":["unit"],"override":"why"}`, 200, ""},
		{"POST", "", `{"period":"2026-03","actor":"ann"}`, 409, "closed by ann"},
		{"POST", "", `{"period":"2026-04","actor":"ann"}`, 409, "7 messages of the stream are not processed yet"},
		{"POST", "", `{"period":"soon","actor":"ann"}`, 422, "is not a month"},
		{"POST", "", `{"period":"2026-05"}`, 422, "actor"},
		{"POST", "", `{"period":"2026-05","actor":"ann","tenant":"other"}`, 422, "answers for the tenant default"},
		{"GET", "", "", 200, `"hash":"abc"`},
		{"GET", "?format=table", "", 200, "2026-03"},
		{"GET", "?tenant=other", "", 422, "answers for the tenant default"},
		{"GET", "/2026-03?format=csv&by=a,b", "", 200, "line,origin,x,a,b,allocated_ms"},
		{"GET", "/2026-06", "", 500, "disk gone"},
		{"GET", "/2026-03/diff?as_of=2026-04-05", "", 200, `"as_of":"2026-04-05"`},
		{"GET", "/2026-02/diff", "", 404, "2026-02 of tenant default is not closed"},
		{"GET", "/2026-03/diff?asof=1", "", 422, "asof"},
	} {
		contentType := ""
		if c.body != "" {
			contentType = "application/json"
		}
		code, header, body := b.do(t, c.method, "/api/v1/statements"+c.path, contentType, c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, code, body)
		}
		if strings.Contains(c.want, "not processed") && header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if _, header, _ := b.get(t, "/api/v1/statements/2026-03"); header.Get("ETag") != `"abc"` {
		t.Errorf("ETag %q", header.Get("ETag"))
	}
}

// slow closes when its time is over, and says how much it had.
type slow struct {
	statements
	had time.Duration
}

func (s *slow) Close(ctx context.Context, _ report.CloseParams) (*report.Frozen, error) {
	deadline, _ := ctx.Deadline()
	s.had = time.Until(deadline)
	time.Sleep(300 * time.Millisecond)
	return &report.Frozen{Statement: report.Statement{Period: "2026-05"}}, nil
}

func (s *slow) List(ctx context.Context, _ string) (*report.StatementList, error) {
	deadline, _ := ctx.Deadline()
	s.had = time.Until(deadline)
	return &report.StatementList{}, nil
}

// A closing computes a month from its events: it has longer than another request,
// and its answer may come when the time to write another's is over.
func TestClosingMayTakeLong(t *testing.T) {
	s := &slow{}
	srv := Server(Handler(Deps{Statements: s}))
	srv.WriteTimeout = 100 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(listener)
	defer srv.Close()
	address := "http://" + listener.Addr().String() + statementsPath
	res, err := http.Post(address, "application/json", strings.NewReader(`{"period":"2026-05","actor":"ann"}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a closing that took long: %s", res.Status)
	}
	if s.had < CloseTimeout-time.Minute || s.had > CloseTimeout {
		t.Errorf("a closing has %v", s.had)
	}
	Handler(Deps{Statements: s}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, statementsPath, nil))
	if s.had > requestTimeout {
		t.Errorf("a list has %v", s.had)
	}
}

// What computes figures has longer than what looks something up.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         time.Duration
	}{
		{http.MethodGet, "/api/v1/reports/spend", ReportTimeout},
		{http.MethodGet, "/api/v1/explain", ReportTimeout},
		{http.MethodGet, statementsPath + "/2026-03/diff", ReportTimeout},
		{http.MethodPost, statementsPath, CloseTimeout},
		{http.MethodGet, statementsPath, requestTimeout},
		{http.MethodPost, "/api/v1/reports/spend", requestTimeout},
		{http.MethodPost, "/api/v1/events", requestTimeout},
		{http.MethodGet, "/readyz", requestTimeout},
	} {
		if got := timeoutOf(httptest.NewRequest(c.method, c.path, nil)); got != c.want {
			t.Errorf("%s %s has %v, want %v", c.method, c.path, got, c.want)
		}
	}
}
