package report

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseSpan(t *testing.T) {
	now := at("2026-03-10T09:30:00.250Z")
	for _, c := range []struct{ name, from, to, zone, wantFrom, wantTo string }{
		{"month to date", "", "", "", "2026-03-01T00:00:00Z", "2026-03-10T09:30:00.25Z"},
		{"month to date in a zone", "", "", "Asia/Shanghai", "2026-02-28T16:00:00Z", "2026-03-10T09:30:00.25Z"},
		{"until a month's end", "", "2026-03-01", "", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"dates are half-open", "2026-03-01", "2026-04-01", "America/New_York", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
		{"instants keep their zone", "2026-03-01T00:00:00+08:00", "2026-03-01T00:00:00.001Z", "America/New_York", "2026-02-28T16:00:00Z", "2026-03-01T00:00:00.001Z"},
		{"from only", "2026-03-09", "", "", "2026-03-09T00:00:00Z", "2026-03-10T09:30:00.25Z"},
	} {
		r, err := Parse(Params{From: c.from, To: c.to, Zone: c.zone}, time.UnixMilli(now))
		if err != nil || instantIn(utc, r.FromMs) != c.wantFrom || instantIn(utc, r.ToMs) != c.wantTo {
			t.Errorf("%s: %s to %s (%v), want %s to %s", c.name, instantIn(utc, r.FromMs), instantIn(utc, r.ToMs), err, c.wantFrom, c.wantTo)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		p           Params
		param, want string
	}{
		{Params{Kind: "cost"}, "kind", "spend, waste, utilization, usage, quality"},
		{Params{Zone: "Mars/Olympus"}, "zone", `"Mars/Olympus" is not a time zone`},
		{Params{From: "2026-04-01", To: "2026-03-01"}, "from", "is not before to"},
		{Params{From: "2026-03-01", To: "2026-03-01"}, "from", "is not before to"},
		{Params{From: "yesterday"}, "from", "neither a date"},
		{Params{From: "2026-03-01T00:00:00"}, "from", "neither a date"},
		{Params{From: "1772323200"}, "from", "neither a date"},
		{Params{To: "2026-02-30"}, "to", "neither a date"},
		{Params{To: "2026-03-01T00:00:00.0005Z"}, "to", "finer than a millisecond"},
		{Params{From: "1970-01-01"}, "from", "outside 2000 to 2100"},
		{Params{AsOf: "soon"}, "as_of", "neither a date"},
		{Params{By: []string{"projekt"}}, "by", "project, instance, unit, node, model, platform, region, plan, hour, day, month, label:KEY"},
		{Params{By: []string{"label:"}}, "by", "unknown key"},
		{Params{By: []string{"x' OR 1=1 --"}}, "by", "unknown key"},
		{Params{By: []string{"day", "day"}}, "by", "there twice"},
		{Params{By: []string{strings.Repeat("x", 1<<20)}}, "by", "..."},
		{Params{Filter: map[string]string{"day": "2026-03-01"}}, "filter", "choose times with from and to"},
		{Params{Filter: map[string]string{"cost": "1"}}, "filter", "unknown key"},
	} {
		_, err := Parse(c.p, clock)
		var wrong *RequestError
		if !errors.As(err, &wrong) || wrong.Param != c.param || !strings.Contains(wrong.Msg, c.want) || len(wrong.Msg) > 500 {
			t.Errorf("%+v: %v, want %s: ...%s", c.p, err, c.param, c.want)
		}
	}
}

func TestTooManyPieces(t *testing.T) {
	s := service(t, &fakeStore{}, p360)
	for _, by := range []string{"hour", "day"} {
		_, err := s.Report(t.Context(), Params{From: "2000-01-01", To: "2100-01-01", By: []string{by}})
		var wrong *RequestError
		if refused := errors.As(err, &wrong); refused != (by == "hour") {
			t.Errorf("a hundred years by %s: %v", by, err)
		}
	}
}

func TestParseFilter(t *testing.T) {
	f, err := ParseFilter([]string{"project=a", "label:team=x=y", "instance=", "project=a"})
	if err != nil || len(f) != 3 || f["label:team"] != "x=y" || f["instance"] != "" {
		t.Errorf("%v, %v", f, err)
	}
	for _, bad := range [][]string{{"project"}, {"projekt=a"}, {"=a"}, {"project=a", "project=b"}, {"label:=x"}} {
		if f, err := ParseFilter(bad); err == nil {
			t.Errorf("%q accepted as %v", bad, f)
		}
	}
}
