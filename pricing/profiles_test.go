package pricing

import (
	"math/big"
	"slices"
	"strings"
	"testing"
)

func shipped(t *testing.T) map[string]*Profile {
	t.Helper()
	list, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*Profile{}
	for _, f := range list {
		byName[f.Platform] = f
	}
	return byName
}

// What the notes on the platforms confirm. Every other rule is a guess, and the
// profile has to say so.
var confirmed = map[string]string{
	"alibaba-ecs": "billed.compute billed.storage time.granularity settle spot.protection spot.notice plan.refund",
	"alibaba-pai": "",
	"autodl":      "billed.compute billed.no_gpu_per_hour time.granularity",
	"aws":         "billed.compute billed.storage time.granularity time.minimum time.minimum_per spot.refund spot.refund_within plan.refund",
	"azure":       "billed.compute billed.storage",
	"baidu":       "",
	"coreweave":   "",
	"gcp":         "billed.storage time.granularity",
	"huawei":      "zone billed.compute time.granularity settle spot.refund plan.month",
	"lambda":      "billed.compute time.granularity",
	"runpod":      "billed.compute billed.storage time.granularity",
	"runware":     "time.granularity time.rounding time.minimum time.minimum_per",
	"scaleway":    "billed.compute billed.storage time.granularity",
	"spacehpc":    "billed.compute billed.storage time.granularity settle amount.minimum amount.per",
	"tencent-cvm": "billed.compute billed.storage settle",
	"tianyi":      "billed.compute billed.storage time.granularity settle",
	"vast":        "billed.compute billed.storage time.granularity",
	"volcengine":  "",
}

func TestProfilesSayWhatIsAGuess(t *testing.T) {
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		t.Fatal(err)
	}
	profiles := shipped(t)
	if len(files) != len(confirmed)+1 || len(profiles) != len(files) {
		t.Errorf("%d files and %d platforms, want %d", len(files), len(profiles), len(confirmed)+1)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".yaml")
		f := profiles[name]
		if f == nil {
			t.Errorf("%s is not the profile of %s", file.Name(), name)
			continue
		}
		if name == "exact" {
			if len(f.Sources)+len(f.Unverified) > 0 {
				t.Error("exact has sources or guesses; it follows no platform")
			}
			continue
		}
		if len(f.Sources) == 0 && !slices.Contains(f.Unverified, "sources") {
			t.Errorf("%s has no sources", name)
		}
		facts, used := strings.Fields(confirmed[name]), 0
		for _, rule := range rulesOf(Profile{}, "") {
			group, _, _ := strings.Cut(rule, ".")
			switch rule {
			case "platform", "sources", "unverified", "billed", "time", "amount", "spot", "plan":
				continue
			case "billed.no_gpu_per_hour":
				if !f.Billed.Bills("running_no_gpu") {
					continue
				}
			}
			fact := slices.Contains(facts, rule)
			guess := slices.Contains(f.Unverified, rule) || slices.Contains(f.Unverified, group)
			if fact == guess {
				t.Errorf("%s: %s is a fact %t and a guess %t", name, rule, fact, guess)
			}
			if fact {
				used++
			}
		}
		if used != len(facts) {
			t.Errorf("%s: %d of the facts %v are rules", name, used, facts)
		}
	}
}

// bill returns the bill of runs, each written as "from/to", as pieces and as money.
func (f *Profile) bill(t *testing.T, perHour string, runs string) (pieces []int64, money string) {
	t.Helper()
	var spans []Span
	for _, run := range strings.Fields(runs) {
		from, to, _ := strings.Cut(run, "/")
		spans = append(spans, Span{ms("2026-03-02T" + from), ms("2026-03-0" + to)})
	}
	price, ok := new(big.Rat).SetString(perHour)
	if !ok {
		t.Fatal(perHour)
	}
	time, rounding := f.TimeRule(), f.Rounding()
	sum := new(big.Rat)
	for _, b := range time.Bill(spans, nil) {
		pieces = append(pieces, b.BilledMs)
		cost := Cost(b.BilledMs, Price{PerGPUHour: price})
		if f.Amount.Per == PerLine {
			cost = rounding.Round(cost)
		}
		sum.Add(sum, cost)
	}
	if f.Amount.Per != PerLine {
		sum = rounding.Round(sum)
	}
	return pieces, Exact(sum)
}

// One bill per platform, worked out by hand from what its pages say.
func TestProfilesBill(t *testing.T) {
	profiles := shipped(t)
	seen := map[string]bool{}
	for _, c := range []struct {
		platform, what string
		perHour, runs  string // times of 2 March; the end with its day
		want           []int64
		money          string
		billed, free   string // states in which compute is, and is not, billed
	}{
		{"exact", "a millisecond is a millisecond", "36", "10:00:00Z/2T10:00:00.001Z", []int64{1}, "0.00001", "running stopped_keep", "stopped_free released"},
		{"exact", "a day is one piece", "36", "00:00:00Z/3T00:00:00Z", []int64{86_400_000}, "864", "", ""},
		{"autodl", "by the second, with a boot that has no GPU", "36", "10:00:10Z/2T10:01:00Z", []int64{50_000}, "0.5", "running running_no_gpu", "stopped_free stopped_keep"},
		{"spacehpc", "a second at 2 per hour is 0.01", "2", "10:00:00Z/2T10:00:01Z", []int64{1000}, "0.01", "running", "stopped_free stopped_keep"},
		{"spacehpc", "the least is taken at the full hour and at power-off", "2", "10:59:59Z/2T11:00:01Z", []int64{1000, 1000}, "0.02", "", ""},
		{"alibaba-ecs", "10:59:30 to 12:50:30", "35", "10:59:30Z/2T12:50:30Z", []int64{30_000, 3_600_000, 3_030_000}, "64.75", "running stopped_keep", "stopped_free interrupted"},
		{"alibaba-ecs", "below 0.005 is free", "2", "10:00:00Z/2T10:00:01Z", []int64{1000}, "0", "", ""},
		{"alibaba-ecs", "0.005 is a cent", "18", "10:00:00Z/2T10:00:01Z", []int64{1000}, "0.01", "", ""},
		{"alibaba-pai", "what stops inside of a quota is paid on", "36", "10:00:00Z/2T10:01:30Z", []int64{90_000}, "0.9", "running stopped_keep", "released"},
		{"tencent-cvm", "hour by hour, stopping is free if asked for", "36", "10:30:00Z/2T12:15:00Z", []int64{1_800_000, 3_600_000, 900_000}, "63", "running stopped_keep", "stopped_free"},
		{"volcengine", "as most others", "36", "10:59:00Z/2T11:01:00Z", []int64{60_000, 60_000}, "1.2", "running stopped_keep", "stopped_free"},
		{"huawei", "08:45:30 to 09:30:00 of UTC+8", "35", "08:45:30+08:00/2T09:30:00+08:00", []int64{870_000, 1_800_000}, "25.96", "running stopped_keep stopped_free", "released frozen"},
		{"tianyi", "a 3600th per second, hour by hour", "36", "10:00:00Z/2T11:14:30Z", []int64{3_600_000, 870_000}, "44.7", "running", "stopped_free stopped_keep"},
		{"baidu", "61 s are two minutes, and stopped is billed", "30", "10:00:00Z/2T10:01:01Z", []int64{120_000}, "1", "running stopped_keep stopped_free", "released"},
		{"runpod", "rounded up to the second", "36", "10:00:00Z/2T10:00:01.200Z", []int64{2000}, "0.02", "running stopping", "stopped_free stopped_keep"},
		{"lambda", "by the minute, no pause", "60", "10:00:00Z/2T10:01:01Z", []int64{120_000}, "2", "running stopped_keep stopped_free", "released"},
		{"coreweave", "nothing known, by the second", "36", "10:00:00Z/2T10:01:30Z", []int64{90_000}, "0.9", "running", "stopped_free"},
		{"vast", "by the second, inactive is free", "36", "10:00:00Z/2T10:00:07Z", []int64{7000}, "0.07", "running", "stopped_free released"},
		{"aws", "60 s at every start", "36", "10:00:00Z/2T10:00:10Z 10:00:20Z/2T10:01:50Z", []int64{60_000, 90_000}, "1.5", "running", "stopping stopped_free stopped_keep"},
		{"gcp", "by the second after a minute", "36", "10:00:00Z/2T10:00:10Z 10:01:00Z/2T10:02:01Z", []int64{60_000, 61_000}, "1.21", "running", "stopped_free"},
		{"azure", "stopped but allocated is billed", "36", "10:00:00Z/2T10:01:30Z", []int64{90_000}, "0.9", "running stopped_keep", "stopped_free"},
		{"scaleway", "by the minute, standby too", "60", "10:00:00Z/2T11:00:30Z", []int64{3_600_000, 60_000}, "61", "running stopped_keep", "stopped_free"},
		{"scaleway", "an hour at every start", "60", "10:00:00Z/2T10:10:00Z", []int64{3_600_000}, "60", "", ""},
		{"runware", "milliseconds, cut at midnight", "36", "23:59:59.999Z/3T00:00:00.002Z", []int64{1, 2}, "0.00003", "running", "released"},
	} {
		f := profiles[c.platform]
		if f == nil {
			t.Errorf("no profile of %s", c.platform)
			continue
		}
		seen[c.platform] = true
		if pieces, money := f.bill(t, c.perHour, c.runs); !slices.Equal(pieces, c.want) || money != c.money {
			t.Errorf("%s, %s: %v ms for %s, want %v for %s", c.platform, c.what, pieces, money, c.want, c.money)
		}
		for _, state := range strings.Fields(c.billed) {
			if !f.Billed.Bills(state) {
				t.Errorf("%s does not bill %s", c.platform, state)
			}
		}
		for _, state := range strings.Fields(c.free) {
			if f.Billed.Bills(state) {
				t.Errorf("%s bills %s", c.platform, state)
			}
		}
	}
	for name := range profiles {
		if !seen[name] {
			t.Errorf("%s has no bill worked out", name)
		}
	}
}

// The rules that no run shows: storage, spot and plans.
func TestProfilesBesidesTime(t *testing.T) {
	profiles := shipped(t)
	for name, f := range profiles {
		for _, state := range []State{"stopped_keep", "stopped_free"} {
			if !slices.Contains(f.Billed.Storage, state) {
				t.Errorf("%s does not bill the disks in %s", name, state)
			}
		}
		if slices.Contains(f.Billed.Storage, "released") {
			t.Errorf("%s bills the disks of what is released", name)
		}
	}
	if got := Exact(profiles["autodl"].Billed.NoGPU); got != "0.1" {
		t.Errorf("AutoDL without a GPU is %s per hour", got)
	}
	if s := profiles["aws"].Spot; s.Refund != RefundRun || s.Within != hourMs {
		t.Errorf("AWS gives back %+v", s)
	}
	if s := profiles["alibaba-ecs"].Spot; s.Protection != hourMs || s.Notice != 180_000 || s.Refund != RefundNone {
		t.Errorf("Alibaba gives back %+v", s)
	}
	if s := profiles["huawei"].Spot; s.Refund != RefundRun {
		t.Errorf("Huawei gives back %+v", s)
	}
	if p := profiles["aws"].Plan; p.Refund != NoRefund {
		t.Errorf("AWS gives back plans: %+v", p)
	}
	if p := profiles["alibaba-ecs"].Plan; p.Refund != RefundHourly {
		t.Errorf("Alibaba gives back plans: %+v", p)
	}
	// V06: 1750 per month, 12 days of 30 and 8 of 31 are left.
	h := profiles["huawei"]
	left := Span{ms("2026-04-19T00:00:00+08:00"), ms("2026-05-09T00:00:00+08:00")}
	part := h.Plan.Month.Part(left, left, h.Zone)
	rounding := h.Rounding()
	if got := Exact(rounding.Round(part.Mul(part, big.NewRat(1750, 1)))); got != "1151.61" {
		t.Errorf("12/30 + 8/31 of 1750 is %s", got)
	}
}
