package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compressed answers with gzip or zstd where the client takes it. A stream is not
// compressed: 500 clients would have it compressed 500 times.
func compressed(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(1024), gzhttp.EnableZstd(true), gzhttp.RandomJitter(32, 0, false))
	if err != nil {
		return nil, err
	}
	zipped := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == livePath {
			next.ServeHTTP(w, r)
			return
		}
		zipped.ServeHTTP(w, r)
	}), nil
}

// tagged gives answers of the API an entity tag, and answers a client that has them
// already with 304. What an answer is does not tell what it was computed from, so
// computing it is not spared, only sending it.
func tagged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == livePath {
			next.ServeHTTP(w, r)
			return
		}
		t := &taggedWriter{ResponseWriter: w}
		next.ServeHTTP(t, r)
		t.finish(r)
	})
}

// taggedWriter holds an answer back until it is whole.
type taggedWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader notes the status.
func (t *taggedWriter) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

// Write adds to the body.
func (t *taggedWriter) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(b)
}

// Unwrap lets a http.ResponseController reach the connection.
func (t *taggedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *taggedWriter) finish(r *http.Request) {
	h := t.Header()
	if t.status == http.StatusOK {
		if h.Get("ETag") == "" {
			sum := sha256.Sum256(t.body.Bytes())
			h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		}
		h.Set("Cache-Control", "private, no-cache") // may be kept, and is asked for again each time
		h.Add("Vary", "Authorization, Cookie")
		if sameTag(r.Header.Get("If-None-Match"), h.Get("ETag")) {
			h.Del("Content-Type")
			t.ResponseWriter.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if t.status != 0 {
		t.ResponseWriter.WriteHeader(t.status)
	}
	_, _ = t.ResponseWriter.Write(t.body.Bytes()) // a client that has gone needs no answer
}

// sameTag compares tags as If-None-Match does: a compressed answer has a weak one.
func sameTag(sent, tag string) bool {
	strong := func(s string) string { return strings.TrimPrefix(strings.TrimSpace(s), "W/") }
	for _, one := range strings.Split(sent, ",") {
		if one = strong(one); one == "*" || one != "" && one == strong(tag) {
			return true
		}
	}
	return false
}
