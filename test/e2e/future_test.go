package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// stepClock is a clock that a test sets; it goes on from there.
type stepClock struct {
	mu    sync.Mutex
	steps []clockStep
}

type clockStep struct{ real, says time.Time }

func (c *stepClock) set(says string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, clockStep{time.Now(), time.UnixMilli(testkit.At(says))})
}

func (c *stepClock) Now() time.Time { return c.At(time.Now()) }

func (c *stepClock) At(real time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.steps) - 1; i >= 0; i-- {
		if s := c.steps[i]; !real.Before(s.real) {
			return s.says.Add(real.Sub(s.real))
		}
	}
	return real
}

// now is the clock's time as a report is asked as of it.
func (c *stepClock) now() string { return schema.FormatTime(c.Now().UnixMilli()) }

// sendUsage publishes events of agent/node-1, made at the end of each.
func (s *server) sendUsage(events ...schema.Usage) {
	s.t.Helper()
	for i := range events {
		events[i].TimeMs = events[i].EndMs
	}
	payload, err := schema.EncodeCompact(events)
	if err != nil {
		s.t.Fatal(err)
	}
	s.publish(message("default", events[0].Source, schema.ContentTypeCompact, "", payload))
}

// ask returns the report of the first of March 2026; asOf may be empty.
func (s *server) ask(kind, asOf string) []byte {
	s.t.Helper()
	query := url.Values{"from": {"2026-03-01"}, "to": {"2026-03-02"}, "by": {"unit"}}
	if kind == "quality" {
		query.Del("by")
	}
	if asOf != "" {
		query.Set("as_of", asOf)
	}
	return s.get("/api/v1/reports/"+kind, query)
}

// counted checks the time that is in the totals, how many events are held, and
// how many are set aside for good.
func (s *server) counted(when, asOf string, seconds, held int) {
	s.t.Helper()
	a := parse(s.t, s.ask("spend", asOf))
	if a.Totals["allocated_ms"] != json.Number(fmt.Sprint(seconds*1000)) || a.Quality["held"] != json.Number(fmt.Sprint(held)) || a.Quality["quarantined"] != json.Number("0") {
		s.t.Errorf("%s, as of %q: %v ms, quality %v; want %d s and %d held", when, asOf, a.Totals["allocated_ms"], a.Quality, seconds, held)
	}
}

// released waits until the program has released so many events, and all is settled.
func (s *server) released(n int) {
	s.t.Helper()
	within(s.t, fmt.Sprint(n, " events are released"), func() bool { return s.metric("gpumeter_released_total") == fmt.Sprint(n) })
	s.settled(true)
}

func (s *server) metric(name string) string {
	s.t.Helper()
	for line := range strings.Lines(string(s.get("/metrics", nil))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return value
		}
	}
	s.t.Fatalf("no metric %s", name)
	return ""
}

// B8: the clock of an agent is ten minutes ahead. What it reports of the next ten
// minutes is held aside and flagged, and counts once from its own time on.
func TestHeldUntilTheirTime(t *testing.T) {
	clock := &stepClock{}
	clock.set("2026-03-01T12:01:00Z")
	s := start(t, app.Options{Clock: clock, Prices: file(t, "prices.yaml", onePrice)})
	clock.set("2026-03-01T12:01:00Z") // starting took a while
	s.sendUsage(
		testkit.Usage("GPU-1", "i1", "2026-03-01T12:00:00Z", "2026-03-01T12:01:00Z"),
		testkit.Usage("GPU-2", "i1", "2026-03-01T12:10:00Z", "2026-03-01T12:11:00Z"),
		testkit.Usage("GPU-3", "i1", "2026-03-01T12:05:00Z", "2026-03-01T12:06:00Z"), // within the tolerance
	)
	s.settled(true)
	s.counted("at 12:01", "", 120, 1)
	before := clock.now()
	unreleased := s.ask("spend", before)
	within(t, "what is held is seen", func() bool { return s.metric("gpumeter_held_events") == "1" && s.status().Held == 1 })
	checkFlagged(t, s)

	clock.set("2026-03-01T12:08:00Z")
	s.counted("at 12:08", "", 120, 1)
	clock.set("2026-03-01T12:11:00Z")
	s.released(1)
	s.counted("at 12:11", "", 180, 0)
	s.counted("at 12:11", before, 120, 1)
	same(t, "as of the time before it was released", string(s.ask("spend", before)), string(unreleased))
	if cost := parse(t, s.ask("spend", "")).Totals["cost"]; cost != "0.18" {
		t.Errorf("cost %v, want 0.18", cost)
	}
	after := clock.now()
	all := string(s.ask("spend", after)) + string(s.ask("quality", after)) + string(s.ask("quality", before))

	// Driven again by hand, and the whole stream from its beginning: nothing changes.
	if code, stdout, stderr := s.run("quarantine", "redrive", s.quarantine()[0].Ref); code != 0 || stdout != "{\"redriven\":1}\n" {
		t.Errorf("redrive: %d %s %s", code, stdout, stderr)
	}
	within(t, "the stream has it again", func() bool { return s.lastSequence() == 3 })
	s.settled(true)
	replay(t, s)
	s.counted("after a replay", "", 180, 0)
	same(t, "after a replay", string(s.ask("spend", after))+string(s.ask("quality", after))+string(s.ask("quality", before)), all)
	if items := s.quarantine(); len(items) != 1 || s.metric("gpumeter_released_total") != "1" {
		t.Errorf("after a replay %d items and %s released", len(items), s.metric("gpumeter_released_total"))
	}
}

// checkFlagged: what waits is listed with its reason and its time, and the report of
// the data's quality names the source and its clock.
func checkFlagged(t *testing.T, s *server) {
	t.Helper()
	items := s.quarantine()
	if len(items) != 1 || items[0].Kind != "future" || items[0].Due != "2026-03-01T12:11:00.000Z" || items[0].Redriven != "" ||
		!strings.Contains(items[0].Reason, `the clock of "agent/node-1" is ahead by at least 9m`) {
		t.Errorf("quarantine %+v", items)
	}
	code, stdout, stderr := s.run("quarantine", "list")
	if code != 0 || !strings.Contains(stdout, "held until") || !strings.Contains(stdout, "2026-03-01T12:11:00.000Z") {
		t.Errorf("quarantine list: %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := s.run("quarantine", "redrive", "--all"); code != 0 || stdout != "{\"redriven\":0}\n" {
		t.Errorf("what is held is driven by itself: %d %s%s", code, stdout, stderr)
	}
	var quality struct {
		Sources []struct {
			Source string
			Events int
			Held   int
			Offset int64 `json:"clock_offset_ms"`
		}
	}
	if err := json.Unmarshal(s.ask("quality", ""), &quality); err != nil {
		t.Fatal(err)
	}
	if q := quality.Sources; len(q) != 1 || q[0].Source != "agent/node-1" || q[0].Events != 2 || q[0].Held != 1 || q[0].Offset < 540_000 || q[0].Offset > 600_000 {
		t.Errorf("sources %+v", q)
	}
}

// replay makes the consumer read the whole stream from its beginning.
func replay(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := s.status().Events
	all := int64(s.lastSequence())
	if err := s.stream().DeleteConsumer(ctx, "USAGE_0", "store"); err != nil {
		t.Fatal(err)
	}
	within(t, "the whole stream was read again", func() bool {
		var st struct{ Messages int64 }
		if err := json.Unmarshal(s.get("/api/v1/status", nil), &st); err != nil {
			t.Fatal(err)
		}
		return st.Messages >= 2*all && s.status().Events > events
	})
	s.settled(true)
}

// startProgram runs the built program on the data, with the clock of a file, until
// the returned function kills it or the test ends. It halts at the named point.
func startProgram(t *testing.T, dir, clock, haltAt string) (*server, func()) {
	t.Helper()
	cmd := command(dir, "up", "--listen", "127.0.0.1:0", "--recompute-every", "100ms", "--hour-every", "300ms", "--batch-age", "50ms", "--ack-wait", ackWait.String())
	cmd.Env = append(cmd.Env, "GPUMETER_CLOCK="+clock, "GPUMETER_HALT_AT="+haltAt)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &consumer{cmd: cmd, dir: dir}
	t.Cleanup(func() { kill(p) })
	if line, _ := bufio.NewReader(out).ReadString('\n'); !strings.Contains(line, "gpumeter is ready:") {
		kill(p)
		t.Fatalf("%q\n%s", line, stderr.String())
	}
	s := &server{t: t, dir: dir}
	s.find()
	return s, func() { kill(p) }
}

// The program is killed after the stream has the released events and before that
// is noted, and after it is: both times each event counts once.
func TestReleaseSurvivesAKill(t *testing.T) {
	for _, point := range []string{"released", "released-noted"} {
		t.Run(point, func(t *testing.T) {
			clock := file(t, "clock", "")
			step := func(says string) {
				f, err := os.OpenFile(clock, os.O_APPEND|os.O_WRONLY, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				fmt.Fprintf(f, "{\"real\":%q,\"says\":%q}\n", time.Now().Format(time.RFC3339Nano), says)
			}
			step("2026-03-01T12:01:00Z")
			dir := t.TempDir()
			s, kill := startProgram(t, dir, clock, point)
			var events []schema.Usage
			for n := range 20 {
				events = append(events, testkit.Usage(fmt.Sprint("GPU-", n), "i1", "2026-03-01T12:10:00Z", "2026-03-01T12:11:00Z"))
			}
			s.sendUsage(events...)
			s.settled(true)
			s.counted("held", "", 0, 20)
			step("2026-03-01T12:11:00Z")
			within(t, "it has halted", func() bool { _, err := os.Stat(filepath.Join(dir, "halted")); return err == nil })
			kill()

			s, _ = startProgram(t, dir, clock, "")
			within(t, "nothing is held", func() bool { return parse(t, s.ask("spend", "")).Quality["held"] == json.Number("0") })
			s.settled(true)
			s.counted("released", "", 20*60, 0)
			if n := s.sql("SELECT uniqExact(id), count() FROM (SELECT id, stream_sequence FROM raw_usage GROUP BY ALL)"); n != "20\t20" && point == "released-noted" {
				t.Errorf("noted, and released again: %s", n)
			}
		})
	}
}

// B6: a broker was away for 26 hours. Every interval arrives, counts, and is marked
// late, by the grace of the tenant.
func TestLateEvents(t *testing.T) {
	clock := &stepClock{}
	clock.set("2026-03-02T12:30:00Z")
	o := app.Options{Data: t.TempDir(), Clock: clock, Prices: file(t, "prices.yaml", onePrice), Grace: app.Grace{Tenant: map[string]time.Duration{"other": time.Second}}}
	s := start(t, o)
	const intervals = 26 * 60
	var events []schema.Usage
	for n := range int64(intervals) {
		at := testkit.At("2026-03-01T10:00:00Z") + n*schema.MinuteMs
		u := testkit.Usage("GPU-1", "i1", schema.FormatTime(at), schema.FormatTime(at+schema.MinuteMs))
		u.Sequence = uint64(n) + 1
		events = append(events, u)
	}
	for from := 0; from < intervals; from += 120 {
		s.sendUsage(events[from:min(from+120, intervals)]...)
	}
	s.settled(true)
	check := func(grace string, late int) {
		t.Helper()
		span := url.Values{"from": {"2026-03-01"}, "to": {"2026-03-03"}}
		a := parse(t, s.get("/api/v1/reports/spend", span))
		if a.Totals["allocated_ms"] != json.Number("93600000") || a.Totals["cost"] != "93.60" || a.Quality["late"] != json.Number(fmt.Sprint(late)) || a.Quality["gaps"] != json.Number("0") {
			t.Errorf("grace %s: %v, quality %v; want %d late", grace, a.Totals, a.Quality, late)
		}
		var quality struct {
			Sources []struct {
				Source       string
				Events, Late int
				Worst        int64 `json:"worst_delay_ms"`
			}
		}
		if err := json.Unmarshal(s.get("/api/v1/reports/quality", span), &quality); err != nil {
			t.Fatal(err)
		}
		if q := quality.Sources; len(q) != 1 || q[0].Events != intervals || q[0].Late != late || q[0].Worst < 26*schema.HourMs {
			t.Errorf("grace %s: sources %+v", grace, q)
		}
	}
	check("by default", intervals)
	s.stop()
	o.Grace.Tenant["default"] = 72 * time.Hour
	s = start(t, o)
	check("72h", 0)
	// It is also how long a month that has ended waits for its last events. The
	// command leaves the clock to the program.
	s.refused(1, "waited for until 2026-03-04T00:00:00Z", "statement", "close", "--period", "2026-02")
}
