package e2e_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/engine"
)

// startRefused starts the program, which has to end at once.
func (s *server) startRefused(o app.Options, want string) {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	o.Roles, o.Listen, o.EngineCommand = app.AllRoles, "127.0.0.1:0", []string{exe, engine.ChildCommand}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := app.Run(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
		s.t.Errorf("the start ends with %v, want %s", err, want)
	}
}

// Prices are known from when they are applied: what was asked as of an instant before
// stays, a closed month changes with a reason only and by an adjustment, and a restart
// forgets nothing.
func TestVersionsOfPrices(t *testing.T) {
	const second = "currency: USD\nprices:\n  - {model: \"*\", per_gpu_hour: \"3.60\", valid_to: 2026-03-15}\n  - {model: \"*\", per_gpu_hour: \"2.88\", valid_from: 2026-03-15}\n"
	third := strings.Replace(second, "2.88", "1.44", 1)
	cal := newCalendar(t, "2026-03-20T00:00:00Z")
	o := app.Options{Data: t.TempDir()}
	s := start(t, o)
	s.put("GPU-1", "2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z")
	s.put("GPU-2", "2026-03-16T10:00:00Z", "2026-03-16T11:00:00Z")
	s.settled(false)
	march := func(asOf string) string {
		q := url.Values{"from": {"2026-03-01"}, "to": {"2026-04-01"}}
		if asOf != "" {
			q.Set("as_of", asOf)
		}
		return string(s.get("/api/v1/reports/spend", q))
	}
	costs := func(what, asOf, want string) {
		t.Helper()
		totals := total(t, []byte(march(asOf)))
		if want == "" && (totals["cost"] != nil || totals["unpriced_ms"] != json.Number("7200000")) || want != "" && totals["cost"] != want {
			t.Errorf("%s: %v, want a cost of %q", what, totals, want)
		}
	}
	costs("without prices", "", "")

	cal.move("2026-03-21T00:00:00Z")
	apply := func(text string, more ...string) []string {
		return append([]string{"prices", "apply", file(t, "prices.yaml", text), "--by", "ann", "--reason", "renewal"}, more...)
	}
	if out := s.ok(apply(onePrice)...); !strings.Contains(out, "book default: applied, version ") {
		t.Error(out)
	}
	costs("with the first version", "", "7.20")
	if out := s.ok(apply(onePrice)...); !strings.Contains(out, "in force already") {
		t.Error(out)
	}
	cal.move("2026-03-25T00:00:00Z")
	s.ok(apply(second)...)
	costs("with the second version", "", "6.48")
	costs("as of the time before any price", "2026-03-20T12:00:00Z", "")
	costs("as of the first version", "2026-03-22", "7.20")
	early := march("2026-03-22")

	cal.move("2026-04-05T00:00:00Z")
	frozen := s.ok("statement", "close", "--period", "2026-03", "--actor", "ann", "--format", "json")
	if st := readStatement(t, frozen); st.Totals.String() != "7200000 6.48" {
		t.Errorf("March as closed: %s", frozen)
	}
	cal.move("2026-04-10T00:00:00Z")
	const refusal = "period 2026-03 is closed, and the book default changes it: every other model, platform any other, region any other: 1.44 USD per GPU-hour instead of 2.88 USD per GPU-hour"
	s.refused(1, refusal, apply(third)...)
	if code, answer := s.post("/api/v1/prices?by=ann&reason=x", "application/yaml", []byte(third)); code != 409 || !strings.Contains(answer, refusal) {
		t.Error(code, answer)
	}
	if out := s.ok("prices", "diff", file(t, "prices.yaml", third)); !strings.Contains(out, "closed months that change: 2026-03") {
		t.Error(out)
	}
	costs("after a refusal", "", "6.48")
	s.ok(apply(third, "--force", "agreed with finance")...)
	costs("forced", "", "5.04")
	s.stop()

	// A start with a file is no way around the rule, and one without keeps what there is.
	refused := o
	refused.Prices = file(t, "prices.yaml", second)
	s.startRefused(refused, "period 2026-03 is closed")
	s = start(t, o)
	costs("after a restart", "", "5.04")
	same(t, "as of the first version, after a restart", march("2026-03-22"), early)
	if text := s.ok("statement", "diff", "--period", "2026-03"); !strings.Contains(text, "by ann: renewal; in spite of closed periods: agreed with finance") || !strings.Contains(text, "-1.44 USD") {
		t.Error(text)
	}
	same(t, "the frozen statement", string(s.get("/api/v1/statements/2026-03", nil)), frozen)
	cal.move("2026-05-05T00:00:00Z")
	st := readStatement(t, s.ok("statement", "close", "--period", "2026-04", "--format", "json"))
	if len(st.Adjustments) != 1 || st.Adjustments[0].Totals.String() != "0 -1.44" || st.Adjustments[0].Events.Total != 0 || st.Due.String() != "0 -1.44" {
		t.Errorf("April: %+v", st)
	}
	var list struct {
		Documents []struct {
			Versions []struct{ Version, Forced string }
		}
	}
	if err := json.Unmarshal([]byte(s.ok("prices", "list", "--format", "json")), &list); err != nil || len(list.Documents) != 1 || len(list.Documents[0].Versions) != 3 || list.Documents[0].Versions[2].Forced != "agreed with finance" {
		t.Errorf("%+v, %v", list, err)
	}
	if text := s.ok("prices", "show", "book", "default", "--version", list.Documents[0].Versions[1].Version); text != second {
		t.Errorf("the second version is\n%s", text)
	}
	if st := s.status(); st.Prices != list.Documents[0].Versions[2].Version {
		t.Errorf("status: %+v", st)
	}
}
