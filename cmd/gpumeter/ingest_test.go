package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

func ingest(t *testing.T, server *fakeServer, input string) (code int, stdout, stderr string) {
	t.Helper()
	return gpumeter(t, strings.NewReader(input), "ingest", "-", "--url", server.URL)
}

func TestIngestTakesGoodLinesAndNamesBadOnes(t *testing.T) {
	with := func(from, to string) string { return strings.Replace(usageLine("x"), from, to, 1) }
	longLabel := with(`"unit"`, `"labels":{"a":"`+strings.Repeat("x", 10<<20)+`"},"unit"`)
	lines := []struct{ text, reason string }{
		{"\ufeff" + usageLine("1") + "\r", ""},
		{"", ""},
		{"  " + usageLine("2") + " \t\r", ""},
		{`{"specversion":`, "malformed"},
		{with("0.5", "NaN"), "malformed"},
		{with("0.5", `"NaN"`), "invalid_value: data.utilization"},
		{with("0.5", "-1"), "invalid_value: data.utilization"},
		{with("0.5", "42"), "it is a ratio, not a percentage"},
		{with("10:01:00Z", "09:00:00Z"), "is before the start"},
		{with(`"2026-03-01T10:01:00Z"`, "1772359260"), "does not say its unit"},
		{with("2026-03-01T10:01:00Z", "58101-07-10T00:00:00Z"), "is not an RFC 3339 time"},
		{longLabel, "too_large: longer than 1000000 bytes"},
		{with(`"unit"`, `"labels":{"a":"`+strings.Repeat("x", 5000)+`"},"unit"`), "too_large: data.labels.a"},
		{with("usage.v1", "usage.v7"), "unknown_type"},
		{with(`"unit":"GPU-1",`, ""), "missing_field: data.unit"},
		{with(`"id":"x"`, `"id":"x","id":"y"`), "a key is there twice"},
		{with("utilization", "utilisation"), "did you mean utilization?"},
		{"source,id,unit,start,end", "malformed"},
		{"source,id,unit,start,end", "malformed"},
		{"[" + usageLine("3") + "]", "invalid_value"},
		{"\x00\xff\x1b[31m", "malformed"},
		{usageLine("1"), ""}, // a duplicate
		{usageLine("4"), ""}, // without an end of line
	}
	var texts []string
	var wantRejects int
	for _, l := range lines {
		texts = append(texts, l.text)
		if l.reason != "" {
			wantRejects++
		}
	}
	server := startServer(t)
	code, stdout, stderr := ingest(t, server, strings.Join(texts, "\n"))
	if want := fmt.Sprintf("{\"accepted\":3,\"duplicate\":1,\"rejected\":%d}\n", wantRejects); code != exitFailed || stdout != want {
		t.Errorf("exit %d, %s, want %s", code, stdout, want)
	}
	said := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	for n, l := range lines {
		if l.reason == "" {
			continue
		}
		if prefix := fmt.Sprintf("line %d: ", n+1); !strings.HasPrefix(said[0], prefix) || !strings.Contains(said[0], l.reason) {
			t.Errorf("%q, want %q ... %q", said[0], prefix, l.reason)
		}
		if len(said[0]) > 700 || strings.ContainsAny(said[0], "\x1b\x00") {
			t.Errorf("input reaches the terminal: %.200q", said[0])
		}
		said = said[1:]
	}
	if len(said) > 0 {
		t.Errorf("and also %q", said)
	}
	if got := strings.Join(server.order, ""); got != "1214" {
		t.Errorf("the stream got %s", got)
	}
}

func TestIngestFile(t *testing.T) {
	server := startServer(t)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	var text strings.Builder
	for i := range 2500 {
		text.WriteString(usageLine(fmt.Sprint(i)) + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := gpumeter(t, nil, "ingest", file, "--url", server.URL)
	if code != 0 || stdout != "{\"accepted\":2500,\"duplicate\":0,\"rejected\":0}\n" || stderr != "" || server.requests > 20 {
		t.Errorf("exit %d, %q, %q, %d requests", code, stdout, stderr, server.requests)
	}
	if code, stdout, _ = gpumeter(t, nil, "ingest", file, "--url", server.URL); code != 0 || !strings.Contains(stdout, `"duplicate":2500`) {
		t.Errorf("again: exit %d, %q", code, stdout)
	}
	for _, name := range []string{file + "x", filepath.Dir(file)} {
		if code, _, stderr = gpumeter(t, nil, "ingest", name, "--url", server.URL); code != exitFailed || !strings.Contains(stderr, name) {
			t.Errorf("%s: exit %d, %q", name, code, stderr)
		}
	}
	if code, stdout, _ = ingest(t, server, ""); code != 0 || stdout != "{\"accepted\":0,\"duplicate\":0,\"rejected\":0}\n" {
		t.Errorf("empty input: exit %d, %q", code, stdout)
	}
}

func TestIngestSplitsBatchesAtTheMessageBound(t *testing.T) {
	server := startServer(t)
	pad := strings.Repeat("x", 4096)
	big := func(id string, labels int) string {
		var pairs []string
		for i := range labels {
			pairs = append(pairs, fmt.Sprintf(`"k%d":%q`, i, pad))
		}
		return strings.Replace(usageLine(id), `"unit"`, `"labels":{`+strings.Join(pairs, ",")+`},"unit"`, 1)
	}
	largest := usageLine("largest")
	largest = strings.Repeat(" ", 3) + largest[:len(largest)-1] + strings.Repeat(" ", schema.MaxMessageBytes-len(largest)) + "}\r\n"
	tooLarge := usageLine("larger")
	tooLarge = tooLarge[:len(tooLarge)-1] + strings.Repeat(" ", schema.MaxMessageBytes+1-len(tooLarge)) + "}\n"
	code, stdout, stderr := ingest(t, server, big("a", 60)+"\n"+big("b", 60)+"\n"+big("c", 60)+"\n"+big("d", 60)+"\n"+largest+tooLarge+big("e", 60))
	if code != exitFailed || stdout != "{\"accepted\":6,\"duplicate\":0,\"rejected\":1}\n" || !strings.HasPrefix(stderr, "line 6: too_large") {
		t.Errorf("exit %d, %q, %.300q", code, stdout, stderr)
	}
}

// quick is an ingester that does not wait.
func quick(t *testing.T, server *fakeServer) (*ingester, *bytes.Buffer) {
	t.Helper()
	c, err := newClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	clock := func() time.Time { return now }
	return &ingester{
		client: c, progress: newProgress(&out, 0, clock), retryFor: time.Minute, now: clock,
		pause: func(ctx context.Context, d time.Duration) error { now = now.Add(d); return ctx.Err() },
	}, &out
}

func TestIngestOffersAgain(t *testing.T) {
	input := usageLine("1") + "\n" + usageLine("2") + "\n" + usageLine("3") + "\n"
	for _, c := range []struct {
		name  string
		setup func(*fakeServer)
		want  string
		order string
	}{
		{"a stream that is away", func(s *fakeServer) {
			s.ingest = func(_ []schema.Message, request int) ([]schema.Receipt, error) {
				if request < 4 {
					return nil, errUnavailable
				}
				return nil, nil
			}
		}, "{3 0 0}", "123"},
		{"a stream that takes one at a time", func(s *fakeServer) {
			s.ingest = func(messages []schema.Message, _ int) ([]schema.Receipt, error) {
				receipts := s.store(messages[:1])
				for range messages[1:] {
					receipts = append(receipts, schema.Receipt{Err: errUnavailable})
				}
				return receipts, nil
			}
		}, "{3 0 0}", "123"},
		{"an answer that is lost", func(s *fakeServer) {
			s.ingest = func(messages []schema.Message, request int) ([]schema.Receipt, error) {
				if request == 1 {
					s.store(messages)
					panic(http.ErrAbortHandler)
				}
				return nil, nil
			}
		}, "{0 3 0}", "123123"},
		{"a proxy without a server", func(s *fakeServer) {
			s.before = func(w http.ResponseWriter, _ *http.Request, request int) bool {
				if request < 3 {
					http.Error(w, "bad gateway", http.StatusBadGateway)
				}
				return request < 3
			}
		}, "{3 0 0}", "123"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := startServer(t)
			c.setup(server)
			ing, out := quick(t, server)
			if err := ing.run(t.Context(), strings.NewReader(input)); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(ing.counts); got != c.want || strings.Join(server.order, "") != c.order {
				t.Errorf("counts %s, stream %v; %s", got, server.order, out)
			}
		})
	}
}

func TestIngestGivesUp(t *testing.T) {
	input := usageLine("1") + "\n" + usageLine("2") + "\n"
	server := startServer(t)
	server.ingest = func([]schema.Message, int) ([]schema.Receipt, error) { return nil, errUnavailable }
	ing, out := quick(t, server)
	err := ing.run(t.Context(), strings.NewReader(input))
	if err == nil || !strings.Contains(err.Error(), "did not take the events for 1m0s") || !strings.Contains(err.Error(), "lines after 0 were not acknowledged") {
		t.Errorf("err = %v", err)
	}
	if !strings.Contains(out.String(), "waiting: trying again: stream is gone") || strings.Count(out.String(), "\n") != 1 || server.requests < 10 {
		t.Errorf("%d requests, %q", server.requests, out)
	}
	server.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		http.Error(w, "who are you", 401)
		return true
	}
	ing, _ = quick(t, server)
	server.requests = 0
	if err := ing.run(t.Context(), strings.NewReader(input)); err == nil || server.requests != 1 || !strings.Contains(err.Error(), "401") {
		t.Errorf("err = %v after %d requests", err, server.requests)
	}
}

func TestIngestReportsWhatWasAcknowledged(t *testing.T) {
	server := startServer(t)
	ing, _ := quick(t, server)
	ctx, interrupt := context.WithCancel(t.Context())
	// The interrupt comes while a request is on its way.
	server.before = func(http.ResponseWriter, *http.Request, int) bool { interrupt(); return false }
	in, feed := io.Pipe()
	go func() {
		for i := range 1500 {
			io.WriteString(feed, usageLine(fmt.Sprint(i))+"\n")
		}
	}()
	err := ing.run(ctx, in)
	// How many lines the first request has depends on how fast they come.
	acknowledged := ing.counts.Accepted
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("interrupted; lines after %d were not acknowledged", acknowledged)) ||
		acknowledged == 0 || acknowledged > batchEvents || len(server.order) != acknowledged {
		t.Errorf("%v, counts %v, the stream has %d", err, ing.counts, len(server.order))
	}
	in.CloseWithError(io.ErrClosedPipe)
}

func TestIngestDoesNotKeepASlowPipeWaiting(t *testing.T) {
	server := startServer(t)
	ing, _ := quick(t, server)
	in, feed := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- ing.run(t.Context(), in) }()
	io.WriteString(feed, usageLine("1")+"\n")
	for server.count() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	feed.CloseWithError(errors.New("disk error"))
	if err := <-done; err == nil || !strings.Contains(err.Error(), "disk error") || ing.counts.Accepted != 1 {
		t.Errorf("%v, %v", err, ing.counts)
	}
}

func (s *fakeServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// endless gives the same byte n times.
type endless struct{ n int }

func (e *endless) Read(b []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := min(len(b), e.n)
	for i := range b[:n] {
		b[i] = 'x'
	}
	e.n -= n
	return n, nil
}

func TestALongLineDoesNotFillMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	line, err := newLineReader(&endless{n: 64 << 20}).next()
	runtime.ReadMemStats(&after)
	if err != nil || !line.tooLong || line.raw != nil {
		t.Errorf("%d bytes kept, too long: %t, %v", len(line.raw), line.tooLong, err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
		t.Errorf("%d bytes allocated for a line of 64 MiB", allocated)
	}
}

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n c \n"), 3)
	f.Add([]byte("\xef\xbb\xbf{}\n\xef\xbb\xbf{}"), 9)
	f.Add(bytes.Repeat([]byte("x"), 70_000), 65_000)
	f.Fuzz(func(t *testing.T, input []byte, most int) {
		most = min(max(most, 1), 1<<20)
		reader := newLineReader(bytes.NewReader(input))
		reader.most = most
		var got []string
		for {
			line, err := reader.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(line.raw) > most || line.tooLong != (line.raw == nil) {
				t.Fatalf("line %+v, %v", line, err)
			}
			if line.tooLong {
				continue // white space around a line may count
			}
			got = append(got, fmt.Sprintf("%d:%s", line.number, line.raw))
		}
		var want []string
		for n, text := range bytes.Split(bytes.TrimPrefix(input, byteOrderMark), []byte("\n")) {
			length := len(text)
			text = bytes.Trim(text, " \t\r\n")
			if len(text) > 0 && len(text) <= most && length <= most {
				want = append(want, fmt.Sprintf("%d:%s", n+1, text))
			}
		}
		for _, w := range want {
			for len(got) > 0 && got[0] != w {
				got = got[1:] // long only because of white space
			}
			if len(got) == 0 {
				t.Fatalf("lost line %q", w)
			}
		}
	})
}

// Whatever the input, every line that is not blank is counted exactly once.
func FuzzIngest(f *testing.F) {
	f.Add(usageLine("1") + "\n{}\n\n" + usageLine("2"))
	f.Add(`{"specversion":"1.0","type":"gpumeter.correction.v1","source":"s","id":"1","data":{"corrects":{},"replacement":{"type":"gpumeter.correction.v1"}}}`)
	f.Add("\ufeff[1e999]\r\n{\"data\":{\"start\":\"58101-01-01T00:00:00Z\"}}")
	f.Fuzz(func(t *testing.T, input string) {
		server := startServer(t)
		ing, _ := quick(t, server)
		if err := ing.run(t.Context(), strings.NewReader(input)); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.SplitSeq(strings.TrimPrefix(input, "\ufeff"), "\n") {
			if strings.Trim(line, " \t\r") != "" {
				lines++
			}
		}
		if c := ing.counts; c.Accepted+c.Duplicate+c.Rejected != lines {
			t.Fatalf("%d lines, counts %v", lines, c)
		}
	})
}
