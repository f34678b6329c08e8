package e2e_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/internal/app"
)

// rated waits until the ledger has what is settled: no job is left, and it is as it was
// for a while, because what asks for jobs looks once a second.
func (s *server) rated(want string) {
	s.t.Helper()
	s.settled(false)
	got := ""
	within(s.t, "the ledger says "+want, func() bool {
		got = s.ledger()
		return got == want
	})
}

// ledger returns how many lines are booked, what they bill together, and how many entries
// there are.
func (s *server) ledger() string {
	s.t.Helper()
	return s.sql("SELECT concat(toString(sum(if(reversal = 1, -1, 1))), ' lines, billed ', toString(sum(if(reversal = 1, -1, 1) * toDecimal128(billed_cost, 6))), ', ', toString(count()), ' entries, ', " +
		"toString(countIf(correction = 1)), ' corrections') FROM (SELECT * FROM charge FINAL)")
}

// What is settled is booked once. A late event takes a line back and books its new
// version; a price that was applied later does the same; a restart books nothing again;
// and what the ledger says is what the report does.
func TestChargesAreBookedOnce(t *testing.T) {
	const book = "currency: CNY\nprices: [{model: H100, per_gpu_hour: \"10\"}]\n"
	cal := newCalendar(t, "2026-03-03T00:30:00Z")
	o := app.Options{Data: t.TempDir(), Prices: file(t, "prices.yaml", book)}
	s := start(t, o)
	attributes := `,"project":"a","platform":"p","model":"H100","gpus":2`
	s.send(lease("i1", "2026-03-01T12:00:00Z", "running", attributes))
	s.rated("2 lines, billed 720, 2 entries, 0 corrections") // 12 h and 24 h of 2 GPUs; the third day runs
	cost := func(from, to string) any {
		return total(t, s.get("/api/v1/reports/spend", url.Values{"from": {from}, "to": {to}}))["cost"]
	}
	if got := cost("2026-03-01", "2026-03-03"); got != "720.00" {
		t.Errorf("the report says %v", got)
	}
	if got := cost("2026-03-01", "2026-03-03T00:30:00Z"); got != "730.00" {
		t.Errorf("with half an hour that is not booked the report says %v", got)
	}

	// The instance was released on the second day already; the platform says so late.
	s.send(lease("i1", "2026-03-02T06:00:00Z", "released", ""))
	s.rated("2 lines, billed 360, 4 entries, 2 corrections")
	taken := s.sql("SELECT toString(line) FROM charge WHERE reversal = 1")
	out := s.ok("explain", taken[:12])
	for _, want := range []string{"taken back", "1. metered 86400 s = billable 86400 s", "list price: 10 CNY per GPU-hour", "86400 s / 3600 x 2 x 10 = 480", "booked at", "taken back at", "a correction of what had been booked before"} {
		if !strings.Contains(out, want) {
			t.Errorf("explain %s does not say %q:\n%s", taken[:12], want, out)
		}
	}

	// What an explanation lists is what the ledger has.
	var e struct{ Charges []struct{ ID string } }
	if err := json.Unmarshal(s.get("/api/v1/explain", url.Values{"from": {"2026-03-01"}, "to": {"2026-03-04"}}), &e); err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Charges {
		if n := s.sql("SELECT sum(if(reversal = 1, -1, 1)) FROM charge FINAL WHERE line = '" + c.ID + "'"); n != "1" {
			t.Errorf("charge %s is %s times in the ledger", c.ID, n)
		}
	}
	if len(e.Charges) != 2 {
		t.Errorf("%d charges are explained", len(e.Charges))
	}

	// A new price for the second day: its line is taken back and booked at it.
	cal.move("2026-03-04T00:30:00Z")
	s.ok("prices", "apply", file(t, "prices.yaml", "currency: CNY\nprices:\n  - {model: H100, per_gpu_hour: \"10\", valid_to: 2026-03-02}\n  - {model: H100, per_gpu_hour: \"8\", valid_from: 2026-03-02}\n"), "--by", "ann", "--reason", "negotiated")
	s.rated("2 lines, billed 336, 6 entries, 4 corrections")
	if got := cost("2026-03-01", "2026-03-04"); got != "336.00" {
		t.Errorf("at the new price the report says %v", got)
	}

	// Again from the start: a job for all finds nothing to do.
	s.stop()
	cal.move("2026-03-04T03:30:00Z")
	o.Prices = ""
	s = start(t, o)
	s.send(lease("i2", "2026-03-04T01:00:00Z", "running", strings.Replace(attributes, `"gpus":2`, `"gpus":1`, 1)), lease("i2", "2026-03-04T02:00:00Z", "released", ""))
	s.rated("3 lines, billed 344, 7 entries, 4 corrections")
	if n, _ := strconv.Atoi(s.sql("SELECT count() FROM charge")); n < 7 {
		t.Errorf("%d rows", n)
	}
}

// The program is killed before it stores the entries that it made, and after it has and
// before the job is done: both times each line is booked once.
func TestBookingSurvivesAKill(t *testing.T) {
	for _, point := range []string{"rated", "rated-noted"} {
		t.Run(point, func(t *testing.T) {
			cal := newCalendar(t, "2026-03-03T00:30:00Z")
			dir := t.TempDir()
			s, kill := startProgram(t, dir, cal.path, point)
			s.ok("prices", "apply", file(t, "prices.yaml", "currency: CNY\nprices: [{model: H100, per_gpu_hour: \"10\"}]\n"), "--by", "ann", "--reason", "first")
			s.send(lease("i1", "2026-03-01T12:00:00Z", "running", `,"project":"a","platform":"p","model":"H100","gpus":2`))
			within(t, "it has halted", func() bool { _, err := os.Stat(filepath.Join(dir, "halted")); return err == nil })
			kill()
			s, _ = startProgram(t, dir, cal.path, "")
			s.rated("2 lines, billed 720, 2 entries, 0 corrections")
			s.send(lease("i1", "2026-03-02T06:00:00Z", "released", ""))
			s.rated("2 lines, billed 360, 4 entries, 2 corrections")
		})
	}
}
