// Package soak_test lets the pipeline run for a long time under random load and
// random faults, and compares its reports with a model that is summed up from the
// published events alone. Everything that is random is drawn from one seed.
//
// Without SOAK in the environment it is a short run of fixed seeds. SOAK=10m is
// how long it storms, SEED=n what it storms with; see `make soak`.
package soak_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpumeter/gpumeter/internal/engine"
)

var (
	program string  // the binary under test
	library string  // of the embedded ClickHouse
	reaper  *ledger // told about what has to be gone at the end
)

const reaperMode = "reap"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == reaperMode {
		reap(os.Stdin)
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gpumeter-soak-bin-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if library, err = engine.Find(""); err != nil {
		return fail(err)
	}
	// Without the race detector, also when the tests run with it: this test is
	// about processes.
	program = filepath.Join(dir, "gpumeter")
	build := exec.Command("go", "build", "-o", program, "github.com/gpumeter/gpumeter/cmd/gpumeter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build the program: %w\n%s", err, out))
	}
	stop, err := startReaper()
	if err != nil {
		return fail(err)
	}
	defer stop()
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// ledger is the way to the reaper, a process that outlives this one by a moment:
// a test binary that is killed, or that panics at its time limit, runs no cleanup,
// and stopped processes and mounts would stay for ever.
type ledger struct {
	mu sync.Mutex
	w  io.WriteCloser
}

func (l *ledger) note(sign, kind string, what any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "%s%s %v\n", sign, kind, what)
}

func startReaper() (stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, reaperMode)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not take it along
	w, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	reaper = &ledger{w: w}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		w.Close()
		_ = cmd.Wait()
	}, nil
}

// reap reads lines such as "+pid 12", "-pid 12" and "+mount /tmp/x", and at the
// end removes what is left: processes first, for they hold the mounts.
func reap(in io.Reader) {
	left := map[string]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line := lines.Text()
		left[line[1:]] = line[0] == '+'
	}
	for what, is := range left {
		var pid int
		if n, _ := fmt.Sscanf(what, "pid %d", &pid); is && n == 1 {
			for _, p := range append([]int{pid}, children(pid)...) {
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
		}
	}
	for what, is := range left {
		if path, ok := strings.CutPrefix(what, "mount "); ok && is {
			_ = syscall.Unmount(path, mntDetach)
		}
	}
}
