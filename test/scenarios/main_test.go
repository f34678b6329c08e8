package scenarios_test

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

var update = flag.Bool("update", false, "write docs/exactness.md anew")

func TestMain(m *testing.M) { process.Main(m) }

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
