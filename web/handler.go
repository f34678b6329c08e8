package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// requestTimeout bounds one request from its headers to its answer.
const requestTimeout = 60 * time.Second

// ReportTimeout bounds a report, an explanation or a statement instead. As of an
// instant, a month of ten million events is computed from all of them, which takes two
// cores about a minute.
const ReportTimeout = 5 * time.Minute

// CloseTimeout bounds the closing of a period instead: it computes the month, and
// what has changed in the months closed before, from every event, and cannot be
// asked for less.
const CloseTimeout = 15 * time.Minute

// streamTimeout bounds a stream; a client then opens another.
const streamTimeout = 24 * time.Hour

// writeMargin is how much longer than its request an answer may take.
const writeMargin = 15 * time.Second

const (
	statementsPath = "/api/v1/statements"
	pricesPath     = "/api/v1/prices"
)

func timeoutOf(r *http.Request) time.Duration {
	is := func(prefix string) bool { return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, prefix) }
	switch {
	case r.Method == http.MethodPost && r.URL.Path == statementsPath:
		return CloseTimeout
	case is("/api/v1/reports/"), is("/api/v1/explain"), is(statementsPath + "/"), is(overviewPath), is(instancesPath), is(projectsPath), is(unitsPath), is(leasesPath):
		return ReportTimeout
	case is(livePath):
		return streamTimeout
	}
	return requestTimeout
}

// Handler returns the handler of everything that the program serves over HTTP.
func Handler(d Deps) http.Handler {
	s, mux := newServer(d)
	answers := http.NewCrossOriginProtection().Handler(s.authorize(mux))
	return &handler{s.guard(s.hosts(builtUI().orPage(&mux.ServeMux, answers))), s}
}

// handler ends its streams when the server stops; they would keep it waiting.
type handler struct {
	http.Handler
	s *server
}

// newServer registers all routes. A new one needs a row in accessOf and a case in
// TestScopeOfEveryRoute.
func newServer(d Deps) (*server, *routes) {
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Tenant == "" {
		d.Tenant = schema.DefaultTenant
	}
	if d.Version == "" {
		d.Version = "dev"
	}
	if d.SignIn.Now == nil {
		d.SignIn.Now = time.Now
	}
	mux := &routes{}
	config := huma.DefaultConfig("gpumeter", d.Version)
	config.Info.Description = "Usage metering for rented GPUs: spend, idle waste and utilization, and the events behind every figure."
	config.DocsPath = ""                       // its page loads scripts from elsewhere
	config.SchemasPath = ""                    // nothing links to it
	config.CreateHooks = nil                   // would add a "$schema" key to every answer
	config.RejectUnknownQueryParameters = true // a misspelt filter would give the figure of everything
	s := &server{Deps: d, api: humago.New(mux, config), sessions: newSessions(d.SignIn.Now),
		overviews: newKept(d.Changed, d.Log, mostOverviews), tables: newKept(d.Changed, d.Log, mostTables),
	}
	s.streams, s.stopStreams = context.WithCancel(context.Background())
	if d.Background != nil {
		d.Background(s.overviews.run)
		d.Background(s.tables.run)
	}
	s.registerReports()
	s.registerBoard()
	s.registerPlans()
	s.registerStatements()
	s.registerPrices()
	s.registerEvents()
	s.registerQuarantine()
	s.registerHealth()
	s.registerSession()
	s.registerOIDC(mux)
	if d.Metrics != nil {
		mux.Handle("GET /metrics", d.Metrics)
	}
	describeAccess(s.api.OpenAPI())
	return s, mux
}

// Routes returns the patterns of everything that Handler serves, for tests that have to
// look at each.
func Routes(d Deps) []string {
	_, mux := newServer(d)
	return mux.patterns
}

// Server returns an http.Server for h with every wait bounded. The caller sets
// the address or brings a listener.
func Server(h http.Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      requestTimeout + writeMargin,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	if h, ok := h.(*handler); ok {
		server.RegisterOnShutdown(h.s.stopStreams)
	}
	return server
}

type server struct {
	Deps
	api      huma.API
	sessions *sessions

	overviews, tables *kept
	streams           context.Context // ends when the server stops
	stopStreams       context.CancelFunc
}

// guard sets what every answer carries, bounds the time and turns a panic into
// an answer, so that one bad request costs that request only.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		// A page with scripts of its own sets its own policy instead.
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if s.secure(r.TLS != nil) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		timeout := timeoutOf(r)
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		if timeout > requestTimeout {
			// Only a ResponseWriter without a connection has no deadline to move.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + writeMargin))
		}
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				s.Log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusInternalServerError)
				w.Write([]byte(`{"title":"Internal Server Error","status":500}` + "\n"))
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// problem turns an error into an answer: the asker's mistakes are 422 and name
// the parameter, what is right and cannot be done now is 409, a store that did
// not answer in time is 504, the rest 500.
func (s *server) problem(ctx context.Context, what string, err error) error {
	var (
		wrong     *report.RequestError
		unsettled *report.UnsettledError
		conflict  *report.ConflictError
		open      *report.NotClosedError
		none      *report.NoChargeError
		nothing   *report.NoInstanceError
		scope     *report.ScopeError
	)
	switch {
	case errors.As(err, &wrong):
		return huma.Error422UnprocessableEntity(wrong.Error(), &huma.ErrorDetail{Message: wrong.Msg, Location: "query." + wrong.Param})
	case errors.As(err, &scope):
		return huma.Error403Forbidden(scope.Error())
	case errors.As(err, &unsettled) && ctx.Err() == nil:
		return huma.ErrorWithHeaders(huma.Error409Conflict(clip(err.Error())), http.Header{"Retry-After": {"5"}})
	case errors.As(err, &conflict):
		return huma.Error409Conflict(err.Error())
	case errors.As(err, &open):
		return huma.Error404NotFound(err.Error())
	case errors.As(err, &none):
		return huma.Error404NotFound(err.Error())
	case errors.As(err, &nothing):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, ErrNotFound):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		s.Log.Warn("request timed out", "what", what, "err", err)
		return huma.Error504GatewayTimeout(what + " took too long; ask for less at once")
	case ctx.Err() != nil:
		return huma.Error503ServiceUnavailable("the request was cancelled")
	}
	s.Log.Error("request failed", "what", what, "err", err)
	return huma.Error500InternalServerError(what + " failed: " + clip(err.Error()))
}

func clip(s string) string {
	const most = 400
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
