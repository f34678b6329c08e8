package pricing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const huawei = `platform: huawei
zone: Asia/Shanghai
sources: [https://support.example.com/price]
unverified: [time.minimum]
billed:
  compute: [running, stopping]
  storage: [provisioning, running, stopping, stopped_keep, stopped_free]
settle: hour
amount: {rounding: half_up, decimals: 2, per: line, minimum: "0.01"}
spot: {refund: run, refund_within: 1h}
plan: {month: calendar, day: rolling, refund: prorated}
`

func TestProfile(t *testing.T) {
	f, err := ParseProfile("huawei.yaml", []byte(huawei))
	if err != nil {
		t.Fatal(err)
	}
	if f.Zone.String() != "Asia/Shanghai" || !f.Billed.Bills("stopping") || f.Billed.Bills("stopped_free") || f.Settle != EveryHour ||
		f.Spot.Within != hourMs || Exact(f.Amount.Minimum) != "0.01" || f.Plan.Month != MonthOfCalendar || f.Line != 1 {
		t.Errorf("%+v", f)
	}
	rule := f.TimeRule()
	if got := rule.Bill([]Span{{ms("2026-03-01T00:30:00Z"), ms("2026-03-01T01:30:00Z")}}, nil); len(got) != 2 {
		t.Errorf("settled in %d pieces", len(got))
	}
}

// What is not understood is an error that names the place and what was meant.
func TestProfileFaults(t *testing.T) {
	for _, c := range []struct{ old, changed, want string }{
		{"settle: hour", "settled: hour", `p.yaml:8:1: unknown key "settled" in the profile; did you mean "settle"?`},
		{"settle: hour", "settle: minute", `p.yaml:8:9: settle is "minute"; did you mean`},
		{"zone: Asia/Shanghai", "zone: Asia/Shangai", `p.yaml:2:7: zone is "Asia/Shangai"; it must be a time zone`},
		{"zone: Asia/Shanghai", "zone: Local", `zone is "Local"`},
		{"zone: Asia/Shanghai\n", "", "zone is missing in the profile"},
		{"compute: [running, stopping]", "compute: [running, stoping]", `an entry of compute is "stoping"; did you mean "stopping"?`},
		{"compute: [running, stopping]\n  ", "", "compute is missing in billed"},
		{"refund_within: 1h", "refund_within: 1 hour", `refund_within is "1 hour"; it must be a length of time`},
		{"refund_within: 1h", "refund_within: -1h", `refund_within is "-1h"`},
		{"refund: run, ", "", "spot.refund does not say what is given back"},
		{`minimum: "0.01"`, `minimum: "1e-2"`, `minimum is "1e-2"; it must be a plain decimal`},
		{"decimals: 2", "decimals: -2", `decimals is "-2"; it must be a whole number`},
		{"rounding: half_up, ", "", "amount has no rounding"},
		{"[time.minimum]", "[time.minimun]", `p.yaml:4:13: unverified names "time.minimun", which is no rule; did you mean "time.minimum"?`},
		{"settle: hour", "settle: hour\ntime: {granularity: 60s}", "time.rounding does not say"},
		{"settle: hour", "settle: hour\ntime: {rounding: up}", "p.yaml:9:18: time.rounding is up and there is no time.granularity"},
		{"settle: hour", "settle: hour\ntime: {minimum: 60s}", "time.minimum_per does not say"},
		{"settle: hour", "time: {per: settlement}", "settle is left out"},
		{"settle: hour", "settle: hour\nsettle: day", `key "settle" is there twice`},
		{"billed:", "billed: 3\nx:", "billed must be made of"},
		{"sources: [https://support.example.com/price]", "sources: none", "sources must be a list"},
	} {
		if !strings.Contains(huawei, c.old) {
			t.Fatalf("no %q in the example", c.old)
		}
		f, err := ParseProfile("p.yaml", []byte(strings.Replace(huawei, c.old, c.changed, 1)))
		if f != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.changed, err, c.want)
		}
	}
	for _, text := range []string{"", "- a", "a", "{", "x: *y", "platform: \xff", strings.Repeat(" ", MaxFileBytes+1)} {
		if f, err := ParseProfile("p.yaml", []byte(text)); f != nil || err == nil {
			t.Errorf("%q is a profile: %+v", text, f)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add(huawei)
	files, _ := filepath.Glob("profiles/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if profile, err := ParseProfile("p.yaml", []byte(text)); (profile == nil) == (err == nil) {
			t.Fatalf("%v and %v", profile, err)
		}
	})
}
