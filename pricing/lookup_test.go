package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const secondBook = `currency: CNY
prices:
  - {model: H100, per_gpu_hour: "30", gpu_memory_gib: 80}
  - {model: H100, plan: spot, per_gpu_hour: "18"}
  - {model: H100, plan: month, per_gpu: "25000", valid_from: 2026-01-01, valid_to: 2027-01-01}
  - {model: "*", plan: week, per_gpu_hour: "9"}
  - {sku: gn8, platform: p, per_node_hour: "100", gpus_per_node: 7, vcpu: 96, ram_gib: "1024.5", source: the page}
  - {sku: gn8, plan: year, per_node: "1000000", gpus_per_node: 8, currency: USD}
  - {sku: gn8, model: H100, per_gpu_hour: "29"}
meters:
  - {meter: egress_bytes, per: GB, price: "0.5"}
  - {meter: egress_bytes, platform: p, per: GiB, price: "0.6", valid_from: 2026-03-01}
  - {meter: egress_bytes, platform: p, region: r, per: GB, price: "0.7", currency: USD}
`

func TestLookup(t *testing.T) {
	b := mustParse(t, secondBook)
	now := ms("2026-03-01T00:00:00Z")
	for _, c := range []struct {
		item Item
		at   int64
		want string // line, price per hour or term, currency
	}{
		{Item{Model: "H100"}, now, "3: 30 per hour, CNY"},
		{Item{Model: "H100", Plan: "spot"}, now, "4: 18 per hour, CNY"},
		{Item{Model: "H100", Plan: "month"}, now, "5: 25000 per month, CNY"},
		{Item{Model: "H100", Plan: "month"}, ms("2027-01-01T00:00:00Z"), "3: 30 per hour, CNY"}, // no longer sold
		{Item{Model: "H100", Plan: "day"}, now, "3: 30 per hour, CNY"},
		{Item{Model: "H100", Plan: "week"}, now, "6: 9 per hour, CNY"}, // the plan before the model
		{Item{SKU: "gn8", Model: "H100", Platform: "p"}, now, "7: 100/7 per hour, CNY"},
		{Item{SKU: "gn8", Platform: "q"}, now, "9: 29 per hour, CNY"},
		{Item{SKU: "gn8", Model: "other", Plan: "year"}, now, "8: 125000 per year, USD"},
		{Item{SKU: "gn9", Model: "H100"}, now, "3: 30 per hour, CNY"},
		{Item{SKU: "gn9"}, now, ""},
		{Item{Platform: "p"}, now, ""},
	} {
		p, ok := b.Lookup(c.item, c.at)
		got := ""
		if ok {
			got = fmt.Sprintf("%d: ", p.Entry.Line)
			if p.PerGPUHour != nil {
				got += Exact(p.PerGPUHour) + " per hour"
			} else {
				got += Exact(p.Entry.PerGPU) + " per " + string(p.Entry.Term)
			}
			got += ", " + p.Entry.Currency
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.item, got, c.want)
		}
	}
	e := b.Entries[4]
	if Exact(e.PerNode) != "100" || e.GpusPerNode != 7 || Exact(e.VCPU) != "96" || Exact(e.RAMGiB) != "1024.5" || e.Source != "the page" || e.DiskGiB != nil {
		t.Errorf("%+v", e)
	}
	if Exact(b.Entries[0].GPUMemoryGiB) != "80" {
		t.Error("the memory is lost")
	}
}

// Who adds up amounts in the book's currency must not be given another one.
func TestPriceIsInTheBooksCurrency(t *testing.T) {
	b := mustParse(t, "currency: CNY\nprices:\n  - {model: m, platform: p, currency: USD, per_gpu_hour: 1}\n  - {model: m, currency: CNY, per_gpu_hour: 7}\n")
	if p, ok := b.Price("m", "p", "", 0); ok {
		t.Errorf("a price in %s", p.Entry.Currency)
	}
	if p, ok := b.Price("m", "q", "", 0); !ok || Exact(p.PerGPUHour) != "7" {
		t.Errorf("%+v", p)
	}
}

func TestMeterPrices(t *testing.T) {
	b := mustParse(t, secondBook)
	for _, c := range []struct {
		meter, platform, region string
		at                      int64
		want                    string
	}{
		{"egress_bytes", "", "", 0, "0.5 per GB, CNY"},
		{"egress_bytes", "p", "", 0, "0.5 per GB, CNY"},
		{"egress_bytes", "p", "", ms("2026-03-01T00:00:00Z"), "0.6 per GiB, CNY"},
		{"egress_bytes", "p", "r", ms("2026-03-01T00:00:00Z"), "0.7 per GB, USD"},
		{"egress", "p", "r", 0, ""},
	} {
		m, ok := b.Meter(c.meter, c.platform, c.region, c.at)
		got := ""
		if ok {
			got = fmt.Sprintf("%s per %s, %s", Exact(m.Price), m.Per, m.Currency)
		}
		if got != c.want {
			t.Errorf("%s on %s in %s: %q, want %q", c.meter, c.platform, c.region, got, c.want)
		}
	}
	if _, ok := (*Book)(nil).Meter("egress_bytes", "", "", 0); ok {
		t.Error("no book has a price")
	}
	if cuts := b.Cuts(0, ms("2026-12-31T00:00:00Z")); !slices.Equal(cuts, []int64{ms("2026-01-01T00:00:00Z"), ms("2026-03-01T00:00:00Z")}) {
		t.Errorf("cuts %v", cuts)
	}
}

func TestMeterCostsAreExact(t *testing.T) {
	for _, c := range []struct {
		quantity string
		per      Unit
		price    string
		want     string
	}{
		{"1840000000000000000", UnitGBMonth, "0.12", "2300/27"},
		{"1840000000000000000", UnitTBMonth, "120", "2300/27"},
		{"2592000000000000000000000000000", UnitTBMonth, "0.1", "100000000000"},
		{"2592000000000000000000000000001", UnitTBMonth, "0.1", "2592000000000000000000000000001/25920000000000000000"},
		{"7200", UnitVCPUHour, "0.25", "0.5"},
		{"3", UnitOne, "0.1", "0.3"},
		{"1000000000000", UnitGiB, "1", "244140625/262144"},
	} {
		m := MeterPrice{Per: c.per, Price: rat(c.price)}
		if got := Exact(m.Cost(rat(c.quantity))); got != Exact(rat(c.want)) {
			t.Errorf("%s at %s per %s: %s, want %s", c.quantity, c.price, c.per, got, c.want)
		}
	}
	for _, unit := range Unit("").values() {
		if unitSizes[Unit(unit)] <= 0 {
			t.Errorf("%s has no size", unit)
		}
	}
	if len(unitSizes) != len(Unit("").values()) {
		t.Errorf("%d units have sizes, %d can be written", len(unitSizes), len(Unit("").values()))
	}
}

// Lists of prices that were stored by their version must keep it.
func TestHashOfOlderBooksStays(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"currency: USD\nprices:\n  - {model: a, per_gpu_hour: 3.6}\n  - {model: b, platform: p, region: r, per_gpu_hour: 1, valid_from: 2026-03-01, valid_to: 2026-04-01}\n",
			"1e086b471e8324ff8b7bc68e3b19ba73032535226ea491a2d17cbf5cde41e188"},
		{"currency: USD\nprices: []\n", "dbdc13df72e1dbf1204750e68b67146f240de6a329d728534bf871a7dc6f5c45"},
	} {
		if got := mustParse(t, c.text).Hash; got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestHashOfTheSecondForm(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"", ""},
		{"per_gpu_hour: \"30\"", "per_gpu_hour: \"31\""},
		{"plan: spot", "plan: idle"},
		{"plan: month, per_gpu", "plan: quarter, per_gpu"},
		{"\"25000\"", "\"25001\""},
		{"plan: month, per_gpu:", "plan: month, per_gpu_hour:"},
		{"sku: gn8, platform: p", "sku: gn9, platform: p"},
		{"gpus_per_node: 7", "gpus_per_node: 8"},
		{"currency: USD}\n  - {sku", "currency: EUR}\n  - {sku"},
		{"per_node_hour: \"100\"", "per_node_hour: \"101\""},
		{"price: \"0.5\"", "price: \"0.55\""},
		{"per: GB, price: \"0.5\"", "per: GiB, price: \"0.5\""},
		{"\"0.7\", currency: USD", "\"0.7\", currency: EUR"},
		{"\"0.6\", valid_from: 2026-03-01", "\"0.6\", valid_from: 2026-03-02"},
		{"meter: egress_bytes, platform: p, region: r", "meter: egress_bytes, platform: p, region: s"},
	} {
		if !strings.Contains(secondBook, c[0]) {
			t.Fatalf("no %q in the example", c[0])
		}
		hash := mustParse(t, strings.Replace(secondBook, c[0], c[1], 1)).Hash
		if before, twice := seen[hash]; twice {
			t.Errorf("%q has the version of %q", c[1], before)
		}
		seen[hash] = c[1]
	}
	same := strings.NewReplacer("ram_gib: \"1024.5\"", "ram_gib: 2048", "{meter: egress_bytes, per: GB, price: \"0.5\"}", "{meter: egress_bytes, per: GB, price: 0.50, currency: CNY}").Replace(secondBook)
	if _, ok := seen[mustParse(t, same).Hash]; !ok {
		t.Error("attributes or the book's own currency changed the version")
	}
}

func TestHashIgnoresTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, meters := drawEntries(t), drawMeters(t)
		a, _ := newBook("USD", slices.Clone(entries), slices.Clone(meters)...)
		b, _ := newBook("USD", rapid.Permutation(entries).Draw(t, "order"), rapid.Permutation(meters).Draw(t, "order of meters")...)
		if a.Hash != b.Hash {
			t.Fatalf("%s and %s", a.Hash, b.Hash)
		}
	})
}

func pick(t *rapid.T, what string, from ...string) string {
	return rapid.SampledFrom(from).Draw(t, what)
}

func drawEntries(t *rapid.T) (entries []Entry) {
	last := map[key]int64{}
	for i := range rapid.IntRange(0, 16).Draw(t, "entries") {
		e := Entry{SKU: pick(t, "sku", "", "", "s"), Model: pick(t, "model", "m", "n", AnyModel), Platform: pick(t, "platform", "", "p"),
			Region: pick(t, "region", "", "r"), Plan: pick(t, "plan", "", "", "spot", "month"), Line: i + 1}
		e.FromMs = last[e.key()] + rapid.Int64Range(0, 3).Draw(t, "gap")
		e.ToMs = e.FromMs + rapid.Int64Range(1, 9).Draw(t, "length")
		last[e.key()] = e.ToMs
		e.PerGPUHour = big.NewRat(int64(i), 7)
		if e.Plan == "month" && rapid.Bool().Draw(t, "by the term") {
			e.PerGPU, e.PerGPUHour, e.Term = e.PerGPUHour, nil, TermMonth
		}
		entries = append(entries, e)
	}
	return entries
}

func drawMeters(t *rapid.T) (meters []MeterEntry) {
	last := map[meterKey]int64{}
	for i := range rapid.IntRange(0, 6).Draw(t, "meters") {
		m := MeterEntry{MeterPrice: MeterPrice{Meter: pick(t, "meter", "x", "y"), Per: UnitOne, Price: big.NewRat(int64(i), 3)},
			Platform: pick(t, "platform", "", "p"), Region: pick(t, "region", "", "r"), Line: i + 1}
		m.FromMs = last[m.key()]
		m.ToMs = m.FromMs + rapid.Int64Range(1, 9).Draw(t, "length")
		last[m.key()] = m.ToMs
		meters = append(meters, m)
	}
	return meters
}

// The book is looked up by keys and halving; the reference looks at every entry.
func TestLookupAgreesWithAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, meters := drawEntries(t), drawMeters(t)
		b, faults := newBook("USD", entries, meters...)
		if len(faults) > 0 {
			t.Fatalf("faults: %v", faults[0])
		}
		for range 20 {
			i := Item{SKU: pick(t, "sku", "", "s", "z"), Model: pick(t, "model", "", "m", "n", "x"), Platform: pick(t, "platform", "", "p", "q"),
				Region: pick(t, "region", "", "r"), Plan: pick(t, "plan", "", "spot", "month", "other")}
			at := rapid.Int64Range(0, 40).Draw(t, "at")
			p, ok := b.Lookup(i, at)
			want := scan(entries, i, at)
			if ok != (want != nil) || ok && (p.Entry != want || p.PerGPUHour != want.PerGPUHour) {
				t.Fatalf("%+v at %d: %+v, want %+v", i, at, p.Entry, want)
			}
			m, ok := b.Meter("x", i.Platform, i.Region, at)
			if wantMeter := scanMeters(meters, "x", i.Platform, i.Region, at); m != wantMeter || ok != (wantMeter != nil) {
				t.Fatalf("meter of %+v at %d: %+v, want %+v", i, at, m, wantMeter)
			}
		}
	})
}

func scan(entries []Entry, i Item, at int64) (best *Entry) {
	highest := -1
	for n := range entries {
		e := &entries[n]
		fits := at >= e.FromMs && at < e.ToMs && (e.SKU == "" && (e.Model == AnyModel || e.Model == i.Model) || e.SKU != "" && e.SKU == i.SKU) &&
			(e.Platform == "" || e.Platform == i.Platform) && (e.Region == "" || e.Region == i.Region) && (e.Plan == "" || e.Plan == i.Plan)
		rank := 0
		for weight, more := range []bool{e.Region != "", e.Platform != "", e.SKU == "" && e.Model != AnyModel, e.SKU != "", e.Plan != ""} {
			if more {
				rank += 1 << weight
			}
		}
		if fits && rank > highest {
			best, highest = e, rank
		}
	}
	return best
}

func scanMeters(meters []MeterEntry, meter, platform, region string, at int64) (best *MeterEntry) {
	highest := -1
	for n := range meters {
		m := &meters[n]
		rank := 0
		if m.Platform != "" {
			rank += 2
		}
		if m.Region != "" {
			rank++
		}
		if m.Meter == meter && at >= m.FromMs && at < m.ToMs && (m.Platform == "" || m.Platform == platform) && (m.Region == "" || m.Region == region) && rank > highest {
			best, highest = m, rank
		}
	}
	return best
}

// What is typed wrong is told with its place and its key.
func TestSecondFormRefuses(t *testing.T) {
	for _, c := range []struct{ old, changed, want string }{
		{`model: H100, per_gpu_hour: "30"`, `per_gpu_hour: "30"`, "p.yaml:3:6: model is missing"},
		{`per_gpu_hour: "30"`, `per_gpu_hour: "30", per_node_hour: "8"`, "p.yaml:3:54: per_node_hour is a second price beside per_gpu_hour"},
		{`plan: month, per_gpu: "25000"`, `per_gpu: "25000"`, `p.yaml:5:28: per_gpu is the price of a term, and plan "" is none; it must be one of day, week, month, quarter, year`},
		{`plan: month, per_gpu: "25000"`, `plan: spot, per_gpu: "25000"`, `p.yaml:5:40: per_gpu is the price of a term, and plan "spot" is none`},
		{`plan: month, per_gpu: "25000"`, `plan: hour, per_gpu: "25000"`, `and plan "hour" is none`},
		{`plan: year, per_node`, `plan: spot, per_node`, "per_node is the price of a term"},
		{`, gpus_per_node: 7`, ``, "p.yaml:7:44: gpus_per_node is missing; without it per_node_hour is no price of a GPU"},
		{`gpus_per_node: 7`, `gpus_per_node: 0`, "p.yaml:7:66: gpus_per_node is 0; it must be from 1 to 1024"},
		{`gpus_per_node: 7`, `gpus_per_node: 1025`, "gpus_per_node is 1025; it must be from 1 to 1024"},
		{`gpus_per_node: 7`, `gpus_per_node: 1.5`, `gpus_per_node is "1.5"; it must be a whole number`},
		{`"25000"`, `"-25000"`, `p.yaml:5:41: per_gpu "-25000" is not a plain decimal`},
		{`"25000"`, `"50%"`, `per_gpu "50%" is not a plain decimal`},
		{`vcpu: 96`, `vcpu: many`, `p.yaml:7:75: vcpu "many" is not a plain decimal`},
		{`gpus_per_node: 8, currency: USD`, `gpus_per_node: 8, currency: RMB`, `p.yaml:8:77: currency "RMB" is not an ISO 4217 code`},
		{`source: the page`, `sorce: the page`, `unknown key "sorce" in an entry of prices; did you mean "source"?`},
		{`{sku: gn8, model: H100, per`, `{sku: gn8, platform: p, per`, "p.yaml:9:6: the entries of lines 7 and 9 are both valid from always for the same sku, platform, region and plan"},
		{`plan: spot`, `plan: week`, ""},
		{`plan: spot, per_gpu_hour: "18"`, `plan: month, per_gpu_hour: "18"`, "p.yaml:5:6: the entries of lines 4 and 5 are both valid from 2026-01-01T00:00:00Z for the same model, platform, region and plan"},
		{`valid_to: 2027-01-01`, `valid_to: 2025-01-01`, "valid_to 2025-01-01T00:00:00Z is not after valid_from"},
		{`valid_to: 2027-01-01`, `valid_to: 2027-13-01`, `valid_to "2027-13-01" is neither a date`},
		{`per: GB, price: "0.5"`, `per: GBB, price: "0.5"`, `p.yaml:11:32: per is "GBB"; did you mean "GB"?`},
		{`per: GB, price: "0.5"`, `per: GB_month, price: "0.5"`, `p.yaml:11:32: per is "GB_month", and egress_bytes is counted in other units: unit, GB, GiB, TB, TiB`},
		{`per: GB, price: "0.5"`, `per: GB`, "p.yaml:11:6: price is missing in an entry of meters"},
		{`per: GB, price: "0.5"`, `per: GB, price: "-0.5"`, `p.yaml:11:43: price "-0.5" is not a plain decimal`},
		{`per: GB, price: "0.5"`, `per: GB, prize: "0.5"`, `p.yaml:11:36: unknown key "prize" in an entry of meters; did you mean "price"?`},
		{`per: GB, price: "0.5"`, `per: GB, price: "0.5", currency: cny`, `p.yaml:11:60: currency "cny" is not`},
		{`platform: p, region: r, per: GB`, `per: GB`, "p.yaml:13:6: the entries of lines 11 and 13 are both valid from always for the same meter, platform and region"},
		{`valid_from: 2026-03-01}`, `valid_from: 2026-03-01, valid_to: 2026-03-01}`, "is not after valid_from"},
	} {
		if !strings.Contains(secondBook, c.old) {
			t.Fatalf("no %q in the example", c.old)
		}
		b, err := Parse("p.yaml", []byte(strings.Replace(secondBook, c.old, c.changed, 1)))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.changed, err)
			}
			continue
		}
		if b != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.changed, err, c.want)
		}
	}
	if b, err := Parse("p.yaml", []byte("currency: USD\nmeters:\n  - {meter: x, per: unit, price: 1}\n")); err != nil || len(b.Meters) != 1 {
		t.Errorf("a book of meters alone: %v", err)
	}
}

func TestParseAny(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{secondBook, "*pricing.Book"},
		{"currency: USD\nmeters: []", "*pricing.Book"},
		{huawei, "*pricing.Profile"},
		{framework, "*pricing.Contract"},
		{strings.Replace(framework, "contract: f-2026\n", "", 1), "contract is missing in the contract"},
		{"currency: USD", "prices is missing"},
		{"zone: UTC", "billed is missing in the profile"},
		{"prcies: []", `p.yaml:1:1: no document of prices: a price book has the key prices or meters, a platform profile billed, a contract contract; did you mean "prices" where "prcies" is?`},
		{"a: 1", "no document of prices"},
		{"- 1", "no document of prices"},
		{"", "empty"},
		{"[", "not YAML"},
	} {
		got, err := ParseAny("p.yaml", []byte(c.text))
		switch {
		case strings.HasPrefix(c.want, "*"):
			if fmt.Sprintf("%T", got) != c.want || err != nil {
				t.Errorf("%q: %T, %v", c.text, got, err)
			}
		case err == nil || got != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "p.yaml"):
			t.Errorf("%q: %T, %v, want %s", c.text, got, err, c.want)
		}
	}
	if _, err := LoadAny("no/such/file"); err == nil {
		t.Error("no file was read")
	}
}

// Whatever is put together from pieces of documents is read or refused.
func TestParseAnyNeverPanics(t *testing.T) {
	pieces := []string{"currency", "prices", "meters", "contract", "billed", "model", "sku", "plan", "per_gpu", "per_node", "gpus_per_node", "valid_from", "price",
		"month", "GB", "USD", "8", "-1", "2026-03-01", "\"*\"", "*a", "&a", "!!str", "~", "15%", "99999999999999999999", "{", "}", "[", "]", "- ", ": ", ",", "\n", "\n  ", "\n  - ", "|\n", "---\n", "\t", "<<", "\x00", "界"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 40).Draw(t, "pieces"), pick(t, "between", "", " "))
		if document, err := ParseAny("p.yaml", []byte(text)); (document == nil) == (err == nil) {
			t.Fatalf("%v and %v", document, err)
		}
	})
}
