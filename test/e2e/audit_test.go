package e2e_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
)

// A number that is missing is said wherever somebody looks, and keeps the month that
// it touches open, until somebody closes it and says why.
func TestIncidentIsSeenEverywhere(t *testing.T) {
	cal := newCalendar(t, "2026-04-02T00:00:00Z")
	s := start(t, app.Options{AuditEvery: 100 * time.Millisecond})
	first := testkit.Usage("GPU-1", "i1", "2026-03-10T10:00:00Z", "2026-03-10T10:01:00Z")
	third := testkit.Usage("GPU-1", "i1", "2026-03-10T10:02:00Z", "2026-03-10T10:03:00Z")
	first.Sequence, third.Sequence = 1, 3
	s.sendUsage(first, third)
	s.settled(false)
	march := []string{"statement", "close", "--period", "2026-03"}
	s.seen(0)
	cal.move("2026-04-02T00:11:00Z") // later than the grace of numbers
	within(t, "the gap is an incident", func() bool { return s.metric(`gpumeter_open_incidents{kind="source_gap"}`) == "1" })

	const what = "number 2 of agent/node-1 never arrived"
	if text := string(s.get("/readyz", nil)); !strings.Contains(text, `"name":"completeness"`) || !strings.Contains(text, what) {
		t.Errorf("readiness: %s", text)
	}
	s.seen(1)
	if text := s.ok("report", "quality", "--from", "2026-03-01", "--to", "2026-04-01"); !strings.Contains(text, what) {
		t.Errorf("report quality:\n%s", text)
	}
	s.refused(1, "1 incidents that touch period 2026-03 are open (source_gap agent/node-1#2: "+what, march...)
	s.ok("statement", "close", "--period", "2026-02") // which it does not touch
	listed := func(exit int, lines string, args ...string) {
		t.Helper()
		code, stdout, stderr := s.run(append([]string{"audit"}, args...)...)
		for want := range strings.Lines(lines) {
			if want = strings.TrimSpace(want); !strings.Contains(stdout, want) {
				t.Errorf("audit %v: no %q in\n%s", args, want, stdout)
			}
		}
		if code != exit || stderr != "" {
			t.Errorf("audit %v: exit code %d, want %d\n%s", args, code, exit, stderr)
		}
	}
	const row = "source_gap\n\"agent/node-1#2\"\n" + what
	listed(0, row, "list")
	listed(1, "checked up to message 1, 1 open incidents\n"+row, "run")

	key := []string{"audit", "close", "source_gap", "agent/node-1#2"}
	for exit, more := range map[string][]string{
		"2 --by says who closes it, and why": nil, "2 --by says who": {"--by", " "}, "1 no open incident": {"--by", "eve", "--tenant", "other"},
	} {
		code, text, _ := strings.Cut(exit, " ")
		s.refused(int(code[0]-'0'), text, append(key, more...)...)
	}
	s.refused(1, "no open incident", "audit", "close", "source_gap", "agent/node-1#3", "--by", "eve")
	listed(0, row, "list")
	listed(0, row+"\nclosed by eve: the node burned", append(key[1:], "--by", "eve: the node burned")...)
	listed(0, "no incidents", "list")
	listed(0, row+"\nclosed by eve: the node burned", "list", "--past")
	listed(0, "checked up to message 1, 0 open incidents", "run")
	s.seen(0)
	s.ok(march...)
	within(t, "nothing is open", func() bool { return s.metric(`gpumeter_open_incidents{kind="source_gap"}`) == "0" })
}

// seen checks how many incidents the report of the quality of March knows, and that
// the month before knows none.
func (s *server) seen(want int) {
	s.t.Helper()
	for month, want := range map[string]int{"2026-03-01 2026-04-01": want, "2026-02-01 2026-03-01": 0} {
		from, to, _ := strings.Cut(month, " ")
		var q struct {
			Quality struct {
				Gaps int
				Open int `json:"open_incidents"`
			}
			Incidents []struct{ Kind, Key, Tenant, Detail string }
		}
		if err := json.Unmarshal(s.get("/api/v1/reports/quality", url.Values{"from": {from}, "to": {to}}), &q); err != nil {
			s.t.Fatal(err)
		}
		if len(q.Incidents) != want || q.Quality.Open != want || q.Quality.Gaps != want || want > 0 && q.Incidents[0].Key != "agent/node-1#2" {
			s.t.Errorf("%s: %+v, want %d incidents", month, q, want)
		}
	}
}
