package process

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// Process is one part of the pipeline, which has one life after the other. It is
// for one user at a time.
type Process struct {
	Name     string
	Args     []string      // of the program
	Env      []string      // beside the environment of the test
	Log      string        // file that all its lives write to
	Patience time.Duration // bounds the waits until it is ready, and until it has ended

	cmd  *exec.Cmd
	from int64         // where in the log its present life begins
	done chan struct{} // closed when that has ended
}

// Start starts a life and returns when the program says that it is ready.
func (p *Process) Start() error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.AwaitReady()
}

// Launch starts a life and does not wait for it to be ready. The environment is
// for this life only.
func (p *Process) Launch(env ...string) error {
	if p.Alive() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "--- %s start %v\n", time.Now().UTC().Format(time.RFC3339Nano), env)
	if p.from, err = log.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, log.Close())
	}
	cmd, done := Command(p.Args...), make(chan struct{})
	cmd.Env = append(append(cmd.Env, p.Env...), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C is for the test, which ends the rest in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	p.cmd, p.done = cmd, done
	note("+", "pid", p.Pid())
	go func() {
		_ = cmd.Wait()
		note("-", "pid", cmd.Process.Pid)
		fmt.Fprintf(log, "--- %s ended: %v\n", time.Now().UTC().Format(time.RFC3339Nano), cmd.ProcessState)
		log.Close()
		close(done)
	}()
	return nil
}

// AwaitReady waits for the ready line of the present life.
func (p *Process) AwaitReady() error {
	return Await(p.Patience, p.Name+" is ready", func() error {
		alive := p.Alive() // first, so that nothing is said afterwards
		switch {
		case p.Ready() != "":
			return nil
		case !alive:
			return Final{fmt.Errorf("it ended:\n%s", p.Said())}
		}
		return errors.New("it does not say so")
	})
}

var readyLine = regexp.MustCompile(`(?m)^gpumeter is ready:.*\n`)

// Ready is the line in which the present life says that it is ready, and where it
// answers. It is empty before.
func (p *Process) Ready() string { return readyLine.FindString(p.read()) }

// Said is what the present life has said, or the end of that.
func (p *Process) Said() string {
	const most = 6000
	text := p.read()
	if len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	return text
}

func (p *Process) read() string {
	log, err := os.Open(p.Log)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	text, err := io.ReadAll(io.NewSectionReader(log, p.from, 1<<40))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Pid is that of the present life.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Alive says whether the process was started and has not ended.
func (p *Process) Alive() bool {
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

// Signal signals the process and its children.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Alive() {
		return fmt.Errorf("%v to %s: it does not run", s, p.Name)
	}
	if err := signal(p.Pid(), s); err != nil {
		return fmt.Errorf("%v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Kill ends the process and its children at once, as a machine that loses power
// would.
func (p *Process) Kill() {
	if p.Alive() {
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// Stop asks the process to end, and waits until it has.
func (p *Process) Stop() error {
	if !p.Alive() {
		return fmt.Errorf("%s was to stop, and does not run", p.Name)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(p.Patience):
		return fmt.Errorf("%s does not stop within %v\n%s", p.Name, p.Patience, p.Said())
	}
}

// Restart stops the process and starts it again.
func (p *Process) Restart() error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.Start()
}

// Final is an error that waiting does not mend.
type Final struct{ Err error }

func (f Final) Error() string { return f.Err.Error() }
func (f Final) Unwrap() error { return f.Err }

// Await waits until f returns nil or a [Final] error, and says why it did not.
func Await(limit time.Duration, what string, f func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(25 * time.Millisecond) {
		err := f()
		var end Final
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

// FreePorts picks ports below the range that systems take the ports of outgoing
// connections from: one of that range could be taken by a client while the server
// that owns it is down.
func FreePorts(n int) (ports []string, err error) {
	for range 100 * n {
		port := strconv.Itoa(15_000 + rand.IntN(16_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			defer l.Close() // held until all are picked, for they have to differ
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}
