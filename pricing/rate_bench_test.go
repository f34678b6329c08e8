package pricing

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// wholeMonth is 10,000 instances of 8 GPUs over a month, each stopped once for a while, with
// cuts at midnight and terms that count GPUs, buy some and round every settlement.
func wholeMonth(b *testing.B, instances int) (*Terms, *Usage) {
	from, to := ms("2026-03-31T16:00:00Z"), ms("2026-04-30T16:00:00Z") // April in Shanghai
	book, err := Parse("prices.yaml", []byte("currency: CNY\nprices: [{model: m, platform: alibaba-ecs, per_gpu_hour: 12.34}]"))
	if err != nil {
		b.Fatal(err)
	}
	profiles, err := Profiles()
	if err != nil {
		b.Fatal(err)
	}
	contract := &Contract{ID: "c", Platform: "alibaba-ecs", Currency: "CNY", From: Instant(from), To: Instant(to),
		Commitments: []CommittedDoc{{ID: "base", Model: "m", Project: "p1", Gpus: int64(instances) * 8 / 10, Term: TermMonth, PerGPU: rat("5000")}},
		Rules:       []Rule{{ID: "volume", Stage: "volume", Discount: rat("0.2"), MinGpus: int64(instances) * 6}},
	}
	u := &Usage{NowMs: to}
	for at := from; at <= to; at += dayMs {
		u.Cuts = append(u.Cuts, at)
	}
	random := rand.New(rand.NewPCG(1, 2))
	second := func(from, to int64) int64 { return from + random.Int64N((to-from)/1000)*1000 }
	for i := range instances {
		start, end := second(from, from+2*dayMs), second(to-2*dayMs, to)
		stop := second(from+10*dayMs, from+20*dayMs)
		r := &Rental{Instance: fmt.Sprint("i", i)}
		for _, s := range []Segment{
			{Span: Span{start, stop}, State: "running"}, {Span: Span{stop, stop + 3*hourMs}, State: "stopped_free"}, {Span: Span{stop + 3*hourMs, end}, State: "running"},
		} {
			s.Platform, s.Model, s.Gpus, s.Project = "alibaba-ecs", "m", 8, fmt.Sprint("p", i%7)
			r.Segments = append(r.Segments, s)
		}
		u.Rentals = append(u.Rentals, r)
	}
	return &Terms{Book: book, Profiles: profiles, Contracts: []*Contract{contract}}, u
}

// The yardstick prices every settlement of the month once, and does nothing else.
func BenchmarkRateMonth(b *testing.B) {
	for _, instances := range []int{1_000, 10_000} {
		terms, u := wholeMonth(b, instances)
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) {
			b.ReportAllocs()
			lines := 0
			for b.Loop() {
				lines = len(terms.Rate(u))
			}
			b.ReportMetric(float64(lines), "lines")
		})
		b.Run(fmt.Sprintf("yardstick=%d", instances), func(b *testing.B) {
			b.ReportAllocs()
			rounding := terms.Profile("alibaba-ecs").Rounding()
			for b.Loop() {
				sum := new(big.Rat)
				for range instances * 720 {
					sum.Add(sum, rounding.Round(hoursAt(hourMs, rat8)))
				}
			}
		})
	}
}

var rat8 = big.NewRat(8*1234, 100)
