// Package engine runs an embedded ClickHouse: it finds the library, starts it
// in a child process, keeps that alive and stops it.
//
//	Start ── lock Dir, write config.xml ──> child: own binary, engine-child
//	  │        stdin: a pipe that we hold      └─ loads the library, serves
//	  │                                           TCP and HTTP on 127.0.0.1
//	  └─ supervisor: wait for exit, back off, start on the same ports
//
// A child, because a crash of ClickHouse, or its running out of memory, must
// not take the pipeline with it. After one it is back on the same ports in
// about half a second, with all rows that were acknowledged by a table with
// fsync_after_insert; clients have to reconnect and repeat the rest.
//
// The child ends when its standard input is closed, so it never outlives us by
// more than a moment, not even after SIGKILL. While either of the two lives,
// no other engine can open the folder.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say what to start. Only Dir is required.
type Options struct {
	// Dir is the folder of this engine; it is made when it does not exist.
	Dir string
	// Library is the path of libchdb.so; empty: see [Find].
	Library string
	// TCPPort (native protocol) and HTTPPort on 127.0.0.1; 0 picks a free one.
	// A picked port stays the same for the life of the Engine, not beyond.
	TCPPort, HTTPPort int
	// Command is the argv that makes this program call [Main] with the
	// arguments appended to it. Default: the own executable, engine-child.
	Command []string
	// MaxMemory bounds what the server allocates, in bytes. Default: half of
	// the memory that the machine, or the container, has.
	MaxMemory int64
	// Logger is told about starts, deaths and stops. Default: nobody.
	Logger *slog.Logger
	// OnState is told about every change, in order, from one goroutine at a
	// time. It must return soon and must not call Stop.
	OnState func(State)

	pace pace
}

// minMemory is less than an idle engine needs to run queries at all.
const minMemory = 256 << 20

// Validate names every field that cannot be right.
func (o Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("Dir is empty"))
	}
	for _, p := range []struct {
		name string
		port int
	}{{"TCPPort", o.TCPPort}, {"HTTPPort", o.HTTPPort}} {
		if p.port < 0 || p.port > 65535 {
			errs = append(errs, fmt.Errorf("%s %d is not a port (0 picks one)", p.name, p.port))
		}
	}
	if o.TCPPort != 0 && o.TCPPort == o.HTTPPort {
		errs = append(errs, fmt.Errorf("TCPPort and HTTPPort are both %d", o.TCPPort))
	}
	if o.MaxMemory < 0 || o.MaxMemory > 0 && o.MaxMemory < minMemory {
		errs = append(errs, fmt.Errorf("MaxMemory %d is less than %d bytes (0 takes half of the memory)", o.MaxMemory, minMemory))
	}
	if len(errs) > 0 {
		return fmt.Errorf("engine options: %w", errors.Join(errs...))
	}
	return nil
}

// Phase is what the engine is doing.
type Phase string

const (
	Starting Phase = "starting" // a child runs and does not answer yet
	Running  Phase = "running"  // it answers
	Down     Phase = "down"     // it died, or has stopped answering; it will be started again
	Stopped  Phase = "stopped"  // after Stop; final
)

// State is a phase together with its history.
type State struct {
	Phase    Phase
	PID      int       // of the child; 0 when there is none
	Restarts int       // children started after the first one
	Err      error     // why the last child died; nil when none has
	Since    time.Time // start of the phase
}

// pace holds the times of supervision. Tests shorten some.
type pace struct {
	ready      time.Duration // how long a child may take to answer (loading many parts takes long)
	pingEvery  time.Duration // how often a running child is asked
	pingWait   time.Duration // how long an answer may take
	pingFails  int           // that many missing answers in a row: not ready
	pingKills  int           // that many: it hangs, kill it
	backoffMin time.Duration // before the first restart
	backoffMax time.Duration // doubling up to here
	stable     time.Duration // after running that long, back-off begins anew
}

func (p pace) withDefaults() pace {
	set := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	set(&p.ready, 5*time.Minute)
	set(&p.pingEvery, 5*time.Second)
	set(&p.pingWait, 5*time.Second)
	set(&p.backoffMin, 50*time.Millisecond)
	set(&p.backoffMax, 10*time.Second)
	set(&p.stable, 30*time.Second)
	if p.pingFails == 0 {
		p.pingFails = 2
	}
	if p.pingKills == 0 {
		p.pingKills = 12
	}
	return p
}

// Engine is a running embedded ClickHouse. All methods may be called from any
// goroutine.
type Engine struct {
	o      Options // defaults filled in
	files  layout
	lib    string
	log    *slog.Logger
	client *http.Client
	lock   *os.File

	halt chan struct{} // closed when Stop begins
	done chan struct{} // closed when the supervisor has ended

	stopOnce sync.Once
	stopErr  error

	emit  sync.Mutex // keeps OnState calls in order; taken before mu
	mu    sync.Mutex
	state State
	child *child
}

// Start locks Dir, starts the engine and returns when it answers. The context
// bounds the start only. When the first child dies before it answers, that is
// an error with its last words; from then on it is restarted.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.pace = o.pace.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Command) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("engine: find own executable: %w", err)
		}
		o.Command = []string{exe, ChildCommand}
	}
	lib, err := Find(o.Library)
	if err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	files := layout{o.Dir}
	lock, err := acquireLock(ctx, files.lock())
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}

	e := &Engine{
		o: o, files: files, lib: lib, lock: lock,
		log: o.Logger.With("component", "engine"),
		// Never through a proxy, and no connection kept to a child that dies.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		halt:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	c, err := e.startFirst(ctx, o.TCPPort == 0, o.HTTPPort == 0)
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("engine: start: %w", err)
	}
	go e.supervise(c)
	return e, nil
}

// startFirst picks ports and starts the first child. Between picking a port
// and the child's taking it, somebody else can take it: then others are tried.
func (e *Engine) startFirst(ctx context.Context, pickTCP, pickHTTP bool) (*child, error) {
	for attempt := 1; ; attempt++ {
		if err := e.pickPorts(pickTCP, pickHTTP); err != nil {
			return nil, err
		}
		if err := writeConfig(e.files, e.o); err != nil {
			return nil, err
		}
		c, err := e.startChild()
		if err != nil {
			return nil, err
		}
		if err = e.waitReady(ctx, c); err == nil {
			return c, nil
		}
		c.kill()
		given := !pickTCP && strings.Contains(err.Error(), e.TCPAddr()) || !pickHTTP && strings.Contains(err.Error(), e.HTTPAddr())
		if ctx.Err() != nil || attempt == 5 || given || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

// setState changes the state and tells OnState.
func (e *Engine) setState(change func(*State)) {
	e.emit.Lock()
	defer e.emit.Unlock()
	e.mu.Lock()
	before := e.state.Phase
	change(&e.state)
	if e.state.Phase != before {
		e.state.Since = time.Now()
	}
	s := e.state
	e.mu.Unlock()
	if e.o.OnState != nil {
		e.o.OnState(s)
	}
}

// State returns what the engine is doing now.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// TCPAddr is host:port of the native protocol.
func (e *Engine) TCPAddr() string { return "127.0.0.1:" + strconv.Itoa(e.o.TCPPort) }

// HTTPAddr is host:port of the HTTP protocol.
func (e *Engine) HTTPAddr() string { return "127.0.0.1:" + strconv.Itoa(e.o.HTTPPort) }

// Restarts counts the children started after the first one.
func (e *Engine) Restarts() int { return e.State().Restarts }

// PID is the child's process id, 0 when there is none at the moment.
func (e *Engine) PID() int { return e.State().PID }

// Ready is nil when the engine answers, otherwise it says why it does not. A
// crash is noticed at once; an engine that hangs, after two missed answers.
func (e *Engine) Ready() error {
	s := e.State()
	if s.Phase == Running {
		return nil
	}
	if s.Err != nil {
		return fmt.Errorf("engine is %s: %w", s.Phase, s.Err)
	}
	return fmt.Errorf("engine is %s", s.Phase)
}

// defaultStop bounds Stop when its context has no deadline.
const defaultStop = 30 * time.Second

// Stop ends the engine: its input is closed and it stops cleanly. Close the
// clients first: it waits for their connections, up to a second for idle ones
// of the native port and five for those of the HTTP port. When three
// quarters of the time until the context's deadline are gone (30 s when it has
// none), it gets SIGTERM, and SIGKILL when nine tenths are gone or the context
// is cancelled: then Stop returns an error, and what was acknowledged is still
// there at the next start. When Stop returns the child is gone and the folder
// is free, always. Further calls wait for the first and return the same.
func (e *Engine) Stop(ctx context.Context) error {
	e.stopOnce.Do(func() { e.stopErr = e.stop(ctx) })
	return e.stopErr
}

func (e *Engine) stop(ctx context.Context) error {
	began := time.Now()
	close(e.halt)
	e.closeInput()

	left := defaultStop
	if d, ok := ctx.Deadline(); ok {
		left = max(time.Until(d), 0)
	}
	soft := time.NewTimer(left * 3 / 4)
	hard := time.NewTimer(left * 9 / 10)
	defer soft.Stop()
	defer hard.Stop()
	cancelled := ctx.Done()
	var forced error
	for running := true; running; {
		select {
		case <-e.done:
			running = false
		case <-soft.C:
			e.log.Warn("engine does not stop, sending SIGTERM", "pid", e.PID())
			forced = errors.New("engine did not stop in time and was terminated")
			e.signal(syscall.SIGTERM)
		case <-hard.C:
			forced = errors.New("engine did not stop in time and was killed")
			e.signal(syscall.SIGKILL)
		case <-cancelled:
			cancelled = nil
			forced = fmt.Errorf("engine was killed: %w", context.Cause(ctx))
			e.signal(syscall.SIGKILL)
		}
	}
	err := e.lock.Close()
	e.setState(func(s *State) { s.Phase, s.PID = Stopped, 0 })
	e.log.Info("engine stopped", "took", time.Since(began), "restarts", e.Restarts())
	return errors.Join(forced, err)
}

func (e *Engine) closeInput() {
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	if c != nil {
		_ = c.stdin.Close()
	}
}

func (e *Engine) signal(sig syscall.Signal) {
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	if c != nil {
		_ = c.cmd.Process.Signal(sig)
	}
}

// pickPorts fills in the ports that are to be picked.
//
// They are taken from below the range from which systems take the ports of
// outgoing connections. In that range, a client that dials a port on this
// machine while the engine restarts can be given that very port as its own: it
// then talks to itself, and the engine cannot have its port back.
func (e *Engine) pickPorts(tcp, http bool) error {
	pick := func(not int) (int, error) {
		var last error
		for range 100 {
			port := 20000 + rand.IntN(12000)
			if port == not {
				continue
			}
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
			if err == nil {
				return port, l.Close()
			}
			last = err
		}
		return 0, fmt.Errorf("find a free port: %w", last)
	}
	var err error
	if tcp {
		if e.o.TCPPort, err = pick(e.o.HTTPPort); err != nil {
			return err
		}
	}
	if http {
		if e.o.HTTPPort, err = pick(e.o.TCPPort); err != nil {
			return err
		}
	}
	return nil
}
