package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// supervise lives as long as the engine and owns the children.
func (e *Engine) supervise(c *child) {
	defer close(e.done)
	// The back-off ends early when Stop begins.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-e.halt:
		case <-ctx.Done():
		}
		cancel()
	}()

	wait := e.o.pace.backoffMin
	for {
		// A child that answers: until it dies, hangs, or Stop begins. Stop
		// closes its input, so its exit is all there is to wait for.
		if c != nil {
			began := time.Now()
			err := e.watch(ctx, c)
			if ctx.Err() != nil {
				<-c.exited
				return
			}
			if time.Since(began) >= e.o.pace.stable {
				wait = e.o.pace.backoffMin
			}
			e.died(err, wait)
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, e.o.pace.backoffMax)

		var err error
		if c, err = e.startChild(); err == nil {
			if err = e.waitReady(ctx, c); err == nil {
				continue
			}
			if ctx.Err() != nil {
				<-c.exited
				return
			}
			c.kill()
		}
		if ctx.Err() != nil {
			return
		}
		e.died(err, wait)
		c = nil
	}
}

// watch returns why the child is to be replaced; it is dead by then. It
// returns early when the context ends.
func (e *Engine) watch(ctx context.Context, c *child) error {
	tick := time.NewTicker(e.o.pace.pingEvery)
	defer tick.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.exited:
			return c.death()
		case <-tick.C:
		}
		pctx, cancel := context.WithTimeout(ctx, e.o.pace.pingWait)
		err := e.ping(pctx)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if missed >= e.o.pace.pingFails {
				e.log.Info("engine answers again", "pid", c.pid())
				e.setState(func(s *State) { s.Phase = Running })
			}
			missed = 0
		default:
			missed++
			if missed == e.o.pace.pingFails {
				e.log.Warn("engine does not answer", "pid", c.pid(), "error", err)
				e.setState(func(s *State) { s.Phase, s.Err = Down, fmt.Errorf("engine does not answer: %w", err) })
			}
			if missed >= e.o.pace.pingKills {
				c.kill()
				return fmt.Errorf("killed, because it had not answered %d times in a row: %w", missed, err)
			}
		}
	}
}

// died reports the end of a child.
func (e *Engine) died(err error, wait time.Duration) {
	e.log.Error("engine died, restarting", "error", err, "wait", wait)
	e.setState(func(s *State) { s.Phase, s.PID, s.Err = Down, 0, err })
}

// startChild starts one child and reports it as starting.
func (e *Engine) startChild() (*child, error) {
	argv := append([]string{}, e.o.Command...)
	argv = append(argv, e.lib, e.files.config())
	c, err := spawn(argv, e.files.dir, e.lock)
	if err != nil {
		return nil, err
	}
	// Stop may have begun in the meantime: then nobody else ends this child.
	e.mu.Lock()
	e.child = c
	e.mu.Unlock()
	select {
	case <-e.halt:
		_ = c.stdin.Close()
	default:
	}
	e.setState(func(s *State) {
		if s.Phase != "" {
			s.Restarts++
		}
		s.Phase, s.PID = Starting, c.pid()
	})
	return c, nil
}

// errPortTaken is wrapped when a port could not be listened on.
var errPortTaken = errors.New("port is taken")

// waitReady returns when the child answers, or with the reason why not. An
// answer alone proves nothing, since another program may sit on the port: the
// one who answers has to have our data path.
func (e *Engine) waitReady(ctx context.Context, c *child) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.o.pace.ready)
	defer cancel()
	for {
		err := e.ping(ctx)
		if err == nil {
			if err = e.isOurs(ctx); err == nil {
				e.log.Info("engine answers", "pid", c.pid(), "tcp", e.TCPAddr(), "http", e.HTTPAddr(), "took", time.Since(began))
				e.setState(func(s *State) { s.Phase = Running })
				return nil
			}
		}
		select {
		case <-c.exited:
			return c.death()
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", time.Since(began).Round(time.Millisecond), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ping asks whether the HTTP port is served. The native port is opened before
// it, in the same list of statements.
func (e *Engine) ping(ctx context.Context) error {
	body, err := e.get(ctx, "/ping")
	if err == nil && strings.TrimSpace(body) != "Ok." {
		err = fmt.Errorf("%s answers %q", e.HTTPAddr(), body)
	}
	return err
}

func (e *Engine) isOurs(ctx context.Context) error {
	const q = "SELECT value FROM system.server_settings WHERE name = 'path' FORMAT TSVRaw"
	body, err := e.get(ctx, "/?query="+url.QueryEscape(q))
	if err == nil && strings.TrimRight(body, "\n") != e.files.data() {
		err = fmt.Errorf("%w: %s is served by something else", errPortTaken, e.HTTPAddr())
	}
	return err
}

func (e *Engine) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.HTTPAddr()+path, nil)
	if err != nil {
		return "", err
	}
	res, err := e.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return string(body), err
}
