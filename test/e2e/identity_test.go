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

// send publishes events one message at a time, each with a source's own subject.
func send(s *server, events ...*schema.Event) {
	s.t.Helper()
	for _, e := range events {
		s.publish(message("default", e.Header().Source, schema.ContentTypeEvent, "", schema.EncodeEvent(e)))
	}
}

func usage(id, unit, project, from, to string) *schema.Event {
	u := testkit.Usage(unit, "i-"+unit, from, to)
	u.ID, u.Project = id, project
	return &schema.Event{Usage: &u}
}

func retraction(id, of, actor string) *schema.Event {
	return &schema.Event{Correction: &schema.Correction{
		Header: schema.Header{Source: "finance/li", ID: id}, CorrectsSource: "agent/node-1", CorrectsID: of, Action: "retract", Actor: actor, Reason: "reported twice",
	}}
}

func replacement(id, of, actor string, by *schema.Event) *schema.Event {
	c := retraction(id, of, actor)
	by.Usage.Source = "finance/li"
	c.Correction.Action, c.Correction.Replacement = "replace", by
	return c
}

// One identity counts once, wherever its copies lie, and a correction takes out or
// replaces what it is about: in minutes, in hours, as of an earlier instant, after
// a rebuild, and in the evidence.
func TestIdentities(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice)})

	// A retry with a new arrival time is a new content, and one dated next day too.
	send(s, usage("e1", "GPU-A2", "a2", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"))
	s.settled(false)
	send(s,
		usage("e1", "GPU-A2", "a2", "2026-03-01T10:00:00.001Z", "2026-03-01T10:01:00.001Z"),
		usage("e1", "GPU-A2", "a2", "2026-03-02T10:00:00Z", "2026-03-02T10:01:00Z"))
	// One id for two meters and for usage: all are kept.
	for _, meter := range []string{"gpu_seconds", "mem_gib_seconds"} {
		m := &schema.Meter{Header: schema.Header{Source: "agent/node-1", ID: "m1"}, Instance: "i1", Meter: meter, Quantity: "60",
			StartMs: testkit.At("2026-03-01T10:00:00Z"), EndMs: testkit.At("2026-03-01T10:01:00Z")}
		send(s, &schema.Event{Meter: m})
	}
	send(s, usage("m1", "GPU-A3", "a3", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"))
	// The same id and time with other properties.
	send(s, usage("e4", "GPU-A4", "a4", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"),
		usage("e4", "GPU-A4", "b4", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"))
	// An hour that turns out to be half of one, and one that was not at all.
	send(s, usage("e5", "GPU-B5", "b5", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"),
		usage("e6", "GPU-B6", "b6", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"))
	s.settled(true)
	identitiesAre(t, s, "before corrections", "", map[string]int64{"a2": 60, "a3": 60, "a4": 60, "b4": 0, "b5": 3600, "b6": 3600})
	time.Sleep(5 * time.Millisecond)
	before := time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	time.Sleep(5 * time.Millisecond)
	send(s, replacement("c5", "e5", "ann", usage("r5", "GPU-B5", "b5", "2026-03-01T10:00:00Z", "2026-03-01T10:30:00Z")),
		replacement("c6", "e5", "bob", usage("r6", "GPU-B5", "b5", "2026-03-01T10:00:00Z", "2026-03-01T10:45:00Z")),
		retraction("c7", "e6", "ann"),
		usage("e7", "GPU-B6", "b6", "2026-03-01T10:00:00Z", "2026-03-01T10:30:00Z"))

	after := map[string]int64{"a2": 60, "a3": 60, "a4": 60, "b4": 0, "b5": 1800, "b6": 1800}
	check := func(what string) {
		t.Helper()
		s.settled(true)
		identitiesAre(t, s, what, "", after)
		identitiesAre(t, s, what+", as of now", time.Now().UTC().Format(time.RFC3339), after)
		identitiesAre(t, s, what+", as of before", before, map[string]int64{"a2": 60, "a3": 60, "a4": 60, "b4": 0, "b5": 3600, "b6": 3600})
		evidence(t, s)
		conflictsAre(t, s, before)
	}
	check("corrected")
	if n := s.sql("SELECT uniqExact(payload) FROM raw_meter WHERE id = 'm1'"); n != "2" {
		t.Errorf("%s meter events of one id are kept, want both", n)
	}
	shown := s.everyReport(monthFrom, monthTo)
	rebuild(t, s)
	check("rebuilt")
	same(t, "rebuilt", s.everyReport(monthFrom, monthTo), shown)
}

// identitiesAre checks the seconds of projects, in a report and where it is cut.
func identitiesAre(t *testing.T, s *server, what, asOf string, want map[string]int64) {
	t.Helper()
	for _, span := range [][2]string{{"2026-03-01", "2026-04-01"}, {"2026-03-01T10:00:00Z", "2026-03-02T10:00:30.5Z"}} {
		q := url.Values{"from": {span[0]}, "to": {span[1]}, "by": {"project"}}
		if asOf != "" {
			q.Set("as_of", asOf)
		}
		got := map[string]int64{}
		for _, row := range parse(t, s.get("/api/v1/reports/spend", q)).Rows {
			ms, _ := row["allocated_ms"].(json.Number).Int64()
			got[row["project"].(string)] = ms
		}
		for project, seconds := range want {
			if got[project] != seconds*1000 {
				t.Errorf("%s, to %s: project %s has %d ms, want %d s", what, span[1], project, got[project], seconds)
			}
		}
	}
}

// evidence checks what explain says of each event, whatever it is asked by.
func evidence(t *testing.T, s *server) {
	t.Helper()
	type event struct {
		ID      string
		Counted bool
		Why     *struct {
			Kind       string
			First      *struct{ Start string }
			Correction *struct{ ID, Actor string }
		}
	}
	ask := func(filter string) (list []event, corrections []struct{ ID, Actor, Reason string }) {
		t.Helper()
		key, value, _ := strings.Cut(filter, "=")
		var e struct {
			Events      []event
			Corrections []struct{ ID, Actor, Reason string }
		}
		if err := json.Unmarshal(s.get("/api/v1/explain", url.Values{"from": {monthFrom}, "to": {monthTo}, key: {value}}), &e); err != nil {
			t.Fatal(err)
		}
		return e.Events, e.Corrections
	}
	describe := func(list []event) string {
		var b strings.Builder
		for _, e := range list {
			fmt.Fprintf(&b, "%s %v", e.ID, e.Counted)
			if e.Why != nil {
				b.WriteString(" " + e.Why.Kind)
				if e.Why.First != nil {
					b.WriteString(" " + e.Why.First.Start)
				}
				if e.Why.Correction != nil {
					b.WriteString(" " + e.Why.Correction.ID + " " + e.Why.Correction.Actor)
				}
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	for filter, want := range map[string]string{
		"unit=GPU-A2": "e1 true\ne1 false conflict 2026-03-01T10:00:00Z\ne1 false conflict 2026-03-01T10:00:00Z\n",
		// The losing copy alone, with the winner filtered out.
		"project=b4": "e4 false conflict 2026-03-01T10:00:00Z\n",
		"project=b5": "e5 false corrected c5 ann\nr5 true\nr6 false void c6 bob\n",
		"project=b6": "e6 false corrected c7 ann\ne7 true\n",
	} {
		events, _ := ask(filter)
		if got := describe(events); got != want {
			t.Errorf("explain %s\n%swant\n%s", filter, got, want)
		}
	}
	if _, list := ask("project=b5"); len(list) != 2 || list[0].ID != "c5" || list[0].Actor != "ann" || list[0].Reason == "" {
		t.Errorf("corrections of b5: %+v", list)
	}
	code, text, errs := s.run("explain", "--from", monthFrom, "--to", monthTo, "--filter", "project=b5")
	for _, part := range []string{"no: corrected by finance/li c5 (ann)", "no: replacement of finance/li c6", "reported twice"} {
		if code != 0 || !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s%s", part, text, errs)
		}
	}
}

// conflictsAre checks the quality report: who is in conflict, with all contents.
func conflictsAre(t *testing.T, s *server, before string) {
	t.Helper()
	var q struct {
		Quality  struct{ Conflicts int }
		Conflict []struct {
			Source, ID string
			Contents   []struct {
				Counted  bool
				Start    string
				Project  string
				StoredAt string `json:"stored_at"`
				Sequence uint64 `json:"stream_sequence"`
			}
			Corrections []struct {
				ID        string
				Effective bool
			}
		} `json:"conflict_list"`
	}
	ask := func(from, to, asOf string) string {
		t.Helper()
		query := url.Values{"from": {from}, "to": {to}}
		if asOf != "" {
			query.Set("as_of", asOf)
		}
		q.Conflict = nil
		if err := json.Unmarshal(s.get("/api/v1/reports/quality", query), &q); err != nil {
			t.Fatal(err)
		}
		if q.Quality.Conflicts != len(q.Conflict) {
			t.Errorf("%d conflicts are counted and %d listed", q.Quality.Conflicts, len(q.Conflict))
		}
		var b strings.Builder
		for _, c := range q.Conflict {
			b.WriteString(c.ID + ":")
			for _, v := range c.Contents {
				fmt.Fprintf(&b, " %s %s %v", v.Start, v.Project, v.Counted)
				if v.StoredAt == "" || v.Sequence == 0 {
					t.Errorf("%s: no position: %+v", c.ID, v)
				}
			}
			for _, v := range c.Corrections {
				fmt.Fprintf(&b, " %s %v", v.ID, v.Effective)
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	const e1 = "e1: 2026-03-01T10:00:00Z a2 true 2026-03-01T10:00:00.001Z a2 false 2026-03-02T10:00:00Z a2 false\n"
	const e4 = "e4: 2026-03-01T10:00:00Z a4 true 2026-03-01T10:00:00Z b4 false\n"
	for _, c := range []struct{ from, to, asOf, want string }{
		{monthFrom, monthTo, "", e1 + e4 + "e5: 2026-03-01T10:00:00Z b5 false c5 true c6 false\n"},
		{monthFrom, monthTo, before, e1 + e4},
		{"2026-03-02", "2026-03-03", "", e1}, // only the last copy lies here
		{"2026-04-01", "2026-05-01", "", ""},
	} {
		if got := ask(c.from, c.to, c.asOf); got != c.want {
			t.Errorf("conflicts from %s to %s as of %q\n%swant\n%s", c.from, c.to, c.asOf, got, c.want)
		}
	}
	code, text, errs := s.run("report", "quality", "--from", monthFrom, "--to", monthTo)
	for _, part := range []string{"3 identities in conflict", "set aside", "counted", "corrected: replace by ann"} {
		if code != 0 || !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s%s", part, text, errs)
		}
	}
}
