package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// The cases carry the numbers of the acceptance list.
func TestWindows(t *testing.T) {
	t.Run("C1 end is exclusive", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-03-01T11:00:00Z", "2026-03-01T11:00:01Z")}}, p360)
		want(t, ask(t, s, Params{From: "2026-03-01T10:00:00Z", To: "2026-03-01T11:00:00Z"}), "= 0s null")
		want(t, ask(t, s, Params{From: "2026-03-01T11:00:00Z", To: "2026-03-01T12:00:00Z"}), " 1s 0.001\n= 1s 0.001")
	})
	t.Run("C2 bounds to the millisecond", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{
			gpu("2026-03-01T10:00:10Z", "2026-03-01T10:00:11Z"), gpu("2026-03-01T10:00:40Z", "2026-03-01T10:00:41Z"),
		}}, p360)
		want(t, ask(t, s, Params{From: "2026-03-01T10:00:30Z", To: "2026-03-01T10:01:30Z"}), " 1s 0.001\n= 1s 0.001")
	})
	t.Run("C4 split over hours", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-03-01T10:59:30Z", "2026-03-01T11:00:30Z")}}, p360)
		want(t, ask(t, s, Params{From: "2026-03-01", To: "2026-03-02", By: []string{"hour"}}), `
			2026-03-01T10:00:00Z 30s 0.03
			2026-03-01T11:00:00Z 30s 0.03
			= 60s 0.06`)
	})
	t.Run("C5 never negative", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-03-01T05:00:00Z", "2026-03-01T05:42:30Z")}}, p360)
		want(t, ask(t, s, Params{From: "2026-03-01T05:44:57Z", To: "2026-03-01T05:46:13Z", By: []string{"instance"}}), "= 0s null")
	})
	t.Run("C10 shared unit", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{
			gpu("2026-03-01T01:00:00Z", "2026-03-01T02:00:00Z", "instance=A"),
			gpu("2026-03-01T02:00:00Z", "2026-03-01T03:00:00Z", "instance=A", "share=1"),
			gpu("2026-03-01T02:00:00Z", "2026-03-01T03:00:00Z", "instance=B", "share=1"),
		}}, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 2}\n")
		want(t, ask(t, s, Params{From: "2026-03-01", To: "2026-03-02", By: []string{"instance"}}), "A 5400s 3.00\nB 1800s 1.00\n= 7200s 4.00")
	})
}

func TestZones(t *testing.T) {
	t.Run("D1 the second 01:00 of autumn", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{
			gpu("2026-11-01T05:30:00Z", "2026-11-01T05:30:01Z"), gpu("2026-11-01T06:30:00Z", "2026-11-01T06:30:01Z"),
		}}, p360)
		p := Params{From: "2026-11-01", To: "2026-11-02", Zone: "America/New_York", By: []string{"hour"}}
		want(t, ask(t, s, p), `
			2026-11-01T01:00:00-04:00 1s 0.001
			2026-11-01T01:00:00-05:00 1s 0.001
			= 2s 0.002`)
		s = service(t, &fakeStore{spans: []span{gpu("2026-10-01", "2026-12-01")}}, p360)
		p.By = []string{"day"}
		want(t, ask(t, s, p), "2026-11-01 90000s 90.00\n= 90000s 90.00")
	})
	t.Run("D2 days of 23 hours", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-03-01", "2026-04-10")}}, p360)
		for zone, days := range map[string][2]string{"America/New_York": {"2026-03-08", "2026-03-09"}, "Europe/Berlin": {"2026-03-29", "2026-03-30"}} {
			r := ask(t, s, Params{From: days[0], To: days[1], Zone: zone, By: []string{"day"}})
			want(t, r, days[0]+" 82800s 82.80\n= 82800s 82.80")
		}
	})
	t.Run("D4 the server's zone does not matter", func(t *testing.T) {
		old := time.Local
		defer func() { time.Local = old }()
		for _, zone := range []string{"Asia/Kolkata", "America/New_York", "UTC"} {
			var err error
			if time.Local, err = time.LoadLocation(zone); err != nil {
				t.Fatal(err)
			}
			s := service(t, &fakeStore{spans: []span{gpu("2026-03-01T00:00:00Z", "2026-03-01T05:30:00Z")}}, p360)
			want(t, ask(t, s, Params{From: "2026-03-01", To: "2026-03-02", By: []string{"day"}}), "2026-03-01 19800s 19.80\n= 19800s 19.80")
		}
	})
	t.Run("D5 months across a change of the clock", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-01-01", "2027-01-01")}}, p360)
		for _, c := range []struct{ from, to, want string }{
			{"2026-03-01", "2026-04-01", "2026-03 2674800s 2674.80\n= 2674800s 2674.80"},
			{"2026-10-01", "2026-11-01", "2026-10 2682000s 2682.00\n= 2682000s 2682.00"},
		} {
			want(t, ask(t, s, Params{From: c.from, To: c.to, Zone: "Europe/Berlin", By: []string{"month"}}), c.want)
		}
	})
	t.Run("D7 renamed and unknown zones", func(t *testing.T) {
		s := service(t, &fakeStore{spans: []span{gpu("2026-03-01", "2026-04-10")}}, p360)
		ask2 := func(zone string) string {
			return lines(ask(t, s, Params{From: "2026-03-28", To: "2026-03-31", Zone: zone, By: []string{"hour"}}))
		}
		if ask2("Europe/Kiev") != ask2("Europe/Kyiv") {
			t.Error("Europe/Kiev and Europe/Kyiv differ")
		}
		for _, zone := range []string{"Mars/Olympus", "Local", "../etc/passwd", "+08:00"} {
			var wrong *RequestError
			if _, err := s.Report(t.Context(), Params{Zone: zone}); !errors.As(err, &wrong) || wrong.Param != "zone" {
				t.Errorf("%s: %v", zone, err)
			}
		}
	})
}

func TestHoursOfOddZones(t *testing.T) {
	s := service(t, &fakeStore{spans: []span{gpu("2010-01-01", "2027-01-01")}}, "")
	for _, c := range []struct{ zone, from, to, by, want string }{
		{"Asia/Kathmandu", "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z", "hour", `
			2026-03-01T05:00:00+05:45 900s null
			2026-03-01T06:00:00+05:45 2700s null
			= 3600s null`},
		{"Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T16:30:00Z", "hour", `
			2026-04-05T01:00:00+11:00 3600s null
			2026-04-05T01:30:00+10:30 1800s null
			2026-04-05T02:00:00+10:30 3600s null
			= 9000s null`},
		{"Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T17:00:00Z", "hour", `
			2026-10-04T01:00:00+10:30 1800s null
			2026-10-04T02:30:00+11:00 1800s null
			2026-10-04T03:00:00+11:00 3600s null
			= 7200s null`},
		// In the order of time, which is not the order of the text.
		{"Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", "hour", `
			2026-10-25T02:00:00+02:00 3600s null
			2026-10-25T02:00:00+01:00 3600s null
			= 7200s null`},
		// Midnight does not exist on the first day, and comes twice on the second.
		{"America/Sao_Paulo", "2018-11-04", "2018-11-05", "day", "2018-11-04 82800s null\n= 82800s null"},
		{"America/Havana", "2026-11-01", "2026-11-02", "day", "2026-11-01 90000s null\n= 90000s null"},
		// Samoa skipped a date.
		{"Pacific/Apia", "2011-12-29", "2012-01-01", "day", "2011-12-29 86400s null\n2011-12-31 86400s null\n= 172800s null"},
	} {
		want(t, ask(t, s, Params{From: c.from, To: c.to, Zone: c.zone, By: []string{c.by}}), c.want)
	}
}

func TestAmounts(t *testing.T) {
	t.Run("E4 lines and total", func(t *testing.T) {
		var spans []span
		for _, p := range []string{"a", "b", "c"} {
			spans = append(spans, gpu("2026-03-01T10:00:00Z", "2026-03-01T10:00:04Z", "project="+p))
		}
		r := ask(t, service(t, &fakeStore{spans: spans}, p360), Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project"}})
		want(t, r, "a 4s 0.004\nb 4s 0.004\nc 4s 0.004\n= 12s 0.012")
	})
	t.Run("E7 and E12 prices as given", func(t *testing.T) {
		store := &fakeStore{spans: []span{gpu("2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z")}}
		for price, cost := range map[string]string{"112.50": "112.50", "1.0": "1.00"} {
			r := ask(t, service(t, store, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: "+price+"}\n"), Params{From: "2026-03-01", To: "2026-03-02"})
			want(t, r, " 3600s "+cost+"\n= 3600s "+cost)
		}
	})
	t.Run("rows are rounded to add up", func(t *testing.T) {
		var spans []span
		for _, p := range []string{"a", "b", "c"} {
			spans = append(spans, gpu("2026-03-01T10:00:00Z", "2026-03-01T10:00:00.001Z", "project="+p))
		}
		r := ask(t, service(t, &fakeStore{spans: spans}, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"1.20\"}\n"),
			Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project"}})
		want(t, r, "a 0.001s 0.000001\nb 0.001s 0.00\nc 0.001s 0.00\n= 0.003s 0.000001")
	})
	t.Run("E6 yen", func(t *testing.T) {
		r := ask(t, service(t, &fakeStore{spans: []span{gpu("2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z")}}, "currency: JPY\nprices:\n  - {model: m, per_gpu_hour: 1935}\n"), Params{From: "2026-03-01", To: "2026-03-02"})
		want(t, r, " 3600s 1935\n= 3600s 1935")
	})
}

const j1 = `currency: USD
prices:
  - {model: m, per_gpu_hour: "3.60", valid_to: 2026-03-15T00:00:00Z}
  - {model: m, per_gpu_hour: "2.88", valid_from: 2026-03-15}
`

func TestPriceHistory(t *testing.T) {
	store := &fakeStore{spans: []span{gpu("2026-01-01", "2026-12-01")}}
	march := Params{From: "2026-03-01", To: "2026-04-01", By: []string{"project"}}
	t.Run("J1 a new price leaves old time alone", func(t *testing.T) {
		s := service(t, store, j1)
		want(t, ask(t, s, march), "a 2678400s 2384.64\n= 2678400s 2384.64")
		s.Now = func() time.Time { return clock.AddDate(1, 0, 0) }
		want(t, ask(t, s, march), "a 2678400s 2384.64\n= 2678400s 2384.64")
	})
	t.Run("C13 a price that changes at a local midnight", func(t *testing.T) {
		var spans []span
		for _, h := range []string{"06", "07", "08"} {
			spans = append(spans, gpu("2026-06-04T"+h+":30:00Z", "2026-06-04T"+h+":30:01Z"))
		}
		s := service(t, &fakeStore{spans: spans}, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 3.6, valid_to: \"2026-06-04T00:00:00-07:00\"}\n  - {model: m, per_gpu_hour: 7.2, valid_from: \"2026-06-04T00:00:00-07:00\"}\n")
		want(t, ask(t, s, Params{From: "2026-06-03", To: "2026-06-05", Zone: "America/Los_Angeles", By: []string{"day"}}),
			"2026-06-03 1s 0.001\n2026-06-04 2s 0.004\n= 3s 0.005")
	})
	t.Run("J3 no list means unpriced", func(t *testing.T) {
		r := ask(t, service(t, store, ""), march)
		want(t, r, "a 2678400s null\n= 2678400s null")
		if r.Totals.UnpricedMs != 2678400_000 {
			t.Errorf("unpriced %d ms", r.Totals.UnpricedMs)
		}
	})
	t.Run("unpriced beside priced", func(t *testing.T) {
		r := ask(t, service(t, &fakeStore{spans: []span{gpu("2026-03-01", "2026-03-03")}}, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 1, valid_from: 2026-03-02}\n"), march)
		want(t, r, "a 172800s 24.00\n= 172800s 24.00")
		if r.Totals.UnpricedMs != 86_400_000 {
			t.Errorf("unpriced %d ms", r.Totals.UnpricedMs)
		}
	})
}

func TestWasteAndUnknown(t *testing.T) {
	hour := []string{"2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"}
	var spans []span
	for i := range 8 {
		spans = append(spans, gpu(hour[0], hour[1], fmt.Sprintf("unit=GPU-%d", i), "util=250000", "energy=300"))
	}
	for i := range 3 {
		spans = append(spans, gpu(hour[0], hour[1], fmt.Sprintf("unit=b-%d", i), "project=b", "state=idle", "util=0"))
	}
	spans = append(spans,
		gpu(hour[0], hour[1], "unit=free", "project=", "instance=", "state=free", "util=0"),
		gpu(hour[0], hour[1], "unit=blind", "project=c", "state=unknown"),
		gpu(hour[0], hour[1], "unit=cheap", "project=d", "model=other", "state=idle", "util=-1"),
	)
	s := service(t, &fakeStore{spans: spans}, p360)
	r := ask(t, s, Params{Kind: "waste", From: "2026-03-01", To: "2026-03-02", By: []string{"project"}})
	got := string(r.JSON())
	for _, row := range []string{
		// b wastes most and comes first; the free unit is nobody's waste (I5).
		`"rows":[{"project":"b","allocated_ms":10800000,"known_ms":10800000,"active_ms":0,"idle_ms":10800000,"unknown_ms":0,"utilization":"0","cost":"10.80","idle_waste":"10.80","unpriced_ms":0,"free_ms":0,"free_cost":"0.00","energy_mj":null,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":"0.00","unused_cost":"10.80","list_cost":"10.80","effective_cost":"10.80","useful_cost":"0.00","unknown_cost":"0.00","stopped_cost":"0.00","minimum_cost":"0.00","commitment_unused_cost":"0.00","rework_cost":"0.00","meter_cost":"0.00","credit_cost":"0.00"}`,
		`{"project":"","allocated_ms":3600000,"known_ms":3600000,"active_ms":0,"idle_ms":3600000,"unknown_ms":0,"utilization":"0","cost":"3.60","idle_waste":"0.00","unpriced_ms":0,"free_ms":3600000,"free_cost":"3.60","energy_mj":null,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":"0.00","unused_cost":"3.60","list_cost":"3.60","effective_cost":"3.60","useful_cost":"0.00","unknown_cost":"0.00","stopped_cost":"0.00","minimum_cost":"0.00","commitment_unused_cost":"0.00","rework_cost":"0.00","meter_cost":"0.00","credit_cost":"0.00"}`,
		// I1: allocated 28.80 at a mean of 25 %.
		`{"project":"a","allocated_ms":28800000,"known_ms":28800000,"active_ms":28800000,"idle_ms":0,"unknown_ms":0,"utilization":"0.25","cost":"28.80","idle_waste":"0.00","unpriced_ms":0,"free_ms":0,"free_cost":"0.00","energy_mj":8640000000,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":"7.20","unused_cost":"21.60","list_cost":"28.80","effective_cost":"28.80","useful_cost":"28.80","unknown_cost":"0.00","stopped_cost":"0.00","minimum_cost":"0.00","commitment_unused_cost":"0.00","rework_cost":"0.00","meter_cost":"0.00","credit_cost":"0.00"}`,
		// Unknown activity is neither busy nor idle and has no utilization (H6, F4).
		`{"project":"c","allocated_ms":3600000,"known_ms":0,"active_ms":0,"idle_ms":0,"unknown_ms":3600000,"utilization":null,"cost":"3.60","idle_waste":"0.00","unpriced_ms":0,"free_ms":0,"free_cost":"0.00","energy_mj":null,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":"0.00","unused_cost":"0.00","list_cost":"3.60","effective_cost":"3.60","useful_cost":"0.00","unknown_cost":"3.60","stopped_cost":"0.00","minimum_cost":"0.00","commitment_unused_cost":"0.00","rework_cost":"0.00","meter_cost":"0.00","credit_cost":"0.00"}`,
		// No price: unknown amounts, and last.
		`{"project":"d","allocated_ms":3600000,"known_ms":3600000,"active_ms":0,"idle_ms":3600000,"unknown_ms":0,"utilization":null,"cost":null,"idle_waste":null,"unpriced_ms":3600000,"free_ms":0,"free_cost":null,"energy_mj":null,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":null,"unused_cost":null,"list_cost":null,"effective_cost":null,"useful_cost":null,"unknown_cost":null,"stopped_cost":null,"minimum_cost":null,"commitment_unused_cost":null,"rework_cost":null,"meter_cost":null,"credit_cost":null}],"totals":{"allocated_ms":50400000,`,
	} {
		if !strings.Contains(got, row) {
			t.Errorf("no %s\nin %s", row, got)
		}
	}
}

// Used and unused cost are of the time whose utilization is known: half of the time
// here says nothing, and the price of some of it is not known either.
func TestUsedCostLeavesOutWhatIsUnknown(t *testing.T) {
	hour := []string{"2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"}
	s := service(t, &fakeStore{spans: []span{
		gpu(hour[0], hour[1], "unit=1", "util=333333"),
		gpu(hour[0], hour[1], "unit=2", "util=333333"),
		gpu(hour[0], hour[1], "unit=3", "state=unknown"),
		gpu(hour[0], hour[1], "unit=4", "util=-1"),
		gpu(hour[0], hour[1], "unit=5", "model=other", "util=1000000"),
		gpu(hour[0], hour[1], "unit=6", "project=b", "model=other", "util=1000000"),
		gpu(hour[0], hour[1], "unit=7", "project=c", "state=unknown"),
	}}, p360)
	r := ask(t, s, Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project"}})
	got := ""
	for _, row := range append(r.Rows, Row{Keys: []string{"total"}, Figures: r.Totals}) {
		f := &row.Figures
		got += fmt.Sprintln(row.Keys[0], amountText(f.Cost, "USD"), amountText(f.UsedCost, "USD"), amountText(f.UnusedCost, "USD"), f.UnpricedMs)
	}
	want := "a 14.40 2.399998 4.800002 3600000\nb    3600000\nc 3.60 0.00 0.00 0\ntotal 18.00 2.399998 4.800002 7200000\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestMeanRoundsHalfUp(t *testing.T) {
	for _, c := range []struct {
		sum, ms int64
		want    string
	}{{1, 2, "0.000001"}, {1, 3, "0"}, {2, 3, "0.000001"}, {1_000_000, 1, "1"}, {0, 5, "0"}, {0, 0, ""}} {
		if got := ratioText(mean(big.NewInt(c.sum), c.ms)); got != c.want {
			t.Errorf("%d/%d: %q, want %q", c.sum, c.ms, got, c.want)
		}
	}
}

func TestNothingAllocated(t *testing.T) { // F5
	empty := schema.UsageRow{Keys: []string{"a"}, Model: "m"}
	r := ask(t, service(t, &fakeStore{extra: []schema.UsageRow{empty}}, p360), Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project"}})
	got := string(r.JSON())
	want := `{"from":"2026-03-01T00:00:00Z","to":"2026-03-02T00:00:00Z","as_of":"2027-01-01T12:00:00Z","zone":"UTC","currency":"USD","by":["project"],"rows":[],` +
		`"totals":{"allocated_ms":0,"known_ms":0,"active_ms":0,"idle_ms":0,"unknown_ms":0,"utilization":null,"cost":null,"idle_waste":null,"unpriced_ms":0,"free_ms":0,"free_cost":null,"energy_mj":null,"overlap_ms":0,"oversubscribed_ms":0,"used_cost":null,"unused_cost":null,"list_cost":null,"effective_cost":null,"useful_cost":null,"unknown_cost":null,"stopped_cost":null,"minimum_cost":null,"commitment_unused_cost":null,"rework_cost":null,"meter_cost":null,"credit_cost":null},` +
		`"quality":{"conflicts":0,"quarantined":0,"late":0,"gaps":0,"held":0,"outside_lease_ms":0,"open_incidents":0}}` + "\n"
	if got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAsOfReachesTheStore(t *testing.T) {
	store := &fakeStore{spans: []span{gpu("2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z", "stored=2026-03-01"), gpu("2026-03-02T10:00:00Z", "2026-03-02T10:01:00Z", "stored=2026-04-06")}}
	s := service(t, store, p360)
	march := Params{From: "2026-03-01", To: "2026-04-01", AsOf: "2026-04-05"}
	first := ask(t, s, march).JSON()
	s.Now = func() time.Time { return clock.AddDate(0, 1, 0) }
	if again := ask(t, s, march).JSON(); string(again) != string(first) || !strings.Contains(string(first), `"as_of":"2026-04-05T00:00:00Z"`) {
		t.Errorf("asked again:\n%s\n%s", first, again)
	}
	march.AsOf = ""
	want(t, ask(t, s, march), " 120s 0.12\n= 120s 0.12")
	if store.queries[len(store.queries)-1].AsOfMs != 0 {
		t.Error("without as-of the store is asked for an instant")
	}
}

func TestStoreFaultsAreNotFigures(t *testing.T) {
	s := service(t, &fakeStore{err: errors.New("down")}, p360)
	if _, err := s.Report(t.Context(), Params{}); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("err = %v", err)
	}
	if _, err := s.Explain(t.Context(), ExplainParams{}); err == nil {
		t.Error("explain hides the fault")
	}
	for name, row := range map[string]schema.UsageRow{
		"negative time":          {Sums: schema.Sums{ActiveMs: -1, UnknownMs: 5}},
		"more free than idle":    {Sums: schema.Sums{IdleMs: 1, FreeMs: 2}},
		"more overlap than time": {Sums: schema.Sums{IdleMs: 1, OverlapMs: 2}},
		"more claimed than time": {Sums: schema.Sums{UnknownMs: 1, OversubscribedMs: 2}},
		"no such piece":          {Piece: 1, Sums: schema.Sums{ActiveMs: 1}},
		"a key too many":         {Keys: []string{"a"}, Sums: schema.Sums{ActiveMs: 1}},
	} {
		s = service(t, &fakeStore{extra: []schema.UsageRow{row}}, p360)
		if _, err := s.Report(t.Context(), Params{}); err == nil || !strings.Contains(err.Error(), "impossible") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var spans []span
	for i := range 4 {
		huge := gpu("2026-03-01", "2026-03-02", fmt.Sprintf("project=%d", i))
		huge.share = 1 << 36
		spans = append(spans, huge)
	}
	s = service(t, &fakeStore{spans: spans}, p360)
	if _, err := s.Report(t.Context(), Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project"}}); err == nil || !strings.Contains(err.Error(), "64 bits") {
		t.Errorf("a sum that wrapped around is shown: %v", err)
	}
}
