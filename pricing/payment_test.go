package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// However a year is paid, it costs the same and its time is worth the same.
func TestPayments(t *testing.T) {
	for _, c := range []struct{ payment, want string }{
		{"", "12000"}, {"payment: upfront", "12000"},
		{"payment: monthly", strings.TrimSpace(strings.Repeat("1000 ", 12))},
		{"payment: partial, down_payment: 40%", "5400" + strings.Repeat(" 600", 11)},
	} {
		contract := "commitments: [{id: base, model: m, gpus: 2, term: year, per_gpu: 6000, " + c.payment + "}]\n"
		whole := rate(t, "", contract, Usage{})
		var paid []string
		worth := new(big.Rat)
		for i := range whole {
			l := &whole[i]
			worth.Add(worth, l.Effective)
			if l.Category == CategoryPurchase {
				paid = append(paid, Exact(l.Billed))
				if l.ToMs != ms("2027-01-01T00:00:00Z") || Exact(new(big.Rat).Mul(l.Price, big.NewRat(2, 1))) != Exact(l.Billed) {
					t.Errorf("%s: %s", c.payment, l.Arithmetic())
				}
			}
		}
		if strings.Join(paid, " ") != c.want || Exact(worth) != "12000" {
			t.Errorf("%s: paid %v, worth %s", c.payment, paid, Exact(worth))
		}
		// In June six months are paid, and a half of the year less a day is used up.
		half := rate(t, "", contract, Usage{NowMs: ms("2026-06-30T00:00:00Z")})
		n := 0
		for i := range half {
			if half[i].Category == CategoryPurchase {
				n++
			}
		}
		if want := min(6, len(paid)); n != want {
			t.Errorf("%s: %d payments until the end of June, want %d", c.payment, n, want)
		}
		checks := CheckPlans(half, Span{ms("2026-06-01T00:00:00Z"), ms("2026-06-30T00:00:00Z")}, mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 1}]"))
		if len(checks) != 1 || Exact(checks[0].Price) != "6000" || checks[0].Cycle.Ms() != 365*dayMs || Exact(checks[0].BreakEven) != "6000" || checks[0].LeftMs != 185*dayMs {
			t.Errorf("%s: %+v", c.payment, checks)
		}
	}
}

func TestPaymentFaults(t *testing.T) {
	for text, want := range map[string]string{
		"term: year, payment: partial":                     "needs one",
		"term: year, payment: monthly, down_payment: 20%":  "is for the payment partial",
		"term: year, payment: partial, down_payment: 100%": "not between",
		"term: month, payment: monthly":                    "the term month is not paid in parts",
		"term: year, payment: yearly":                      "payment is",
	} {
		_, err := ParseContract("c.yaml", fmt.Appendf(nil, "contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\ncommitments: [{id: x, model: m, gpus: 1, per_gpu: 1, %s}]\n", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A dedicated cluster's plan is not used up by what is shared.
func TestCommitmentOfATenancy(t *testing.T) {
	shared := during("i", "a", "08:00", "09:00", nil)
	dedicated := during("j", "a", "08:00", "09:00", func(s *Segment) { s.Tenancy = "dedicated" })
	wantLines(t, rate(t, "", "commitments: [{id: base, model: m, tenancy: dedicated, gpus: 1, term: hour, per_gpu: 7, from: 2026-04-01T08:00:00Z, to: 2026-04-01T09:00:00Z}]\n", Usage{Rentals: []*Rental{shared, dedicated}}),
		"purchase gpu base 01T08:00-01T09:00 1x list 0 billed 7 effective 0 ",
		"usage used gpu jbase 01T08:00-01T09:00 1x list 10 billed 0 effective 7 ",
		"usage gpu i 01T08:00-01T09:00 1x list 10 billed 10 effective 10 ")
}
