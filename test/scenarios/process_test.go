package scenarios_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for something that must come. A scenario uses it up
// only when it fails.
const patience = 2 * time.Minute

// process is one running part of the program.
type process struct {
	name string
	args []string // as started, for a restart
	env  []string
	cmd  *exec.Cmd
	out  output
	done chan struct{}
	http string // where it answers; empty when it does not
	nats string
}

// output keeps what a process says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

var readyLine = regexp.MustCompile(`(?m)^gpumeter is ready:.*$`)

// launch starts the program and returns when it says that it is ready.
func launch(name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, args: args, env: env, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	// A test that dies must not leave processes behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, p.awaitReady()
}

func (p *process) awaitReady() error {
	return within(p.name+" is ready", func() error {
		line := readyLine.FindString(p.out.String())
		if line == "" {
			if !p.alive() {
				return final{fmt.Errorf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.out.String())}
			}
			return errors.New("it does not say so")
		}
		fields := strings.Fields(line)
		for i, f := range fields {
			switch {
			case f == "nats":
				p.nats = fields[i+1]
			case strings.HasPrefix(f, "http://") && fields[i-1] == "ready:":
				p.http = f
			}
		}
		return nil
	})
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once, and an engine's child with it.
func (p *process) kill() {
	for _, pid := range append([]int{p.cmd.Process.Pid}, children(p.cmd.Process.Pid)...) {
		if p.alive() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	<-p.done
}

// stop asks the process to end, and waits until it has.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s did not stop within %v\n%s", p.name, patience, p.out.String())
	}
}

// signal goes to the process and to the child that an engine has.
func (p *process) signal(s syscall.Signal) error {
	for _, pid := range append(children(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		if err := syscall.Kill(pid, s); err != nil {
			return fmt.Errorf("%v to %s: %w", s, p.name, err)
		}
	}
	return nil
}

// children lists the direct children of a process.
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

// final is an error that waiting does not mend.
type final struct{ error }

// within waits until f returns nil, and says why it did not.
func within(what string, f func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		var end final
		if errors.As(err, &end) || time.Now().After(deadline) {
			return fmt.Errorf("waited in vain until %s: %w", what, err)
		}
	}
}
