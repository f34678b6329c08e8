package engine

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is one process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	words  *lastWords
	exited chan struct{} // closed when it is gone, after err is set
	err    error
}

func spawn(argv []string, dir string, lock *os.File) (*child, error) {
	c := &child{words: &lastWords{}, exited: make(chan struct{})}
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Dir = dir
	// Only what is needed: ClickHouse looks into the environment for
	// credentials of clouds and others, and they are none of its business.
	// GORACE matters to tests only: with the race detector a process sleeps
	// for a second before it exits.
	c.cmd.Env = []string{"TZ=UTC", "HOME=" + dir, "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"}
	for _, name := range []string{"PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			c.cmd.Env = append(c.cmd.Env, name+"="+v)
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = c.words, c.words
	c.cmd.ExtraFiles = []*os.File{lock}
	// Ctrl-C on a terminal, and its hanging up, go to all who belong to it.
	// The engine has a session, and so a process group, of its own: it has to
	// serve until the pipeline has stopped.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.cmd.WaitDelay = 2 * time.Second
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill returns when the child is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// death says how a child that has exited did so.
func (c *child) death() error {
	words := c.words.String()
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	err := fmt.Errorf("process %d ended: %s", c.pid(), how)
	if words != "" {
		err = fmt.Errorf("process %d ended: %s; its last words: %s", c.pid(), how, words)
	}
	if strings.Contains(words, "Address already in use") || strings.Contains(words, "Cannot listen") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// lastWords keeps the beginning and the end of what is written to it: the
// first line of a crash report says what happened, the last one where.
type lastWords struct {
	mu   sync.Mutex
	head []byte
	tail []byte
	cut  bool
}

const wordsLimit = 2048 // of each

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	take := min(wordsLimit-len(w.head), n)
	w.head = append(w.head, p[:take]...)
	w.tail = append(w.tail, p[take:]...)
	if over := len(w.tail) - wordsLimit; over > 0 {
		w.cut = true
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	return n, nil
}

// String leaves out what tells nothing: stack frames without names, empty
// lines, and the line that every start begins with.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := string(w.head)
	if w.cut {
		s += "\n[...]\n"
	}
	s += string(w.tail)
	var kept []string
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.Contains(line, ". ? @ 0x") && !strings.HasPrefix(line, "Logging warning to ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
