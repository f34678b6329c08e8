package process

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
	"sync"
	"syscall"
)

// reaper is told about what has to be gone at the end. It is a process that
// outlives this one by a moment: a test binary that is killed, or that panics at
// its time limit, runs no cleanup, and stopped processes and mounts would stay for
// ever.
var reaper struct {
	mu sync.Mutex
	in io.WriteCloser
}

const reaperMode = "reap"

// mntDetach is MNT_DETACH of Linux: gone from the tree at once, and really gone
// when the last user is.
const mntDetach = 2

func startReaper() (stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, reaperMode)
	cmd.Stderr = os.Stderr
	// Ctrl-C must not take it along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if reaper.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		reaper.in.Close()
		_ = cmd.Wait()
	}, nil
}

func note(sign, kind string, what any) {
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	fmt.Fprintf(reaper.in, "%s%s %v\n", sign, kind, what)
}

// Mounted says that a file system was mounted at a path, which the reaper takes
// away unless [Unmount] did.
func Mounted(path string) { note("+", "mount", path) }

// Unmount takes away a file system, also when somebody still uses it.
func Unmount(path string) error {
	if err := syscall.Unmount(path, mntDetach); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	note("-", "mount", path)
	return nil
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
			_ = signal(pid, syscall.SIGKILL)
		}
	}
	for what, is := range left {
		if path, ok := strings.CutPrefix(what, "mount "); ok && is {
			_ = syscall.Unmount(path, mntDetach)
		}
	}
}

// signal goes to a process and its children: the engine runs in one.
func signal(pid int, s syscall.Signal) (err error) {
	for _, id := range append([]int{pid}, Children(pid)...) {
		if e := syscall.Kill(id, s); e != nil {
			err = e
		}
	}
	return err
}

// Children lists the direct children of a process. Where there is no /proc it
// lists none.
func Children(pid int) (list []int) {
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
