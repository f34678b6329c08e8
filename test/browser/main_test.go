//go:build browser

// Package browser_test looks at the dashboard as a person does: the real program with
// a simulated past and living nodes, a headless Chromium, and tests in JavaScript that
// read what the page shows. Each of those tests is a test of Go as well, so that none
// is left out of a summary.
//
// make test installs what it needs. GPUMETER_CHROMIUM names a Chromium, and
// GPUMETER_BROWSER_TESTS a pattern of the names of tests to run.
package browser_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

func TestMain(m *testing.M) { process.Main(m) }

// patience bounds every wait for something that must come: long, because a busy
// machine is slow and only a broken program never gets there.
const patience = 2 * time.Minute

// past is how much the fleet has behind it: more than a month, so that there is one
// to compare with.
const past = "960h"

// fixture is a running program with a past, and what the tests have to know of it.
type fixture struct {
	main   *process.Process // everything in one process, without a sign-in
	signIn *process.Process // answers from the same data to those who sign in

	URL      string            `json:"url"`
	SignIn   string            `json:"signIn"`
	Control  string            `json:"control"`
	Program  string            `json:"program"`
	Chromium string            `json:"chromium"`
	Project  string            `json:"project"` // that the scoped token may see
	Tokens   map[string]string `json:"tokens"`  // by name
	Hostile  hostile           `json:"hostile"`
}

// start simulates a past and starts the servers on it.
func start(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	must(t, "simulate", "--data", data, "--instances", "200", "--history", past, "--prices", "../../deploy/prices.example.yaml")
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Chromium: chromium(t), Program: process.Command().Path, Project: "ads"}
	f.URL, f.SignIn = "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	f.main = launch(t, dir, "up", "up", "--data", data, "--listen", "127.0.0.1:"+ports[0],
		"--simulate", "2", "--emit-every", "1s", "--sample-every", "1s")
	f.Hostile = ingestHostile(t, f.URL)

	var at struct{ NATS, ClickHouse string }
	if err := json.Unmarshal(read(t, filepath.Join(data, "endpoints.json")), &at); err != nil {
		t.Fatal(err)
	}
	f.signIn = launch(t, dir, "serve", "serve", "--data", filepath.Join(dir, "serve"), "--listen", "127.0.0.1:"+ports[1],
		"--nats", at.NATS, "--clickhouse", at.ClickHouse, "--tokens", f.tokens(t, dir))
	f.Control = f.control(t)
	return f
}

// launch starts a process, which the end of the test stops.
func launch(t *testing.T, dir, name string, args ...string) *process.Process {
	t.Helper()
	p := &process.Process{Name: name, Args: args, Log: filepath.Join(dir, name+".log"), Patience: patience}
	t.Cleanup(func() {
		if p.Alive() {
			if err := p.Stop(); err != nil {
				p.Kill()
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("%s said last:\n%s", name, p.Said())
		}
	})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// tokens writes the file of who may sign in.
func (f *fixture) tokens(t *testing.T, dir string) string {
	t.Helper()
	f.Tokens = map[string]string{}
	var file strings.Builder
	file.WriteString("tokens:\n")
	for name, args := range map[string][]string{"ann": {"--role", "admin"}, "ada": {"--project", f.Project}} {
		out := must(t, append([]string{"token", "new", "--name", name}, args...)...)
		token, entry, _ := strings.Cut(out, "\n")
		f.Tokens[name] = token
		file.WriteString(entry)
	}
	path := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// control lets the tests stop the program and start it again: the real process, with a
// signal, on the same port.
func (f *fixture) control(t *testing.T) string {
	mux := http.NewServeMux()
	for path, act := range map[string]func() error{"/stop": f.main.Stop, "/start": f.main.Start} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := act(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// chromium finds the browser.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("GPUMETER_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no browser to test with: neither chromium nor google-chrome is in PATH. make test installs one on Debian as root; else name one in GPUMETER_CHROMIUM")
	return ""
}

// must runs the program and returns what it wrote to its standard output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	cmd := process.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("gpumeter %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func post(t *testing.T, url string, events []byte) {
	t.Helper()
	res, err := http.Post(url+"/api/v1/events", "application/cloudevents-batch+json", bytes.NewReader(events))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("send events: %s, %v\n%s", res.Status, err, body)
	}
}

// get reads a document of the API.
func get(url string, into any) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}
