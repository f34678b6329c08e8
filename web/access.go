package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Role says what somebody may do; a higher one may do all that a lower one may.
type Role int

// Roles. The zero value is nobody.
const (
	Viewer   Role = iota + 1 // reads
	Operator                 // also offers events and drives the quarantine again
	Admin                    // also changes prices and closes periods
)

var roleNames = []string{"", "viewer", "operator", "admin"}

// Roles are the names of all roles, the lowest first.
func Roles() []string { return slices.Clone(roleNames[1:]) }

// ParseRole is the inverse of String for all but nobody.
func ParseRole(name string) (Role, bool) {
	at := slices.Index(roleNames, name)
	return Role(at), at > 0
}

// String is the role's name; empty for nobody.
func (r Role) String() string { return roleNames[r] }

// Identity is somebody who asks.
type Identity struct {
	Name string
	Role Role
	// Projects are those that they may see: nil = all, empty = none.
	Projects []string
}

type identityKey struct{}

// againKey holds a function that says who the asker is now.
type againKey struct{}

// stillSees fails when the asker has signed out, or may see something else than projects.
func stillSees(ctx context.Context, projects []string) error {
	again, ok := ctx.Value(againKey{}).(func() (Identity, error))
	if !ok {
		return nil
	}
	who, err := again()
	if err != nil {
		return err
	}
	if who.Role < Viewer || (who.Projects == nil) != (projects == nil) || !slices.Equal(who.Projects, projects) {
		return errors.New("what you may see has changed; sign in again")
	}
	return nil
}

func identityOf(ctx context.Context) Identity {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who
}

// whole says whether somebody may see what belongs to no project.
func (i Identity) whole() bool { return i.Role >= Viewer && i.Projects == nil }

// scopeOf returns the projects that the asker of a request may see, for the query:
// nil = all, empty = none. Without an asker it is none.
func scopeOf(ctx context.Context) []string {
	who := identityOf(ctx)
	if who.Role < Viewer {
		return []string{}
	}
	return who.Projects
}

// access is what a route asks of who calls it.
type access struct {
	role Role // 0 = nobody needs to sign in
	// parts: whoever may see some projects only is answered about those. What is not so
	// is refused to them.
	parts bool
}

// accessOf says who may what, by pattern of the mux. What is not in it only an admin of
// all projects may: a route that was forgotten here is of no use, and not a leak.
var accessOf = map[string]access{
	"GET /healthz":          {},
	"GET /readyz":           {}, // without details; see registerHealth
	"GET /openapi.json":     {},
	"GET /openapi.yaml":     {},
	"GET /openapi-3.0.json": {},
	"GET /openapi-3.0.yaml": {},

	"GET " + sessionPath:    {},
	"POST " + sessionPath:   {},
	"DELETE " + sessionPath: {},
	"GET " + loginPath:      {},
	"GET " + callbackPath:   {},

	"GET /api/v1/reports/{kind}": {role: Viewer, parts: true}, // but quality, which report refuses
	"GET /api/v1/explain":        {role: Viewer, parts: true},
	"GET " + overviewPath:        {role: Viewer, parts: true},
	"GET " + livePath:            {role: Viewer, parts: true},
	"GET " + projectsPath:        {role: Viewer, parts: true},
	"GET " + instancesPath:       {role: Viewer, parts: true},
	"GET " + unitsPath:           {role: Viewer, parts: true},
	"GET " + leasesPath:          {role: Viewer, parts: true},

	"GET " + instancesPath + "/{id}":          {role: Viewer, parts: true},
	"GET " + instancesPath + "/{id}/timeline": {role: Viewer, parts: true},
	"GET " + instancesPath + "/{id}/charges":  {role: Viewer, parts: true},

	"GET /api/v1/charges/{line}": {role: Viewer, parts: true},

	"GET /api/v1/reports/plans":                {role: Viewer},
	"GET /api/v1/reports/advise":               {role: Viewer},
	"GET " + statementsPath:                    {role: Viewer},
	"GET " + statementsPath + "/{period}":      {role: Viewer},
	"GET " + statementsPath + "/{period}/diff": {role: Viewer},
	"GET " + pricesPath:                        {role: Viewer},
	"GET " + pricesPath + "/{kind}/{name}":     {role: Viewer},
	"GET /api/v1/quarantine":                   {role: Viewer},
	"GET /api/v1/status":                       {role: Viewer},
	"GET /metrics":                             {role: Viewer},

	"POST /api/v1/events":             {role: Operator},
	"POST /api/v1/quarantine/redrive": {role: Operator},

	"POST " + statementsPath:                  {role: Admin},
	"POST " + pricesPath:                      {role: Admin},
	"DELETE " + pricesPath + "/{kind}/{name}": {role: Admin},
}

// needs says what a pattern asks for; where there is nothing, everybody may be told.
func needs(pattern string) access {
	if need, known := accessOf[pattern]; known || pattern == "" {
		return need
	}
	return access{role: Admin}
}

// routes is a mux that knows its patterns.
type routes struct {
	http.ServeMux
	patterns []string
}

// Handle registers a handler for a pattern.
func (m *routes) Handle(pattern string, h http.Handler) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.Handle(pattern, h)
}

// HandleFunc registers a function for a pattern.
func (m *routes) HandleFunc(pattern string, f func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(f))
}

// authorize lets through who may, and notes in the context who that is.
func (s *server) authorize(mux *routes) http.Handler {
	answer, err := compressed(tagged(mux))
	if err != nil {
		panic("web: " + err.Error()) // its options are constants
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.asks(r)
		if err != nil {
			unauthorized(w, `error="invalid_token"`, err.Error())
			return
		}
		_, pattern := mux.Handler(r)
		switch need := needs(pattern); {
		case need.role == 0:
		case who.Role == 0:
			unauthorized(w, "", "sign in, or send a token as \"Authorization: Bearer TOKEN\"")
			return
		case who.Role < need.role:
			writeProblem(w, http.StatusForbidden, fmt.Sprintf("this takes the role %s; %s has the role %s", need.role, who.Name, who.Role))
			return
		case who.Projects != nil && !need.parts:
			writeProblem(w, http.StatusForbidden, fmt.Sprintf("this cannot be told apart by project, and %s may see some projects only", who.Name))
			return
		}
		ctx := context.WithValue(r.Context(), identityKey{}, who)
		ctx = context.WithValue(ctx, againKey{}, func() (Identity, error) { return s.asks(r) })
		answer.ServeHTTP(w, r.WithContext(ctx))
	})
}

func unauthorized(w http.ResponseWriter, fault, detail string) {
	challenge := `Bearer realm="gpumeter"`
	if fault != "" {
		challenge += ", " + fault
	}
	w.Header().Set("WWW-Authenticate", challenge)
	writeProblem(w, http.StatusUnauthorized, detail)
}

// describeAccess writes into the OpenAPI document what each operation asks for.
func describeAccess(api *huma.OpenAPI) {
	api.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "A token of the tokens file, as gpumeter token new prints it"},
		"session": {Type: "apiKey", In: "cookie", Name: sessionCookie, Description: "Set by " + sessionPath + " or by signing in through " + loginPath},
	}
	problem := map[string]*huma.MediaType{"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/ErrorModel"}}}
	for path, item := range api.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			need := needs(op.Method + " " + path)
			if need.role == 0 {
				continue
			}
			op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
			op.Extensions = map[string]any{"x-role": need.role.String(), "x-parts": need.parts}
			op.Responses["401"] = &huma.Response{Description: "Sign-in is needed", Content: problem}
			op.Responses["403"] = &huma.Response{Description: "The role or the projects of the one who asks do not allow it", Content: problem}
		}
	}
}
