package web

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// provider is a small provider of OpenID Connect. It signs in whoever comes, as the
// claims say, and gives the code to the redirect URI.
type provider struct {
	*httptest.Server
	t      *testing.T
	key    *rsa.PrivateKey
	claims map[string]any // of the next id token, beside those that every one has
	signer *rsa.PrivateKey
	query  url.Values // of the last sign-in
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, signer: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}, "scopes_supported": []string{"openid", "email", "teams", "other"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /auth", func(w http.ResponseWriter, r *http.Request) {
		p.query = r.URL.Query()
		http.Redirect(w, r, p.query.Get("redirect_uri")+"?"+url.Values{"code": {"the-code"}, "state": {p.query.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// token checks what a provider has to check: the client, the code, and that the one who
// brings the code is the one who began (PKCE).
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != "gpumeter" || secret != "s3cret" || r.PostFormValue("code") != "the-code" || p.query.Get("code_challenge_method") != "S256" ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != p.query.Get("code_challenge") || r.PostFormValue("redirect_uri") != p.query.Get("redirect_uri") {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	claims := map[string]any{"iss": p.URL, "aud": "gpumeter", "sub": "u1", "exp": clock.Add(time.Hour).Unix(), "iat": clock.Unix(), "nonce": p.query.Get("nonce")}
	for k, v := range p.claims {
		claims[k] = v
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.signer, KeyID: "k"}}, nil)
	if err != nil {
		p.t.Error(err)
		return
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		p.t.Error(err)
		return
	}
	raw, _ := signed.CompactSerialize()
	p.write(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": raw})
}

// browser goes from /auth/login to the provider and back, and returns the last answer. A
// change may spoil the way back.
func (g *gate) browser(change func(back *url.URL, cookie *http.Cookie)) (*http.Response, string) {
	g.t.Helper()
	res, text := g.ask("GET", loginPath, "")
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		g.t.Fatalf("%d %s", res.StatusCode, text)
	}
	cookie := res.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != callbackPath {
		g.t.Errorf("%+v", cookie)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	there, err := client.Get(res.Header.Get("Location"))
	if err != nil {
		g.t.Fatal(err)
	}
	there.Body.Close()
	back, err := there.Location()
	if err != nil {
		g.t.Fatal(err)
	}
	if change != nil {
		change(back, cookie)
	}
	return g.ask("GET", back.RequestURI(), "", "Cookie", cookie.Name+"="+cookie.Value)
}

func newOIDCGate(t *testing.T, p *provider) *gate {
	t.Helper()
	return newGate(t, func(d *Deps) {
		d.SignIn.OIDC = &OIDC{Issuer: p.URL, ClientID: "gpumeter", ClientSecret: "s3cret", GroupsClaim: "teams"}
		d.SignIn.PublicURL = &url.URL{Scheme: "http", Host: "meter.example"}
	})
}

func TestOIDC(t *testing.T) {
	p := newProvider(t)
	g := newOIDCGate(t, p)
	p.claims = map[string]any{"email": "ann@example.com", "teams": []string{"x", "part"}}
	res, text := g.browser(nil)
	var session *http.Cookie
	for _, c := range res.Cookies() {
		if c.Name == sessionCookie {
			session = c
		} else if c.MaxAge != -1 {
			t.Errorf("%+v stays", c)
		}
	}
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" || session == nil || session.SameSite != http.SameSiteStrictMode || !session.HttpOnly {
		t.Fatalf("%d %v %s", res.StatusCode, res.Header, text)
	}
	if got := p.query.Get("redirect_uri") + " " + p.query.Get("scope"); got != "http://meter.example/auth/callback openid email teams" {
		t.Error(got)
	}
	who := func() string {
		_, text := g.ask("GET", sessionPath, "", "Cookie", session.Name+"="+session.Value)
		return text
	}
	if text := who(); text != `{"name":"ann@example.com","role":"viewer","projects":["a"],"sign_in":"oidc","tenant":"acme","version":"1.2","oidc":true}`+"\n" {
		t.Error(text)
	}
	delete(g.people, "part")
	if text := who(); !strings.Contains(text, `"role":null`) {
		t.Errorf("the group is gone: %s", text)
	}
	p.claims["teams"] = "boss"
	if res, text := g.browser(nil); res.StatusCode != http.StatusSeeOther {
		t.Errorf("one group as a text: %d %s", res.StatusCode, text)
	}
}

// Nobody gets in with an answer of another browser, sign-in, provider, client or time.
func TestOIDCRefuses(t *testing.T) {
	p := newProvider(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := func() map[string]any { return map[string]any{"teams": []string{"boss"}} }
	part := func(cookie *http.Cookie, i int, value string) {
		parts := strings.Split(cookie.Value, ".")
		parts[i] = value
		cookie.Value = strings.Join(parts, ".")
	}
	for name, c := range map[string]struct {
		claims func(map[string]any)
		change func(*url.URL, *http.Cookie)
		signer *rsa.PrivateKey
		code   int
	}{
		"good":                 {code: 303},
		"no cookie":            {change: func(_ *url.URL, c *http.Cookie) { c.Value = "" }, code: 400},
		"empty state":          {change: func(u *url.URL, c *http.Cookie) { part(c, 0, ""); u.RawQuery = "code=the-code" }, code: 400},
		"another state":        {change: func(u *url.URL, _ *http.Cookie) { u.RawQuery = "code=the-code&state=x" }, code: 400},
		"another nonce":        {change: func(_ *url.URL, c *http.Cookie) { part(c, 1, "x") }, code: 403},
		"another verifier":     {change: func(_ *url.URL, c *http.Cookie) { part(c, 2, strings.Repeat("x", 43)) }, code: 403},
		"another code":         {change: func(u *url.URL, _ *http.Cookie) { u.RawQuery = strings.Replace(u.RawQuery, "the-code", "x", 1) }, code: 403},
		"refused there":        {change: func(u *url.URL, _ *http.Cookie) { u.RawQuery += "&error=access_denied" }, code: 403},
		"replayed nonce":       {claims: func(m map[string]any) { m["nonce"] = "old" }, code: 403},
		"another client":       {claims: func(m map[string]any) { m["aud"] = "someone" }, code: 403},
		"another issuer":       {claims: func(m map[string]any) { m["iss"] = "https://evil.example" }, code: 403},
		"expired":              {claims: func(m map[string]any) { m["exp"] = clock.Add(-time.Hour).Unix() }, code: 403},
		"another key":          {signer: other, code: 403},
		"in no group":          {claims: func(m map[string]any) { m["teams"] = []string{"strangers"} }, code: 403},
		"without groups":       {claims: func(m map[string]any) { delete(m, "teams") }, code: 403},
		"groups are no texts":  {claims: func(m map[string]any) { m["teams"] = []any{1, nil} }, code: 403},
		"a group as an object": {claims: func(m map[string]any) { m["teams"] = map[string]any{"boss": true} }, code: 403},
	} {
		g := newOIDCGate(t, p)
		p.claims, p.signer = good(), p.key
		if c.claims != nil {
			c.claims(p.claims)
		}
		if c.signer != nil {
			p.signer = c.signer
		}
		res, text := g.browser(c.change)
		if res.StatusCode != c.code || strings.Contains(res.Header.Get("Set-Cookie"), sessionCookie) && c.code != 303 {
			t.Errorf("%s: %d %v %s", name, res.StatusCode, res.Header, text)
		}
		for _, cookie := range res.Cookies() {
			if cookie.Name == sessionCookie && c.code != 303 {
				t.Errorf("%s: a session was made", name)
			}
		}
	}
}

// While the provider is away people sign in with tokens, and when it is back with it.
func TestOIDCProviderAway(t *testing.T) {
	p := newProvider(t)
	g := newGate(t, func(d *Deps) {
		d.SignIn.OIDC = &OIDC{Issuer: "http://127.0.0.1:1", ClientID: "gpumeter", GroupsClaim: "teams"}
		d.SignIn.PublicURL = &url.URL{Scheme: "http", Host: "meter.example"}
	})
	if res, text := g.ask("GET", loginPath, ""); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, "with a token") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if code := g.code("POST", sessionPath, `{"token":"boss"}`); code != 200 {
		t.Error(code)
	}
	o := &OIDC{Issuer: p.URL + "/away", GroupsClaim: "teams"}
	if _, err := o.discover(); err == nil {
		t.Error("found at another address")
	}
	o.Issuer = p.URL
	if _, err := o.discover(); err != nil {
		t.Error(err)
	}
}
