package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func profileOf(t interface{ Fatal(...any) }, rules string) *Profile {
	f, err := ParseProfile("p.yaml", []byte("platform: p\nzone: UTC\nbilled: {compute: [running, running_no_gpu, stopping], storage: []}\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// lease makes a rental of "state clock" pairs on one day; it ends with the last.
func lease(plan string, gpus int64, steps ...string) *Rental {
	r := &Rental{Instance: "i"}
	for i, step := range steps[:len(steps)-1] {
		state, from, _ := strings.Cut(step, " ")
		_, to, _ := strings.Cut(steps[i+1], " ")
		at := func(clock string) int64 {
			return ms("2026-03-02T00:00:00Z") + ms("2026-03-02T"+clock+"Z") - ms("2026-03-02T00:00:00Z")
		}
		r.Segments = append(r.Segments, Segment{Span: Span{at(from), at(to)}, State: state, Model: "m", Plan: plan, Gpus: gpus})
	}
	return r
}

func chargesText(list []Charge) string {
	var b strings.Builder
	for _, c := range list {
		amount := func(x *big.Rat) string {
			if x == nil {
				return "?"
			}
			return x.FloatString(6)
		}
		fmt.Fprintf(&b, "%s %s-%s %ds-%d+%d+%d=%d %s -> %s %s\n", c.Segment.State, time.UnixMilli(c.FromMs).UTC().Format("15:04:05"), time.UnixMilli(c.ToMs).UTC().Format("15:04:05"),
			c.MeteredMs/1000, c.ExcludedMs/1000, c.MinimumMs/1000, c.RoundingMs/1000, c.BillableMs/1000, amount(c.Cost), amount(c.Billed), c.Reason)
	}
	return b.String()
}

func TestRate(t *testing.T) {
	const book = `currency: CNY
prices:
  - {model: m, per_gpu_hour: 35, valid_to: 2026-03-02T12:00:00Z}
  - {model: m, per_gpu_hour: 42, valid_from: 2026-03-02T12:00:00Z}
`
	const money = "amount: {rounding: half_up, decimals: 2, per: line}\n"
	for _, c := range []struct {
		name, rules string
		rental      *Rental
		want        string
	}{
		{"V01 settled per clock hour and rounded per line", "settle: hour\n" + money, lease("", 1, "running 08:45:30", "released 09:30:00"),
			"running 08:45:30-09:00:00 870s-0+0+0=870 8.458333 -> 8.460000 \nrunning 09:00:00-09:30:00 1800s-0+0+0=1800 17.500000 -> 17.500000 \n"},
		{"V01 exact", "settle: hour\n", lease("", 1, "running 08:45:30", "released 09:30:00"),
			"running 08:45:30-09:00:00 870s-0+0+0=870 8.458333 -> 8.458333 \nrunning 09:00:00-09:30:00 1800s-0+0+0=1800 17.500000 -> 17.500000 \n"},
		{"V02 a started hour", "time: {granularity: 1h, rounding: up}\n", lease("", 1, "running 08:45:30", "released 09:30:00"),
			"running 08:45:30-09:30:00 2670s-0+0+930=3600 35.000000 -> 35.000000 \n"},
		{"C1 five minutes with an hour at least", "time: {minimum: 1h, minimum_per: start}\n", lease("", 2, "running 08:00:00", "released 08:05:00"),
			"running 08:00:00-08:05:00 300s-0+3300+0=3600 70.000000 -> 70.000000 \n"},
		{"C2 what is not billed says so", "", lease("", 1, "provisioning 08:00:00", "running 08:10:00", "stopping 09:10:00", "stopped_keep 09:12:00", "released 10:00:00"),
			"provisioning 08:00:00-08:10:00 600s-600+0+0=0 0.000000 -> 0.000000 the state provisioning is not billed\n" +
				"running 08:10:00-09:10:00 3600s-0+0+0=3600 35.000000 -> 35.000000 \nstopping 09:10:00-09:12:00 120s-0+0+0=120 1.166667 -> 1.166667 \n" +
				"stopped_keep 09:12:00-10:00:00 2880s-2880+0+0=0 0.000000 -> 0.000000 the state stopped_keep is not billed\n"},
		{"F11 a new price splits a running interval, one settlement", money, lease("", 1, "running 11:59:50", "released 12:00:01"),
			"running 11:59:50-12:00:00 10s-0+0+0=10 0.097222 -> 0.098214 \nrunning 12:00:00-12:00:01 1s-0+0+0=1 0.011667 -> 0.011786 \n"},
		{"a whole run that was guaranteed is free", "spot: {refund: run, refund_within: 1h}\n", lease("spot", 1, "running 08:00:00", "interrupted 08:59:59", "released 09:00:00"),
			"running 08:00:00-08:59:59 3599s-3599+0+0=0 0.000000 -> 0.000000 the platform took the instance back\n"},
		{"and is not after that", "spot: {refund: run, refund_within: 1h}\n", lease("spot", 1, "running 08:00:00", "interrupted 09:00:00", "released 09:00:01"),
			"running 08:00:00-09:00:00 3600s-0+0+0=3600 35.000000 -> 35.000000 \n"},
		{"nor when its owner ended it", "spot: {refund: run, refund_within: 1h}\n", lease("spot", 1, "running 08:00:00", "released 08:30:00"),
			"running 08:00:00-08:30:00 1800s-0+0+0=1800 17.500000 -> 17.500000 \n"},
		{"a started hour that was interrupted is free", "spot: {refund: hour}\n", lease("spot", 1, "running 08:10:00", "interrupted 10:30:00", "released 10:30:01"),
			"running 08:10:00-10:10:00 7200s-0+0+0=7200 70.000000 -> 70.000000 \nrunning 10:10:00-10:30:00 1200s-1200+0+0=0 0.000000 -> 0.000000 the platform took the instance back\n"},
		{"a start after an interruption is a new run, also at the same time", "time: {minimum: 1h, minimum_per: start}\nspot: {refund: run}\n",
			lease("spot", 1, "running 08:00:00", "interrupted 08:30:00", "running 08:30:00", "released 09:00:00"),
			"running 08:00:00-08:30:00 1800s-1800+0+0=0 0.000000 -> 0.000000 the platform took the instance back\nrunning 08:30:00-09:00:00 1800s-0+1800+0=3600 35.000000 -> 35.000000 \n"},
		{"the least of a settlement is no line's that is not billed", "settle: hour\namount: {rounding: half_up, decimals: 2, minimum: 0.05}\n", lease("", 1, "running 08:00:00", "stopped_free 08:00:01", "released 08:10:00"),
			"running 08:00:00-08:00:01 1s-0+0+0=1 0.009722 -> 0.050000 \nstopped_free 08:00:01-08:10:00 599s-599+0+0=0 0.000000 -> 0.000000 the state stopped_free is not billed\n"},
		{"V04 at least 0.01", "amount: {rounding: half_up, decimals: 2, minimum: 0.01}\n", lease("", 1, "running 08:00:00", "released 08:00:00.001"),
			"running 08:00:00-08:00:00 0s-0+0+0=0 0.000010 -> 0.010000 \n"},
		{"V04 below 0.005 is free", "amount: {rounding: half_up, decimals: 2, free_below: 0.005}\n", lease("", 1, "running 08:00:00", "released 08:00:00.4"),
			"running 08:00:00-08:00:00 0s-0+0+0=0 0.003889 -> 0.000000 \n"},
	} {
		tariff := &Tariff{Profile: profileOf(t, c.rules), Book: mustParse(t, book)}
		if got := chargesText(tariff.Rate(c.rental)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
	bare := profileOf(t, "")
	bare.Billed.NoGPU = rat("0.1")
	tariff := &Tariff{Profile: bare, Book: mustParse(t, book)}
	if got, want := chargesText(tariff.Rate(lease("", 8, "running_no_gpu 08:00:00", "released 09:00:00"))), "running_no_gpu 08:00:00-09:00:00 3600s-0+0+0=3600 0.100000 -> 0.100000 \n"; got != want {
		t.Errorf("without GPUs: %s", got)
	}
	other := lease("", 1, "provisioning 08:00:00", "running 08:30:00", "released 09:00:00")
	for i := range other.Segments {
		other.Segments[i].Model = "x"
	}
	if got := tariff.Rate(other); got[1].Cost != nil || got[1].Billed != nil || got[1].BillableMs != 1_800_000 || got[0].Cost.Sign() != 0 {
		t.Errorf("without a price: %s", chargesText(got))
	}
}

// Whatever the rules and the rental: further cuts change no amount, what is billed is
// what the settlements round to, and time adds up on every line.
func TestRateKeepsItsSums(t *testing.T) {
	b := mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: \"7.77\", valid_to: 2026-03-02T03:20:00Z}, {model: m, per_gpu_hour: \"6.1\", valid_from: 2026-03-02T03:20:00Z}]")
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SampledFrom([]string{"", "settle: hour\n", "settle: day\n"}).Draw(t, "settle") +
			rapid.SampledFrom([]string{"", "time: {granularity: 1m, rounding: up}\n", "time: {minimum: 1h, minimum_per: start}\n", "time: {minimum: 1h, minimum_per: day, granularity: 7s, rounding: nearest}\n"}).Draw(t, "time") +
			rapid.SampledFrom([]string{"", "amount: {rounding: half_up, decimals: 2}\n", "amount: {rounding: up, decimals: 0}\n", "amount: {rounding: half_even, decimals: 2, minimum: \"0.05\", free_below: \"0.005\"}\n", "amount: {rounding: down, decimals: 1}\n"}).Draw(t, "amount") +
			rapid.SampledFrom([]string{"", "spot: {refund: hour}\n", "spot: {refund: run, refund_within: 2h}\n"}).Draw(t, "spot")
		tariff := &Tariff{Profile: profileOf(t, rules), Book: b}
		r := &Rental{Instance: "i"}
		at := ms("2026-03-02T00:00:00Z")
		for range rapid.IntRange(1, 6).Draw(t, "segments") {
			end := at + rapid.Int64Range(1, 9_000_000).Draw(t, "length")
			r.Segments = append(r.Segments, Segment{Span: Span{at, end}, State: rapid.SampledFrom(states).Draw(t, "state"), Model: "m", Plan: rapid.SampledFrom([]string{"", PlanSpot}).Draw(t, "plan"), Gpus: rapid.Int64Range(0, 8).Draw(t, "gpus")})
			at = end
		}
		whole := tariff.Rate(r)
		tariff.Cuts = rapid.SliceOfN(rapid.Int64Range(r.Segments[0].FromMs, at), 0, 8).Draw(t, "cuts")
		cut := tariff.Rate(r)
		sums := func(list []Charge) (text string) {
			cost, billed, metered, billable := new(big.Rat), new(big.Rat), int64(0), int64(0)
			for i := range list {
				c := &list[i]
				if c.BillableMs != c.MeteredMs-c.ExcludedMs+c.MinimumMs+c.RoundingMs || c.MeteredMs != c.Ms() || c.Billed.Sign() < 0 || (c.ExcludedMs > 0) != (c.Reason != "") {
					t.Fatalf("a charge does not add up: %s", chargesText(list[i:i+1]))
				}
				cost.Add(cost, c.Cost)
				billed.Add(billed, c.Billed)
				metered += c.MeteredMs
				billable += c.BillableMs
			}
			return fmt.Sprint(cost.RatString(), " ", billed.RatString(), " ", metered, " ", billable)
		}
		if a, b := sums(whole), sums(cut); a != b {
			t.Fatalf("whole %s\ncut   %s\nat %v with %s\n%s\n%s", a, b, tariff.Cuts, rules, chargesText(whole), chargesText(cut))
		}
	})
}
