package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	loginPath    = "/auth/login"
	callbackPath = "/auth/callback"
	loginCookie  = "gpumeter_login"
	loginLife    = 10 * time.Minute
)

// OIDC is a provider of OpenID Connect that people sign in with.
type OIDC struct {
	Issuer       string // URL; its discovery document says everything else
	ClientID     string
	ClientSecret string // empty for a public client
	GroupsClaim  string // of the id token: a text, or a list of texts

	mu       sync.Mutex
	provider *oidc.Provider
	scopes   []string
}

// discover reads the provider's document, once; while it cannot be read, each sign-in
// tries again.
func (o *OIDC) discover() (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider != nil {
		return o.provider, nil
	}
	// The provider keeps the context for reading keys later.
	p, err := oidc.NewProvider(clientContext(context.Background()), o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("the sign-in provider %s: %w", o.Issuer, err)
	}
	var document struct {
		Scopes []string `json:"scopes_supported"`
	}
	if err := p.Claims(&document); err != nil {
		return nil, fmt.Errorf("the sign-in provider %s: %w", o.Issuer, err)
	}
	o.scopes = []string{oidc.ScopeOpenID}
	for _, scope := range document.Scopes {
		if scope == "profile" || scope == "email" || scope == o.GroupsClaim {
			o.scopes = append(o.scopes, scope)
		}
	}
	o.provider = p
	return p, nil
}

func clientContext(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Timeout: 10 * time.Second})
}

func (s *server) oauth(p *oidc.Provider) *oauth2.Config {
	o := s.SignIn.OIDC
	return &oauth2.Config{
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, Endpoint: p.Endpoint(), Scopes: o.scopes,
		RedirectURL: strings.TrimRight(s.SignIn.PublicURL.String(), "/") + callbackPath,
	}
}

func (s *server) registerOIDC(mux *routes) {
	if s.SignIn.OIDC == nil || s.SignIn.Directory == nil || s.SignIn.PublicURL == nil {
		return
	}
	mux.HandleFunc("GET "+loginPath, s.login)
	mux.HandleFunc("GET "+callbackPath, s.callback)
}

// login sends the browser to the provider. What proves that the answer belongs to this
// browser and this sign-in stays in a cookie of it: the state, the nonce of the id token
// and the verifier of the code (PKCE).
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	p, err := s.SignIn.OIDC.discover()
	if err != nil {
		s.Log.Error("sign-in failed", "err", err)
		writeProblem(w, http.StatusBadGateway, "the sign-in provider does not answer; try again, or sign in with a token")
		return
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	http.SetCookie(w, s.loginCookie(r, strings.Join([]string{state, nonce, verifier}, "."), int(loginLife/time.Second)))
	http.Redirect(w, r, s.oauth(p).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), http.StatusSeeOther)
}

// loginCookie comes along when the provider sends the browser back, which a strict one
// would not.
func (s *server) loginCookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: loginCookie, Value: value, Path: callbackPath, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: s.secure(r.TLS != nil), MaxAge: age,
	}
}

// callback takes the browser back from the provider and begins its session.
func (s *server) callback(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(loginCookie)
	http.SetCookie(w, s.loginCookie(r, "", -1))
	parts := []string{}
	if err == nil {
		parts = strings.Split(cookie.Value, ".")
	}
	q := r.URL.Query()
	if len(parts) != 3 || parts[0] == "" || subtle.ConstantTimeCompare([]byte(parts[0]), []byte(q.Get("state"))) != 1 {
		writeProblem(w, http.StatusBadRequest, "this is not the answer to a sign-in that this browser began, or it took longer than 10 minutes; begin again at "+loginPath)
		return
	}
	if fault := q.Get("error"); fault != "" {
		writeProblem(w, http.StatusForbidden, "the sign-in provider refused: "+clip(fault+" "+q.Get("error_description")))
		return
	}
	claimed, err := s.exchange(r.Context(), q.Get("code"), parts[1], parts[2])
	if err != nil {
		s.Log.Warn("sign-in failed", "err", err)
		writeProblem(w, http.StatusForbidden, "the sign-in could not be verified; begin again at "+loginPath)
		return
	}
	if _, ok := s.SignIn.Directory.Groups(claimed.groups); !ok {
		writeProblem(w, http.StatusForbidden, fmt.Sprintf("%s is in none of the groups that may use this server; they are in the section groups of the tokens file", clip(claimed.name)))
		return
	}
	id := s.sessions.begin(*claimed)
	session := s.cookie(id, r.TLS != nil)
	http.SetCookie(w, &session)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// exchange gets the id token for a code and says who it is of.
func (s *server) exchange(ctx context.Context, code, nonce, verifier string) (*session, error) {
	o := s.SignIn.OIDC
	p, err := o.discover()
	if err != nil {
		return nil, err
	}
	ctx = clientContext(ctx)
	token, err := s.oauth(p).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, fmt.Errorf("exchange the code: %w", err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := p.VerifierContext(ctx, &oidc.Config{ClientID: o.ClientID, Now: s.SignIn.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("verify the id token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, errors.New("the id token is of another sign-in: its nonce differs")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return nil, fmt.Errorf("claims of the id token: %w", err)
	}
	who := &session{groups: []string{}, name: id.Subject}
	for _, claim := range []string{"email", "preferred_username"} {
		if name, ok := claims[claim].(string); ok && name != "" {
			who.name = name
		}
	}
	switch list := claims[o.GroupsClaim].(type) {
	case string:
		who.groups = append(who.groups, list)
	case []any:
		for _, g := range list {
			if name, ok := g.(string); ok {
				who.groups = append(who.groups, name)
			}
		}
	}
	return who, nil
}
