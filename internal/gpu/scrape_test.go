package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// serve answers every request with the body, as an exporter does.
func serve(t testing.TB, body []byte) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	t.Cleanup(s.Close)
	return s
}

func newScrape(t testing.TB, o ScrapeOptions) *Scrape {
	t.Helper()
	s, err := NewScrape(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// show writes a reading as the test files do: fields that are empty or have
// their usual value are left out.
func show(r *schema.Reading) string {
	var b strings.Builder
	b.WriteString(r.Unit)
	text := func(key, v, usual string) {
		if v != usual {
			fmt.Fprintf(&b, " %s=%s", key, v)
		}
	}
	number := func(key string, m schema.Maybe) {
		if m.Known {
			fmt.Fprintf(&b, " %s=%d", key, m.Value)
		}
	}
	text("board", r.Board, r.Unit)
	text("model", fmt.Sprintf("%q", r.Model), `""`)
	text("node", r.Node, "127.0.0.1")
	text("owner", r.Instance, "")
	text("project", r.Project, "")
	number("share", r.Share)
	if r.Utilization.Known {
		number("util", r.Utilization)
	} else {
		fmt.Fprintf(&b, " util=unknown(%s)", r.Reason)
	}
	number("used", r.MemoryUsedBytes)
	number("total", r.MemoryTotalBytes)
	number("energy", r.BoardEnergyMj)
	text("weight", fmt.Sprint(r.EnergyWeight), "1")
	return b.String()
}

// sections splits a test file at its "== name ==" lines.
func sections(t *testing.T, file string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, name := map[string]string{}, "about"
	for line := range strings.Lines(string(raw)) {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			name = strings.TrimSuffix(strings.TrimSpace(head), " ==")
			continue
		}
		all[name] += line
	}
	return all
}

func TestScrapeFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			parts := sections(t, file)
			// As exporters do, some of these end without a line end.
			s := newScrape(t, ScrapeOptions{URL: serve(t, []byte(strings.TrimSuffix(parts["scrape"], "\n"))).URL})
			readings, err := s.Read(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for i := range readings {
				fmt.Fprintln(&got, show(&readings[i]))
			}
			if got.String() != parts["readings"] {
				t.Errorf("readings:\n%s\nwant:\n%s", got.String(), parts["readings"])
			}
			got.Reset()
			rejected := s.Rejected()
			for _, reason := range slices.Sorted(maps.Keys(rejected)) {
				fmt.Fprintf(&got, "%s %d\n", reason, rejected[reason])
			}
			if got.String() != parts["rejected"] {
				t.Errorf("rejected:\n%s\nwant:\n%s", got.String(), parts["rejected"])
			}
			if got, want := fmt.Sprint(s.Disagreements()), strings.TrimSpace(parts["disagreements"]); got != want && (got != "0" || want != "") {
				t.Errorf("disagreements: %s, want %s", got, want)
			}
		})
	}
}

func TestScrapeDefaults(t *testing.T) {
	url := serve(t, []byte("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\"} 1\nDCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-b\",pod=\"p\"} 1\n")).URL
	s := newScrape(t, ScrapeOptions{URL: url, Node: "n1", Instance: "vm-1", Project: "a",
		Labels: schema.Labels{{Key: "z", Value: "1"}, {Key: "b", Value: "2"}}})
	readings, err := s.Read(context.Background())
	if err != nil || len(readings) != 2 {
		t.Fatal(readings, err)
	}
	if r := readings[0]; r.Node != "n1" || r.Instance != "vm-1" || r.Project != "a" || r.Labels[0].Key != "b" {
		t.Errorf("without labels: %+v", r)
	}
	if r := readings[1]; r.Instance != "p" || r.Project != "a" {
		t.Errorf("pod without a namespace: %+v", r)
	}
}

func TestScrapeFailures(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 503) }))
	defer broken.Close()
	huge := serve(t, bytes.Repeat([]byte("#"), 1<<20))
	stale := "nvidia_smi_last_collect_success 0\nnvidia_smi_utilization_gpu_ratio{uuid=\"a\"} 0\n"
	for _, c := range []struct {
		name, url string
		is        error
		text      string
	}{
		{"slow", slow.URL, context.DeadlineExceeded, ""},
		{"status", broken.URL, nil, "503"},
		{"refused", "http://user:secret@127.0.0.1:1/metrics", nil, "connect"},
		{"too large", huge.URL, ErrTooLarge, "1048575"},
		{"not an exporter", serve(t, []byte("go_goroutines 7\n<html>\n")).URL, ErrNoGPUs, ""},
		{"empty", serve(t, nil).URL, ErrNoGPUs, ""},
		{"stale", serve(t, []byte(stale)).URL, ErrStale, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScrape(t, ScrapeOptions{URL: c.url, Timeout: 300 * time.Millisecond})
			if s.maxBytes != MaxScrapeBytes {
				t.Errorf("bound %d", s.maxBytes)
			}
			s.maxBytes = 1<<20 - 1
			readings, err := s.Read(context.Background())
			if err == nil || readings != nil {
				t.Fatalf("got %v, %v", readings, err)
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestScrapeOptionsAreChecked(t *testing.T) {
	for _, o := range []ScrapeOptions{{}, {URL: "localhost:9400"}, {URL: "ftp://h/m"}, {URL: "http://h/m", Timeout: -1}, {URL: "http://%zz"}} {
		if _, err := NewScrape(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}

// Two pod names of the greatest length that Kubernetes allows still make a
// valid event; a longer one is refused with its line.
func TestLongLabels(t *testing.T) {
	most, more := strings.Repeat("p", maxLabelBytes), strings.Repeat("p", maxLabelBytes+1)
	body := fmt.Sprintf("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\",namespace=%q,pod=%q} 1\nDCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-b\",pod=%q} 1\nDCGM_FI_DEV_GPU_UTIL 1\n", most, most, more)
	s := newScrape(t, ScrapeOptions{URL: serve(t, []byte(body)).URL})
	readings, err := s.Read(context.Background())
	if err != nil || len(readings) != 1 || len(readings[0].Instance) > schema.MaxNameBytes {
		t.Fatal(len(readings), err)
	}
	if got := s.Rejected(); got[RejectTooLong] != 1 || got[RejectNoDevice] != 1 {
		t.Errorf("rejected %v", got)
	}
}

// node8 writes what a node with eight GPUs and a hundred series each answers.
func node8() []byte {
	var b bytes.Buffer
	names := slices.Sorted(maps.Keys(fields))
	for g := range 8 {
		for i := range 100 {
			name := fmt.Sprintf("DCGM_FI_DEV_OTHER_%d", i)
			if i < len(names) && strings.HasPrefix(names[i], "DCGM") {
				name = names[i]
			}
			fmt.Fprintf(&b, "%s{gpu=\"%d\",UUID=\"GPU-473571f2-fb37-ef7e-50fe-9885b74a23c%d\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"node-7\",DCGM_FI_DRIVER_VERSION=\"550.54.15\",container=\"main\",namespace=\"ml\",pod=\"train-%d\"} 0.5\n", name, g, g, g, g)
		}
	}
	return b.Bytes()
}

func BenchmarkRead8x100(b *testing.B) {
	text := node8()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if r, _, err := read(text, &Defaults{}, func(string) {}); err != nil || len(r) != 8 {
			b.Fatal(len(r), err)
		}
	}
}

// FuzzRead: no exposition panics, and every reading can become an event.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-a\",GPU_I_ID=\"1\",GPU_I_PROFILE=\"9g.\"} 1e309\n{a=\"b\"} 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		readings, _, err := read(text, &Defaults{}, func(string) {})
		if err != nil {
			return
		}
		shares := map[string]int64{}
		for i := range readings {
			r := &readings[i]
			u := schema.Usage{
				Header: schema.Header{Source: "s", ID: "i"}, Unit: r.Unit, StartMs: schema.MinTimeMs, EndMs: schema.MinTimeMs + 1,
				Instance: r.Instance, Project: r.Project, Node: r.Node, Model: r.Model, Utilization: r.Utilization,
				MemoryUsedBytes: r.MemoryUsedBytes, Share: r.Share, Labels: r.Labels,
			}
			if err := u.Validate(); err != nil {
				t.Errorf("%+v: %v", r, err)
			}
			if !r.Utilization.Known && r.Reason == "" {
				t.Errorf("unknown without a reason: %+v", r)
			}
			if r.Share.Known {
				shares[r.Unit] += r.Share.Value
			}
		}
		for unit, sum := range shares {
			if sum != schema.ShareOne {
				t.Errorf("shares of %s add up to %d", unit, sum)
			}
		}
	})
}

// The remembered label sets only save time: every line reads as it does when the
// library sees it alone.
func TestRememberedLabelSets(t *testing.T) {
	lines := []string{
		`a{x="1"} 1`, `b{x="1"} 2`, `b{x="1"} 2 1606402000`, `b{x="1"} zwei`, `b{x="1"} }`, `b b{x="1"} 2`, `b{x="1"}2`,
		`9b{x="1"} 2`, `b{x="1"} 0x1p4`, `b{x="1"} 1_0`, `b{x="1"} +Inf`, `b{x="1"} nan`, `b {x="1"} 4`, `{x="1"} 1`,
		`c{x="a}"} 1`, `d{x="a}"} 1`, `d{x="a}"} 1 2 3`, `d{x="a}"} }`, `e{} 5`, `f{} 6`,
	}
	alone := func(line string) string {
		out := ""
		parse([]byte(line), func(s *sample) { out = fmt.Sprint(s.name, s.label("x"), s.value) }, func(r string) { out = r })
		return out
	}
	var got []string
	parse([]byte(strings.Join(lines, "\n")), func(s *sample) { got = append(got, fmt.Sprint(s.name, s.label("x"), s.value)) },
		func(r string) { got = append(got, r) })
	for i, line := range lines {
		if want := alone(line); got[i] != want {
			t.Errorf("%s reads as %s, alone as %s", line, got[i], want)
		}
	}
}
