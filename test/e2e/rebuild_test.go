package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

const monthFrom, monthTo = "2026-03-01", "2026-04-01"

// month publishes a month of events: every day some units, minutes and hours,
// owners who share, and time that nobody knows anything of.
func month(t *testing.T, s *server) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	for day := range int64(31) {
		var events []schema.Usage
		for n := range 12 {
			start := testkit.At("2026-03-01T00:00:00Z") + day*24*schema.HourMs + random.Int64N(22*schema.HourMs)
			length := int64(schema.MinuteMs)
			if n%6 == 0 {
				length = 1 + random.Int64N(2*schema.HourMs)
			}
			u := testkit.Usage(fmt.Sprintf("GPU-%d", random.IntN(9)), fmt.Sprintf("i%d", random.IntN(4)), schema.FormatTime(start), schema.FormatTime(start+length))
			u.Model = []string{"H100", "L40S", "Unlisted"}[random.IntN(3)]
			u.Utilization = []schema.Maybe{{}, schema.Some(0), schema.Some(123_456)}[random.IntN(3)]
			u.EnergyMj = []schema.Maybe{{}, schema.Some(random.Int64N(1000 * length))}[random.IntN(2)]
			u.ID += fmt.Sprint("/", n)
			if n%5 == 0 {
				u.Labels = schema.Labels{{Key: "team", Value: "x"}}
			}
			events = append(events, u)
		}
		payload, err := schema.EncodeCompact(events)
		if err != nil {
			t.Fatal(err)
		}
		s.publish(message("default", "agent/node-1", schema.ContentTypeCompact, "", payload))
	}
	// One identity with two contents: the first one counts, before and after.
	for _, owner := range []string{"i1", "i2"} {
		u := testkit.Usage("GPU-20", owner, "2026-03-05T10:00:00Z", "2026-03-05T10:01:00Z")
		s.publish(message("default", u.Source, schema.ContentTypeEvent, "", schema.EncodeEvent(&schema.Event{Usage: &u})))
	}
}

// What is derived can be thrown away: made anew from the stored events, every byte
// of every report is the same, however often making it is interrupted.
func TestRebuild(t *testing.T) {
	o := app.Options{Data: t.TempDir(), Prices: priceFile(t)}
	s := start(t, o)
	month(t, s)
	s.settled(true)
	before := s.everyReport(monthFrom, monthTo)
	if a := parse(t, s.get("/api/v1/reports/usage", map[string][]string{"from": {monthFrom}, "to": {monthTo}})); a.Totals["allocated_ms"] == json.Number("0") ||
		a.Quality["conflicts"] != json.Number("1") {
		t.Fatalf("nothing to rebuild: %v", a)
	}
	check := func(what string) {
		t.Helper()
		s.settled(true)
		a := parse(t, s.get("/api/v1/reports/usage", map[string][]string{"from": {monthFrom}, "to": {monthTo}, "unit": {"GPU-20"}, "by": {"instance"}}))
		if len(a.Rows) != 1 || a.Rows[0]["instance"] != "i1" || a.Totals["allocated_ms"] != json.Number("60000") {
			t.Errorf("%s: of two contradicting events the first one is to count: %v", what, a.Rows)
		}
		same(t, what, s.everyReport(monthFrom, monthTo), before)
	}

	check("before anything is done")
	for _, table := range []string{"usage_minute", "usage_hour", "dirty"} {
		s.sql("DROP TABLE " + table + " SYNC")
	}
	rebuild(t, s)
	check("everything derived dropped, then rebuilt")

	for _, table := range []string{"usage_minute", "usage_hour"} {
		s.sql("INSERT INTO " + table + " SELECT * REPLACE('ghost' AS instance, unhex('00112233445566778899aabbccddeeff') AS owner, active_ms + 1 AS active_ms) FROM " + table + " FINAL")
		s.sql("INSERT INTO " + table + " SELECT * REPLACE(idle_ms + 1 AS idle_ms, version + 1 AS version) FROM " + table + " FINAL")
	}
	if s.everyReport(monthFrom, monthTo) == before {
		t.Fatal("falsified figures do not show")
	}
	rebuild(t, s)
	check("figures falsified, then rebuilt")

	interruptRebuild(t, s, syscall.SIGKILL, "grain = 'rebuild'")
	if n := s.sql("SELECT sum(sign) FROM dirty WHERE grain = 'rebuild'"); n != "1" {
		t.Fatalf("%s rebuilds are pending after one was killed", n)
	}
	rebuild(t, s)
	check("killed while it marked days, then run again")

	interruptRebuild(t, s, syscall.SIGKILL, "grain = 'rebuild'")
	s.stop()
	s = start(t, o)
	check("killed while it marked days, then the program restarted")

	// Without the running program the command works on a database of its own,
	// and nobody else does what it leaves undone.
	s.stop()
	rebuildAlone(t, o.Data, before, func() *server { s = start(t, o); return s })
}

func rebuild(t *testing.T, s *server) {
	t.Helper()
	code, stdout, stderr := s.run("rebuild")
	if code != 0 || !strings.HasPrefix(stdout, "rebuilt ") {
		t.Fatalf("rebuild: exit code %d\n%s%s", code, stdout, stderr)
	}
	plain(t, stderr)
}

// plain: what is written to something that is not a terminal is made of whole lines.
func plain(t *testing.T, stderr string) {
	t.Helper()
	if strings.ContainsAny(stderr, "\r\x1b\b") || stderr != "" && !strings.HasSuffix(stderr, "\n") {
		t.Errorf("not plain lines: %q", stderr)
	}
}

// interruptRebuild starts a rebuild and sends it the signal as soon as there are
// marks to do of the kind.
func interruptRebuild(t *testing.T, s *server, signal syscall.Signal, marks string) string {
	t.Helper()
	for range 10 {
		var stderr bytes.Buffer
		cmd := command(s.dir, "rebuild")
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
				if s.sql("SELECT count() FROM (SELECT mark FROM dirty WHERE "+marks+" GROUP BY grain, window, mark HAVING sum(sign) > 0)") == "0" {
					continue
				}
				_ = cmd.Process.Signal(signal)
				<-ended
				running = false
			}
		}
		if cmd.ProcessState.ExitCode() != 0 {
			return stderr.String()
		}
		// It was quicker than the signal.
	}
	t.Fatal("no rebuild could be interrupted")
	return ""
}

// rebuildAlone interrupts a rebuild that has the database to itself, once with each
// signal, and lets the next start of the program finish it.
func rebuildAlone(t *testing.T, data, before string, restart func() *server) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		var stdout, stderr bytes.Buffer
		cmd := command(data, "rebuild")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(1200+rand.IntN(600)) * time.Millisecond) // past the start of its engine
		_ = cmd.Process.Signal(signal)
		err := cmd.Wait()
		t.Logf("%v after its start: %v, %q %q", signal, err, stdout.String(), stderr.String())
		if signal == syscall.SIGINT && err != nil {
			plain(t, stderr.String())
		}
		s := restart()
		s.settled(true)
		same(t, fmt.Sprintf("%v while it ran alone, then the program started", signal), s.everyReport(monthFrom, monthTo), before)
		s.stop()
	}
	code, text, errs := runWith(t, data, nil, "rebuild")
	if code != 0 || !strings.HasPrefix(text, "rebuilt ") {
		t.Fatalf("rebuild without a running program: %d %s%s", code, text, errs)
	}
	s := restart()
	same(t, "rebuilt alone", s.everyReport(monthFrom, monthTo), before)
}

// Ctrl-C during ingest: what was acknowledged is said and counts, the rest is not
// there, and running it again completes it.
func TestInterruptedIngest(t *testing.T) {
	t.Parallel() // mostly waits
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice)})
	const all = 60
	var lines []string
	for n := range all {
		lines = append(lines, minute(n+1))
	}
	cmd := command(s.dir, "ingest", "-")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.WriteString(in, strings.Join(lines[:all/2], "\n")+"\n"); err != nil {
		t.Fatal(err)
	}
	within(t, "the first half is stored", func() bool { return s.status().Events >= all/2 })
	// A slow input shows a line of progress every few seconds.
	time.Sleep(time.Until(began.Add(5500 * time.Millisecond)))
	if _, err := io.WriteString(in, "broken\n"+lines[all/2][:50]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	in.Close()
	if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.String() != fmt.Sprintf("{\"accepted\":%d,\"duplicate\":0,\"rejected\":1}\n", all/2) {
		t.Errorf("exit code %d, %q\n%s", code, stdout.String(), stderr.String())
	}
	plain(t, stderr.String())
	for _, want := range []string{"ingest: 31 lines, ", "line 31: malformed", "interrupted", "to run it again is harmless"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr has no %q:\n%s", want, stderr.String())
		}
	}
	s.settled(false)
	checkMinutes(t, s, all/2)

	// All at once, and interrupted right away, some times over; then to the end.
	path := file(t, "events.jsonl", strings.Join(lines, "\n"))
	for n := range 3 {
		cmd := command(s.dir, "ingest", path)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+60*n) * time.Millisecond)
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	code, text, errs := s.run("ingest", path)
	var counts struct{ Accepted, Duplicate, Rejected int }
	if err := json.Unmarshal([]byte(text), &counts); err != nil || code != 0 || counts.Accepted+counts.Duplicate != all || counts.Duplicate < all/2 {
		t.Errorf("run again: %d %s%s", code, text, errs)
	}
	s.settled(false)
	checkMinutes(t, s, all)
}

// A signal to the whole program: it says that it stops, ends with code 0, and has
// kept everything that it acknowledged.
func TestInterruptedProgram(t *testing.T) {
	dir := t.TempDir()
	up := func() (*exec.Cmd, *server, *bytes.Buffer) {
		cmd := command(dir, "up", "--listen", "127.0.0.1:0", "--recompute-every", "100ms", "--hour-every", "300ms", "--batch-age", "50ms",
			"--prices", file(t, "prices.yaml", onePrice))
		out, err := cmd.StdoutPipe()
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		if !strings.Contains(line, "gpumeter is ready:") {
			t.Fatalf("%q\n%s", line, stderr.String())
		}
		s := &server{t: t, dir: dir}
		s.find()
		return cmd, s, &stderr
	}
	cmd, s, stderr := up()
	for n := range 40 {
		if code, answer := s.post("/api/v1/events", schema.ContentTypeEvent, []byte(minute(n+1))); code != 200 {
			t.Fatal(code, answer)
		}
	}
	_ = cmd.Process.Signal(os.Interrupt) // in the middle of the work
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, stderr)
	}
	cmd, s, stderr = up()
	s.settled(true)
	checkMinutes(t, s, 40)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, stderr)
	}
}

// Sparse events over a year, and reports over it by the hour: statements about many
// windows at once stay within what the database takes.
func TestLongTime(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice)})
	const hours = 3200
	began := testkit.At("2025-10-01T00:00:00Z")
	for from := int64(0); from < hours; from += 800 {
		var events []schema.Usage
		for n := from; n < from+800; n++ {
			// Two hours apart, so that no two windows are neighbours.
			at := began + 2*n*schema.HourMs + n%50*schema.MinuteMs
			events = append(events, testkit.Usage("GPU-1", "i1", schema.FormatTime(at), schema.FormatTime(at+schema.MinuteMs)))
		}
		payload, err := schema.EncodeCompact(events)
		if err != nil {
			t.Fatal(err)
		}
		s.publish(message("default", "agent/node-1", schema.ContentTypeCompact, "", payload))
	}
	check := func(zones ...string) {
		t.Helper()
		for _, zone := range zones {
			a := parse(t, s.get("/api/v1/reports/spend", map[string][]string{"from": {"2025-09-01"}, "to": {"2026-12-01"}, "by": {"hour"}, "zone": {zone}}))
			if len(a.Rows) != hours || a.Totals["cost"] != "192.00" {
				t.Errorf("%d hours in %s and %v, want %d and 192.00", len(a.Rows), zone, a.Totals, hours)
			}
		}
	}
	s.settled(false)
	check("UTC")
	s.settled(true)
	check("Asia/Kolkata")
	rebuild(t, s)
	check("UTC", "Asia/Kolkata")
}
