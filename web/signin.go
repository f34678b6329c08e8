package web

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const (
	sessionPath   = "/api/v1/session"
	sessionCookie = "gpumeter_session"
)

// SignIn says who may use the server. The zero value lets everybody do everything.
type SignIn struct {
	Directory Directory // nil = no sign-in
	OIDC      *OIDC     // nil = with tokens only
	// PublicURL is how browsers reach the server; nil = as their requests say. OIDC
	// needs it, and https makes cookies secure behind a proxy.
	PublicURL *url.URL
	// OwnHosts accepts requests for names of the own machine and that of PublicURL only,
	// so that a web page whose name is pointed at this machine cannot read anything.
	OwnHosts bool
	Now      func() time.Time // time.Now when nil
}

// Directory knows who is who. It may change at any time, and what it says counts from
// then on, also for those who have signed in before.
type Directory interface {
	// Token returns whose token has this SHA-256.
	Token(sum [sha256.Size]byte) (Identity, bool)
	// Groups returns what the members of groups may do together, without a name.
	Groups(groups []string) (Identity, bool)
}

var errUnknownToken = errors.New("the token is not known here, or it has expired")

// asks says who sends a request; nobody when the request does not say. An Authorization
// header that is not good is an error, whatever cookie comes with it.
func (s *server) asks(r *http.Request) (Identity, error) {
	if s.SignIn.Directory == nil {
		return Identity{Role: Admin}, nil
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return Identity{}, errors.New("only Authorization: Bearer TOKEN is understood")
		}
		who, ok := s.SignIn.Directory.Token(sha256.Sum256([]byte(strings.TrimSpace(token))))
		if !ok {
			return Identity{}, errUnknownToken
		}
		return who, nil
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return Identity{}, nil
	}
	return s.sessions.identity(cookie.Value, s.SignIn.Directory), nil
}

// Session is the answer to who is asking.
type Session struct {
	Name     *string  `json:"name" nullable:"true" doc:"Null when nobody is signed in"`
	Role     *string  `json:"role" nullable:"true" enum:"viewer,operator,admin" doc:"Null when nobody is signed in"`
	Projects []string `json:"projects" nullable:"true" doc:"That may be seen; null = all"`
	SignIn   string   `json:"sign_in" enum:"none,token,oidc" doc:"What is needed; with oidc a token does as well"`
	Tenant   string   `json:"tenant"`
	Version  string   `json:"version"`
	OIDC     bool     `json:"oidc" doc:"Whether /auth/login works"`
}

func (s *server) session(who Identity) Session {
	doc := Session{SignIn: "none", Tenant: s.Tenant, Version: s.Version, OIDC: s.SignIn.OIDC != nil, Projects: who.Projects}
	switch {
	case s.SignIn.OIDC != nil:
		doc.SignIn = "oidc"
	case s.SignIn.Directory != nil:
		doc.SignIn = "token"
	}
	if role := who.Role.String(); role != "" {
		doc.Name, doc.Role = &who.Name, &role
	}
	return doc
}

// SignInRequest is a token to sign in with.
type SignInRequest struct {
	Token string `json:"token" minLength:"1" maxLength:"200" doc:"As gpumeter token new printed it"`
}

type signInInput struct {
	Body   SignInRequest
	secure bool
}

// Resolve notes whether the request came by TLS.
func (in *signInInput) Resolve(ctx huma.Context) []error {
	in.secure = ctx.TLS() != nil
	return nil
}

type signOutInput struct {
	Cookie http.Cookie `cookie:"gpumeter_session"`
	secure bool
}

// Resolve notes whether the request came by TLS.
func (in *signOutInput) Resolve(ctx huma.Context) []error {
	in.secure = ctx.TLS() != nil
	return nil
}

type sessionOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      Session
}

func (s *server) registerSession() {
	huma.Register(s.api, huma.Operation{
		OperationID: "session", Method: http.MethodGet, Path: sessionPath, Tags: []string{"session"},
		Summary: "Who is asking, and what sign-in takes", Description: "Answers without a sign-in, too.",
	}, func(ctx context.Context, _ *struct{}) (*body[Session], error) {
		return &body[Session]{s.session(identityOf(ctx))}, nil
	})
	huma.Register(s.api, huma.Operation{
		OperationID: "signIn", Method: http.MethodPost, Path: sessionPath, Tags: []string{"session"},
		Summary:      "Sign in with a token",
		Description:  "Sets a cookie, which works as long as the token does, and at most 12 hours.",
		MaxBodyBytes: 4 << 10, Errors: []int{401, 409, 422},
	}, s.signIn)
	huma.Register(s.api, huma.Operation{
		OperationID: "signOut", Method: http.MethodDelete, Path: sessionPath, Tags: []string{"session"},
		Summary: "Sign out", Description: "Harmless without a session.", DefaultStatus: http.StatusOK,
	}, func(_ context.Context, in *signOutInput) (*sessionOutput, error) {
		s.sessions.end(in.Cookie.Value)
		return &sessionOutput{SetCookie: s.cookie("", in.secure), Body: s.session(Identity{})}, nil
	})
}

func (s *server) signIn(_ context.Context, in *signInInput) (*sessionOutput, error) {
	if s.SignIn.Directory == nil {
		return nil, huma.Error409Conflict("this server has no sign-in: everybody who reaches it may do everything")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(in.Body.Token)))
	who, ok := s.SignIn.Directory.Token(sum)
	if !ok {
		return nil, huma.ErrorWithHeaders(huma.Error401Unauthorized(errUnknownToken.Error()), http.Header{"WWW-Authenticate": {`Bearer realm="gpumeter"`}})
	}
	id := s.sessions.begin(session{token: sum})
	return &sessionOutput{SetCookie: s.cookie(id, in.secure), Body: s.session(who)}, nil
}

// cookie carries a session; an empty id takes it away.
func (s *server) cookie(id string, tls bool) http.Cookie {
	c := http.Cookie{
		Name: sessionCookie, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: s.secure(tls), MaxAge: int(sessionLife / time.Second),
	}
	if id == "" {
		c.MaxAge = -1
	}
	return c
}

func (s *server) secure(tls bool) bool {
	return tls || s.SignIn.PublicURL != nil && s.SignIn.PublicURL.Scheme == "https"
}

// hosts refuses requests for a name that is not this machine's.
func (s *server) hosts(next http.Handler) http.Handler {
	if !s.SignIn.OwnHosts {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		public := s.SignIn.PublicURL
		if !ownName(r.Host) && (public == nil || !strings.EqualFold(r.Host, public.Host)) {
			writeProblem(w, http.StatusMisdirectedRequest, "this server has no sign-in, so it answers to localhost and --public-url only; ask for http://127.0.0.1, name the host with --public-url, or set up a sign-in with --tokens")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownName says whether a Host header names the own machine for every browser.
func ownName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail})
}
