package pricing

import (
	"strings"
	"testing"
)

// A credit is apart from the price: it costs what is spread over its time, until now, and
// falls on its owner whether something runs or not.
func TestGrantedCredits(t *testing.T) {
	const credits = "credits:\n  - {id: green, project: a, region: west, amount: 30, from: 2026-04-01, to: 2026-04-04, reason: green power}\n  - {id: start, amount: 5, at: 2026-04-01T09:00:00Z, reason: welcome}\n"
	u := Usage{Rentals: []*Rental{during("i", "a", "08:00", "10:00", nil)}, NowMs: ms("2026-04-02T12:00:00Z"), Cuts: []int64{ms("2026-04-02T00:00:00Z")}}
	wantLines(t, rate(t, "", credits, u),
		"usage gpu i 01T08:00-01T10:00 1x list 20 billed 20 effective 20 ",
		"credit gpu  01T00:00-02T00:00 0x list 0 billed -10 effective -10 green: green power",
		"credit gpu  02T00:00-02T12:00 0x list 0 billed -5 effective -5 green: green power",
		"credit gpu  01T09:00-01T09:00 0x list 0 billed -5 effective -5 start: welcome")
	lines := rate(t, "", credits, Usage{})
	if len(lines) != 2 || lines[0].Segment.Project != "a" || lines[0].Segment.Region != "west" || lines[0].Contract != "c" || lines[0].Line != 7 || Exact(lines[0].Cost) != "-30" {
		t.Errorf("without any usage:\n%s", linesText(lines))
	}
}

func TestCreditFaults(t *testing.T) {
	for text, want := range map[string]string{
		"amount: 0, reason: r": "credit x is of 0",
		"amount: 1, reason: r, at: 2026-02-01, from: 2026-02-01": "not both",
		"amount: 1, reason: r, from: 2025-02-01":                 "which is not within the contract",
		"amount: 1, reason: r, at: 2027-01-01":                   "which is not within the contract",
		"amount: 1, reason: r, from: 2026-02-02, to: 2026-02-02": "which is not within the contract",
		"amount: 1": "reason is missing",
		"amount: 1, reason: r}\n  - {id: x, amount: 1, reason: r": `id "x" is there twice`,
	} {
		_, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\ncredits:\n  - {id: x, "+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
