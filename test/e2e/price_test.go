package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

const onePrice = "currency: USD\nprices:\n  - model: \"*\"\n    per_gpu_hour: \"3.60\"\n"

// One event of one GPU-minute costs 0.06 wherever one looks, however often, in
// whatever form and past how many consumers it comes, before and after a restart.
func TestOneEventCountsOnce(t *testing.T) {
	o := app.Options{Data: t.TempDir(), Prices: file(t, "prices.yaml", onePrice)}
	s := start(t, o)
	other := startConsumer(t, s, "")

	u := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	edge := testkit.Usage("GPU-2", "i1", "2026-03-01T10:59:30Z", "2026-03-01T11:00:30Z")
	tenTimes := func(round int) {
		one, two := schema.EncodeEvent(&schema.Event{Usage: &u}), schema.EncodeEvent(&schema.Event{Usage: &edge})
		batch := []byte("[" + string(one) + "," + string(two) + "," + string(one) + "]")
		compact, err := schema.EncodeCompact([]schema.Usage{u, edge, u})
		if err != nil {
			t.Fatal(err)
		}
		id := func(n int) string { return fmt.Sprintf("round %d, time %d", round, n) }
		for range 2 {
			for _, body := range [][]byte{one, two} {
				if code, answer := s.post("/api/v1/events", schema.ContentTypeEvent, body); code != 200 {
					t.Fatal(code, answer)
				}
			}
		}
		if code, answer := s.post("/api/v1/events", schema.ContentTypeBatch, batch); code != 200 {
			t.Fatal(code, answer)
		}
		if code, stdout, stderr := s.run("ingest", file(t, "events.jsonl", string(one)+"\n"+string(two))); code != 0 {
			t.Fatal(code, stdout, stderr)
		}
		s.publish(message("default", u.Source, schema.ContentTypeEvent, id(1), one))
		s.publish(message("default", u.Source, schema.ContentTypeEvent, "", one))
		s.publish(message("default", u.Source, "", id(2), batch))
		s.publish(message("default", u.Source, schema.ContentTypeBatch, "", batch))
		s.publish(message("default", u.Source, schema.ContentTypeCompact, id(3), compact))
		s.publish(message("default", u.Source, schema.ContentTypeCompact, "", compact))
	}
	tenTimes(1)
	s.settled(false)
	checkOneMinute(t, s, "from minutes", false)
	s.settled(true)
	checkOneMinute(t, s, "from hours", true)
	kill(other)
	s.stop()

	s = start(t, o)
	checkOneMinute(t, s, "after a restart", false)
	startConsumer(t, s, "")
	tenTimes(2)
	s.settled(true)
	checkOneMinute(t, s, "sent again after a restart", true)
}

// checkOneMinute checks the figures of both events, on request also those that the
// command line shows.
func checkOneMinute(t *testing.T, s *server, when string, commands bool) {
	t.Helper()
	span := []string{"--from", "2026-03-01", "--to", "2026-03-02", "--format", "json"}
	const hour = "2026-03-01T1%d:00:00Z"
	for _, unit := range []string{"GPU-1", "GPU-2"} {
		for _, kind := range []string{"spend", "usage", "explain"} {
			path, args := "/api/v1/reports/"+kind, []string{"report", kind}
			if kind == "explain" {
				path, args = "/api/v1/explain", []string{"explain"}
			}
			got := s.get(path, url.Values{"from": {"2026-03-01"}, "to": {"2026-03-02"}, "unit": {unit}})
			totals := total(t, got)
			if totals["cost"] != "0.06" || totals["allocated_ms"] != json.Number("60000") || totals["active_ms"] != json.Number("60000") {
				t.Errorf("%s: %s of %s: %v, want a cost of 0.06 and 60000 ms", when, kind, unit, totals)
			}
			if !commands {
				continue
			}
			code, stdout, stderr := s.run(append(append(args, span...), "--filter", "unit="+unit)...)
			if code != 0 || stderr != "" {
				t.Fatalf("%s: %v: exit code %d\n%s", when, args, code, stderr)
			}
			if cli := timeless([]byte(stdout)); cli != timeless(got) {
				t.Errorf("%s: the command line says\n%s and HTTP\n%s", when, cli, got)
			}
		}
	}
	a := parse(t, s.get("/api/v1/reports/spend", url.Values{"from": {"2026-03-01"}, "to": {"2026-03-02"}, "by": {"hour"}, "unit": {"GPU-2"}}))
	for i, r := range a.Rows {
		if len(a.Rows) != 2 || r["hour"] != fmt.Sprintf(hour, i) || r["allocated_ms"] != json.Number("30000") || r["cost"] != "0.03" {
			t.Errorf("%s: by hour %v, want 30 s in each of two hours", when, a.Rows)
		}
	}
	if fmt.Sprint(a.Quality) != "map[conflicts:0 gaps:0 held:0 late:2 open_incidents:0 outside_lease_ms:0 quarantined:0]" {
		t.Errorf("%s: quality %v", when, a.Quality)
	}
	var explained struct{ Events []struct{ Counted bool } }
	if err := json.Unmarshal(s.get("/api/v1/explain", url.Values{"from": {"2026-03-01"}, "to": {"2026-03-02"}}), &explained); err != nil {
		t.Fatal(err)
	}
	if len(explained.Events) != 2 || !explained.Events[0].Counted || !explained.Events[1].Counted {
		t.Errorf("%s: explained by %v, want two events that count", when, explained.Events)
	}
}

func total(t testing.TB, document []byte) map[string]any {
	t.Helper()
	var a struct{ Total, Totals map[string]any }
	d := json.NewDecoder(strings.NewReader(string(document)))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	if a.Total != nil {
		return a.Total
	}
	return a.Totals
}

// consumer is a process that stores events of another process's stream.
type consumer struct {
	cmd *exec.Cmd
	dir string // where it says that it has halted
}

// startConsumer starts a second consumer on the same durable, as a process of its
// own. It halts at the named point of its work, if one is given.
func startConsumer(t testing.TB, s *server, haltAt string) *consumer {
	t.Helper()
	c := &consumer{dir: t.TempDir()}
	c.cmd = command(c.dir, "consume", "--data", c.dir, "--nats", s.nats, "--clickhouse", s.db, "--ack-wait", ackWait.String(), "--batch-age", "50ms")
	c.cmd.Env = append(c.cmd.Env, "GPUMETER_HALT_AT="+haltAt)
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(c) })
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- strings.Contains(line, "ready")
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("the second consumer did not start")
		}
	case <-time.After(patience):
		t.Fatal("the second consumer did not start in time")
	}
	// It only gets a part of what comes when it asks for messages, too.
	within(t, "both consumers ask for messages", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		durable, err := s.stream().Consumer(ctx, "USAGE_0", "store")
		return err == nil && durable.CachedInfo().NumWaiting >= 2
	})
	return c
}

// kill ends the process without giving it a chance to do anything.
func kill(c *consumer) {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}
