package pricing

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawBook draws a book of few names, so that entries of two books meet.
func drawBook(t *rapid.T, label string) *Book {
	if rapid.IntRange(0, 9).Draw(t, label+" is there") == 0 {
		return nil
	}
	var entries []Entry
	last := map[key]int64{}
	for i := range rapid.IntRange(0, 10).Draw(t, label) {
		e := Entry{
			Model: rapid.SampledFrom([]string{"m", "n", AnyModel}).Draw(t, "model"), Platform: rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "platform"),
			Region: rapid.SampledFrom([]string{"", "r"}).Draw(t, "region"), PerGPUHour: rat(rapid.SampledFrom([]string{"1", "2", "1.5"}).Draw(t, "price")), Line: i + 1,
			Plan: rapid.SampledFrom([]string{"", "", PlanSpot, "month"}).Draw(t, "plan"),
		}
		if rapid.IntRange(0, 3).Draw(t, "an offer") == 0 {
			e.SKU = "s"
		}
		if e.Plan == "month" {
			e.PerGPU, e.PerGPUHour, e.Term = e.PerGPUHour, nil, TermMonth
		}
		from, seen := last[e.key()]
		if !seen {
			from = rapid.SampledFrom([]int64{Always, 0, 10}).Draw(t, "from")
		}
		if from == Forever {
			continue
		}
		e.FromMs = from
		if e.ToMs = rapid.SampledFrom([]int64{Forever, max(from, 0) + 5, max(from, 0) + 10}).Draw(t, "to"); e.ToMs != Forever && rapid.Bool().Draw(t, "pause") {
			e.FromMs = max(from, 0) + 2
		}
		last[e.key()] = e.ToMs
		entries = append(entries, e)
	}
	b, faults := newBook(rapid.SampledFrom([]string{"USD", "USD", "EUR"}).Draw(t, label+" currency"), entries)
	if len(faults) > 0 {
		t.Fatal(faults[0])
	}
	return b
}

// At every instant and for every unit the prices of two books differ if and only if a
// change covers it, and then it says both.
func TestDiffCoversExactlyWhatChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, new := drawBook(t, "old"), drawBook(t, "new")
		changes := DiffBooks(old, new)
		named := func(field func(*Entry) string, model, value string) bool {
			for _, b := range []*Book{old, new} {
				if b != nil && slices.ContainsFunc(b.Entries, func(e Entry) bool {
					return e.SKU == "" && e.Plan == "" && field(&e) == value && (model == "" || e.Model == model || e.Model == AnyModel)
				}) {
					return true
				}
			}
			return false
		}
		for _, model := range []string{"", "m", "n", "other"} {
			class := AnyModel
			if model != "" && named(func(e *Entry) string { return e.Model }, "", model) {
				class = model
			}
			for _, platform := range []string{"", "p", "q", "other"} {
				for _, region := range []string{"", "r", "other"} {
					want := BookChange{Model: class}
					if named(func(e *Entry) string { return e.Platform }, class, platform) {
						want.Platform = platform
					}
					if named(func(e *Entry) string { return e.Region }, class, region) {
						want.Region = region
					}
					for _, at := range append([]int64{Always, Forever - 1}, rangeOf(-2, 45)...) {
						checkCovered(t, old, new, changes, &want, model, platform, region, at)
					}
				}
			}
		}
	})
}

func checkCovered(t *rapid.T, old, new *Book, changes []BookChange, class *BookChange, model, platform, region string, at int64) {
	text := func(b *Book) string {
		p, ok := b.Price(model, platform, region, at)
		if !ok {
			return ""
		}
		return Exact(p.PerGPUHour) + b.Currency
	}
	var covering []BookChange
	for _, c := range changes {
		if c.SKU == "" && c.Plan == "" && c.Model == class.Model && c.Platform == class.Platform && c.Region == class.Region && c.FromMs <= at && at < c.ToMs {
			covering = append(covering, c)
		}
	}
	was, is := text(old), text(new)
	what := fmt.Sprintf("%q on %q in %q at %d: %q, was %q", model, platform, region, at, is, was)
	switch {
	case was == is && len(covering) > 0 || was != is && len(covering) != 1:
		t.Fatalf("%s: %d changes cover it", what, len(covering))
	case was == is:
	default:
		c := covering[0]
		if (c.Old == nil) != (was == "") || (c.New == nil) != (is == "") || c.Old != nil && Exact(c.Old)+old.Currency != was || c.New != nil && Exact(c.New)+new.Currency != is {
			t.Fatalf("%s: the change says %+v", what, c)
		}
	}
}

// Whatever an item is called and whatever its plan: where it costs something else, a
// change of its SKU or of its model, under its plan or on demand, covers the instant.
func TestNoChangeIsMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, new := drawBook(t, "old"), drawBook(t, "new")
		changes := DiffBooks(old, new)
		text := func(b *Book, i Item, at int64) string {
			p, ok := b.Lookup(i, at)
			if !ok {
				return ""
			}
			return fmt.Sprint(p.Entry.priced().amount.RatString(), p.Entry.priced().unit)
		}
		for _, i := range []Item{{SKU: "s", Model: "m"}, {SKU: "s", Model: "n", Plan: PlanSpot, Platform: "p"}, {Model: "m", Plan: PlanSpot}, {Model: "m", Plan: "month", Region: "r"}, {Model: "other", Plan: "week"}} {
			for _, at := range rangeOf(-2, 45) {
				was, is := text(old, i, at), text(new, i, at)
				if was == is || slices.ContainsFunc(changes, func(c BookChange) bool {
					return c.FromMs <= at && at < c.ToMs && (c.SKU != "" && c.SKU == i.SKU || c.SKU == "" && (c.Model == i.Model || c.Model == AnyModel)) && (c.Plan == i.Plan || c.Plan == "")
				}) {
					continue
				}
				t.Fatalf("%+v at %d: %q, was %q, and no change covers it: %+v", i, at, is, was, changes)
			}
		}
	})
}

func TestDiffOfMeters(t *testing.T) {
	one := mustParse(t, "currency: CNY\nmeters: [{meter: egress_bytes, per: GB, price: 0.5}, {meter: storage_byte_seconds, per: GB_month, price: 0.35}]")
	two := mustParse(t, "currency: CNY\nmeters: [{meter: egress_bytes, per: GiB, price: 0.5}, {meter: storage_byte_seconds, per: GB_month, price: 0.35}]")
	changes := DiffBooks(one, two)
	if len(changes) != 1 || changes[0].Text() != "meter egress_bytes, platform any other, region any other: 0.5 CNY per GiB instead of 0.5 CNY per GB, from always to further notice" {
		t.Errorf("%+v", changes)
	}
	if again := DiffBooks(one, one); len(again) > 0 {
		t.Errorf("%+v", again)
	}
}

func rangeOf(from, to int64) (list []int64) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

func TestDiffOfOneChange(t *testing.T) {
	old := mustParse(t, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"3.60\"}\n  - {model: \"*\", per_gpu_hour: 1}\n")
	new := mustParse(t, "currency: USD\nprices:\n  - {model: \"*\", per_gpu_hour: \"1.0\"}\n  - {model: m, per_gpu_hour: 3.6, valid_to: 2026-03-15}\n  - {model: m, per_gpu_hour: 2.88, valid_from: 2026-03-15}\n")
	changes := DiffBooks(old, new)
	const want = "m, platform any other, region any other: 2.88 USD per GPU-hour instead of 3.6 USD per GPU-hour, from 2026-03-15T00:00:00Z to further notice"
	if len(changes) != 1 || changes[0].Text() != want {
		t.Fatalf("%+v", changes)
	}
	for span, touches := range map[[2]string]bool{{"2026-03-01", "2026-03-15"}: false, {"2026-03-01", "2026-04-01"}: true, {"2026-05-01", "2026-06-01"}: true} {
		if got := changes[0].Touches(ms(span[0]+"T00:00:00Z"), ms(span[1]+"T00:00:00Z")); got != touches {
			t.Errorf("%v: %v", span, got)
		}
	}
	if same := DiffBooks(old, old); len(same) > 0 {
		t.Errorf("a book differs from itself: %+v", same)
	}
}

// The largest book that is allowed is compared in a moment.
func BenchmarkDiffOfLargeBooks(b *testing.B) {
	entries := make([]Entry, MaxEntries)
	for i := range entries {
		entries[i] = Entry{Model: fmt.Sprint("m", i/20), Platform: fmt.Sprint("p", i%20), Region: "r", PerGPUHour: rat("1"), FromMs: Always, ToMs: Forever}
	}
	old, _ := newBook("USD", entries)
	entries = slices.Clone(entries)
	entries[77].PerGPUHour = rat("2")
	new, _ := newBook("USD", entries)
	for b.Loop() {
		if n := len(DiffBooks(old, new)); n != 1 {
			b.Fatal(n)
		}
	}
}

func TestReadDocumentTellsKinds(t *testing.T) {
	profile, err := os.ReadFile("profiles/aws.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"currency: USD\nprices: []\n": "book default", framework: "contract f-2026", string(profile): "profile aws",
		"contract: x\n": "x.yaml:1:1: ", "platform: x\n": "x.yaml:1:1: ", "": "x.yaml: empty", "currency: USD\n": "x.yaml:1:1: prices is missing",
	} {
		d, err := ReadDocument("x.yaml", []byte(text))
		got := fmt.Sprint(err)
		if err == nil {
			got = d.Kind + " " + d.Name
			if len(d.Hash) != 64 || (d.Version == d.Hash) != (d.Book == nil) {
				t.Errorf("%s: version %q, hash %q", got, d.Version, d.Hash)
			}
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%.30q: %s, want %s", text, got, want)
		}
	}
}
