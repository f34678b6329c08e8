package web

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/report"
)

// people is a Directory in which everybody's name is their token, and that of their group.
type people map[string]Identity

func (p people) Token(sum [sha256.Size]byte) (Identity, bool) {
	for name, who := range p {
		if sha256.Sum256([]byte(name)) == sum {
			who.Name = name
			return who, true
		}
	}
	return Identity{}, false
}

func (p people) Groups(groups []string) (Identity, bool) {
	for _, g := range groups {
		if who, ok := p[g]; ok {
			return who, true
		}
	}
	return Identity{}, false
}

type gate struct {
	*httptest.Server
	t      *testing.T
	people people
	now    time.Time
	log    strings.Builder
}

func newGate(t *testing.T, change func(*Deps)) *gate {
	t.Helper()
	g := &gate{t: t, now: clock, people: people{
		"reader": {Role: Viewer}, "doer": {Role: Operator}, "boss": {Role: Admin}, "part": {Role: Viewer, Projects: []string{"a"}},
	}}
	service, err := report.New(report.Options{Store: &store{}, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	d := Deps{
		Reports: service, Plans: service, Statements: &statements{}, Prices: &prices{}, Ingest: (&stream{taken: map[string]bool{}}).ingest, Quarantine: &quarantine{},
		Status:  func(context.Context) (any, error) { return map[string]any{"backlog": 3}, nil },
		Ready:   func() []Component { return []Component{{Name: "consumer", Detail: "secret detail"}} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "gpumeter_up 1") }),
		Log:     slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Tenant: "acme", Version: "1.2",
		SignIn: SignIn{Directory: g.people, Now: func() time.Time { return g.now }},
	}
	if change != nil {
		change(&d)
	}
	g.Server = httptest.NewServer(Handler(d))
	t.Cleanup(g.Close)
	return g
}

// ask sends a request with headers as pairs.
func (g *gate) ask(method, path, body string, header ...string) (*http.Response, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.URL+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res, string(text)
}

func (g *gate) code(method, path, body string, header ...string) int {
	g.t.Helper()
	res, _ := g.ask(method, path, body, header...)
	return res.StatusCode
}

// Each role may do what lower ones may, and nobody anything but what is open.
func TestWhoMayWhat(t *testing.T) {
	g := newGate(t, nil)
	names := []string{"", "part", "reader", "doer", "boss"}
	for _, c := range []struct {
		method, path string
		least        int // position in names from which on it is allowed
	}{
		{"GET", "/healthz", 0}, {"GET", "/readyz", 0}, {"GET", "/openapi.json", 0}, {"GET", "/api/v1/session", 0}, {"GET", "/", 0}, {"GET", "/nothing", 0},
		{"GET", "/api/v1/reports/spend", 1}, {"HEAD", "/api/v1/reports/spend", 1}, {"GET", "/api/v1/explain", 1}, {"GET", "/api/v1/charges/00000000", 1},
		{"GET", "/api/v1/reports/plans", 2}, {"GET", "/api/v1/reports/advise", 2}, {"GET", "/api/v1/statements", 2}, {"GET", "/api/v1/statements/2026-03", 2},
		{"GET", "/api/v1/statements/2026-03/diff", 2}, {"GET", "/api/v1/prices", 2}, {"GET", "/api/v1/prices/book/default", 2}, {"GET", "/api/v1/quarantine", 2},
		{"GET", "/api/v1/status", 2}, {"GET", "/metrics", 2}, {"HEAD", "/metrics", 2},
		{"POST", "/api/v1/events", 3}, {"POST", "/api/v1/quarantine/redrive", 3},
		{"POST", "/api/v1/prices", 4}, {"DELETE", "/api/v1/prices/contract/x", 4}, {"POST", "/api/v1/statements", 4},
	} {
		for i, name := range names {
			header := []string{}
			if name != "" {
				header = []string{"Authorization", "Bearer " + name}
			}
			res, text := g.ask(c.method, c.path, "", header...)
			code := res.StatusCode
			switch {
			case i >= c.least && (code == 401 || code == 403):
				t.Errorf("%s %s by %q: %d %s", c.method, c.path, name, code, text)
			case i < c.least && i == 0 && (code != 401 || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer ")):
				t.Errorf("%s %s by nobody: %d %v", c.method, c.path, code, res.Header)
			case i < c.least && i > 0 && code != 403:
				t.Errorf("%s %s by %q: %d, want 403", c.method, c.path, name, code)
			}
			if i < c.least && (res.Header.Get("Content-Type") != "application/problem+json" || c.method != "HEAD" && !strings.Contains(text, `"detail":"`)) {
				t.Errorf("%s %s by %q: %v %s", c.method, c.path, name, res.Header, text)
			}
		}
	}
	if _, text := g.ask("GET", "/api/v1/quarantine", "", "Authorization", "Bearer part"); !strings.Contains(text, "part may see some projects only") {
		t.Error(text)
	}
	if _, text := g.ask("POST", "/api/v1/events", "", "Authorization", "bearer reader"); !strings.Contains(text, "takes the role operator; reader has the role viewer") {
		t.Error(text)
	}
}

// A route that nobody wrote into the table of access is for admins of everything.
func TestForgottenRoute(t *testing.T) {
	if need := needs("GET /api/v1/forgotten"); need != (access{role: Admin}) {
		t.Errorf("%+v", need)
	}
	for pattern := range accessOf {
		if !slices.Contains(Routes(Deps{
			Reports: &report.Service{}, Board: &report.Service{}, Plans: &report.Service{}, Statements: &statements{}, Prices: &prices{}, Ingest: (&stream{}).ingest, Quarantine: &quarantine{},
			Status: func(context.Context) (any, error) { return nil, nil }, Metrics: http.NotFoundHandler(),
			SignIn: SignIn{Directory: people{}, OIDC: &OIDC{}, PublicURL: &url.URL{}},
		}), pattern) {
			t.Errorf("there is no route %s", pattern)
		}
	}
}

func TestBadCredentials(t *testing.T) {
	g := newGate(t, nil)
	for _, header := range []string{"Bearer wrong", "Bearer ", "Bearer", "Basic Ym9zczo=", "boss"} {
		for _, path := range []string{"/api/v1/status", "/api/v1/session"} {
			if res, text := g.ask("GET", path, "", "Authorization", header); res.StatusCode != 401 || !strings.Contains(res.Header.Get("WWW-Authenticate"), `error="invalid_token"`) {
				t.Errorf("%q %s: %d %v %s", header, path, res.StatusCode, res.Header, text)
			}
		}
	}
	for _, cookie := range []string{"x", "", strings.Repeat("A", 52)} {
		if code := g.code("GET", "/api/v1/status", "", "Cookie", sessionCookie+"="+cookie); code != 401 {
			t.Errorf("cookie %q: %d", cookie, code)
		}
	}
	// A token in the address is none.
	if code := g.code("GET", "/api/v1/status?token=boss", ""); code != 401 {
		t.Error(code)
	}
	if _, text := g.ask("GET", "/readyz", ""); strings.Contains(text, "secret") || !strings.Contains(text, `"name":"consumer","ready":false`) {
		t.Error(text)
	}
	if _, text := g.ask("GET", "/readyz", "", "Authorization", "Bearer reader"); !strings.Contains(text, "secret detail") {
		t.Error(text)
	}
}

// A browser signs in once; the session ends with its token, its time, or on request.
func TestSession(t *testing.T) {
	g := newGate(t, nil)
	if _, text := g.ask("GET", sessionPath, ""); text != `{"name":null,"role":null,"projects":null,"sign_in":"token","tenant":"acme","version":"1.2","oidc":false}`+"\n" {
		t.Error(text)
	}
	signIn := func(name string) *http.Cookie {
		t.Helper()
		res, text := g.ask("POST", sessionPath, `{"token":"`+name+`"}`)
		if res.StatusCode != 200 || len(res.Cookies()) != 1 || strings.Contains(text, res.Cookies()[0].Value) {
			t.Fatalf("%d %v %s", res.StatusCode, res.Header, text)
		}
		return res.Cookies()[0]
	}
	c := signIn("part")
	if c.Name != sessionCookie || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.Domain != "" || len(c.Value) < 43 {
		t.Errorf("%+v", c)
	}
	status := func(path string) int { return g.code("GET", path, "", "Cookie", c.Name+"="+c.Value) }
	if _, text := g.ask("GET", sessionPath, "", "Cookie", c.Name+"="+c.Value); !strings.Contains(text, `"name":"part","role":"viewer","projects":["a"]`) {
		t.Error(text)
	}
	if a, b := status("/api/v1/explain"), status("/api/v1/status"); a != 200 || b != 403 {
		t.Error(a, b)
	}
	g.people["part"] = Identity{Role: Viewer}
	if got := status("/api/v1/status"); got != 200 {
		t.Errorf("a widened token: %d", got)
	}
	delete(g.people, "part")
	if got := status("/api/v1/explain"); got != 401 {
		t.Errorf("a removed token: %d", got)
	}
	c = signIn("reader")
	g.now = g.now.Add(sessionLife)
	if got := status("/api/v1/explain"); got != 401 {
		t.Errorf("an old session: %d", got)
	}
	c = signIn("reader")
	res, _ := g.ask("DELETE", sessionPath, "", "Cookie", c.Name+"="+c.Value)
	if out := res.Cookies(); res.StatusCode != 200 || len(out) != 1 || out[0].MaxAge != -1 || out[0].Value != "" || status("/api/v1/explain") != 401 {
		t.Errorf("signed out: %d %v", res.StatusCode, res.Header)
	}
	for body, want := range map[string]int{`{"token":"wrong"}`: 401, `{"token":""}`: 422, `{}`: 422, `{"token":"` + strings.Repeat("x", 300) + `"}`: 422} {
		if res, text := g.ask("POST", sessionPath, body); res.StatusCode != want || len(res.Cookies()) > 0 {
			t.Errorf("%.40s: %d %s", body, res.StatusCode, text)
		}
	}
	// Another site can neither sign in nor out.
	for _, method := range []string{"POST", "DELETE"} {
		if code := g.code(method, sessionPath, `{"token":"boss"}`, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); code != 403 {
			t.Errorf("%s from another site: %d", method, code)
		}
	}
	for _, secret := range []string{c.Value, "wrong", "reader"} {
		if strings.Contains(g.log.String(), secret) {
			t.Errorf("the log says %q: %s", secret, g.log.String())
		}
	}
}

// Sessions are bounded, and the oldest makes room.
func TestSessionsAreBounded(t *testing.T) {
	now := clock
	l := newSessions(func() time.Time { now = now.Add(time.Millisecond); return now })
	sum := sha256.Sum256([]byte("x"))
	first := l.begin(session{token: sum})
	second := l.begin(session{token: sum})
	for range maxSessions - 1 {
		l.begin(session{token: sum})
	}
	d := people{"x": {Role: Viewer}}
	if n := len(l.byID); n != maxSessions || l.identity(first, d).Role != 0 || l.identity(second, d).Role != Viewer {
		t.Errorf("%d sessions, the first %v, the second %v", n, l.identity(first, d), l.identity(second, d))
	}
}

func TestHTTPS(t *testing.T) {
	g := newGate(t, func(d *Deps) { d.SignIn.PublicURL = &url.URL{Scheme: "https", Host: "g.example"} })
	res, _ := g.ask("POST", sessionPath, `{"token":"boss"}`)
	if c := res.Cookies(); len(c) != 1 || !c[0].Secure || res.Header.Get("Strict-Transport-Security") == "" {
		t.Error(res.Header)
	}
}

// Without a sign-in everybody may do everything, from names of this machine only.
func TestNoSignIn(t *testing.T) {
	g := newGate(t, func(d *Deps) {
		d.SignIn = SignIn{OwnHosts: true, PublicURL: &url.URL{Scheme: "http", Host: "meter.lan:81"}}
	})
	if _, text := g.ask("GET", sessionPath, "", "Authorization", "Bearer whatever"); !strings.HasPrefix(text, `{"name":"","role":"admin","projects":null,"sign_in":"none",`) {
		t.Error(text)
	}
	if code := g.code("POST", sessionPath, `{"token":"boss"}`); code != 409 {
		t.Error(code)
	}
	for host, want := range map[string]int{
		"localhost": 200, "LocalHost:8080": 200, "127.0.0.1": 200, "127.9.9.9:1": 200, "[::1]:8080": 200, "[::1]": 200, "[::]:8080": 200, "0.0.0.0:8080": 200, "meter.lan:81": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:80": 421, "meter.lan": 421, "10.0.0.1": 421,
	} {
		if code := g.code("GET", "/api/v1/status", "", "Host", host); code != want {
			t.Errorf("host %s: %d, want %d", host, code, want)
		}
	}
}

// The document says of each operation what it asks for.
func TestSecurityInTheDocument(t *testing.T) {
	s, _ := newServer(Deps{Ingest: (&stream{}).ingest, Status: func(context.Context) (any, error) { return nil, nil }})
	api := s.api.OpenAPI()
	if got := api.Paths["/api/v1/events"].Post; len(got.Security) != 2 || got.Extensions["x-role"] != "operator" || got.Responses["401"] == nil || got.Responses["403"] == nil {
		t.Errorf("%+v", got)
	}
	if got := api.Paths["/healthz"].Get; got.Security != nil || got.Responses["401"] != nil {
		t.Errorf("%+v", got)
	}
	for name := range api.Paths["/api/v1/status"].Get.Security[0] {
		if api.Components.SecuritySchemes[name] == nil {
			t.Errorf("there is no scheme %s", name)
		}
	}
}
