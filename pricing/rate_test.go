package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// linesText writes lines so that a test can show them.
func linesText(lines []Line) string {
	var b strings.Builder
	amount := func(x *big.Rat) string {
		if x == nil {
			return "unpriced"
		}
		return Exact(x)
	}
	for i := range lines {
		l := &lines[i]
		at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("02T15:04") }
		fmt.Fprintf(&b, "%s %s %s %s-%s %dx", strings.TrimSpace(string(l.Category)+" "+string(l.Status)), l.Meter, l.Instance+l.Commitment, at(l.FromMs), at(l.ToMs), l.Segment.Gpus)
		fmt.Fprintf(&b, " list %s billed %s effective %s %s\n", amount(l.ListCost), amount(l.Billed), amount(l.Effective), l.Reason)
	}
	return b.String()
}

func contractOf(t testing.TB, text string) *Contract {
	t.Helper()
	c, err := ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rented is an instance that runs over a span.
func rented(instance, project string, gpus int64, from, to string) *Rental {
	s := Segment{Span: Span{ms(from), ms(to)}, State: "running", Project: project, Platform: "p", Model: "m", Gpus: gpus}
	return &Rental{Instance: instance, Segments: []Segment{s}}
}

func TestRateLines(t *testing.T) {
	book := mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]")
	for name, c := range map[string]struct {
		contract string
		usage    Usage
		want     string
	}{
		"base by the month and burst by the hour": {
			"commitments: [{id: base, model: m, project: a, gpus: 2, term: month, per_gpu: 720, from: 2026-04-01, to: 2026-05-01}]",
			Usage{NowMs: ms("2026-04-03T00:00:00Z"), Rentals: []*Rental{
				rented("i1", "a", 1, "2026-04-01T00:00:00Z", "2026-04-02T00:00:00Z"), rented("i2", "b", 8, "2026-04-02T00:00:00Z", "2026-04-02T01:00:00Z"),
			}},
			"purchase gpu base 01T00:00-01T00:00 2x list 0 billed 1440 effective 0 \n" +
				"usage used gpu i1base 01T00:00-02T00:00 1x list 240 billed 0 effective 24 \n" +
				"usage unused gpu base 01T00:00-02T00:00 1x list 0 billed 0 effective 24 nothing used it\n" +
				"usage used gpu i2base 02T00:00-02T01:00 2x list 20 billed 0 effective 2 \n" +
				"usage unused gpu base 02T01:00-03T00:00 2x list 0 billed 0 effective 46 nothing used it\n" +
				"usage gpu i2 02T00:00-02T01:00 6x list 60 billed 60 effective 60 \n",
		},
		"a quote pays for its project, up to its hours": {
			"quotes: [{id: job, project: a, fee: 100, gpu_hours: 12, from: 2026-04-01, to: 2026-05-01}]",
			Usage{Rentals: []*Rental{
				rented("i1", "a", 8, "2026-04-01T00:00:00Z", "2026-04-01T02:00:00Z"), rented("i2", "b", 1, "2026-04-01T00:00:00Z", "2026-04-01T01:00:00Z"),
			}},
			"purchase gpu job 01T00:00-01T00:00 1x list 0 billed 100 effective 0 \n" +
				"usage used gpu i1job 01T00:00-01T01:30 8x list 120 billed 0 effective 100 \n" +
				"usage gpu i1 01T01:30-01T02:00 8x list 40 billed 40 effective 40 \n" +
				"usage gpu i2 01T00:00-01T01:00 1x list 10 billed 10 effective 10 \n",
		},
		"a volume discount as long as there is the volume": {
			"adjustments: [{id: ten, stage: volume, discount: 20%, min_gpus: 10}]",
			Usage{Rentals: []*Rental{
				rented("i1", "a", 8, "2026-04-01T00:00:00Z", "2026-04-01T04:00:00Z"), rented("i2", "a", 2, "2026-04-01T01:00:00Z", "2026-04-01T02:00:00Z"),
			}},
			"usage gpu i1 01T00:00-01T01:00 8x list 80 billed 80 effective 80 \n" +
				"usage gpu i1 01T01:00-01T02:00 8x list 80 billed 64 effective 64 \n" +
				"usage gpu i1 01T02:00-01T04:00 8x list 160 billed 160 effective 160 \n" +
				"usage gpu i2 01T01:00-01T02:00 2x list 20 billed 16 effective 16 \n",
		},
		"two hours for one, V11": {
			"sla: {target: 99.9%, credit_ratio: 2, trigger: any}",
			Usage{
				Rentals: []*Rental{rented("i1", "a", 1, "2026-04-01T00:00:00Z", "2026-04-02T00:00:00Z")},
				Outages: []Outage{{Span: Span{ms("2026-04-01T10:00:00Z"), ms("2026-04-01T11:00:00Z")}, Platform: "p", Reason: "network"}},
			},
			"usage gpu i1 01T00:00-02T00:00 1x list 240 billed 240 effective 240 \n" +
				"credit gpu i1 01T10:00-01T11:00 1x list 0 billed -20 effective -20 outage: network\n",
		},
		"transfer by the contract's price, storage without one": {
			"meters: [{meter: egress_bytes, per: GB, price: 0.5}]",
			Usage{Readings: []Reading{
				{Span: Span{ms("2026-04-01T00:00:00Z"), ms("2026-04-01T01:00:00Z")}, Meter: "egress_bytes", Quantity: rat("3000000000"), Project: "a", Platform: "p"},
				{Span: Span{ms("2026-04-01T00:00:00Z"), ms("2026-04-01T01:00:00Z")}, Meter: "storage_byte_seconds", Quantity: rat("1"), Project: "a", Platform: "p"},
			}},
			"usage egress_bytes  01T00:00-01T01:00 0x list 1.5 billed 1.5 effective 1.5 \n" +
				"usage storage_byte_seconds  01T00:00-01T01:00 0x list unpriced billed unpriced effective unpriced \n",
		},
	} {
		terms := &Terms{Book: book, Contracts: []*Contract{contractOf(t, c.contract)}}
		if got := linesText(terms.Rate(&c.usage)); got != c.want {
			t.Errorf("%s:\n%swant\n%s", name, got, c.want)
		}
		slices.Reverse(c.usage.Rentals)
	}
}
