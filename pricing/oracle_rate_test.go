package pricing

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// compare says where the charges differ from what the oracle finds, or nothing.
func (o *oracle) compare(r *Rental, charges []Charge) string {
	seconds := o.bill(r)
	first := r.Segments[0].FromMs / 1000
	seen := make([]bool, len(seconds))
	type sum struct{ cost, billed *big.Rat }
	settled := map[int]*sum{}
	for n := range charges {
		c := &charges[n]
		from, to := c.FromMs/1000-first, c.ToMs/1000-first
		name := fmt.Sprintf("charge %d, %s %d-%d: ", n, c.Segment.State, from, to)
		times, metered, excluded, unpriced := int64(0), int64(0), int64(0), false
		at := map[[2]*big.Rat]int64{} // seconds by price
		for i := from; i < to; i++ {
			s := &seconds[i]
			// What is not billed is settled with nothing, so its line may be as long as it is.
			if seen[i] || !s.metered || s.run != c.Run || s.run >= 0 && s.settlement != seconds[from].settlement+int((i-from)*c.Settlements/(to-from)) || s.segment.State != c.Segment.State {
				return name + fmt.Sprintf("second %d is charged twice, or is not provided, or is of another settlement or state", i)
			}
			seen[i] = true
			metered++
			switch {
			case s.free || s.run < 0:
				excluded++
				continue
			case s.times > 0 && s.list == nil:
				unpriced = true
			case s.times > 0:
				at[[2]*big.Rat{s.list, s.paid}] += s.times
			}
			times += s.times
		}
		list, cost := new(big.Rat), new(big.Rat)
		for price, n := range at {
			list.Add(list, new(big.Rat).Mul(price[0], big.NewRat(n, 1)))
			cost.Add(cost, new(big.Rat).Mul(price[1], big.NewRat(n, 1)))
		}
		switch {
		case c.MeteredMs != metered*1000 || c.ExcludedMs != excluded*1000 || c.BillableMs != times*1000:
			return name + fmt.Sprintf("%d, %d, %d s are metered, excluded, billable; the oracle has %d, %d, %d", c.MeteredMs/1000, c.ExcludedMs/1000, c.BillableMs/1000, metered, excluded, times)
		case (c.Cost == nil) != unpriced || (c.Billed == nil) != unpriced || (c.ListCost == nil) != unpriced:
			return name + fmt.Sprintf("unpriced: %t", unpriced)
		case unpriced:
			continue
		case c.ListCost.Cmp(list) != 0 || c.Cost.Cmp(cost) != 0:
			return name + fmt.Sprintf("list %s cost %s; the oracle has %s and %s", Exact(c.ListCost), Exact(c.Cost), Exact(list), Exact(cost))
		case c.Cost.Sign() == 0 && c.Billed.Sign() != 0 || c.Billed.Sign() < 0:
			return name + fmt.Sprintf("costs %s and is billed at %s", Exact(c.Cost), Exact(c.Billed))
		}
		each := big.NewRat(1, c.Settlements)
		for k := range int(c.Settlements) {
			n := seconds[from].settlement + k
			s := settled[n]
			if s == nil {
				s = &sum{new(big.Rat), new(big.Rat)}
				settled[n] = s
			}
			s.cost.Add(s.cost, new(big.Rat).Mul(cost, each))
			s.billed.Add(s.billed, new(big.Rat).Mul(c.Billed, each))
		}
	}
	for n, s := range settled {
		if want := o.money(s.cost); s.billed.Cmp(want) != 0 {
			return fmt.Sprintf("settlement %d is billed at %s; the oracle has %s", n, Exact(s.billed), Exact(want))
		}
	}
	for i := range seconds {
		if seconds[i].metered && !seen[i] {
			return fmt.Sprintf("second %d is provided and not charged", i)
		}
	}
	return ""
}

// Instants around which the clocks or the calendar of a zone do something.
var remarkable = map[string][]string{
	"UTC":                 {"2026-03-02T00:00:00Z", "2026-04-01T00:00:00Z"},
	"Asia/Shanghai":       {"2026-02-28T16:00:00Z", "2026-03-02T16:00:00Z"}, // a month begins, a day begins
	"Asia/Kolkata":        {"2026-03-01T18:30:00Z"},
	"America/New_York":    {"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"}, // forward, back
	"Africa/Cairo":        {"2026-04-23T22:00:00Z", "2026-10-29T21:00:00Z"}, // no midnight; the hour before it twice
	"Australia/Lord_Howe": {"2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z"}, // half an hour forward, and back
	"America/Havana":      {"2026-03-08T05:00:00Z", "2026-11-01T05:00:00Z"}, // no midnight; midnight twice
}

const oracleBook = `currency: CNY
prices:
  - {model: m, per_gpu_hour: "7.77"}
  - {model: m, platform: p, per_gpu_hour: "6.1", valid_from: 2026-03-02T00:00:07Z}
  - {model: m, platform: p, region: r, per_gpu_hour: "18", valid_to: 2026-04-23T22:10:00Z}
  - {model: m, region: r, per_gpu_hour: "2"}
  - {model: "*", platform: q, per_gpu_hour: "0.5", valid_from: 2026-03-01T00:00:00Z, valid_to: 2026-10-03T15:00:00Z}
`

// anyProfile draws rules that can be written in a profile, sensible or not.
func anyProfile(t *rapid.T) *Profile {
	pick := func(name string, list ...int64) Length { return Length(rapid.SampledFrom(list).Draw(t, name) * 1000) }
	zoneName := rapid.SampledFrom(slices.Sorted(maps.Keys(remarkable))).Draw(t, "zone")
	f := &Profile{Platform: "p", Zone: zone(t, zoneName), Settle: rapid.SampledFrom([]Every{"", EveryHour, EveryDay, EveryMonth}).Draw(t, "settle")}
	for _, state := range states {
		if provided(state) && (state == "running" || rapid.Bool().Draw(t, state)) {
			f.Billed.Compute = append(f.Billed.Compute, State(state))
		}
	}
	if rapid.Bool().Draw(t, "no gpu") {
		f.Billed.NoGPU = rat("0.1")
	}
	if f.Time.Granularity = pick("granularity", 0, 1, 2, 7, 60, 3600); f.Time.Granularity > 0 {
		f.Time.Rounding = rapid.SampledFrom([]TimeRound{RoundUp, RoundDown, RoundNearest}).Draw(t, "rounding")
		if f.Settle != "" {
			f.Time.Per = rapid.SampledFrom([]RoundScope{"", PerRun, PerSettlement}).Draw(t, "per")
		}
	}
	if f.Time.Minimum = pick("minimum", 0, 45, 60, 1000, 3600); f.Time.Minimum > 0 {
		f.Time.MinimumPer = rapid.SampledFrom([]MinimumPer{PerStart, PerDay}).Draw(t, "minimum per")
	}
	if f.Amount.Rounding = rapid.SampledFrom([]Mode{"", HalfUp, HalfEven, Up, Down}).Draw(t, "mode"); f.Amount.Rounding != "" {
		f.Amount.Decimals = rapid.IntRange(0, 3).Draw(t, "decimals")
		f.Amount.Per = rapid.SampledFrom([]AmountScope{"", PerLine, PerLine, PerBill}).Draw(t, "amount per")
		least := []*big.Rat{nil, nil, rat("0.01"), rat("0.05"), rat("0.005")}
		f.Amount.Minimum = rapid.SampledFrom(least[:4]).Draw(t, "least")
		f.Amount.FreeBelow = rapid.SampledFrom(least).Draw(t, "free below")
	}
	if f.Spot.Refund = rapid.SampledFrom([]SpotRefund{"", RefundNone, RefundRun, RefundHour}).Draw(t, "refund"); f.Spot.Refund == RefundRun || f.Spot.Refund == RefundHour {
		f.Spot.Within = pick("within", 0, 100, 3600)
	}
	return f
}

// anyRental draws a rental of whole seconds, long enough to see something happen and
// short enough to walk over.
func anyRental(t *rapid.T, f *Profile) *Rental {
	platform := f.Platform
	at := ms(rapid.SampledFrom(remarkable[f.Zone.String()]).Draw(t, "near"))/1000 - rapid.Int64Range(0, 2000).Draw(t, "before")
	r := &Rental{Instance: "i"}
	often := []string{"running", "running", "stopping", "running_no_gpu", "interrupted"}
	for range rapid.IntRange(1, 6).Draw(t, "segments") {
		s := Segment{
			State: rapid.SampledFrom(append(often, states...)).Draw(t, "state"), Gpus: rapid.Int64Range(0, 9).Draw(t, "gpus"),
			Model: rapid.SampledFrom([]string{"m", "m", "m", "x"}).Draw(t, "model"), Platform: rapid.SampledFrom([]string{platform, platform, "p", "q"}).Draw(t, "platform"),
			Region: rapid.SampledFrom([]string{"", "r"}).Draw(t, "region"), Plan: rapid.SampledFrom([]string{"", PlanSpot}).Draw(t, "plan"),
		}
		most := rapid.SampledFrom([]int64{9, 9, 9, 9, 9, 200, 200, 200, 200, 200, 1000, 4000}).Draw(t, "at most")
		length := rapid.Int64Range(1, most).Draw(t, "seconds")
		if rapid.IntRange(0, 9).Draw(t, "moment") == 0 || s.State == "interrupted" && rapid.Bool().Draw(t, "at once") {
			length = 0 // the next event of the lease has the same time
		}
		s.Span = Span{at * 1000, (at + length) * 1000}
		r.Segments = append(r.Segments, s)
		at += length + rapid.SampledFrom([]int64{0, 0, 0, 0, 5}).Draw(t, "gap")
	}
	if rapid.IntRange(0, 14).Draw(t, "taken back") == 0 {
		end := at + rapid.SampledFrom([]int64{100, 3599, 3600, 3601, 3690}).Draw(t, "after")
		r.Segments = append(r.Segments, Segment{Span: Span{at * 1000, end * 1000}, State: "running", Gpus: 1, Model: "m", Platform: platform, Plan: PlanSpot},
			Segment{Span: Span{end * 1000, end * 1000}, State: "interrupted"})
	}
	if first, last := r.Segments[0].FromMs, r.Segments[len(r.Segments)-1].ToMs; first == last {
		r.Segments[0].ToMs += 1000
		r.Segments = r.Segments[:1]
	}
	return r
}

// anyRules draws what is agreed beside the list price, and from when on.
func anyRules(t *rapid.T, zone string) (from int64, list []Adjustment) {
	from = ms(rapid.SampledFrom(remarkable[zone]).Draw(t, "agreed"))/1000 + 3
	for i := range rapid.IntRange(0, 3).Draw(t, "rules") {
		a := Adjustment{ID: fmt.Sprint("r", 9-i), Stage: Stage(rapid.IntRange(1, 7).Draw(t, "stage")), Kind: rapid.SampledFrom([]Kind{Uplift, Discount, Factor, Fixed}).Draw(t, "kind"),
			Value: rapid.SampledFrom([]*big.Rat{rat("0.15"), rat("0.2"), rat("0.65"), rat("1")}).Draw(t, "value")}
		if a.Additive = a.Stage >= StageVolume && (a.Kind == Uplift || a.Kind == Discount) && rapid.Bool().Draw(t, "additive"); i == 2 {
			a.Stage, a.Kind, a.Additive = StageCap, Cap, false
		}
		list = append(list, a)
	}
	return from, list
}

// Every profile that comes with the program, and others: all charges of a rental are
// what walking over its seconds gives.
func TestRateAgreesWithTheOracle(t *testing.T) {
	profiles, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	book := mustParse(t, oracleBook)
	rentals := 0
	rapid.Check(t, func(t *rapid.T) {
		for i := range len(profiles) + 8 {
			var f *Profile
			if i < len(profiles) {
				f = profiles[i]
			} else {
				f = anyProfile(t)
			}
			o := &oracle{profile: f, entries: book.Entries, ms: 1000}
			tariff := &Tariff{Profile: f, Book: book}
			if from, list := anyRules(t, f.Zone.String()); len(list) > 0 {
				o.rules = func(_ *Segment, second int64) []Adjustment {
					if second < from {
						return nil
					}
					return list
				}
				tariff.Adjust = func(s *Segment, atMs int64) []Adjustment { return o.rules(s, atMs/1000) }
				tariff.Cuts = append(tariff.Cuts, from*1000)
			}
			r := anyRental(t, f)
			charges := tariff.Rate(r)
			if diff := o.compare(r, charges); diff != "" {
				t.Fatalf("%s\n%+v\nin %v %s\n%s", diff, f, f.Zone, time.UnixMilli(r.Segments[0].FromMs).UTC(), chargesText(charges))
			}
			rentals++
		}
	})
	t.Logf("%d rentals", rentals)
}
