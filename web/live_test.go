package web

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/report"
)

// fakeBoard answers overviews that say how often one was asked for.
type fakeBoard struct {
	Board
	asked atomic.Int64
}

func (f *fakeBoard) Overview(_ context.Context, p report.OverviewParams) (*report.Overview, error) {
	if p.Zone == "Mars" {
		return nil, &report.RequestError{Param: "zone", Msg: "is not a time zone"}
	}
	return &report.Overview{At: "2026-03-01T00:00:00Z", Zone: p.Zone, Filter: p.Filter, Series: report.Series{Step: time.Duration(f.asked.Add(1)).String()}}, nil
}

// liveServer serves streams of a fake board whose data changes when bump is called.
func liveServer(t *testing.T) (server *httptest.Server, board *fakeBoard, bump func()) {
	t.Helper()
	board = &fakeBoard{}
	var state atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	h := Handler(Deps{Board: board, Changed: func(context.Context) (string, error) { return time.Duration(state.Load()).String(), nil },
		Background: func(run func(context.Context) error) { go func() { _ = run(ctx) }() }})
	server = httptest.NewUnstartedServer(h)
	server.Config = Server(h)
	server.Start()
	t.Cleanup(server.Close)
	return server, board, func() { state.Add(1) }
}

// nextEvent reads the next event of a stream, leaving comments out.
func nextEvent(t *testing.T, from *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			name = v
		} else if v, ok := strings.CutPrefix(line, "data: "); ok {
			data = v
		} else if line == "" && name != "" {
			return name, data
		}
	}
}

// Many streams and a question get the same answer, which is computed once, and the next
// one when what is stored has changed. When the server stops, streams end.
func TestLive(t *testing.T) {
	server, board, bump := liveServer(t)
	const streams = 50
	readers := make([]*bufio.Reader, streams)
	var seen []string
	for i := range readers {
		res, err := http.Get(server.URL + livePath + "?zone=Asia/Shanghai&project=a")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("Content-Encoding") != "" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		readers[i] = bufio.NewReader(res.Body)
		name, data := nextEvent(t, readers[i])
		if name != "overview" || i > 0 && data != seen[0] {
			t.Fatalf("stream %d: %s %s, want %s", i, name, data, seen)
		}
		seen = append(seen, data)
	}
	res, err := http.Get(server.URL + overviewPath + "?zone=Asia/Shanghai&project=a")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || strings.TrimSpace(string(text)) != seen[0] {
		t.Errorf("asked for: %s, %v\nstreamed: %s", text, err, seen[0])
	}
	if n := board.asked.Load(); n != 1 {
		t.Errorf("computed %d times for %d streams and a question", n, streams)
	}
	bump()
	for i, r := range readers {
		if name, data := nextEvent(t, r); name != "overview" || data == seen[0] || i > 0 && data != seen[len(seen)-1] {
			t.Fatalf("stream %d after a change: %s %s", i, name, data)
		} else {
			seen = append(seen, data)
		}
	}
	if n := board.asked.Load(); n != 2 {
		t.Errorf("computed %d times for one change", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := server.Config.Shutdown(ctx); err != nil {
		t.Errorf("streams keep the server from stopping: %v", err)
	}
	var ended sync.WaitGroup
	for _, r := range readers {
		ended.Go(func() { _, _ = io.Copy(io.Discard, r) })
	}
	ended.Wait()
}

// A wrong question is an error, not a stream.
func TestLiveRefuses(t *testing.T) {
	server, _, _ := liveServer(t)
	for _, query := range []string{"?zone=Mars", "?from=2026-03-01", "?project=a&project=b", "?filter=x"} {
		res, err := http.Get(server.URL + livePath + query)
		if err != nil {
			t.Fatal(err)
		}
		var problem struct {
			Status int              `json:"status"`
			Errors []map[string]any `json:"errors"`
		}
		err = json.NewDecoder(res.Body).Decode(&problem)
		res.Body.Close()
		if err != nil || res.StatusCode != 422 || problem.Status != 422 || len(problem.Errors) == 0 {
			t.Errorf("%s: %d, %v, %+v", query, res.StatusCode, err, problem)
		}
	}
}

// Answers have a tag, and who has one already is told that it still holds; text is
// compressed for those who take it.
func TestTagsAndCompression(t *testing.T) {
	server, _, _ := liveServer(t)
	get := func(path string, headers ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultTransport.RoundTrip(req) // which does not undo the compression
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	plain := get(overviewPath, "Accept-Encoding", "identity")
	tag := plain.Header.Get("ETag")
	if tag == "" || plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("plain: %v", plain.Header)
	}
	for _, sent := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		if res := get(overviewPath, "If-None-Match", sent); res.StatusCode != http.StatusNotModified || res.Header.Get("ETag") == "" {
			t.Errorf("with %s: %d %v", sent, res.StatusCode, res.Header)
		}
	}
	if res := get(overviewPath, "If-None-Match", `"other"`); res.StatusCode != 200 {
		t.Errorf("with another tag: %d", res.StatusCode)
	}
	for _, encoding := range []string{"gzip", "zstd"} {
		if res := get("/openapi.json", "Accept-Encoding", encoding); res.Header.Get("Content-Encoding") != encoding {
			t.Errorf("%s: %v", encoding, res.Header)
		}
	}
	if res := get(overviewPath+"?zone=Mars", "If-None-Match", "*"); res.StatusCode != 422 {
		t.Errorf("an error with a tag: %d", res.StatusCode)
	}
}
