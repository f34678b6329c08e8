package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func billedText(list []Billed) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s-%s %ds", time.UnixMilli(p.FromMs).UTC().Format("15:04:05"), time.UnixMilli(p.ToMs).UTC().Format("15:04:05"), p.BilledMs/1000)
		if p.MinimumMs != 0 || p.RoundingMs != 0 {
			fmt.Fprintf(&b, " (minimum %ds, rounding %ds)", p.MinimumMs/1000, p.RoundingMs/1000)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestBill(t *testing.T) {
	const minute, hour = 60_000, 3_600_000
	day := func(clock string) int64 {
		if rest, next := strings.CutPrefix(clock, "24"); next {
			return ms("2026-03-03T00" + rest + "Z")
		}
		return ms("2026-03-02T" + clock + "Z")
	}
	for name, c := range map[string]struct {
		rule TimeRule
		runs []Span
		cuts []int64
		want string
	}{
		"V01 exact seconds, settled per clock hour": {TimeRule{Settle: EveryHour}, []Span{{day("08:45:30"), day("09:30:00")}}, nil,
			"08:45:30-09:00:00 870s\n09:00:00-09:30:00 1800s\n"},
		"V02 a started hour": {TimeRule{Granularity: hour, Rounding: RoundUp}, []Span{{day("08:45:30"), day("09:30:00")}}, nil,
			"08:45:30-09:30:00 3600s (minimum 0s, rounding 930s)\n"},
		"V02 settled meanwhile": {TimeRule{Granularity: hour, Rounding: RoundUp, Settle: EveryHour}, []Span{{day("08:45:30"), day("09:30:00")}}, nil,
			"08:45:30-09:00:00 870s\n09:00:00-09:30:00 2730s (minimum 0s, rounding 930s)\n"},
		"Alibaba's 10:59:30-12:50:30 is 30 + 3600 + 3030 s": {TimeRule{Settle: EveryHour}, []Span{{day("10:59:30"), day("12:50:30")}}, nil,
			"10:59:30-11:00:00 30s\n11:00:00-12:00:00 3600s\n12:00:00-12:50:30 3030s\n"},
		"Baidu's started minute, in every hour": {TimeRule{Granularity: minute, Rounding: RoundUp, Per: PerSettlement, Settle: EveryHour}, []Span{{day("10:59:30"), day("11:00:10")}}, nil,
			"10:59:30-11:00:00 60s (minimum 0s, rounding 30s)\n11:00:00-11:00:10 60s (minimum 0s, rounding 50s)\n"},
		"C1 five minutes with an hour at least": {TimeRule{MinimumMs: hour, MinimumPer: PerStart}, []Span{{day("10:00:00"), day("10:05:00")}}, nil,
			"10:00:00-10:05:00 3600s (minimum 3300s, rounding 0s)\n"},
		"a minimum is one, though midnight cuts it": {TimeRule{MinimumMs: hour, MinimumPer: PerStart, Settle: EveryDay}, []Span{{day("23:58:00"), day("24:03:00")}}, nil,
			"23:58:00-00:00:00 120s\n00:00:00-00:03:00 3480s (minimum 3300s, rounding 0s)\n"},
		"AWS: 60 s at every start": {TimeRule{MinimumMs: minute, MinimumPer: PerStart}, []Span{{day("10:00:00"), day("10:00:10")}, {day("10:00:20"), day("10:00:50")}}, nil,
			"10:00:00-10:00:10 60s (minimum 50s, rounding 0s)\n10:00:20-10:00:50 60s (minimum 30s, rounding 0s)\n"},
		"a minimum per day": {TimeRule{MinimumMs: hour, MinimumPer: PerDay}, []Span{{day("10:00:00"), day("10:10:00")}, {day("12:00:00"), day("12:20:00")}, {day("23:00:00"), day("24:30:00")}}, nil,
			"10:00:00-10:10:00 600s\n12:00:00-12:20:00 1200s\n23:00:00-00:00:00 3600s\n00:00:00-00:30:00 3600s (minimum 1800s, rounding 0s)\n"},
		"rounded down": {TimeRule{Granularity: minute, Rounding: RoundDown}, []Span{{day("10:00:00"), day("10:01:50")}}, []int64{day("10:01:00")},
			"10:00:00-10:01:00 60s\n10:01:00-10:01:50 0s (minimum 0s, rounding -50s)\n"},
		"rounded down by more than the last piece has": {TimeRule{Granularity: minute, Rounding: RoundDown}, []Span{{day("10:00:00"), day("10:01:50")}}, []int64{day("10:01:45")},
			"10:00:00-10:01:45 60s (minimum 0s, rounding -45s)\n10:01:45-10:01:50 0s (minimum 0s, rounding -5s)\n"},
		"a minimum per day comes before rounding, too": {TimeRule{MinimumMs: 90_000, MinimumPer: PerDay, Granularity: minute, Rounding: RoundUp}, []Span{{day("10:00:00"), day("10:00:30")}}, nil,
			"10:00:00-10:00:30 120s (minimum 60s, rounding 30s)\n"},
	} {
		c.rule.Zone = time.UTC
		if got := billedText(c.rule.Bill(c.runs, c.cuts)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", name, got, c.want)
		}
	}
}

// Whatever the rule and the runs, cuts that are no settlement boundaries change no
// total, what is added is said, and everything else is the time itself.
func TestCutsChangeNoTotal(t *testing.T) {
	zones := []*time.Location{time.UTC, zone(t, "Asia/Shanghai"), zone(t, "America/New_York"), zone(t, "Asia/Kolkata")}
	rapid.Check(t, func(t *rapid.T) {
		r := TimeRule{
			Granularity: rapid.SampledFrom([]int64{0, 1000, 60_000, 3_600_000, 7_777}).Draw(t, "granularity"),
			Rounding:    rapid.SampledFrom([]TimeRound{RoundUp, RoundDown, RoundNearest}).Draw(t, "rounding"),
			Per:         rapid.SampledFrom([]RoundScope{PerRun, PerSettlement}).Draw(t, "per"),
			MinimumMs:   rapid.SampledFrom([]int64{0, 60_000, 3_600_000}).Draw(t, "minimum"),
			MinimumPer:  rapid.SampledFrom([]MinimumPer{PerStart, PerDay}).Draw(t, "minimum per"),
			Settle:      rapid.SampledFrom([]Every{"", EveryHour, EveryDay, EveryMonth}).Draw(t, "settle"),
			Zone:        rapid.SampledFrom(zones).Draw(t, "zone"),
		}
		var runs []Span
		at := ms("2026-03-07T20:00:00Z") + rapid.Int64Range(0, 86_400_000).Draw(t, "start")
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			at += rapid.Int64Range(0, 7_200_000).Draw(t, "gap")
			runs = append(runs, Span{at, at + rapid.Int64Range(1, 20_000_000).Draw(t, "length")})
			at = runs[len(runs)-1].ToMs
		}
		cuts := rapid.SliceOfN(rapid.Int64Range(runs[0].FromMs-10, at+10), 0, 6).Draw(t, "cuts")
		whole, cut := r.Bill(runs, nil), r.Bill(runs, cuts)
		if Total(whole) != Total(cut) {
			t.Fatalf("%d ms whole and %d ms cut at %v:\n%s\n%s", Total(whole), Total(cut), cuts, billedText(whole), billedText(cut))
		}
		sums := make([]int64, len(runs))
		for i, p := range cut {
			if p.BilledMs != p.Ms()+p.MinimumMs+p.RoundingMs || p.Ms() <= 0 || p.MinimumMs < 0 {
				t.Fatalf("piece %+v does not add up", p)
			}
			if i > 0 && p.FromMs < cut[i-1].ToMs {
				t.Fatalf("pieces overlap: %+v %+v", cut[i-1], p)
			}
			sums[p.Run] += p.Ms()
		}
		for i, run := range runs {
			if sums[i] != run.Ms() {
				t.Fatalf("run %d of %d ms is in pieces of %d ms", i, run.Ms(), sums[i])
			}
		}
	})
}

func TestRounding(t *testing.T) {
	for _, c := range []struct {
		rule    Rounding
		x, want string
	}{
		{Rounding{Mode: HalfUp, Decimals: 2, FreeBelow: rat("0.005")}, "2/3600", "0"}, // V04, below 0.005 is free
		{Rounding{Mode: HalfUp, Decimals: 2, Minimum: rat("0.01")}, "2/3600", "0.01"}, // V04, at least 0.01
		{Rounding{Mode: HalfUp, Decimals: 2, Minimum: rat("0.01")}, "0", "0"},         // nothing costs nothing
		{Rounding{Mode: HalfUp, Decimals: 2}, "8.458333", "8.46"},                     // V01
		{Rounding{Mode: HalfUp, Decimals: 2}, "0.005", "0.01"},
		{Rounding{Mode: HalfEven, Decimals: 2}, "0.005", "0"},
		{Rounding{Mode: HalfEven, Decimals: 2}, "0.015", "0.02"},
		{Rounding{Mode: HalfEven, Decimals: 2}, "0.0051", "0.01"},
		{Rounding{Mode: Up, Decimals: 2}, "0.0001", "0.01"},
		{Rounding{Mode: Up, Decimals: 2}, "0.01", "0.01"},
		{Rounding{Mode: Down, Decimals: 2}, "0.0199", "0.01"},
		{Rounding{Mode: HalfUp}, "1/2", "1"},
		{Rounding{}, "1/3", "1/3"},
	} {
		for _, sign := range []int64{1, -1} {
			x, want := rat(c.x), rat(c.want)
			x.Mul(x, big.NewRat(sign, 1))
			want.Mul(want, big.NewRat(sign, 1))
			if got := c.rule.Round(x); got.Cmp(want) != 0 {
				t.Errorf("%+v of %s is %s, want %s", c.rule, x.RatString(), got.RatString(), want.RatString())
			}
		}
	}
}

// A day is a date, whatever the clocks do, and months go from the anchor.
func TestCalendar(t *testing.T) {
	for _, c := range []struct {
		every          Every
		zone, from, to string
		want           []string
	}{
		{EveryHour, "Asia/Kolkata", "2026-03-01T00:00:00Z", "2026-03-01T02:00:00Z", []string{"2026-03-01T00:30:00Z", "2026-03-01T01:30:00Z"}},
		{EveryDay, "America/New_York", "2026-03-07T05:00:00Z", "2026-03-10T12:00:00Z", []string{"2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", "2026-03-10T04:00:00Z"}},
		{EveryDay, "Africa/Cairo", "2026-04-23T00:00:00Z", "2026-04-25T00:00:00Z", []string{"2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"}}, // midnight is skipped
		{EveryHour, "Australia/Lord_Howe", "2026-04-04T14:10:00Z", "2026-04-04T17:00:00Z", []string{"2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"}},
		{EveryHour, "Australia/Lord_Howe", "2026-10-03T14:10:00Z", "2026-10-03T17:00:00Z", []string{"2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"}}, // and hour 2 has 30 minutes
		{EveryDay, "Pacific/Apia", "2011-12-29T11:00:00Z", "2012-01-01T00:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}},                                 // there was no 30 December
		{EveryMonth, "Asia/Shanghai", "2026-01-15T00:00:00Z", "2026-03-01T00:00:00Z", []string{"2026-01-31T16:00:00Z", "2026-02-28T16:00:00Z"}},
	} {
		var got []string
		for _, at := range c.every.Boundaries(ms(c.from), ms(c.to), zone(t, c.zone)) {
			got = append(got, time.UnixMilli(at).UTC().Format(time.RFC3339))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("every %s in %s: %v, want %v", c.every, c.zone, got, c.want)
		}
	}
	for n, want := range []string{"2026-01-31T02:30:00Z", "2026-02-28T02:30:00Z", "2026-03-31T02:30:00Z", "2026-04-30T02:30:00Z"} {
		if got := AddMonths(ms("2026-01-31T02:30:00Z"), n, zone(t, "Asia/Shanghai")); got != ms(want) {
			t.Errorf("%d months: %s, want %s", n, time.UnixMilli(got).UTC().Format(time.RFC3339), want)
		}
	}
}
