package app

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

// sceneOfTwo has everything that there is of the projects alpha and bravo, on shared
// nodes, and a commitment of nobody. Every name and id of bravo's has "bravo" in it.
type sceneOfTwo struct {
	t      *testing.T
	db     *clickhouse.DB
	now    fixedClock
	n      uint64
	marks  []schema.Mark
	batch  *clickhouse.Batch
	server *httptest.Server
	deps   web.Deps
}

const (
	scopeTenant = "t"
	scopeSpan   = "from=2026-03-01&to=2026-03-09"
	scopeBook   = `
currency: CNY
prices:
  - {model: H100, per_gpu_hour: "34.56"}
meters:
  - {meter: egress_bytes, per: GB, price: "0.5"}
`
	scopeContract = `
contract: frame
platform: alibaba-ecs
currency: CNY
valid_from: 2026-01-01
valid_to: 2027-01-01
commitments:
  - {id: shared, model: H100, gpus: 1, term: month, per_gpu: "16000"}
credits:
  - {id: gift-bravo, project: bravo, amount: "1234.5", from: 2026-03-01, to: 2026-04-01, reason: for bravo}
`
)

func (s *sceneOfTwo) position() *schema.Position {
	s.n++
	return &schema.Position{Tenant: scopeTenant, Stream: "S", Epoch: 1, StreamSequence: s.n, StoredAtNs: testkit.At("2026-03-05T00:00:00Z")*1e6 + int64(s.n)}
}

func (s *sceneOfTwo) used(id, project, instance, unit, from, to string) schema.Usage {
	u := testkit.Usage(unit, instance, from, to)
	u.Source, u.ID, u.Project, u.Node, u.Platform = "agent-"+project, id, project, "node-"+project, "alibaba-ecs"
	u.Labels = schema.Labels{{Key: "team", Value: "team-" + project}}
	return u
}

// shared makes an event one of an agent that reports for both.
func shared(u schema.Usage) schema.Usage {
	u.Source = "agent-of-both"
	return u
}

func (s *sceneOfTwo) usage(list ...schema.Usage) {
	for i := range list {
		u := &list[i]
		s.batch.Usage(s.position(), u)
		for ms := schema.Floor(u.StartMs, schema.MinuteMs); ms < u.EndMs; ms += schema.MinuteMs {
			s.marks = append(s.marks, schema.Mark{Grain: schema.GrainMinute, Tenant: scopeTenant, WindowMs: ms, ID: s.n, Units: []uint64{schema.UnitHash(u.Unit)}})
		}
	}
}

func (s *sceneOfTwo) lease(project, at, state string) {
	l := &schema.Lease{Instance: "lease-" + project, AtMs: testkit.At(at), State: state, Project: project, Platform: "alibaba-ecs", Model: "H100", Gpus: schema.Some(2)}
	l.Source, l.ID = "cloud-"+project, project+"/"+state
	s.batch.Other(s.position(), &schema.Event{Lease: l})
}

func (s *sceneOfTwo) fill() {
	s.batch = s.db.NewBatch()
	s.usage(
		s.used("u-alpha", "alpha", "web-alpha", "GPU-shared", "2026-03-02T09:00:00Z", "2026-03-02T09:41:17.123Z"),
		s.used("u-bravo", "bravo", "web-bravo", "GPU-shared", "2026-03-02T10:00:00Z", "2026-03-02T11:13:19.457Z"),
		s.used("l-alpha", "alpha", "lease-alpha", "GPU-alpha", "2026-03-02T12:10:00Z", "2026-03-02T13:05:01.002Z"),
		s.used("l-bravo", "bravo", "lease-bravo", "GPU-bravo", "2026-03-02T12:20:00Z", "2026-03-02T14:07:03.004Z"),
		// One identity that both claim: bravo's content was stored first and counts.
		shared(s.used("claimed", "bravo", "web-bravo", "GPU-bravo-2", "2026-03-03T09:00:00Z", "2026-03-03T09:30:11.311Z")),
	)
	s.usage(shared(s.used("claimed", "alpha", "web-alpha", "GPU-alpha-2", "2026-03-03T09:00:00Z", "2026-03-03T09:10:00Z")))
	// An event of alpha's that turned out to be bravo's.
	wrong := s.used("wrong-alpha", "alpha", "web-alpha", "GPU-alpha-3", "2026-03-03T10:00:00Z", "2026-03-03T10:10:00Z")
	right := s.used("right-bravo", "bravo", "web-bravo", "GPU-bravo-3", "2026-03-03T10:00:00Z", "2026-03-03T10:10:00Z")
	s.usage(wrong)
	c := &schema.Correction{CorrectsSource: wrong.Source, CorrectsID: wrong.ID, Action: "replace", Replacement: &schema.Event{Usage: &right}, Actor: "bravo's boss", Reason: "was bravo's"}
	c.Source, c.ID = "hand-bravo", "c1"
	s.batch.Other(s.position(), &schema.Event{Correction: c})
	for _, project := range []string{"alpha", "bravo"} {
		s.lease(project, "2026-03-02T12:00:00Z", "running")
	}
	s.lease("alpha", "2026-03-02T15:00:07Z", "released")
	s.lease("bravo", "2026-03-02T17:00:23Z", "released")
	if err := s.batch.WriteRaw(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if err := s.db.WriteMarks(s.t.Context(), s.marks); err != nil {
		s.t.Fatal(err)
	}
	d, err := aggregator.NewDriver(aggregator.Options{Store: s.db})
	if err == nil {
		err = d.Drain(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// terms are a price book, a contract and the profiles that are shipped.
func scopeTerms(t *testing.T) *pricing.Terms {
	t.Helper()
	book, err := pricing.Parse("book", []byte(scopeBook))
	if err != nil {
		t.Fatal(err)
	}
	contract, err := pricing.ReadDocument("contract", []byte(scopeContract))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := pricing.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	return &pricing.Terms{Book: book, Contracts: []*pricing.Contract{contract.Contract}, Profiles: profiles}
}

func tokenEntry(name, role, more string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("  - {name: %s, sha256: %s, role: %s%s}\n", name, hex.EncodeToString(sum[:]), role, more)
}

// newSceneOfTwo serves the scene with everything that can be served. The name of each
// token is the token.
func newSceneOfTwo(t *testing.T) *sceneOfTwo {
	t.Helper()
	s := &sceneOfTwo{t: t, db: testkit.DB(t, testkit.Engine(t), "scope"), now: fixedClock(testkit.At("2026-03-10T00:00:00Z"))}
	s.fill()
	known := scopeTerms(t)
	terms := func(context.Context, string, int64) (*pricing.Terms, error) { return known, nil }
	store := &usageStore{db: s.db, threshold: aggregator.DefaultThreshold}
	service, err := report.New(report.Options{Settled: allStored{}, Store: store, Terms: terms, Ledger: s.db, Rated: ratedStore{store}, Now: s.now.Now})
	if err != nil {
		t.Fatal(err)
	}
	r := &rater{store: s.db, rated: ratedStore{store}.some, clock: s.now, at: func(string) {}, log: slog.New(slog.DiscardHandler), terms: terms}
	if n, err := r.rate(t.Context(), &rateJob{Tenant: scopeTenant, Why: "test"}); err != nil || n == 0 {
		t.Fatalf("%d entries booked, %v", n, err)
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "tokens:\n" + tokenEntry("all", "admin", "") + tokenEntry("alpha-viewer", "viewer", ", projects: [alpha]") + tokenEntry("alpha-admin", "admin", ", projects: [alpha]")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	signIn := SignIn{Tokens: path, PublicURL: "http://127.0.0.1", Issuer: "http://127.0.0.1:1", ClientID: "gpumeter"}
	in, _, err := signIn.build("127.0.0.1:0", s.now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	leak := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "bravo") }
	s.deps = web.Deps{
		Reports: service, Board: service, Plans: service, Tenant: scopeTenant, SignIn: in, Log: slog.New(slog.DiscardHandler),
		// What is refused is never asked; should it be, there is nobody to answer.
		Statements: struct{ web.Statements }{}, Prices: struct{ web.Prices }{}, Quarantine: struct{ web.Quarantine }{},
		Ingest:  func(context.Context, []schema.Message) ([]schema.Receipt, error) { panic("taken") },
		Status:  func(context.Context) (any, error) { return "bravo", nil },
		Ready:   func() []web.Component { return []web.Component{{Name: "x", Ready: true, Detail: "bravo waits"}} },
		Metrics: http.HandlerFunc(leak),
	}
	s.server = httptest.NewServer(web.Handler(s.deps))
	t.Cleanup(s.server.Close)
	return s
}

func (s *sceneOfTwo) ask(token, method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var from io.Reader = res.Body
	if res.Header.Get("Content-Type") == "text/event-stream" {
		from = &untilBlank{from: bufio.NewReader(res.Body)}
	}
	text, err := io.ReadAll(from)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// untilBlank reads the first event of a stream.
type untilBlank struct {
	from *bufio.Reader
	last byte
	done bool
}

// Read ends after an empty line.
func (u *untilBlank) Read(b []byte) (int, error) {
	if u.done {
		return 0, io.EOF
	}
	for n := range b {
		c, err := u.from.ReadByte()
		if err != nil {
			return n, err
		}
		b[n] = c
		if u.done = c == '\n' && u.last == '\n'; u.done {
			return n + 1, nil
		}
		u.last = c
	}
	return len(b), nil
}

// values collects the texts and numbers of a JSON document that are long enough to tell
// something.
func values(t *testing.T, text string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		case string:
			found[v] = true
		case json.Number:
			found[v.String()] = true
		}
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	walk(doc)
	// Words of the answers, dates and the length of an hour may be anybody's.
	maps.DeleteFunc(found, func(v string, _ bool) bool {
		return len(v) < 6 || !strings.ContainsAny(v, "0123456789") || strings.HasPrefix(v, "2026-") || v == "3600000"
	})
	return found
}

// secrets is what answers say of bravo and not of alpha.
func (s *sceneOfTwo) secrets() map[string]bool {
	s.t.Helper()
	all := map[string]map[string]bool{}
	for _, project := range []string{"alpha", "bravo"} {
		all[project] = map[string]bool{}
		for _, path := range []string{"explain?limit=1000", "reports/spend?by=instance", "reports/spend?by=project,day", "reports/waste?by=hour,instance"} {
			code, text := s.ask("all", "GET", "/api/v1/"+path+"&"+scopeSpan+"&project="+project, "")
			if code != 200 {
				s.t.Fatal(path, code, text)
			}
			maps.Copy(all[project], values(s.t, text))
		}
	}
	maps.DeleteFunc(all["bravo"], func(v string, _ bool) bool { return all["alpha"][v] })
	return all["bravo"]
}

// charges are the ids of the lines of a project.
func (s *sceneOfTwo) charges(project string) (ids []string) {
	s.t.Helper()
	_, text := s.ask("all", "GET", "/api/v1/explain?"+scopeSpan+"&project="+project, "")
	var doc report.Explanation
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range doc.Charges {
		ids = append(ids, c.ID)
	}
	return ids
}

// scopeCase is what a token for some projects gets from a route: a status, and for the
// paths given no trace of other projects. With formats they are asked for in each.
type scopeCase struct {
	status  int
	paths   []string
	body    string
	formats bool
}

// TestScopeOfEveryRoute asks every route with a token for the project alpha. A route
// without a case fails: whoever adds one says here what such a token gets from it. Of an
// answer (200) list paths that show as much as the route can, grouped, filtered and paged
// in every way; what cannot be told apart by project is 403 in web.accessOf.
func TestScopeOfEveryRoute(t *testing.T) {
	s := newSceneOfTwo(t)
	alpha, bravo := s.charges("alpha"), s.charges("bravo")
	if len(alpha) == 0 || len(bravo) == 0 {
		t.Fatalf("charges %q and %q", alpha, bravo)
	}
	secrets := s.secrets()
	if len(secrets) < 20 {
		t.Fatalf("only %d secrets: %v", len(secrets), secrets)
	}
	cases := s.scopeCases(alpha, bravo)
	for _, pattern := range web.Routes(s.deps) {
		c, ok := cases[pattern]
		if !ok {
			t.Errorf("%s has no case here: say what a token for some projects gets from it", pattern)
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		if c.paths == nil {
			c.paths = []string{path}
		}
		for i, path := range c.paths {
			tokens := []string{"alpha-viewer", "alpha-admin"}
			if i > 0 {
				tokens = tokens[:1]
			}
			for _, token := range tokens {
				for _, format := range formatsOf(&c, path) {
					code, text := s.ask(token, method, format, c.body)
					if code != c.status {
						t.Errorf("%s %s by %s: %d, want %d: %.300s", method, format, token, code, c.status, text)
					}
					s.clean(method+" "+format, text, secrets)
				}
			}
		}
	}
	for pattern := range cases {
		if !slices.Contains(web.Routes(s.deps), pattern) {
			t.Errorf("there is a case of %s and no such route", pattern)
		}
	}
}

func formatsOf(c *scopeCase, path string) []string {
	if !c.formats {
		return []string{path}
	}
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	return []string{path + join + "format=json", path + join + "format=csv", path + join + "format=table"}
}

// clean fails when an answer says anything of bravo.
func (s *sceneOfTwo) clean(what, text string, secrets map[string]bool) {
	s.t.Helper()
	if at := strings.Index(text, "bravo"); at >= 0 {
		s.t.Errorf("%s names bravo: ...%.200s", what, text[max(0, at-100):])
	}
	for v := range secrets {
		if strings.Contains(text, v) {
			s.t.Errorf("%s says %q, which is bravo's", what, v)
		}
	}
}

func (s *sceneOfTwo) scopeCases(alpha, bravo []string) map[string]scopeCase {
	refused := scopeCase{status: 403}
	var reports []string
	for _, kind := range []string{"utilization", "usage", "waste"} {
		reports = append(reports, "/api/v1/reports/"+kind+"?"+scopeSpan+"&by=project,instance,unit")
	}
	for _, how := range []string{"", "&by=project", "&by=instance,unit,node", "&by=label:team,platform,region,model", "&by=hour,project", "&by=instance&top=1", "&by=instance&limit=1",
		"&by=instance,day&as_of=2026-03-09", "&unit=GPU-shared&by=instance", "&project="} {
		reports = append(reports, "/api/v1/reports/spend?"+scopeSpan+how)
	}
	var explained, charged []string
	for _, how := range []string{"", "&limit=1", "&as_of=2026-03-09", "&unit=GPU-shared"} {
		explained = append(explained, "/api/v1/explain?"+scopeSpan+how)
	}
	for _, id := range alpha {
		charged = append(charged, "/api/v1/charges/"+id[:8])
	}
	return map[string]scopeCase{
		"GET /healthz":          {status: 200},
		"GET /readyz":           {status: 200}, // states without details
		"GET /openapi.json":     {status: 200},
		"GET /openapi.yaml":     {status: 200},
		"GET /openapi-3.0.json": {status: 200},
		"GET /openapi-3.0.yaml": {status: 200},
		"GET /metrics":          refused,

		"GET /api/v1/session":    {status: 200},
		"POST /api/v1/session":   {status: 200, body: `{"token":"alpha-viewer"}`},
		"DELETE /api/v1/session": {status: 200},
		"GET /auth/login":        {status: 502}, // the provider is away
		"GET /auth/callback":     {status: 400},

		"GET /api/v1/reports/{kind}": {status: 200, paths: reports, formats: true}, // see also TestScopeHidesNames
		"GET /api/v1/explain":        {status: 200, paths: explained, formats: true},
		"GET /api/v1/charges/{line}": {status: 200, paths: charged, formats: true},

		"GET /api/v1/overview":  {status: 200, paths: spanned("/api/v1/overview", "", "&model=H100", "&as_of=2026-03-09", "&project=alpha", "&project=", "&plan=")},
		"GET /api/v1/live":      {status: 200, paths: []string{"/api/v1/live", "/api/v1/live?project=", "/api/v1/live?platform=alibaba-ecs"}},
		"GET /api/v1/projects":  {status: 200, paths: spanned("/api/v1/projects", "", "&share=even", "&share=none", "&as_of=2026-03-09", "&project=")},
		"GET /api/v1/instances": {status: 200, paths: spanned("/api/v1/instances", "", "&sort=project", "&limit=1", "&q=a", "&state=running", "&as_of=2026-03-09", "&unit=GPU-shared")},
		"GET /api/v1/units":     {status: 200, paths: spanned("/api/v1/units", "", "&limit=1", "&as_of=2026-03-09", "&unit=GPU-shared")},
		"GET /api/v1/leases":    {status: 200, paths: spanned("/api/v1/leases", "", "&limit=1", "&as_of=2026-03-09", "&platform=alibaba-ecs")},

		"GET /api/v1/instances/{id}":          {status: 200, paths: spanned("/api/v1/instances/web-alpha", "", "&as_of=2026-03-09")},
		"GET /api/v1/instances/{id}/timeline": {status: 200, paths: spanned("/api/v1/instances/web-alpha/timeline", "", "&step=day", "&as_of=2026-03-09")},
		"GET /api/v1/instances/{id}/charges":  {status: 200, paths: spanned("/api/v1/instances/web-alpha/charges", "", "&limit=1", "&as_of=2026-03-09")},

		"GET /api/v1/reports/plans":            refused, // plans are shared
		"GET /api/v1/reports/advise":           refused,
		"GET /api/v1/statements":               refused,
		"POST /api/v1/statements":              refused,
		"GET /api/v1/statements/{period}":      refused,
		"GET /api/v1/statements/{period}/diff": refused,
		"GET /api/v1/prices":                   refused,
		"POST /api/v1/prices":                  refused,
		"GET /api/v1/prices/{kind}/{name}":     refused,
		"DELETE /api/v1/prices/{kind}/{name}":  refused,
		"POST /api/v1/events":                  refused,
		"GET /api/v1/quarantine":               refused,
		"POST /api/v1/quarantine/redrive":      refused,
		"GET /api/v1/status":                   refused,
	}
}

// spanned are paths about the span of the scene.
func spanned(path string, how ...string) (paths []string) {
	for _, h := range how {
		paths = append(paths, path+"?"+scopeSpan+h)
	}
	return paths
}

// A name or id of another project gets the answer that one gets which does not exist.
func TestScopeHidesNames(t *testing.T) {
	s := newSceneOfTwo(t)
	for _, path := range []string{
		"/api/v1/reports/spend?by=instance&instance=NAME", "/api/v1/reports/usage?project=NAME", "/api/v1/reports/waste?node=NAME", "/api/v1/reports/spend?unit=NAME&format=table",
		"/api/v1/instances?instance=NAME", "/api/v1/instances?q=NAME", "/api/v1/instances/NAME?zone=UTC", "/api/v1/instances/NAME/timeline?zone=UTC", "/api/v1/instances/NAME/charges?zone=UTC",
		"/api/v1/overview?project=NAME", "/api/v1/projects?node=NAME", "/api/v1/units?unit=NAME", "/api/v1/leases?instance=NAME",
		"/api/v1/reports/spend?label=team=NAME", "/api/v1/explain?instance=NAME", "/api/v1/explain?project=NAME&format=csv", "/api/v1/explain?unit=NAME&format=table",
	} {
		answer := func(name string) string {
			code, text := s.ask("alpha-viewer", "GET", strings.Replace(path, "NAME", url.QueryEscape(name), 1)+"&"+scopeSpan, "")
			return fmt.Sprint(code, strings.ReplaceAll(text, name, "NAME"))
		}
		for _, name := range []string{"bravo", "web-bravo", "lease-bravo", "GPU-bravo", "node-bravo", "team-bravo"} {
			if got, want := answer(name), answer("nothing-like-it"); got != want {
				t.Errorf("%s with %s:\n%s\nwithout:\n%s", path, name, got, want)
			}
		}
	}
	for _, id := range s.charges("bravo") {
		for _, line := range []string{id, id[:8]} {
			none := strings.Repeat("0", len(line))
			code, text := s.ask("alpha-viewer", "GET", "/api/v1/charges/"+line, "")
			want, other := s.ask("alpha-viewer", "GET", "/api/v1/charges/"+none, "")
			if code != 404 || want != 404 || strings.ReplaceAll(text, line, "ID") != strings.ReplaceAll(other, none, "ID") {
				t.Errorf("charge %s: %d %s, of none %d %s", line, code, text, want, other)
			}
			if code, text := s.ask("all", "GET", "/api/v1/charges/"+line, ""); code != 200 {
				t.Errorf("charge %s by all: %d %s", line, code, text)
			}
		}
	}
	if code, text := s.ask("alpha-admin", "GET", "/api/v1/reports/quality?"+scopeSpan, ""); code != 403 {
		t.Errorf("quality: %d %s", code, text)
	}
	// What is not known by project is unknown, not zero.
	if _, text := s.ask("alpha-viewer", "GET", "/api/v1/reports/spend?"+scopeSpan, ""); !strings.Contains(text, `"quality":{"conflicts":null,"quarantined":null`) {
		t.Error(text)
	}
	_, text := s.ask("alpha-viewer", "GET", "/api/v1/explain?"+scopeSpan, "")
	for _, want := range []string{`"why":{"kind":"conflict"}`, `"why":{"kind":"corrected"}`, `"corrections":[]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
