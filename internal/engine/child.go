package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ChildCommand is the name of the hidden subcommand that calls [Main].
const ChildCommand = "engine-child"

// orphanGrace is how long a child whose parent is gone may take to end by
// itself before it is killed.
const orphanGrace = 20 * time.Second

// Main is the child process: it loads the library named by args[0] and runs
// ClickHouse with the configuration file args[1] until standard input ends. The result is the exit code: 0, 1 when
// ClickHouse ended with an error, 2 when it could not be loaded.
//
// It works with and without cgo. ClickHouse keeps the calling thread, which is
// locked, and starts its own beside it; Go code never runs on those. Nothing
// of ClickHouse is unloaded: after Main the process has to exit.
func Main(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "engine: usage: "+ChildCommand+" LIBRARY CONFIG-FILE (started by the engine itself)")
		return 2
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// A broken connection must be an error, not the end.
	signal.Ignore(syscall.SIGPIPE)
	// When memory runs out, this process is to go, not the pipeline: it can
	// be started again. Does nothing where the file does not exist.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	go endWithParent()

	lib, err := purego.Dlopen(args[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine: load library:", err)
		return 2
	}
	cmdline, err := purego.Dlsym(lib, "chdb_query_cmdline")
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine: this is not the ClickHouse library:", err)
		return 2
	}

	input, err := takeInput()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		return 2
	}
	argv := cStrings(clickhouseArgs(args[1], input))
	result, _, _ := purego.SyscallN(cmdline, uintptr(len(argv)-1), uintptr(unsafe.Pointer(&argv[0])))
	runtime.KeepAlive(argv)
	if result == 0 {
		fmt.Fprintln(os.Stderr, "engine: ClickHouse ended without a result")
		return 1
	}
	return 0
}

// clickhouseArgs starts the listeners and then blocks in a statement that
// reads the input, which holds nothing and ends when the parent says so.
func clickhouseArgs(config string, input uintptr) []string {
	return []string{
		"clickhouse",
		"--config-file=" + config,
		"--query=SYSTEM START LISTEN TCP; SYSTEM START LISTEN HTTP; " +
			fmt.Sprintf("SELECT count() FROM file('/dev/fd/%d', 'LineAsString') FORMAT Null", input),
		"--interactive", "--disable_suggestion", "--history_file=/dev/null",
		"--progress=off", "--progress-table=off",
	}
}

// takeInput moves standard input elsewhere, puts a terminal in its place, and
// returns where the input is now.
//
// The terminal is there for one reason. Without one, this version of
// ClickHouse takes itself for a batch job and ends the whole process when any
// thread of a listener fails (KillingErrorHandler), and such a thread fails
// whenever a client goes away at the wrong moment
// (https://github.com/ClickHouse/ClickHouse/issues/115666, mended after 26.7).
// With one it takes itself for a session of somebody who typed --interactive:
// it runs the statements, and a failed connection stays a failed connection.
// After the last statement, or a failed one, it would wait for somebody to
// type. So we hang up as soon as it has greeted, which is after it has looked
// at its input and decided: then there is nothing to wait for, and it ends.
//
// A machine without pseudo-terminals gets the old behaviour: the engine works,
// dies at times, and is started again.
func takeInput() (input uintptr, err error) {
	in, err := syscall.Dup(0)
	if err != nil {
		return 0, fmt.Errorf("move standard input: %w", err)
	}
	greeting, said, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	hangUp, err := terminalAsInput(said)
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine: no terminal to be had, the engine will die when clients do:", err)
		return uintptr(in), nil
	}
	go func() {
		_, _ = greeting.Read(make([]byte, 1))
		hangUp()
		_, _ = io.Copy(io.Discard, greeting)
	}()
	return uintptr(in), nil
}

// terminalAsInput makes standard input one end of a pseudo-terminal, and
// standard output the given file. It uses the C library, which ClickHouse has brought along, since the system calls
// differ between systems.
func terminalAsInput(out *os.File) (hangUp func(), err error) {
	call := func(name string, args ...uintptr) (uintptr, error) {
		f, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			return 0, err
		}
		r, _, errno := purego.SyscallN(f, args...)
		if int32(r) == -1 {
			return 0, fmt.Errorf("%s: %w", name, syscall.Errno(errno))
		}
		return r, nil
	}
	master, err := call("posix_openpt", uintptr(syscall.O_RDWR|syscall.O_NOCTTY))
	if err != nil {
		return nil, err
	}
	hangUp = func() { _ = syscall.Close(int(int32(master))) }
	defer func() {
		if err != nil {
			hangUp()
		}
	}()
	for _, name := range []string{"grantpt", "unlockpt"} {
		if _, err = call(name, master); err != nil {
			return nil, err
		}
	}
	var name string
	ptsname, err := purego.Dlsym(purego.RTLD_DEFAULT, "ptsname")
	if err != nil {
		return nil, err
	}
	var ptsnameGo func(fd int32) string
	purego.RegisterFunc(&ptsnameGo, ptsname)
	if name = ptsnameGo(int32(master)); name == "" {
		return nil, errors.New("ptsname: no name")
	}
	slave, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if _, err = call("dup2", out.Fd(), 1); err != nil {
		return nil, err
	}
	if _, err = call("dup2", uintptr(slave), 0); err != nil {
		return nil, err
	}
	return hangUp, syscall.Close(slave)
}

// cStrings returns a null-terminated array of null-terminated strings.
func cStrings(ss []string) []*byte {
	out := make([]*byte, len(ss)+1)
	for i, s := range ss {
		b := append([]byte(s), 0)
		out[i] = &b[0]
	}
	return out
}

// endWithParent is the second belt. The first is standard input: the parent
// holds the other end of the pipe, so however the parent ends, ClickHouse sees
// the end of its input and stops cleanly. That does not help when ClickHouse
// itself hangs, so a child that outlives its parent for too long kills itself.
//
// Pdeathsig would do this at once and without a clean stop. It also fires when
// the parent's thread that forked ends, which in a Go program means to keep a
// thread locked for the whole life, and it exists on Linux only.
func endWithParent() {
	parent := os.Getppid()
	for os.Getppid() == parent {
		time.Sleep(time.Second)
	}
	time.Sleep(orphanGrace)
	fmt.Fprintln(os.Stderr, "engine: the parent is gone and ClickHouse has not stopped; killing it")
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
