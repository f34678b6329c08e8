package web

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

// uiFiles is what Vite built; before that it holds a placeholder only.
//
//go:embed all:ui/dist
var uiFiles embed.FS

// nonceMark stands in index.html where the nonce of an answer belongs; Vite puts
// it there (html.cspNonce in vite.config.ts).
const nonceMark = "GPUMETER_CSP_NONCE"

// ui serves the dashboard from a folder that Vite built: files below /assets/,
// which have a hash of their content in their name, files beside index.html, and
// index.html for every other path, because the page has routes of its own.
type ui struct {
	files fs.FS
	index []byte // nil when the page was not built
}

func newUI(files fs.FS) *ui {
	index, err := fs.ReadFile(files, "index.html")
	if err != nil {
		index = nil
	}
	return &ui{files: files, index: index}
}

func builtUI() *ui {
	files, err := fs.Sub(uiFiles, "ui/dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return newUI(files)
}

// notThePage are beginnings of paths that the program answers itself: what does not
// exist there is an error, not the page.
var notThePage = []string{"/api/", "/auth/", "/openapi", "/metrics"}

// orPage gives what mux has no pattern for to the page, and the rest to next. The page
// holds no figures, so nobody needs to sign in for it.
func (u *ui) orPage(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		_, pattern := mux.Handler(r)
		if !reads || pattern != "" || slices.ContainsFunc(notThePage, func(p string) bool { return strings.HasPrefix(r.URL.Path, p) }) {
			next.ServeHTTP(w, r)
			return
		}
		u.ServeHTTP(w, r)
	})
}

func (u *ui) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	switch {
	case strings.HasPrefix(name, "assets/"):
		if !u.file(w, r, name, "public, max-age=31536000, immutable") {
			// A page of an earlier version asks for what is gone. HTML in place of a
			// script would be a riddle.
			http.Error(w, "no such file: reload the page", http.StatusNotFound)
		}
	case !strings.Contains(name, "/") && path.Ext(name) != "" && name != "index.html" && u.file(w, r, name, "public, max-age=3600"):
	case u.index == nil:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		w.Write([]byte(notBuilt))
	default:
		u.page(w)
	}
}

// page answers with index.html. Its nonce is new every time: a style tag that
// somebody managed to put into the page cannot know it.
func (u *ui) page(w http.ResponseWriter) {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	nonce := base64.RawURLEncoding.EncodeToString(random)
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy(nonce))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	w.Write(bytes.ReplaceAll(u.index, []byte(nonceMark), []byte(nonce)))
}

// pagePolicy is the Content-Security-Policy of the page: everything from this
// server, no inline script, inline styles with the nonce only.
func pagePolicy(nonce string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self' 'nonce-" + nonce + "'", "img-src 'self' data:", "font-src 'self'",
		"connect-src 'self'", "manifest-src 'self'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'",
	}, "; ")
}

// encodings are the compressed copies that the build puts beside a file, the
// smallest first.
var encodings = []struct{ name, suffix string }{{"br", ".br"}, {"gzip", ".gz"}}

// file answers with a file of the build, compressed when the asker takes that,
// and says whether there is one.
func (u *ui) file(w http.ResponseWriter, r *http.Request, name, cache string) bool {
	body, err := fs.ReadFile(u.files, name)
	if err != nil {
		return false
	}
	h := w.Header()
	for _, e := range encodings {
		packed, err := fs.ReadFile(u.files, name+e.suffix)
		if err != nil {
			continue
		}
		h.Set("Vary", "Accept-Encoding")
		if h.Get("Content-Encoding") == "" && accepts(r.Header.Get("Accept-Encoding"), e.name) {
			h.Set("Content-Encoding", e.name)
			body = packed
		}
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", cache)
	w.Write(body)
	return true
}

// accepts says whether an Accept-Encoding header names the encoding and does not
// refuse it with a weight of zero.
func accepts(header, encoding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, parameter, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == encoding {
			weight := strings.ReplaceAll(parameter, " ", "")
			return weight == "" || strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != ""
		}
	}
	return false
}

const notBuilt = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>gpumeter</title></head>
<body>
<h1>gpumeter</h1>
<p>The dashboard is not in this program: it was compiled before the page was built. Build both with <code>make build</code>; this needs Node.js and npm.</p>
<p>Everything else works:</p>
<ul>
<li><a href="/api/v1/reports/spend?by=project&amp;format=table">Spend by project, this month</a></li>
<li><a href="/api/v1/reports/waste?by=instance&amp;format=table">Idle waste by instance, this month</a></li>
<li><a href="/api/v1/explain?format=table">The events behind this month</a></li>
<li><a href="/api/v1/status">Status</a>, <a href="/readyz">readiness</a>, <a href="/metrics">metrics</a></li>
<li><a href="/openapi.json">OpenAPI document</a></li>
</ul>
</body>
</html>
`
