package pricing

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// An instance on a plan of the price book, whatever it does and whenever it ends: what
// was bought, less what is given back, is what its uses are worth; nothing is bought
// after the end, and nothing of the plan's time is billed by the hour as well.
func TestPlansOfInstancesKeepTheirSums(t *testing.T) {
	book := mustParse(t, "currency: CNY\nprices:\n  - {model: m, per_gpu_hour: 3}\n  - {model: m, plan: day, per_gpu: 50}\n  - {model: m, plan: week, per_gpu: 300}\n"+
		"  - {model: m, plan: month, per_gpu: 1000, valid_to: 2026-03-01}\n  - {model: m, plan: month, per_gpu: 900, valid_from: 2026-03-01}\n")
	rapid.Check(t, func(t *rapid.T) {
		profile := *profileOf(t, "")
		profile.Platform = "p"
		profile.Zone = zone(t, rapid.SampledFrom([]string{"UTC", "Asia/Shanghai", "Europe/Berlin"}).Draw(t, "zone"))
		profile.Plan = ProfilePlan{
			Month:  rapid.SampledFrom([]MonthRule{"", MonthOfCalendar, MonthOfCycle, MonthOf30Days}).Draw(t, "month"),
			Day:    rapid.SampledFrom([]DayCycle{"", RollingDay, CalendarDay}).Draw(t, "day"),
			Refund: rapid.SampledFrom([]PlanRefund{NoRefund, RefundProrated, RefundHourly}).Draw(t, "refund"),
		}
		plan := rapid.SampledFrom([]string{"day", "week", "month"}).Draw(t, "plan")
		gpus := rapid.Int64Range(1, 8).Draw(t, "gpus")
		at := ms("2026-01-31T10:20:30Z")
		r := &Rental{Instance: "i"}
		for range rapid.IntRange(1, 4).Draw(t, "states") {
			s := Segment{Span: Span{at, at + rapid.Int64Range(1, 40*24).Draw(t, "hours")*hourMs}, Platform: "p", Model: "m", Plan: plan, Gpus: gpus,
				State: rapid.SampledFrom([]string{"running", "running", "stopped_keep", "stopped_free"}).Draw(t, "state")}
			r.Segments, at = append(r.Segments, s), s.ToMs
		}
		released := at
		r.Segments = append(r.Segments, Segment{Span: Span{at, at + 90*dayMs}, Platform: "p", Model: "m", Plan: plan, State: "released"})
		u := &Usage{Rentals: []*Rental{r}}
		lines := (&Terms{Book: book, Profiles: []*Profile{&profile}}).Rate(u)
		bought, given, worth := new(big.Rat), new(big.Rat), new(big.Rat)
		end := int64(0)
		for i := range lines {
			l := &lines[i]
			switch {
			case l.Commitment == "":
				t.Fatalf("by the hour, too:\n%s", linesText(lines))
			case l.Category == CategoryPurchase:
				if l.FromMs < end || l.FromMs >= released {
					t.Fatalf("bought twice, or after the end:\n%s", linesText(lines))
				}
				end = l.ToMs
				bought.Add(bought, l.Billed)
				price := int64(50)
				switch {
				case plan == "week":
					price = 300
				case plan == "month" && l.FromMs < ms("2026-03-01T00:00:00Z"):
					price = 1000
				case plan == "month":
					price = 900
				}
				if l.Billed.Cmp(big.NewRat(price*gpus, 1)) != 0 {
					t.Fatalf("a cycle costs %s:\n%s", Exact(l.Billed), linesText(lines))
				}
			case l.Category == CategoryCredit:
				given.Sub(given, l.Billed)
				if profile.Plan.Refund == NoRefund || given.Sign() < 0 {
					t.Fatalf("given back:\n%s", linesText(lines))
				}
			default:
				worth.Add(worth, l.Effective)
			}
		}
		if kept := new(big.Rat).Sub(bought, given); kept.Cmp(worth) != 0 || end < released {
			t.Fatalf("bought %s, given back %s, worth %s\n%s", Exact(bought), Exact(given), Exact(worth), linesText(lines))
		}
	})
}
