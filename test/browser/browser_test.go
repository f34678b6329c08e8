//go:build browser

package browser_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// suites are the files of tests in the order in which they run. The last stops the
// server that all of them look at.
var suites = []string{"pages", "address", "why", "reader", "hostile", "signin", "agree", "live"}

// suiteLimit ends a file that hangs; every wait in it is shorter.
const suiteLimit = 15 * time.Minute

// result is what reporter.mjs says of one test.
type result struct {
	Name    string
	Passed  bool
	Skip    string  // why it did not run
	Error   string  // why it failed
	Seconds float64 // how long it took
	Log     string  // a line that a test said, and nothing else
}

// TestDashboard runs the tests in JavaScript; each of them is a subtest.
func TestDashboard(t *testing.T) {
	for _, need := range []struct{ path, make string }{{"node_modules/playwright-core", "npm ci in test/browser"}, {"../../web/ui/dist/index.html", "make page"}} {
		if _, err := os.Stat(need.path); err != nil {
			t.Fatalf("%v: run %s, or make test, which does", err, need.make)
		}
	}
	listed(t)
	f := start(t)
	settings, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites {
		ran, failed := 0, false
		err := node(t, suite, "GPUMETER_BROWSER="+string(settings), func(r result) {
			if r.Log != "" {
				t.Log(r.Log)
				return
			}
			ran++
			failed = !t.Run(suite+": "+r.Name, r.check) || failed
		})
		switch {
		case err != nil && !failed:
			t.Errorf("%s.test.mjs failed, and no test of it did: %v", suite, err)
		case ran == 0 && os.Getenv("GPUMETER_BROWSER_TESTS") == "":
			t.Errorf("%s.test.mjs ran no test", suite)
		}
	}
}

// check is the test that a result is of.
func (r result) check(t *testing.T) {
	t.Logf("%.1f s", r.Seconds)
	switch {
	case r.Skip != "":
		t.Skip(r.Skip)
	case !r.Passed:
		t.Error(r.Error)
	}
}

// listed fails when there is a file of tests that would not run.
func listed(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("*.test.mjs")
	if err != nil || len(files) != len(suites) {
		t.Fatalf("there are %q and %q is run (%v)", files, suites, err)
	}
}

// node runs a file of tests and calls each with every result as it comes.
func node(t *testing.T, suite, env string, each func(result)) error {
	t.Helper()
	args := []string{"--test", "--test-reporter=./reporter.mjs"}
	if pattern := os.Getenv("GPUMETER_BROWSER_TESTS"); pattern != "" {
		args = append(args, "--test-name-pattern="+pattern)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append(args, suite+".test.mjs")...)
	// It has browsers for children, and ends them when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("node does not start: %v", err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var r result
		if len(line) > 0 {
			if err := json.Unmarshal(line, &r); err != nil {
				t.Errorf("node wrote what is no result: %s", line)
			} else {
				each(r)
			}
		}
		if err == io.EOF {
			return cmd.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
