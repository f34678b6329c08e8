package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// calendar moves the clock of the program and of the commands of a test. Between
// two moves it goes on as the machine's does.
type calendar struct {
	t    *testing.T
	path string
}

func newCalendar(t *testing.T, says string) *calendar {
	c := &calendar{t: t, path: filepath.Join(t.TempDir(), "clock")}
	t.Setenv(app.ClockFile, c.path)
	c.move(says)
	return c
}

func (c *calendar) move(says string) {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "{\"real\":%q,\"says\":%q}\n", time.Now().Format(time.RFC3339Nano), says); err != nil {
		c.t.Fatal(err)
	}
}

// put publishes a usage event of project a over HTTP.
func (s *server) put(unit, from, to string) {
	s.t.Helper()
	u := testkit.Usage(unit, "i1", from, to)
	if code, answer := s.post("/api/v1/events", schema.ContentTypeEvent, schema.EncodeEvent(&schema.Event{Usage: &u})); code != 200 {
		s.t.Fatal(code, answer)
	}
}

// ok runs a command that has to succeed and returns what it prints.
func (s *server) ok(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := s.run(args...)
	if code != 0 || stderr != "" {
		s.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return stdout
}

// refused runs a command that has to fail in a certain way.
func (s *server) refused(exit int, want string, args ...string) {
	s.t.Helper()
	code, stdout, stderr := s.run(args...)
	if code != exit || stdout != "" || !strings.Contains(stderr, want) {
		s.t.Errorf("%v: exit code %d, %q, %q; want %d and %q", args, code, stdout, stderr, exit, want)
	}
}

type statement struct {
	State, Override string
	ClosedBy        string `json:"closed_by"`
	Rows            []struct{ Keys map[string]string }
	Totals, Due     figures
	Adjustments     []struct {
		Origin        string
		BilledThrough string `json:"billed_through"`
		Totals        figures
		Events        struct {
			Total  int
			Listed []struct{ ID, Start, End string }
		}
	}
	Events struct{ Total int }
}

type figures struct {
	AllocatedMs int64 `json:"allocated_ms"`
	Cost        *string
}

func (f figures) String() string {
	if f.Cost == nil {
		return fmt.Sprint(f.AllocatedMs, " null")
	}
	return fmt.Sprint(f.AllocatedMs, " ", *f.Cost)
}

func readStatement(t *testing.T, text string) (st statement) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return st
}

// Cases B1 and B10: a closed month stays as it was, to the byte, whatever arrives
// later; that is an adjustment in the next month, with its origin. A report as of
// an instant is the same whenever it is asked for.
func TestLateEventAfterClosing(t *testing.T) {
	cal := newCalendar(t, "2026-03-31T23:58:00Z")
	o := app.Options{Data: t.TempDir(), Prices: file(t, "prices.yaml", onePrice)}
	s := start(t, o)
	s.put("GPU-1", "2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z")
	s.settled(false)

	cal.move("2026-04-05T00:00:01Z")
	march := func(asOf string) string {
		q := url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}, "by": {"project"}}
		if asOf != "" {
			q.Set("as_of", asOf)
		}
		return string(s.get("/api/v1/reports/spend", q))
	}
	first := march("2026-04-05")
	if a := parse(t, []byte(first)); a.Totals["allocated_ms"] != json.Number("3600000") || a.Totals["cost"] != "3.60" {
		t.Fatalf("March as of 04-05: %s", first)
	}
	s.refused(2, "2026-04-06T00:00:00Z is in the future", "report", "spend", "--from", "2026-03-01", "--as-of", "2026-04-06")
	s.refused(1, "period 2026-04 ends at 2026-05-01", "statement", "close", "--period", "2026-04")
	if code, answer := s.try("/api/v1/statements/2026-03/diff", nil); code != 404 || !strings.Contains(answer, "period 2026-03 of tenant default is not closed") {
		t.Error(code, answer)
	}
	if code, answer := s.try("/api/v1/statements/march", nil); code != 422 || !strings.Contains(answer, "is not a month") {
		t.Error(code, answer)
	}
	show := func(period string) string { return string(s.get("/api/v1/statements/"+period, nil)) }
	diff := func(asOf string) statement {
		return readStatement(t, string(s.get("/api/v1/statements/2026-03/diff", url.Values{"as_of": {asOf}})))
	}
	preview := readStatement(t, show("2026-03"))
	if preview.State != "open" || preview.Totals.String() != "3600000 3.60" {
		t.Errorf("before closing: %+v", preview)
	}
	frozen := s.ok("statement", "close", "--period", "2026-03", "--actor", "ann", "--reason", "month end", "--format", "json")
	if st := readStatement(t, frozen); st.State != "closed" || st.Totals.String() != "3600000 3.60" || st.ClosedBy != "ann" || len(st.Adjustments) != 0 {
		t.Fatalf("closed: %s", frozen)
	}
	s.refused(1, "by ann", "statement", "close", "--period", "2026-03", "--actor", "bob")

	cal.move("2026-04-09T12:00:00Z")
	s.put("GPU-2", "2026-03-31T23:59:00Z", "2026-04-01T00:00:00Z")
	s.settled(false)
	same(t, "March as of 04-05, asked again", march("2026-04-05"), first)
	same(t, "the frozen statement", show("2026-03"), frozen)
	today := total(t, []byte(march("")))
	if today["allocated_ms"] != json.Number("3660000") || today["cost"] != "3.66" {
		t.Errorf("March as known today: %v", today)
	}
	if d := diff(""); d.Totals.String() != "60000 0.06" || d.Events.Total != 1 {
		t.Errorf("difference: %+v", d)
	}
	checkAdjustment(t, "preview of April", show("2026-04"), "open", "60000 0.06")
	s.stop()

	s = start(t, o)
	same(t, "the frozen statement after a restart", show("2026-03"), frozen)
	same(t, "March as of 04-05 after a restart", march("2026-04-05"), first)
	cal.move("2026-05-05T00:00:00Z")
	april := s.ok("statement", "close", "--period", "2026-04", "--actor", "ann", "--format", "json")
	checkAdjustment(t, "April as closed", april, "closed", "60000 0.06")

	// Billed once: the next month does not bill it again, and what arrives after
	// that is billed alone.
	s.put("GPU-3", "2026-03-20T00:00:00Z", "2026-03-20T00:10:00Z")
	s.settled(false)
	cal.move("2026-06-05T00:00:00Z")
	checkAdjustment(t, "May", s.ok("statement", "close", "--period", "2026-05", "--format", "json"), "closed", "600000 0.60")
	same(t, "April after May", show("2026-04"), april)
	same(t, "March after May", show("2026-03"), frozen)
	if d := diff("2026-04-20"); d.Totals.String() != "60000 0.06" {
		t.Errorf("difference as of 04-20: %+v", d)
	}
	var list struct {
		Statements []struct{ Period, Hash, Previous string }
	}
	if err := json.Unmarshal(s.get("/api/v1/statements", nil), &list); err != nil {
		t.Fatal(err)
	}
	previous := ""
	for i, st := range list.Statements {
		if st.Period != fmt.Sprintf("2026-%02d", 3+i) || st.Previous != previous || st.Hash == "" {
			t.Errorf("statement %d: %+v", i, st)
		}
		previous = st.Hash
	}
	if table := s.ok("statement", "show", "--period", "2026-04"); !strings.Contains(table, list.Statements[1].Hash) || !strings.Contains(table, "adjustment of 2026-03") {
		t.Errorf("table of April:\n%s", table)
	}
}

func checkAdjustment(t *testing.T, what, text, state, want string) {
	t.Helper()
	st := readStatement(t, text)
	if st.State != state || len(st.Adjustments) != 1 || st.Totals.AllocatedMs != 0 {
		t.Fatalf("%s: %s", what, text)
	}
	a := st.Adjustments[0]
	if a.Origin != "2026-03" || a.Totals.String() != want || st.Due.String() != want || a.Events.Total != 1 || len(a.Events.Listed) != 1 {
		t.Errorf("%s: %+v, due %v", what, a, st.Due)
	}
}

// While the grace time runs a month closes only with a reason, which is printed.
func TestClosingEarlyNeedsAReason(t *testing.T) {
	newCalendar(t, "2026-04-01T00:01:00Z")
	s := start(t, app.Options{})
	s.refused(1, "late events of period 2026-03 are waited for until 2026-04-01T00:10:00Z", "statement", "close", "--period", "2026-03")
	text := s.ok("statement", "close", "--period", "2026-03", "--override", "audit at nine")
	if !strings.Contains(text, "in spite of the grace time or open incidents: audit at nine") {
		t.Error(text)
	}
	if st := readStatement(t, string(s.get("/api/v1/statements/2026-03", nil))); st.Override != "audit at nine" {
		t.Errorf("%+v", st)
	}
	for path, want := range map[string]string{
		"/api/v1/statements/2026-02?zone=Asia/Shanghai": "409 are in the zone UTC", "/api/v1/statements/2026-02?zone=Mars/Olympus": "422 is not a time zone",
		"/api/v1/statements?tenant=other": "422 answers for the tenant default",
	} {
		path, query, _ := strings.Cut(path, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		code, answer := s.try(path, values)
		if status, text, _ := strings.Cut(want, " "); fmt.Sprint(code) != status || !strings.Contains(answer, text) {
			t.Errorf("%s?%s: %d %s", path, query, code, answer)
		}
	}
}

// Without a consumer nobody knows what the stream stored and is not in storage
// yet: a report as of an instant from then on is refused, and a month not closed.
// As of an instant before that there is an answer.
func TestAsOfWaitsForTheConsumer(t *testing.T) {
	cal := newCalendar(t, "2026-04-02T00:00:00Z")
	o := app.Options{Data: t.TempDir()}
	s := start(t, o)
	s.put("GPU-1", "2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z")
	s.settled(false)
	s.stop()

	o.Roles = app.AllRoles
	o.Roles.Consume = false
	s = start(t, o)
	// The stream may stamp a message a little before it shows it, so an instant
	// that much before the oldest one that waits is not settled.
	cal.move("2026-04-02T12:00:00Z")
	time.Sleep(jetstream.SettleMargin)
	cal.move("2026-04-03T00:00:00Z")
	s.put("GPU-1", "2026-03-10T11:00:00Z", "2026-03-10T12:00:00Z")
	cal.move("2026-04-04T00:00:00Z")
	ask := func(asOf string) string {
		return string(s.get("/api/v1/reports/usage", url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}, "as_of": {asOf}}))
	}
	s.refused(1, "1 messages of the stream are not processed yet", "statement", "close", "--period", "2026-03")
	early := ask("2026-04-02T12:00:00Z")
	if a := parse(t, []byte(early)); a.Totals["allocated_ms"] != json.Number("3600000") {
		t.Errorf("as of 04-02: %s", early)
	}
	if code, answer := s.try("/api/v1/reports/usage", url.Values{"as_of": {"2026-04-03T12:00:00Z"}}); code != 409 || !strings.Contains(answer, "1 messages of the stream are not processed yet") {
		t.Error(code, answer)
	}
	s.stop()

	o.Roles = app.AllRoles
	s = start(t, o)
	if a := parse(t, []byte(ask("2026-04-03T12:00:00Z"))); a.Totals["allocated_ms"] != json.Number("7200000") {
		t.Errorf("with a consumer: %v", a.Totals)
	}
	same(t, "as of 04-02", ask("2026-04-02T12:00:00Z"), early)
}

// try is get without a wish for success.
func (s *server) try(path string, query url.Values) (int, string) {
	s.t.Helper()
	res, err := http.Get(s.http + path + "?" + query.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
