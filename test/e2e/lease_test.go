package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// shifted is the machine's clock moved to another time. It goes on.
type shifted time.Duration

func clockAt(t testing.TB, instant string) shifted {
	t.Helper()
	now, err := time.Parse(time.RFC3339, instant)
	if err != nil {
		t.Fatal(err)
	}
	return shifted(time.Until(now))
}

func (c shifted) Now() time.Time              { return c.At(time.Now()) }
func (c shifted) At(real time.Time) time.Time { return real.Add(time.Duration(c)) }

// lease makes a lease event of the instance; more are JSON members.
func lease(instance, at, state, more string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","type":"gpumeter.lease.v1","source":"cloud","id":"%s/%s/%s","data":{"instance":%q,"at":%q,"state":%q%s}}`,
		instance, at, state, instance, at, state, more)
}

// busy makes usage events of one minute each.
func busy(unit, instance, from, to string) (list [][]byte) {
	for ms := testkit.At(from); ms < testkit.At(to); ms += schema.MinuteMs {
		u := testkit.Usage(unit, instance, schema.FormatTime(ms), schema.FormatTime(min(ms+schema.MinuteMs, testkit.At(to))))
		list = append(list, schema.EncodeEvent(&schema.Event{Usage: &u}))
	}
	return list
}

func (s *server) send(events ...[]byte) {
	s.t.Helper()
	var parts []string
	for _, e := range events {
		parts = append(parts, string(e))
	}
	if code, answer := s.post("/api/v1/events", schema.ContentTypeBatch, []byte("["+strings.Join(parts, ",")+"]")); code != 200 {
		s.t.Fatal(code, answer)
	}
}

// figuresOf returns what a report says about an instance and, if thorough, checks
// that an explanation says the same, and that hours and units add up to it.
func (s *server) figuresOf(instance, from, to string, thorough bool) map[string]any {
	s.t.Helper()
	query := url.Values{"from": {from}, "to": {to}, "filter": {"instance=" + instance}}
	all := total(s.t, s.get("/api/v1/reports/spend", query))
	if !thorough {
		return all
	}
	explained := total(s.t, s.get("/api/v1/explain", query))
	for key := range explained {
		if fmt.Sprint(explained[key]) != fmt.Sprint(all[key]) {
			s.t.Errorf("%s: explained %s %v, reported %v", instance, key, explained[key], all[key])
		}
	}
	for _, by := range []string{"hour", "unit,project"} {
		query.Set("by", by)
		parts := total(s.t, s.get("/api/v1/reports/spend", query))
		if fmt.Sprint(parts) != fmt.Sprint(all) {
			s.t.Errorf("%s: by %s %v, in all %v", instance, by, parts, all)
		}
	}
	return all
}

// expect compares figures with "name value" pairs.
func (s *server) expect(thorough bool, instance, from, to, want string) {
	s.t.Helper()
	all := s.figuresOf(instance, from, to, thorough)
	for _, pair := range strings.Split(want, ", ") {
		name, value, _ := strings.Cut(pair, " ")
		if got := fmt.Sprint(all[name]); got != value {
			s.t.Errorf("%s from %s to %s: %s %s, want %s", instance, from, to, name, got, value)
		}
	}
}

func (s *server) outside(from, to string) string {
	s.t.Helper()
	return fmt.Sprint(parse(s.t, s.get("/api/v1/reports/quality", url.Values{"from": {from}, "to": {to}})).Quality["outside_lease_ms"])
}

// The cases of the acceptance list that leases decide, through the whole program:
// from minutes and events first, then from hours.
func TestLeases(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice), Clock: clockAt(t, "2026-04-05T12:00:00Z")})
	// C8: too short for any sample.
	s.send(lease("c8", "2026-03-01T10:00:03Z", "running", `,"project":"a"`), lease("c8", "2026-03-01T10:00:13Z", "released", ""))
	// C14: begun before the period, and nothing since.
	s.send(lease("c14", "2026-02-27T00:00:00Z", "running", `,"project":"a"`))
	// C18: stopping, and reported for longer than it had a GPU.
	s.send(lease("c18", "2026-03-02T09:00:00Z", "running", `,"project":"a"`), lease("c18", "2026-03-02T10:00:00Z", "stopping", ""), lease("c18", "2026-03-02T10:05:00Z", "released", ""))
	s.send(busy("GPU-18", "c18", "2026-03-02T09:00:00Z", "2026-03-02T10:07:00Z")...)
	// H6: the agent falls silent.
	s.send(lease("h6", "2026-03-03T00:00:00Z", "running", `,"project":"a"`), lease("h6", "2026-03-04T00:00:00Z", "released", ""))
	s.send(busy("GPU-6", "h6", "2026-03-03T00:00:00Z", "2026-03-03T06:00:00Z")...)
	// H11: the agent restarts in between, and one of its events covers both sides.
	s.send(lease("h11", "2026-03-05T10:00:00Z", "running", `,"project":"a"`), lease("h11", "2026-03-05T10:02:00Z", "released", ""))
	s.send(busy("GPU-11", "h11", "2026-03-05T10:00:00Z", "2026-03-05T10:00:20Z")...)
	s.send(busy("GPU-11", "h11", "2026-03-05T10:00:50Z", "2026-03-05T10:02:00Z")...)
	s.send(busy("GPU-11", "h11", "2026-03-05T10:00:15Z", "2026-03-05T10:00:20Z")...)
	// I2: set aside, and the image cannot be pulled for 20 minutes.
	s.send(lease("i2", "2026-03-06T10:00:00Z", "provisioning", `,"project":"a"`), lease("i2", "2026-03-06T10:20:00Z", "running", ""), lease("i2", "2026-03-06T11:00:00Z", "released", ""))
	s.send(busy("GPU-2", "i2", "2026-03-06T10:20:00Z", "2026-03-06T11:00:00Z")...)
	// I5: nobody holds the node's GPU.
	s.send(busy("GPU-5", "", "2026-03-07T10:00:00Z", "2026-03-07T11:00:00Z")...)
	// C7: one name, two runs.
	s.send(lease("train/u1", "2026-03-08T12:00:00Z", "running", `,"project":"c7"`), lease("train/u1", "2026-03-08T17:00:00Z", "released", ""))
	s.send(lease("train/u2", "2026-03-08T19:00:00Z", "running", `,"project":"c7"`), lease("train/u2", "2026-03-08T22:00:00Z", "released", ""))

	check := func(hours bool) {
		s.expect(hours, "c8", "2026-03-01", "2026-03-02", "allocated_ms 10000, unknown_ms 10000, known_ms 0, utilization <nil>, cost 0.01, idle_waste 0.00")
		s.expect(hours, "c14", "2026-03-01", "2026-04-01", "allocated_ms 2678400000, unknown_ms 2678400000, cost 2678.40")
		s.expect(hours, "c18", "2026-03-02", "2026-03-03", "allocated_ms 3900000, active_ms 3900000, unknown_ms 0, cost 3.90")
		if got := s.outside("2026-03-02", "2026-03-03"); got != "120000" {
			t.Errorf("c18: outside of the lease %s ms, want 120000", got)
		}
		if got := s.outside("2026-03-03", "2026-03-08"); got != "0" {
			t.Errorf("outside of leases %s ms, want 0", got)
		}
		s.expect(hours, "h6", "2026-03-03", "2026-03-04", "allocated_ms 86400000, active_ms 21600000, idle_ms 0, unknown_ms 64800000, cost 86.40, idle_waste 0.00")
		s.expect(hours, "h6", "2026-03-03T12:00:00Z", "2026-03-05", "allocated_ms 43200000, known_ms 0, unknown_ms 43200000, cost 43.20")
		s.expect(hours, "h11", "2026-03-05", "2026-03-06", "allocated_ms 120000, active_ms 90000, unknown_ms 30000, cost 0.12")
		s.expect(hours, "i2", "2026-03-06", "2026-03-07", "allocated_ms 3600000, idle_ms 1200000, active_ms 2400000, unknown_ms 0, cost 3.60, idle_waste 1.20")
		free := total(t, s.get("/api/v1/reports/waste", url.Values{"from": {"2026-03-07"}, "to": {"2026-03-08"}, "filter": {"instance="}}))
		if fmt.Sprint(free["allocated_ms"]) != "3600000" || fmt.Sprint(free["cost"]) != "3.60" {
			t.Errorf("i5: %v", free)
		}
		s.expect(hours, "train/u1", "2026-03-08", "2026-03-09", "allocated_ms 18000000")
		s.expect(hours, "train/u2", "2026-03-08", "2026-03-09", "allocated_ms 10800000")
	}
	s.settled(false)
	check(false)
	s.settled(true)
	check(true)
	s.checkLeaseEvidence()
}

// checkLeaseEvidence: an explanation names the lease events behind its figure.
func (s *server) checkLeaseEvidence() {
	s.t.Helper()
	var e struct {
		Leases []struct {
			State, Source, ID, From string
			To                      *string
			Held                    bool
			Gpus                    int64
			ClippedMs               int64 `json:"clipped_ms"`
		}
	}
	if err := json.Unmarshal(s.get("/api/v1/explain", url.Values{"from": {"2026-03-06T10:10:00Z"}, "to": {"2026-03-07"}, "filter": {"instance=i2"}}), &e); err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for _, l := range e.Leases {
		to := "open"
		if l.To != nil {
			to = *l.To
		}
		lines = append(lines, fmt.Sprint(l.Source, " ", l.ID, " ", l.State, " ", l.Held, " ", l.Gpus, " ", l.From, " ", to, " ", l.ClippedMs))
	}
	same(s.t, "lease events of i2", strings.Join(lines, "\n"), strings.Join([]string{
		"cloud i2/2026-03-06T10:00:00Z/provisioning provisioning true 1 2026-03-06T10:00:00Z 2026-03-06T10:20:00Z 600000",
		"cloud i2/2026-03-06T10:20:00Z/running running true 1 2026-03-06T10:20:00Z 2026-03-06T11:00:00Z 2400000",
		"cloud i2/2026-03-06T11:00:00Z/released released false 1 2026-03-06T11:00:00Z open 46800000",
	}, "\n"))
}

// A lease that nobody has ended costs up to now, not to the end of the period, and
// the same question as of that instant gives the same later.
func TestOpenLeaseAccruesLive(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice), Clock: clockAt(t, "2026-03-15T12:34:56Z")})
	s.send(lease("open", "2026-02-27T00:00:00Z", "running", `,"gpus":8`))
	s.settled(false)
	month := url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}}
	ask := func(query url.Values) (asOf string, ms int64) {
		var a struct {
			AsOf   string `json:"as_of"`
			Totals struct {
				UnknownMs   int64 `json:"unknown_ms"`
				AllocatedMs int64 `json:"allocated_ms"`
			}
		}
		if err := json.Unmarshal(s.get("/api/v1/reports/spend", query), &a); err != nil {
			t.Fatal(err)
		}
		if want := 8 * (testkit.At(a.AsOf) - testkit.At("2026-03-01T00:00:00Z")); a.Totals.AllocatedMs != want || a.Totals.UnknownMs != want {
			t.Errorf("as of %s allocated %d ms, want %d", a.AsOf, a.Totals.AllocatedMs, want)
		}
		return a.AsOf, a.Totals.AllocatedMs
	}
	then, before := ask(month)
	within(t, "time goes on", func() bool { now, _ := ask(month); return now != then })
	month.Set("as_of", then)
	if _, again := ask(month); again != before {
		t.Errorf("as of %s: %d ms, and %d at the time", then, again, before)
	}
}
