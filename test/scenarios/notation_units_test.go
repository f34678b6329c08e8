package scenarios_test

import (
	"strings"
	"testing"
)

func TestNotation(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"# a comment", ""},
		{"", ""},
		{
			`usage e1 agent/n1 GPU-0 i1 a 2026-03-01T10:00:00Z..10:01:00 util=0.5 share=0.25 label.team="a b" # why`,
			`{"data":{"end":"2026-03-01T10:01:00Z","instance":"i1","labels":{"team":"a b"},"project":"a","share":"0.25","start":"2026-03-01T10:00:00Z","unit":"GPU-0","utilization":0.5},"id":"e1","source":"agent/n1","specversion":"1.0","type":"gpumeter.usage.v1"}`,
		},
		{
			`usage e agent/n1 GPU-0 - - 2026-03-01T23:59:00.500Z..+60s util=unknown active=1.5s seq=7 sent=2026-03-02T00:00:00Z times=2 every=1m`,
			`{"data":{"active_ms":1500,"end":"2026-03-02T00:00:00.5Z","start":"2026-03-01T23:59:00.5Z","unit":"GPU-0","utilization":null},"id":"e-1","sequence":"7","source":"agent/n1","specversion":"1.0","time":"2026-03-02T00:00:00Z","type":"gpumeter.usage.v1"}` + "\n" +
				`{"data":{"active_ms":1500,"end":"2026-03-02T00:01:00.5Z","start":"2026-03-02T00:00:00.5Z","unit":"GPU-0","utilization":null},"id":"e-2","sequence":"7","source":"agent/n1","specversion":"1.0","time":"2026-03-02T00:00:00Z","type":"gpumeter.usage.v1"}`,
		},
		{
			`lease l1 cloud/x i1 running 2026-02-27T00:00:00Z project=a gpus=1 model=H100`,
			`{"data":{"at":"2026-02-27T00:00:00Z","gpus":1,"instance":"i1","model":"H100","project":"a","state":"running"},"id":"l1","source":"cloud/x","specversion":"1.0","type":"gpumeter.lease.v1"}`,
		},
		{
			`meter m1 agent/n1 i1 a mem_gib_seconds 4800 2026-03-01T10:00:00+08:00..10:01:00`,
			`{"data":{"end":"2026-03-01T10:01:00+08:00","instance":"i1","meter":"mem_gib_seconds","project":"a","quantity":"4800","start":"2026-03-01T10:00:00+08:00"},"id":"m1","source":"agent/n1","specversion":"1.0","type":"gpumeter.meter.v1"}`,
		},
		{
			`outage o1 cloud/x aws 2026-03-01T10:00:00Z..2026-03-02T00:00:00Z region=eu because="power"`,
			`{"data":{"end":"2026-03-02T00:00:00Z","platform":"aws","reason":"power","region":"eu","start":"2026-03-01T10:00:00Z"},"id":"o1","source":"cloud/x","specversion":"1.0","type":"gpumeter.outage.v1"}`,
		},
		{
			`retract c1 finance/li of=agent/n1/e1 by=li because="never ran"`,
			`{"data":{"action":"retract","actor":"li","corrects":{"id":"e1","source":"agent/n1"},"reason":"never ran"},"id":"c1","source":"finance/li","specversion":"1.0","type":"gpumeter.correction.v1"}`,
		},
		{
			`replace c2 finance/li of=agent/n1/e1 by=li because=half with usage e2 finance/li GPU-0 i1 a 2026-03-01T10:00:00Z..+30m`,
			`{"data":{"action":"replace","actor":"li","corrects":{"id":"e1","source":"agent/n1"},"reason":"half","replacement":{"data":{"end":"2026-03-01T10:30:00Z","instance":"i1","project":"a","start":"2026-03-01T10:00:00Z","unit":"GPU-0"},"id":"e2","source":"finance/li","specversion":"1.0","type":"gpumeter.usage.v1"}},"id":"c2","source":"finance/li","specversion":"1.0","type":"gpumeter.correction.v1"}`,
		},
	} {
		got, err := notation("f", c.line)
		if err != nil || strings.TrimSuffix(string(got), "\n") != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.line, got, err, c.want)
		}
	}
}

func TestNotationNamesTheFault(t *testing.T) {
	for line, want := range map[string]string{
		"use e1":           `f:2: "use" is no kind of event`,
		"usage e1":         "too short; the form is: usage ID SOURCE UNIT",
		"usage e1 s GPU-0": "3 words are missing; the form is: usage",
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z":                      "is not FROM..TO such as",
		"usage e1 s GPU-0 i1 a 2026-03-01 10:00..+60s":                    "is not FROM..TO such as",
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60":                 "is not a length such as +60s",
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..tomorrow":            "neither a time",
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s utilization=1":  `"utilization" is no key`,
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s util=half":      `"half" is not a number`,
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s busy":           `"busy" is not key=value`,
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s times=0":        "times=0 is not a number",
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s model=\"H100":   "is not closed",
		"lease l1 s i1 running yesterday":                                 `"yesterday" is not a time`,
		"retract c1 s of=e1 by=li":                                        "does not name SOURCE/ID",
		"replace c1 s of=s/e1 by=li with nothing":                         `"with" is followed by an event`,
		"usage e1 s GPU-0 i1 a 2026-03-01T10:00:00Z..+60s every=a-minute": "every=a-minute is not a duration",
	} {
		if out, err := notation("f", "\n"+line); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:2: ") || len(out) > 0 {
			t.Errorf("%s\n got %s, %v\nwant %s", line, out, err, want)
		}
	}
}
