package pricing

import (
	"math/big"
	"testing"
)

func TestCredit(t *testing.T) {
	month := Span{ms("2026-04-01T00:00:00Z"), ms("2026-05-01T00:00:00Z")}
	at := func(clock string) int64 { return ms("2026-04-10T" + clock + "Z") }
	tariff := &Tariff{Profile: profileOf(t, ""), Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 35}]")}
	charges := tariff.Rate(&Rental{Instance: "i", Segments: []Segment{{Span: month, State: "running", Model: "m", Gpus: 1}}})
	hour := []Span{{at("10:00:00"), at("10:40:00")}, {at("10:30:00"), at("11:00:00")}} // reported twice, lost once
	short := []Span{{at("10:00:00"), at("10:43:00")}}
	for _, c := range []struct {
		name    string
		sla     SLA
		outages []Span
		money   string
		hours   string
		missed  bool
	}{
		{"V11 and E42, an hour for two", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}, hour, "-70", "0", true},
		{"in hours", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage, Form: CreditHours}, hour, "0", "2", true},
		{"within the 43.2 minutes", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: BelowTarget}, short, "0", "0", false},
		{"any outage all the same", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}, short, "-301/6", "0", false},
		{"at most a thousandth of the month", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage, Most: rat("0.001")}, hour, "-25.2", "0", true},
		{"none", SLA{Target: rat("0.999"), Ratio: rat("2"), Trigger: AnyOutage}, nil, "0", "0", false},
	} {
		got := c.sla.Credit(month, c.outages, charges)
		if got.Money.Cmp(rat(c.money)) != 0 || got.Hours.Cmp(rat(c.hours)) != 0 || got.Missed != c.missed {
			t.Errorf("%s: %s and %s h, missed %v (available %s)", c.name, Exact(got.Money), Exact(got.Hours), got.Missed, Exact(got.Availability))
		}
	}
	sla := SLA{Target: rat("0.999")}
	if got := sla.AllowedOutageMs(month); got.Cmp(rat("2592000")) != 0 { // 43.2 min
		t.Errorf("%s ms are allowed", Exact(got))
	}
}

func TestMeters(t *testing.T) {
	for _, c := range []struct {
		per             Unit
		price, quantity string
		want            string
	}{
		{UnitGB, "0.5", "1000000000000", "500"}, // F10: 1 TB
		{UnitGB, "1", "1099511627776", "1099.511627776"},
		{UnitGB, "0.5", "1099511627776", "549.755813888"}, // a TiB priced per GB
		{UnitGiB, "1", "1099511627776", "1024"},
		{UnitTiB, "100", "549755813888", "50"},
		{UnitGBHour, "0.001", "3600000000000", "0.001"},
		{UnitGiBMonth, "0.7", "2783138807808000", "0.7"},
	} {
		m := MeterPrice{Per: c.per, Price: rat(c.price)}
		if got := Exact(m.Cost(rat(c.quantity))); got != c.want {
			t.Errorf("%s per %s of %s: %s, want %s", c.price, c.per, c.quantity, got, c.want)
		}
	}
	if got := Exact(Spread(rats("20", "26", "30", "21"))); got != rat("1/3").RatString() && got != "1/3" {
		t.Errorf("spread %s", got)
	}
	if Spread(rats("3")) != nil {
		t.Error("one price is no spread")
	}
	q := Quote{Fee: rat("50000")}
	if got := Exact(q.PerHour(1600 * hourMs)); got != "31.25" { // V15
		t.Errorf("V15: %s", got)
	}
	if q.PerHour(0) != nil {
		t.Error("a quote without use has a price per hour")
	}
}

func rats(texts ...string) (list []*big.Rat) {
	for _, text := range texts {
		list = append(list, rat(text))
	}
	return list
}
