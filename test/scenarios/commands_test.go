package scenarios_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
	"github.com/gpumeter/gpumeter/schema"
)

// commands are the words of a scenario; README.md explains each.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"pending":   cmdPending,
	"start":     cmdStart,
	"down":      on((*process.Process).Stop),
	"crash":     on(func(p *process.Process) error { p.Kill(); return nil }),
	"pause":     on(func(p *process.Process) error { return p.Signal(syscall.SIGSTOP) }),
	"resume":    on(func(p *process.Process) error { return p.Signal(syscall.SIGCONT) }),
	"restart":   on((*process.Process).Restart),
	"halted":    plain(0, cmdHalted),
	"release":   plain(0, func(_ *testscript.TestScript, w *world, _ []string) error { return w.file("go") }),
	"clock":     plain(1, func(_ *testscript.TestScript, w *world, args []string) error { return w.setClock(args[0]) }),
	"prices":    plain(1, cmdPrices),
	"events":    cmdEvents,
	"ingest":    plain(-1, cmdIngest),
	"publish":   plain(-1, cmdPublish),
	"settle":    plain(0, cmdSettle),
	"use":       plain(1, func(_ *testscript.TestScript, w *world, args []string) error { w.use = args[0]; return nil }),
	"report":    cmdAsk("report"),
	"explain":   cmdAsk("explain"),
	"statement": cmdAsk("statement"),
	"gpumeter":  cmdAsk(),
	"get":       cmdGet,
	"ready":     cmdReady,
	"query":     plain(-1, cmdQuery),
	"exporter":  plain(1, cmdExporter),
	"expect":    cmdExpect,
}

// plain is a command that cannot be negated and takes n words; -1 is any number,
// but at least one.
func plain(n int, f func(ts *testscript.TestScript, w *world, args []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		switch {
		case neg:
			ts.Fatalf("this command cannot be negated")
		case n >= 0 && len(args) != n:
			ts.Fatalf("%d words are needed and %d are here", n, len(args))
		case n < 0 && len(args) == 0:
			ts.Fatalf("a word is missing")
		}
		ts.Check(f(ts, worldOf(ts), args))
	}
}

// on is a command about one or more running parts; without a name, about up.
func on(f func(p *process.Process) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		if len(args) == 0 {
			args = []string{"up"}
		}
		w := worldOf(ts)
		for _, name := range args {
			p, err := w.running(name)
			ts.Check(err)
			ts.Check(f(p))
		}
	}
}

func cmdPending(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf(`pending "ISSUE: what is missing"`)
	}
	// The words of a script are not joined by double quotes.
	worldOf(ts).t.Skip("pending: " + strings.Trim(strings.Join(args, " "), `"`))
}

// cmdStart starts a part. "! start" is for one that must refuse to start; what it
// said is in stderr.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	w := worldOf(ts)
	p, err := w.start(args)
	ts.Setenv("DSN", w.dsn)
	if !neg {
		ts.Check(err)
		return
	}
	if err == nil {
		ts.Fatalf("%s started, and it should have refused to", p.Name)
	}
	if p == nil || p.Alive() {
		ts.Fatalf("%v", err)
	}
	fmt.Fprint(ts.Stderr(), p.Said())
}

func (w *world) file(name string) error {
	return os.WriteFile(filepath.Join(w.dir, name), nil, 0o644)
}

func cmdHalted(_ *testscript.TestScript, w *world, _ []string) error {
	return process.Await(patience, "a process halts", func() error {
		_, err := os.Stat(filepath.Join(w.dir, "halted"))
		return err
	})
}

// cmdPrices puts another price list in place and restarts who reads it.
func cmdPrices(ts *testscript.TestScript, w *world, args []string) error {
	if err := os.WriteFile(w.prices, []byte(ts.ReadFile(args[0])), 0o644); err != nil {
		return err
	}
	for name, p := range w.procs {
		if part, _, _ := strings.Cut(name, ":"); parts[part].prices && p.Alive() {
			if err := p.Restart(); err != nil {
				return err
			}
		}
	}
	return nil
}

// cmdEvents translates a file of events and has the program ingest it. By default
// no event may be rejected; accepted=, duplicate= and rejected= say more. "! events"
// is for events that the program cannot take now and must say so.
func cmdEvents(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("events FILE [accepted=N] [duplicate=N] [rejected=N]")
	}
	w := worldOf(ts)
	lines, err := notation(args[0], ts.ReadFile(args[0]))
	ts.Check(err)
	if !neg {
		ts.Check(w.ingest(ts, lines, args[1:]))
		return
	}
	if _, _, err := w.run(ts, lines, "ingest", "-", "--retry-for", "1s"); err == nil {
		ts.Fatalf("the program took the events, and it should have said that it cannot")
	}
}

func cmdIngest(ts *testscript.TestScript, w *world, args []string) error {
	return w.ingest(ts, []byte(ts.ReadFile(args[0])), args[1:])
}

func (w *world) ingest(ts *testscript.TestScript, lines []byte, counts []string) error {
	stdout, _, runErr := w.run(ts, lines, "ingest", "-")
	if len(counts) == 0 {
		counts = []string{"rejected=0"}
	}
	for _, c := range counts {
		key, value, _ := strings.Cut(c, "=")
		if _, err := strconv.Atoi(value); err != nil || key != "accepted" && key != "duplicate" && key != "rejected" {
			return fmt.Errorf("%q is none of accepted=N, duplicate=N, rejected=N", c)
		}
		if !strings.Contains(strings.Trim(stdout, "{}\n")+",", `"`+key+`":`+value+",") {
			return fmt.Errorf("the program says %s, expected %s", strings.TrimSpace(stdout), c)
		}
	}
	if strings.Contains(stdout, `"rejected":0`) && runErr != nil {
		return runErr
	}
	return nil
}

// cmdPublish puts one message on the stream, past everything that checks events
// before. FILE.events is human notation and becomes one
// batch, or with apart=yes a message of each event.
func cmdPublish(ts *testscript.TestScript, w *world, args []string) error {
	a := schema.Address{Tenant: schema.DefaultTenant, Source: "agent/n1", Kind: "usage"}
	contentType, id, times, apart := "", "", 1, false
	for _, word := range args[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "tenant":
			a.Tenant = value
		case "source":
			a.Source = value
		case "kind":
			a.Kind = value
		case "type":
			contentType = value
		case "id":
			id = value
		case "apart":
			apart = value == "yes"
		case "times":
			var err error
			if times, err = strconv.Atoi(value); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%q is none of tenant=, source=, kind=, type=, id=, times=, apart=", word)
		}
	}
	payloads := [][]byte{[]byte(ts.ReadFile(args[0]))}
	if strings.HasSuffix(args[0], ".events") {
		lines, err := notation(args[0], string(payloads[0]))
		if err != nil {
			return err
		}
		if payloads = bytes.Split(bytes.TrimSpace(lines), []byte("\n")); !apart {
			payloads = [][]byte{append(append([]byte{'['}, bytes.Join(payloads, []byte(","))...), ']')}
		}
	}
	nc, js, err := w.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	m := &nats.Msg{Subject: a.Subject(), Header: nats.Header{}}
	if contentType != "" {
		m.Header.Set("Content-Type", contentType)
	}
	if id != "" {
		m.Header.Set(nats.MsgIdHdr, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range times {
		for _, payload := range payloads {
			m.Data = bytes.TrimRight(payload, "\n")
			if _, err := js.PublishMsg(ctx, m); err != nil {
				return fmt.Errorf("publish to %s: %w", m.Subject, err)
			}
		}
	}
	return nil
}

func cmdSettle(_ *testscript.TestScript, w *world, _ []string) error {
	err := process.Await(patience, "everything is settled", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return w.settled(ctx)
	})
	if err != nil {
		for name, p := range w.procs {
			err = fmt.Errorf("%w\n%s said:\n%s", err, name, p.Said())
		}
	}
	return err
}

// run runs a command of the program to its end.
func (w *world) run(ts *testscript.TestScript, stdin []byte, args ...string) (stdout, stderr string, err error) {
	if w.use != "" && (args[0] == "report" || args[0] == "explain" || args[0] == "ingest" || args[0] == "statement" || args[0] == "quarantine") {
		url, err := w.server()
		if err != nil {
			return "", "", err
		}
		args = append(args, "--url", url)
	}
	cmd := process.Command(args...)
	var out, errs bytes.Buffer
	cmd.Env = append(cmd.Env, w.environ()...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), bytes.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stuck.Stop()
	err = cmd.Wait()
	fmt.Fprint(ts.Stdout(), out.String())
	fmt.Fprint(ts.Stderr(), errs.String())
	if err != nil {
		err = fmt.Errorf("gpumeter %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), errs.String(), err
}

// cmdAsk runs a command of the program; a report is asked for as JSON, which the
// lines with "expect" below it are about, unless the scenario says --format.
func cmdAsk(prefix ...string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		w := worldOf(ts)
		args = append(append([]string{}, prefix...), args...)
		if len(prefix) > 0 && !strings.Contains(strings.Join(args, " "), "--format") {
			args = append(args, "--format", "json")
		}
		stdout, _, err := w.run(ts, nil, args...)
		w.last = []byte(stdout)
		if neg {
			if err == nil {
				ts.Fatalf("gpumeter %s went well, and it should not", strings.Join(args, " "))
			}
			return
		}
		ts.Check(err)
	}
}

func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("get PATH")
	}
	w := worldOf(ts)
	code, body, err := w.fetch(args[0])
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), string(body))
	w.last = body
	if (code != http.StatusOK) != neg {
		ts.Fatalf("GET %s: %d\n%s", args[0], code, body)
	}
}

// cmdReady waits until the program says that it is ready, or that it is not.
func cmdReady(ts *testscript.TestScript, neg bool, _ []string) {
	w, want := worldOf(ts), http.StatusOK
	if neg {
		want = http.StatusServiceUnavailable
	}
	var body []byte
	err := process.Await(patience, fmt.Sprintf("/readyz gives %d", want), func() error {
		var code int
		var err error
		code, body, err = w.fetch("/readyz")
		if err == nil && code != want {
			err = fmt.Errorf("it gives %d: %s", code, body)
		}
		return err
	})
	fmt.Fprint(ts.Stdout(), string(body))
	ts.Check(err)
}

// cmdQuery asks the database past the program; with "until ANSWER" it asks until
// that is the answer.
func cmdQuery(ts *testscript.TestScript, w *world, args []string) error {
	if len(args) != 1 && (len(args) != 3 || args[1] != "until") {
		return errors.New("query SQL [until ANSWER]")
	}
	var text string
	ask := func() (err error) {
		text, err = w.sql(args[0])
		if err == nil && len(args) == 3 && strings.TrimSpace(text) != args[2] {
			err = fmt.Errorf("it is %s", text)
		}
		return err
	}
	var err error
	if len(args) == 1 {
		err = ask()
	} else {
		err = process.Await(patience, "the answer to "+args[0]+" is "+args[2], ask)
	}
	fmt.Fprint(ts.Stdout(), text)
	return err
}

// cmdExporter serves a file as an exporter of GPU metrics would, as it is at the
// time of each scrape; $EXPORTER is its URL.
func cmdExporter(ts *testscript.TestScript, _ *world, args []string) error {
	path := ts.MkAbs(args[0])
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; version=0.0.4")
		http.ServeFile(rw, r, path)
	}))
	ts.Defer(server.Close)
	ts.Setenv("EXPORTER", server.URL)
	return nil
}
