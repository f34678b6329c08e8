package scenarios_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpumeter/gpumeter/internal/engine"
)

var (
	program string // the binary under test
	library string // of the embedded ClickHouse

	update = flag.Bool("update", false, "write docs/exactness.md anew")
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "gpumeter-scenarios-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if library, err = engine.Find(""); err != nil {
		return fail(err)
	}
	// Without the race detector, as it is delivered.
	program = filepath.Join(dir, "gpumeter")
	build := exec.Command("go", "build", "-o", program, "github.com/gpumeter/gpumeter/cmd/gpumeter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build the program: %w\n%s", err, out))
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestScenarios runs every file of this folder, two at a time on two cores, each
// in a database, a stream and a time of its own.
func TestScenarios(t *testing.T) {
	list, err := catalogue(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.elsewhere && s.pending != "" {
			t.Run(s.id, func(t *testing.T) { t.Skip("pending: " + s.pending) })
		}
	}
	results := &results{of: map[string]string{}}
	shared := startShared(t)
	// The scenarios run when this function has returned.
	t.Cleanup(func() { results.finish(t, list) })
	testscript.RunT(runner{t, results}, testscript.Params{
		Dir: ".", Setup: func(e *testscript.Env) error { return newWorld(e, shared) }, Cmds: commands, RequireUniqueNames: true,
	})
}

// runner is a test that notes how each of its scenarios ended.
type runner struct {
	*testing.T
	results *results
}

func (r runner) Run(name string, f func(testscript.T)) {
	r.T.Run(name, func(t *testing.T) {
		t.Cleanup(func() { r.results.note(name, t.Failed(), t.Skipped()) })
		f(runner{t, r.results})
	})
}

func (r runner) Verbose() bool { return testing.Verbose() }
