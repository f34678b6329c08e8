package e2e_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// minute returns the n-th good event: unit GPU-n, a minute of its own.
func minute(n int) string {
	at := testkit.At("2026-03-01T10:00:00Z") + int64(n)*schema.MinuteMs
	u := testkit.Usage(fmt.Sprintf("GPU-%d", n), "i1", schema.FormatTime(at), schema.FormatTime(at+schema.MinuteMs))
	return string(schema.EncodeEvent(&schema.Event{Usage: &u}))
}

// spoilt are events that may not be taken, each with what the reason must say.
// All are minute(999) with one change.
var spoilt = []struct{ name, from, to, kind, reason string }{
	{"NaN", `"utilization":0.5`, `"utilization":NaN`, "malformed", ""},
	{"NaN in quotes", `"utilization":0.5`, `"utilization":"NaN"`, "invalid_value", "utilization"},
	{"infinite", `"utilization":0.5`, `"utilization":"Inf"`, "invalid_value", "utilization"},
	{"negative", `"utilization":0.5`, `"utilization":-1`, "invalid_value", "utilization"},
	{"percent", `"utilization":0.5`, `"utilization":42`, "invalid_value", "ratio"},
	{"end before start", `"end":"2026`, `"end":"2025`, "invalid_value", "before the start"},
	{"year 58101", `"end":"2026`, `"end":"58101`, "invalid_value", "RFC 3339"},
	{"time as number", `"start":"2026-03-02T02:39:00.000Z"`, `"start":1772419140`, "invalid_value", "does not say its unit"},
	{"unknown type", `"gpumeter.usage.v1"`, `"gpumeter.usage.v9"`, "unknown_type", "gpumeter.usage.v9"},
	{"missing unit", `"unit":"GPU-999",`, ``, "missing_field", "unit"},
	{"key twice", `"unit":"GPU-999",`, `"unit":"GPU-999","unit":"GPU-998",`, "malformed", "twice"},
	{"misspelt key", `"utilization":0.5`, `"utilisation":0.5`, "invalid_value", "did you mean utilization"},
	{"negative energy", `"utilization":0.5`, `"energy_mj":-5`, "invalid_value", "energy_mj"},
	{"joules for millijoules", `"utilization":0.5`, `"energy_mj":99999999999999`, "invalid_value", "10 kW"},
	{"text for a number", `"utilization":0.5`, `"active_ms":"abc"`, "invalid_value", "whole milliseconds"},
	{"more than the interval", `"utilization":0.5`, `"active_ms":60001`, "invalid_value", "longer than the interval"},
	{"large label", `"utilization":0.5`, `"labels":{"a":"` + strings.Repeat("x", 5000) + `"}`, "too_large", "labels"},
	{"no source", `"source":"agent/node-1"`, `"source":""`, "missing_field", "source"},
	{"cut off", `"}}`, ``, "malformed", ""},
}

func spoil(t *testing.T, n int) string {
	t.Helper()
	c := spoilt[n]
	if c.name == "cut off" {
		return minute(999)[:200]
	}
	bad := strings.Replace(minute(999), c.from, c.to, 1)
	if bad == minute(999) {
		t.Fatalf("%s: %q is not in %s", c.name, c.from, bad)
	}
	return bad
}

func TestIngestBadFile(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice)})
	const header = "specversion,type,source,id,time,data"
	lines, reasons := []string{}, map[int]string{}
	good := 0
	bad := func(line, reason string) {
		lines = append(lines, line)
		reasons[len(lines)] = reason
		good++
		lines = append(lines, minute(good))
	}
	bad(header, "malformed")
	for n, c := range spoilt {
		bad(spoil(t, n), c.kind+": ")
		if c.reason != "" {
			reasons[len(lines)-1] = c.reason
		}
	}
	bad(strings.Replace(minute(999), `"utilization"`, `"labels":{"a":"`+strings.Repeat("x", 10<<20)+`"},"utilization"`, 1), "too_large")
	bad(header, "malformed")
	bad("\x00\xff\xfe garbage \x1b[31m", "malformed")
	bad("[]", "invalid_value")
	lines = append(lines, minute(1), "", minute(2)) // twice the same is no fault

	code, stdout, stderr := s.run("ingest", file(t, "events.jsonl", strings.Join(lines, "\n")))
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	// The last two lines are in the same batch as their originals.
	if want := fmt.Sprintf(`{"accepted":%d,"duplicate":2,"rejected":%d}`+"\n", good, len(reasons)); stdout != want {
		t.Errorf("says %s, want %s", stdout, want)
	}
	said := map[int]string{}
	for line := range strings.Lines(stderr) {
		m := regexp.MustCompile(`^line (\d+): (.*)\n$`).FindStringSubmatch(line)
		if m == nil || strings.ContainsAny(line, "\x00\x1b") {
			t.Errorf("stderr has %q", line)
			continue
		}
		n, _ := strconv.Atoi(m[1])
		said[n] = m[2]
	}
	for n, reason := range reasons {
		if !strings.Contains(said[n], reason) {
			t.Errorf("line %d is rejected with %q, want %q in it: %.80q", n, said[n], reason, lines[n-1])
		}
	}
	if len(said) != len(reasons) {
		t.Errorf("%d lines have a reason, want %d:\n%.2000q", len(said), len(reasons), stderr)
	}
	s.settled(false)
	checkMinutes(t, s, good)
	// What the server is told without the client's checks is refused as well.
	for n, c := range spoilt {
		if code, answer := s.post("/api/v1/events", schema.ContentTypeEvent, []byte(spoil(t, n))); code != 422 || !strings.Contains(answer, c.kind) {
			t.Errorf("%s over HTTP: %d %.300s", c.name, code, answer)
		}
	}
	s.settled(false)
	checkMinutes(t, s, good)
}

// checkMinutes checks that exactly the first n good events are counted.
func checkMinutes(t *testing.T, s *server, n int) {
	t.Helper()
	a := parse(t, s.get("/api/v1/reports/spend", url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}, "by": {"unit"}}))
	var units []string
	for _, r := range a.Rows {
		if r["allocated_ms"] != json.Number("60000") || r["cost"] != "0.06" {
			t.Errorf("%v, want one minute", r)
		}
		units = append(units, r["unit"].(string))
	}
	if len(units) != n || slices.Contains(units, "GPU-999") {
		t.Errorf("%d events are counted, want %d: %v", len(units), n, units)
	}
}

// quarantined is an item as the API and the command line list it.
type quarantined struct {
	Ref      string
	Sequence uint64 `json:"stream_sequence"`
	Place    int
	Kind     string
	Reason   string
	Subject  string
	Redriven string `json:"redriven_at"`
	Due      string `json:"due_at"`
}

func (s *server) quarantine() []quarantined {
	s.t.Helper()
	var page struct{ Items []quarantined }
	if err := json.Unmarshal(s.get("/api/v1/quarantine", url.Values{"limit": {"1000"}}), &page); err != nil {
		s.t.Fatal(err)
	}
	return page.Items
}

// quarantinedBytes returns what is kept of every item, in hexadecimal, by sequence
// and place.
func (s *server) quarantinedBytes() map[[2]int64]string {
	s.t.Helper()
	kept := map[[2]int64]string{}
	for line := range strings.Lines(s.sql("SELECT stream_sequence, place, lower(hex(raw)) FROM quarantine FINAL") + "\n") {
		var key [2]int64
		var raw string
		if _, err := fmt.Sscan(line, &key[0], &key[1], &raw); err != nil && strings.Count(line, "\t") != 2 {
			s.t.Fatalf("%v in %.200q", err, line)
		}
		kept[key] = raw
	}
	return kept
}

// What reaches the stream past every check is set aside whole and with the reason,
// takes nothing else with it, and can be driven again.
func TestGarbageOnTheStream(t *testing.T) {
	s := start(t, app.Options{Prices: file(t, "prices.yaml", onePrice)})
	good := 0
	next := func() string { good++; return minute(good) }
	type bad struct {
		sequence uint64
		place    int
		kind     string
	}
	var want []bad
	raws := map[uint64][]byte{}
	expect := func(kind string, place int, m *nats.Msg) {
		seq := s.publish(m)
		raws[seq] = m.Data
		want = append(want, bad{seq, place, kind})
	}
	const source = "agent/node-1"
	for n, c := range spoilt {
		text := []byte(spoil(t, n))
		place := 0
		expect(c.kind, place, message("default", source, schema.ContentTypeEvent, "", text))
		expect(c.kind, place, message("default", source, "", "", text)) // no content type
		if c.kind == "malformed" {
			continue // spoils the array that it stands in
		}
		batch := []byte("[" + next() + "," + string(text) + "," + next() + "]")
		seq := s.publish(message("default", source, schema.ContentTypeBatch, "", batch))
		want = append(want, bad{seq, 1, c.kind})
	}
	noise := make([]byte, 300)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	compact, err := schema.EncodeCompact([]schema.Usage{testkit.Usage("GPU-998", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")})
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{schema.ContentTypeEvent, schema.ContentTypeBatch, schema.ContentTypeCompact, ""} {
		where := -1
		if contentType == schema.ContentTypeEvent || contentType == "" {
			where = 0
		}
		expect("malformed", where, message("default", source, contentType, "", noise))
	}
	expect("malformed", -1, message("default", source, schema.ContentTypeCompact, "", compact[:len(compact)-3]))
	expect("malformed", -1, message("default", source, "text/csv", "", []byte(minute(999))))
	expect("missing_field", -1, message("default", source, schema.ContentTypeBatch, "", []byte("[]")))
	expect("malformed", 0, message("default", source, schema.ContentTypeEvent, "", nil))
	expect("too_large", -1, message("default", source, schema.ContentTypeEvent, "", []byte(strings.Repeat(" ", schema.MaxMessageBytes+1))))
	// Claims another source than its subject, and good events beside it.
	expect("misdirected", 0, message("default", "agent/node-2", schema.ContentTypeEvent, "", []byte(minute(999))))
	for _, subject := range []string{"gpumeter.v1.default.usage", "gpumeter.v1.default.agent~2Fnode-1.usage.more", "gpumeter.v1.default.agent~zz.usage"} {
		m := message("default", source, schema.ContentTypeEvent, "", []byte(minute(999)))
		m.Subject = subject
		expect("misdirected", -1, m)
	}
	twice := message("default", source, schema.ContentTypeEvent, "", []byte(next())) // a header that is there twice is no fault
	twice.Header.Add("Content-Type", "text/html")
	twice.Header["X-Other"] = []string{"1", "2"}
	s.publish(twice)
	s.publish(message("default", source, "", "", []byte(" \n["+next()+"]")))
	mixed := testkit.Usage("GPU-999", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	mixed.Utilization = schema.Some(42_000_000)
	mixed.ID = "bad one"
	fine, err := schema.DecodeEvent([]byte(next()))
	if err != nil {
		t.Fatal(err)
	}
	both, err := schema.EncodeCompact([]schema.Usage{mixed, *fine.Usage})
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, bad{s.publish(message("default", source, schema.ContentTypeCompact, "", both)), 0, "invalid_value"})

	s.settled(false)
	checkMinutes(t, s, good)
	items := s.quarantine()
	listed := map[bad]quarantined{}
	for _, i := range items {
		listed[bad{i.Sequence, i.Place, i.Kind}] = i
		if i.Reason == "" || i.Redriven != "" {
			t.Errorf("%+v", i)
		}
	}
	for _, w := range want {
		if _, ok := listed[w]; !ok {
			t.Errorf("not in the quarantine: %+v", w)
		}
	}
	if len(items) != len(want) {
		t.Errorf("%d items in the quarantine, want %d", len(items), len(want))
	}
	a := parse(t, s.get("/api/v1/reports/quality", url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}}))
	if a.Quality["quarantined"] != json.Number(fmt.Sprint(len(want))) {
		t.Errorf("quality %v, want %d quarantined", a.Quality, len(want))
	}
	kept := s.quarantinedBytes()
	for seq, raw := range raws {
		if !slices.ContainsFunc([]int{-1, 0}, func(place int) bool { return kept[[2]int64{int64(seq), int64(place)}] == hex.EncodeToString(raw) }) {
			t.Errorf("message %d is not kept as it came: %.100x", seq, raw)
		}
	}
	code, stdout, stderr := s.run("quarantine", "list", "--limit", "1000")
	if code != 0 || strings.Count(stdout, "\n") != len(want)+1 || strings.ContainsAny(stdout, "\x00\x1b") {
		t.Errorf("quarantine list: exit code %d, %d lines for %d items\n%s", code, strings.Count(stdout, "\n"), len(want), stderr)
	}

	redriveBad(t, s, items)
	redriveGood(t, s, &good)
	checkMinutes(t, s, good)
}

// redriveBad drives everything again: all of it is as bad as before, comes back
// under new sequences with the same bytes, and the old items are done with.
func redriveBad(t *testing.T, s *server, before []quarantined) {
	t.Helper()
	code, stdout, stderr := s.run("quarantine", "redrive", "--all")
	if code != 0 || stdout != fmt.Sprintf("{\"redriven\":%d}\n", len(before)) {
		t.Fatalf("redrive --all: %d %s %s", code, stdout, stderr)
	}
	newest := before[0].Sequence
	var after []quarantined
	within(t, "everything came back", func() bool {
		after = s.quarantine()
		return len(after) == 2*len(before) && after[len(after)-1].Redriven != "" && !slices.ContainsFunc(after, func(i quarantined) bool {
			return i.Sequence <= newest && i.Redriven == ""
		})
	})
	s.settled(false)
	old, fresh := map[string]int{}, map[string]int{}
	kept := s.quarantinedBytes()
	bytesOf := func(i quarantined) string { return kept[[2]int64{int64(i.Sequence), int64(i.Place)}] }
	for _, i := range s.quarantine() {
		if i.Sequence > newest {
			fresh[i.Kind+" "+i.Subject+" "+bytesOf(i)]++
			if i.Redriven != "" {
				t.Errorf("driven again already: %+v", i)
			}
		} else {
			old[i.Kind+" "+i.Subject+" "+bytesOf(i)]++
		}
	}
	for what, n := range old {
		if fresh[what] != n {
			t.Errorf("%d items came back %d times: %.200s", n, fresh[what], what)
		}
	}
}

// redriveGood drives an item that an older version did not know and this one
// does: it counts once, however often it is driven.
func redriveGood(t *testing.T, s *server, good *int) {
	t.Helper()
	*good++
	event := minute(*good)
	insert := func(sequence, place int, contentType, raw string) string {
		s.sql(fmt.Sprintf("INSERT INTO quarantine (tenant, stored_at, stream, epoch, stream_sequence, place, subject, content_type, kind, reason, raw, redriven_at) "+
			"VALUES ('default', now64(9), 'USAGE_0', 7, %d, %d, 'gpumeter.v1.default.agent~2Fnode-1.usage', '%s', 'unknown_type', 'an older version did not know it', unhex('%X'), 0)",
			sequence, place, contentType, raw))
		return fmt.Sprintf("USAGE_0/7/%d/%d", sequence, place)
	}
	ref := insert(1, 0, schema.ContentTypeEvent, event)
	*good++
	decoded, err := schema.DecodeEvent([]byte(minute(*good)))
	if err != nil {
		t.Fatal(err)
	}
	// Bytes that are no text have to survive the way, too.
	compact, err := schema.EncodeCompact([]schema.Usage{*decoded.Usage})
	if err != nil {
		t.Fatal(err)
	}
	binaryRef := insert(2, -1, schema.ContentTypeCompact, string(compact))
	last := s.lastSequence()
	for range 2 {
		if code, stdout, stderr := s.run("quarantine", "redrive", ref, binaryRef); code != 0 || stdout != "{\"redriven\":2}\n" {
			t.Fatalf("redrive: %d %s %s", code, stdout, stderr)
		}
	}
	if code, answer := s.post("/api/v1/quarantine/redrive", "application/json", []byte(`{"refs":["`+ref+`"]}`)); code != 200 {
		t.Fatal(code, answer)
	}
	within(t, "the stream has every re-drive", func() bool { return s.lastSequence() == last+5 })
	s.settled(false)
	if code, _, stderr := s.run("quarantine", "redrive", "USAGE_0/7/3/0"); code == 0 || !strings.Contains(stderr, "not found") {
		t.Errorf("redrive of nothing: %d %s", code, stderr)
	}
}
