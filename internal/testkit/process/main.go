// Package process runs the built program as processes that a test can kill, stop
// and start again, and cleans up after tests that die themselves. Tests only; a
// package that uses it has
//
//	func TestMain(m *testing.M) { process.Main(m) }
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpumeter/gpumeter/internal/engine"
)

var (
	program string // the binary under test
	library string // of the embedded ClickHouse
)

// Main is a whole TestMain: it builds the program once for all tests of a package.
func Main(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == reaperMode {
		reap(os.Stdin)
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "gpumeter-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if library, err = engine.Find(""); err != nil {
		return 0, err
	}
	// Without the race detector, as it is delivered, also when the tests run with
	// it: they are about processes, and each would be several times slower.
	program = filepath.Join(dir, "gpumeter")
	build := exec.Command("go", "build", "-o", program, "github.com/gpumeter/gpumeter/cmd/gpumeter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	stop, err := startReaper()
	if err != nil {
		return 0, err
	}
	defer stop()
	return m.Run(), nil
}

// Command is a command of the program with the environment of the test.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "GPUMETER_ENGINE_LIB="+library)
	return cmd
}
