// Package faults_test proves that figures stay exact when parts of the pipeline
// die or hang. Nothing is imitated: the tests build the program, start its parts
// as processes, and send them SIGKILL and SIGSTOP, most of the time at a named
// point of their work (see internal/app/halt.go). What should come out is summed
// up from the list of published events, without any code of the pipeline.
package faults_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpumeter/gpumeter/internal/engine"
)

var (
	program string         // the binary under test
	library string         // of the embedded ClickHouse
	reaper  io.WriteCloser // told about every process that starts and ends
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
	dir, err := os.MkdirTemp("", "gpumeter-faults-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if library, err = engine.Find(""); err != nil {
		return fail(err)
	}
	// Without the race detector, also when the tests run with it: these tests are
	// about processes, and it would make each of them several times slower.
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

// startReaper starts a process that outlives this one by a moment. A test binary
// that is killed, or that panics at its time limit, runs no cleanup, and stopped
// processes would stay for ever.
func startReaper() (stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, reaperMode)
	cmd.Stderr = os.Stderr
	// Ctrl-C must not take it along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if reaper, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		reaper.Close()
		_ = cmd.Wait()
	}, nil
}

// reap reads "+pid" and "-pid" lines, and at the end kills who is left.
func reap(in io.Reader) {
	alive := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()[1:]); err == nil {
			alive[pid] = lines.Text()[0] == '+'
		}
	}
	for pid, is := range alive {
		if is {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// children lists the direct children of a process. Where there is no /proc it
// lists none.
func children(pid int) (list []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// pid (name) state ppid ..., and the name may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}
