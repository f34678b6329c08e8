package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func page(files map[string]string) http.Handler {
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/events", func(http.ResponseWriter, *http.Request) {})
	s := &server{Deps: Deps{Log: slog.New(slog.DiscardHandler)}}
	return s.guard(newUI(folder).orPage(mux, mux))
}

func ask(h http.Handler, method, path, encoding string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var built = map[string]string{
	"index.html": `<style nonce="` + nonceMark + `"></style>`, "icon.svg": "<svg/>",
	"assets/a-1.js": "plain", "assets/a-1.js.br": "brotli", "assets/a-1.js.gz": "gzipped", "assets/b-2.css": "b{}",
}

func TestPagePaths(t *testing.T) {
	h := page(built)
	for _, c := range []struct {
		method, path string
		status       int
		holds        string
	}{
		{"GET", "/", 200, "<style"},
		{"GET", "/instances/i-1.b?range=7d", 200, "<style"}, // the page's own route
		{"HEAD", "/plans", 200, ""},
		{"GET", "/icon.svg", 200, "<svg/>"},
		{"GET", "/index.html", 200, "<style"},
		{"GET", "/assets/b-2.css", 200, "b{}"},
		{"GET", "/assets/gone-3.js", 404, "reload"},
		{"GET", "/assets/../index.html", 200, "<style"},
		{"GET", "/api/v1/nothing", 404, "not found"},
		{"GET", "/api/v1/events", 405, ""},
		{"POST", "/", 404, ""},
	} {
		w := ask(h, c.method, c.path, "")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.holds) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.holds)
		}
	}
}

func TestPageNonce(t *testing.T) {
	seen := map[string]bool{}
	h := page(built)
	for range 3 {
		w := ask(h, "GET", "/", "")
		nonce := regexp.MustCompile(`nonce="([A-Za-z0-9_-]{22})"`).FindStringSubmatch(w.Body.String())
		if nonce == nil || seen[nonce[1]] {
			t.Fatalf("the nonce is not there, or was there before: %s", w.Body)
		}
		seen[nonce[1]] = true
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "style-src 'self' 'nonce-"+nonce[1]+"';") || strings.Contains(policy, "unsafe") {
			t.Errorf("policy %q", policy)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-cache" {
			t.Errorf("Cache-Control of the page: %q", got)
		}
	}
}

func TestPageEncoding(t *testing.T) {
	h := page(built)
	for accept, want := range map[string]string{
		"": "plain", "gzip": "gzipped", "gzip, deflate, br": "brotli", "br;q=0, gzip;q=0.5": "gzipped", "br; q=0.000": "plain", "brotli": "plain",
	} {
		w := ask(h, "GET", "/assets/a-1.js", accept)
		if w.Body.String() != want {
			t.Errorf("Accept-Encoding %q gets %q, want %q", accept, w.Body, want)
		}
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/javascript") {
			t.Errorf("Content-Type %q", got)
		}
		if w.Header().Get("Vary") != "Accept-Encoding" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("headers %v", w.Header())
		}
	}
}

// Without a build the program still answers, and says what to do.
func TestPageNotBuilt(t *testing.T) {
	w := ask(page(map[string]string{"placeholder.txt": ""}), "GET", "/instances", "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "make build") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
