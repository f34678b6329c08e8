package report

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
)

// leased is a Rated that remembers what it was asked.
type leased struct {
	usage     pricing.Usage
	asOf, now int64
	err       error
}

func (l *leased) Usage(_ context.Context, _ string, asOfMs, nowMs int64) (*pricing.Usage, error) {
	l.asOf, l.now = asOfMs, nowMs
	return &l.usage, l.err
}

type settledNow struct{}

func (settledNow) AwaitSettled(context.Context, int64) error { return nil }

const hour = int64(3_600_000)

var april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// ran is an instance that runs for so many hours from the beginning of April on.
func ran(instance, project, model string, gpus, hours int64) *pricing.Rental {
	s := pricing.Segment{Span: pricing.Span{FromMs: april, ToMs: april + hours*hour}, State: "running", Project: project, Platform: "p", Model: model, Gpus: gpus}
	return &pricing.Rental{Instance: instance, Segments: []pricing.Segment{s}}
}

// ratedService knows rentals and what they are paid by.
func ratedService(t *testing.T, prices, contract string, rentals ...*pricing.Rental) (*Service, *leased) {
	t.Helper()
	terms := &pricing.Terms{}
	var err error
	if prices != "" {
		if terms.Book, err = pricing.Parse("prices.yaml", []byte(prices)); err != nil {
			t.Fatal(err)
		}
	}
	if contract != "" {
		c, err := pricing.ParseContract("contract.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-01-01\nvalid_to: 2027-01-01\n"+contract))
		if err != nil {
			t.Fatal(err)
		}
		terms.Contracts = []*pricing.Contract{c}
	}
	l := &leased{usage: pricing.Usage{Rentals: rentals}}
	s, err := New(Options{
		Store: &fakeStore{}, Rated: l, Settled: settledNow{},
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) { return terms, nil },
		Now:   func() time.Time { return time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

var inApril = PlansParams{From: "2026-04-01", To: "2026-05-01"}

func written(t *testing.T, answer Writer, format string) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, answer, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	plansBook     = "currency: CNY\nprices:\n  - {model: h, per_gpu_hour: 40}\n  - {model: a, per_gpu_hour: 30}\n  - {model: t, per_gpu_hour: 10}\n"
	plansContract = "commitments:\n" +
		"  - {id: dear, model: h, project: x, gpus: 1, term: month, per_gpu: 25000, from: 2026-04-01, to: 2026-05-01}\n" +
		"  - {id: never, model: a, project: y, gpus: 1, term: month, per_gpu: 25000, from: 2026-04-01, to: 2026-05-01}\n" +
		"  - {id: good, model: t, project: x, gpus: 2, term: month, per_gpu: 3125, from: 2026-04-01, to: 2026-05-01}\n" +
		"  - {id: idle, model: l, gpus: 1, term: month, per_gpu: 100, from: 2026-04-01, to: 2026-05-01}\n" +
		"  - {id: odd, model: u, gpus: 1, term: month, per_gpu: 100, from: 2026-04-01, to: 2026-05-01}\n" +
		"quotes: [{id: job, project: q, fee: 50000, from: 2026-04-01, to: 2026-05-01}]\n"
)

func plansUsage() []*pricing.Rental {
	return []*pricing.Rental{ran("i1", "x", "h", 1, 312), ran("i2", "y", "a", 1, 720), ran("i3", "x", "t", 3, 720), ran("i4", "z", "u", 1, 1), ran("i5", "q", "a", 8, 200)}
}

func TestPlansTable(t *testing.T) {
	s, _ := ratedService(t, plansBook, plansContract, plansUsage()...)
	r, err := s.Plans(t.Context(), inApril)
	if err != nil {
		t.Fatal(err)
	}
	want := `plans from 2026-04-01T00:00:00Z to 2026-05-01T00:00:00Z (UTC), as of 2026-05-03T12:00:00Z

plan   contract  of           term   gpus       used  utilization  coverage           cost      of it unused     on demand        savings               verdict
job    c         p project q  -         -  1600h 00m            -   100.0 %   50000.00 CNY          0.00 CNY  48000.00 CNY   -2000.00 CNY  too dear at this use
dear   c         p h          month     1   312h 00m       43.3 %   100.0 %   25000.00 CNY  14166.666667 CNY  12480.00 CNY  -12520.00 CNY  too dear at this use
never  c         p a          month     1   720h 00m      100.0 %    31.0 %   25000.00 CNY          0.00 CNY  21600.00 CNY   -3400.00 CNY     never breaks even
good   c         p t          month     2  1440h 00m      100.0 %    66.7 %    6250.00 CNY          0.00 CNY  14400.00 CNY    8150.00 CNY                  keep
idle   c         p l          month     1          0        0.0 %         -     100.00 CNY        100.00 CNY      0.00 CNY    -100.00 CNY                unused
odd    c         p u          month     1     1h 00m        0.1 %   100.0 %     100.00 CNY     99.861111 CNY       unknown        unknown              unpriced
total                                                                        106450.00 CNY  14366.527778 CNY       unknown        unknown

job: This plan is dearer than on demand at your use: 50000.00 bought 1600 GPU-hours that would have cost 48000.00 on demand
dear: This plan is dearer than on demand at your use: 25000.00 bought 312 GPU-hours that would have cost 12480.00 on demand; it breaks even at 625 hours of 720
never: This plan never breaks even: it needs 833.3 hours, the cycle has 720; 25000.00 bought 720 GPU-hours that would have cost 21600.00 on demand
good: This plan pays at your use: 6250.00 bought 1440 GPU-hours that would have cost 14400.00 on demand; it breaks even at 312.5 hours of 720
idle: Nothing used this plan: 100.00 paid for 720 GPU-hours that lay idle
odd: It is not known whether this plan pays: 100.00 bought 1 GPU-hours, and there is no price on demand to compare with
`
	if got := written(t, r, "table"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestAdviseTable(t *testing.T) {
	s, _ := ratedService(t, "currency: CNY\nprices:\n  - {model: m, platform: p, per_gpu_hour: 10}\n  - {model: m, platform: q, region: w, per_gpu_hour: 8}\n",
		"commitments: [{id: base, model: m, gpus: 4, term: month, per_gpu: 3125, from: 2026-04-01, to: 2026-05-01}]", ran("base", "a", "m", 20, 720), ran("burst", "a", "m", 80, 72), ran("other", "b", "x", 1, 10))
	r, err := s.Advise(t.Context(), AdviseParams{PlansParams: inApril})
	if err != nil {
		t.Fatal(err)
	}
	want := `advice from 2026-04-01T00:00:00Z to 2026-05-01T00:00:00Z (UTC), as of 2026-05-03T12:00:00Z
costs are for this time, if what is wanted in the next one is the same

p m: 20160 GPU-hours, at most 100 at once; 4 GPUs are committed already
Reserve 20 GPUs by the month: 120100.00 CNY instead of 201600.00 CNY; a GPU by the month breaks even when it is wanted 43.4 % of the time
reserved   for them  for the rest   together  reserved and unused
0              0.00     201600.00  201600.00                    0
18         56250.00      72000.00  128250.00                    0
19         59375.00      64800.00  124175.00                    0
20 <       62500.00      57600.00  120100.00                    0
21         65625.00      56880.00  122505.00             648h 00m
22         68750.00      56160.00  124910.00            1296h 00m
100       312500.00          0.00  312500.00           51840h 00m
GPUs        wanted    by mode
1 to 20    100.0 %   reserved
21 to 100   10.0 %  on demand

p x: 10 GPU-hours, at most 1 at once
It has no price on demand, so there is nothing to compare with

the one way of paying that fits
pool  workload    duty  all of it           cost  saves against on demand
p m   (none)    28.0 %  on demand  201600.00 CNY                 0.00 CNY
p x   (none)     1.4 %    unknown        unknown                  unknown

the same usage paid for otherwise; what is unpriced is in no cost
what if                    cost      billed  at original prices  unpriced
as it is          185300.00 CNY  20170h 00m                   0   10h 00m
all on demand     201600.00 CNY  20170h 00m                   0   10h 00m
all by the month  312500.00 CNY  20170h 00m                   0   10h 00m

prices of platforms for a GPU-hour
model  cheapest  dearest   apart
m         q w 8     p 10  20.0 %
`
	if got := written(t, r, "table"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// What plans and advice say in JSON: amounts are texts, unknown is null.
func TestPlansJSON(t *testing.T) {
	s, l := ratedService(t, plansBook, plansContract, plansUsage()...)
	r, err := s.Plans(t.Context(), PlansParams{From: "2026-04-01", To: "2026-04-21", AsOf: "2026-04-11", Filter: map[string]string{"model": "h", "project": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	asOf := time.Date(2026, 4, 11, 0, 0, 0, 0, time.UTC).UnixMilli()
	if l.asOf != asOf || l.now != asOf {
		t.Errorf("asked as of %d and until %d, want %d", l.asOf, l.now, asOf)
	}
	// Ten days of thirty: the first 240 of 312 hours.
	want := `{"from":"2026-04-01T00:00:00Z","to":"2026-04-11T00:00:00Z","as_of":"2026-04-11T00:00:00Z","zone":"UTC","filter":{"model":"h","project":"x"},"currency":"CNY","price_version":"VERSION",` +
		`"plans":[{"id":"dear","contract":"c","kind":"commitment","instance":"","project":"x","platform":"p","region":"","model":"h","term":"month","gpus":1,"currency":"CNY",` +
		`"from":"2026-04-01T00:00:00Z","to":"2026-04-11T00:00:00Z","committed_ms":864000000,"used_ms":864000000,"unused_ms":0,"eligible_ms":864000000,"utilization":"1","coverage":"1",` +
		`"purchased":"25000.00","refunded":"0.00","cost":"8333.333333","used_cost":"8333.333333","unused_cost":"0.00","on_demand_cost":"9600.00","savings":"1266.666667",` +
		`"cycle_hours":"720","break_even_hours":"625","never_breaks_even":false,"hours_to_break_even":"385","hours_left":"480","verdict":"keep"}],` +
		`"totals":[{"currency":"CNY","purchased":"25000.00","cost":"8333.333333","used_cost":"8333.333333","unused_cost":"0.00","on_demand_cost":"9600.00","savings":"1266.666667"}]}` + "\n"
	if got := strings.Replace(written(t, r, "json"), *r.PriceVersion, "VERSION", 1); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := written(t, r, "csv"); !strings.HasPrefix(got, "id,contract,kind,") || !strings.Contains(got, "\r\ndear,c,commitment,,x,p,,h,month,1,") {
		t.Errorf("csv: %s", got)
	}
	if got := written(t, r, "table"); !strings.Contains(got, "it breaks even at 625 hours of 720: 385 of the 480 that are left") {
		t.Errorf("table: %s", got)
	}
	if l.usage.Cuts != nil || l.usage.NowMs != 0 {
		t.Errorf("the usage was changed: %+v", l.usage)
	}
}

// What is not known is null, and never 0.
func TestPlansWithoutPrices(t *testing.T) {
	s, _ := ratedService(t, "", plansContract, plansUsage()...)
	r, err := s.Plans(t.Context(), PlansParams{From: "2026-04-01", To: "2026-05-01", Filter: map[string]string{"model": "h"}})
	if err != nil {
		t.Fatal(err)
	}
	got := written(t, r, "json")
	for _, want := range []string{`"currency":null`, `"price_version":null`, `"on_demand_cost":null,"savings":null`, `"break_even_hours":null`, `"verdict":"unpriced"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	a, err := s.Advise(t.Context(), AdviseParams{PlansParams: inApril})
	if err != nil {
		t.Fatal(err)
	}
	got = written(t, a, "json")
	for _, want := range []string{`"code":"unpriced"`, `"on_demand_per_gpu_hour":null`, `"cost":null`, `"mode":null`, `{"kind":"on_demand","platform":"","term":"","cost":null,`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	none, _ := ratedService(t, plansBook, "")
	if r, err = none.Plans(t.Context(), inApril); err != nil || len(r.Plans) != 0 || !strings.Contains(written(t, r, "table"), "no plan, commitment or quote") {
		t.Errorf("without anything: %+v %v", r, err)
	}
	if a, err = none.Advise(t.Context(), AdviseParams{PlansParams: inApril}); err != nil || !strings.Contains(written(t, a, "table"), "nothing was used") {
		t.Errorf("without anything: %v", err)
	}
}

func TestPlansRefusals(t *testing.T) {
	s, l := ratedService(t, plansBook, plansContract)
	for _, c := range []struct {
		p    AdviseParams
		want string
	}{
		{AdviseParams{PlansParams: PlansParams{Filter: map[string]string{"instance": "i"}}}, "filter: \"instance\" is not a key that plans have"},
		{AdviseParams{PlansParams: PlansParams{From: "2026-06-01", To: "2026-07-01"}}, "from: 2026-06-01T00:00:00Z is not before 2026-05-03T12:00:00Z"},
		{AdviseParams{PlansParams: PlansParams{Zone: "Mars"}}, "zone: "},
		{AdviseParams{PlansParams: PlansParams{AsOf: "2026-06-01"}}, "as_of: 2026-06-01T00:00:00Z is in the future"},
		{AdviseParams{Step: -1}, "step: -1 is not between"},
		{AdviseParams{Step: MaxStep + 1}, "step: 10001 is not between"},
		{AdviseParams{SpotRework: "1e9"}, "spot_rework: \"1e9\" is not a decimal"},
		{AdviseParams{SpotRework: "-1"}, "spot_rework: "},
	} {
		_, err := s.Advise(t.Context(), c.p)
		var wrong *RequestError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.p, err, c.want)
		}
	}
	l.err = errors.New("disk gone")
	if _, err := s.Plans(t.Context(), inApril); !errors.Is(err, l.err) {
		t.Errorf("%v", err)
	}
	s.Rated = nil
	var conflict *ConflictError
	if _, err := s.Plans(t.Context(), inApril); !errors.As(err, &conflict) {
		t.Errorf("without rentals: %v", err)
	}
}

// Nodes of 8, a filter, and the rework that is said instead of measured.
func TestAdviseOptions(t *testing.T) {
	spot := ran("s", "b", "m", 1, 100)
	spot.Segments[0].Plan = pricing.PlanSpot
	spot.Segments[0].Workload = "test"
	s, _ := ratedService(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]", "commitments: [{id: base, model: m, gpus: 1, term: month, per_gpu: 3125, from: 2026-03-01, to: 2026-04-01}, {id: next, model: m, gpus: 3, term: month, per_gpu: 3125, from: 2026-04-15, to: 2026-05-15}]\n"+
		"adjustments: [{id: spot, stage: term, discount: 40%, plan: [spot]}]", ran("base", "a", "m", 20, 720), ran("burst", "a", "m", 80, 72), spot)
	r, err := s.Advise(t.Context(), AdviseParams{PlansParams: inApril, Step: 8, SpotRework: "0.05"})
	if err != nil {
		t.Fatal(err)
	}
	p := &r.Pools[0]
	if *p.Spot != "6.30" || *p.Rework != "0.05" || *p.Reserve%8 != 0 || p.Committed != 3 || r.Step != 8 {
		t.Errorf("spot %s, rework %s, %d reserved, %d committed", *p.Spot, *p.Rework, *p.Reserve, p.Committed)
	}
	if len(r.Modes) != 2 || r.Modes[1].Workload != "test" || *r.Modes[1].Mode != "spot" {
		t.Errorf("%+v", r.Modes)
	}
	q := inApril
	q.Filter = map[string]string{"project": "b"}
	if r, err = s.Advise(t.Context(), AdviseParams{PlansParams: q}); err != nil || len(r.Pools) != 1 || r.Pools[0].Peak != 1 || r.Pools[0].GPUMs != 100*hour {
		t.Errorf("%+v %v", r.Pools, err)
	}
}
