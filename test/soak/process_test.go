package soak_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait for something that must happen. It is only used up
// when a test fails, or when the machine is very busy.
const patience = 5 * time.Minute

// process is one part of the pipeline, which is started again and again. Its
// methods are for one fault at a time: whoever uses one holds mu.
type process struct {
	name string
	args []string
	env  []string
	log  string // file that all its lives write to

	mu      sync.Mutex
	cmd     *exec.Cmd
	out     *output
	done    chan struct{}
	starts  int
	stopped bool // by SIGSTOP
}

// output watches for the ready line and passes everything on to a file.
type output struct {
	mu    sync.Mutex
	file  *os.File
	head  bytes.Buffer // of this life, until it is ready
	ready bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ready {
		o.head.Write(p)
		if bytes.Contains(o.head.Bytes(), []byte("gpumeter is ready")) {
			o.ready = true
			o.head = bytes.Buffer{}
		}
	}
	return o.file.Write(p)
}

func (o *output) isReady() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ready
}

// start starts a life of the process and does not wait for it to be ready.
func (p *process) start(env ...string) error {
	if p.alive() {
		return fmt.Errorf("%s runs already", p.name)
	}
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	p.starts++
	fmt.Fprintf(file, "--- %s start %d %v\n", time.Now().UTC().Format(time.RFC3339Nano), p.starts, env)
	cmd, done := exec.Command(program, p.args...), make(chan struct{})
	p.cmd, p.out, p.done, p.stopped = cmd, &output{file: file}, done, false
	cmd.Env = append(append(append(os.Environ(), p.env...), "GPUMETER_ENGINE_LIB="+library), env...)
	cmd.Stdout, cmd.Stderr = p.out, p.out
	// A group of its own: Ctrl-C is for the test, which ends the rest in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		file.Close()
		close(done)
		return err
	}
	reaper.note("+", "pid", cmd.Process.Pid)
	go func() {
		_ = cmd.Wait()
		reaper.note("-", "pid", cmd.Process.Pid)
		fmt.Fprintf(file, "--- %s ended: %v\n", time.Now().UTC().Format(time.RFC3339Nano), cmd.ProcessState)
		file.Close()
		close(done)
	}()
	return nil
}

func (p *process) alive() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// awaitReady waits for the ready line of the present life.
func (p *process) awaitReady() error {
	return await(patience, p.name+" is ready", func() error {
		switch {
		case p.out.isReady():
			return nil
		case !p.alive():
			return final{fmt.Errorf("it ended: %v", p.cmd.ProcessState)}
		}
		return errors.New("not yet")
	})
}

// family is the process and its children: the engine runs in one.
func (p *process) family() []int {
	return append([]int{p.cmd.Process.Pid}, children(p.cmd.Process.Pid)...)
}

func (p *process) signal(s syscall.Signal) {
	if p.alive() {
		for _, pid := range p.family() {
			_ = syscall.Kill(pid, s)
		}
	}
}

// kill ends the process at once, as a machine that loses power would.
func (p *process) kill() {
	if p.alive() {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// end asks the process to end and waits until it has.
func (p *process) end() error {
	if !p.alive() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s does not stop within %v", p.name, patience)
	}
}

func (p *process) restart() error {
	if err := p.start(); err != nil {
		return err
	}
	return p.awaitReady()
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

// final is an error that waiting does not cure.
type final struct{ error }

// await waits until f returns nil, and says why it did not.
func await(limit time.Duration, what string, f func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		var end final
		switch {
		case err == nil:
			return nil
		case errors.As(err, &end):
			return fmt.Errorf("waiting until %s: %w", what, err)
		case time.Now().After(deadline):
			return fmt.Errorf("waited %v until %s: %w", limit, what, err)
		}
	}
}
