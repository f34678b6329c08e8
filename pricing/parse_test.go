package pricing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func ms(text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

func mustParse(t *testing.T, text string) *Book {
	t.Helper()
	b, err := Parse("prices.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return b
}

func TestParseReadsEveryForm(t *testing.T) {
	b := mustParse(t, `
# list of March
currency: CNY
prices:
  - model: NVIDIA H100 80GB HBM3
    platform: aws
    region: us-east-1
    per_gpu_hour: "35.00"
    valid_from: 2026-03-01
    valid_to: 2026-04-01T00:00:00+08:00
  - {model: 4090, per_gpu_hour: 3.6}
  - model: "*"
    per_gpu_hour: 112
`)
	if b.Currency != "CNY" || len(b.Entries) != 3 {
		t.Fatalf("got %q with %d entries", b.Currency, len(b.Entries))
	}
	first, second, third := b.Entries[0], b.Entries[1], b.Entries[2]
	if first.Line != 5 || first.FromMs != ms("2026-03-01T00:00:00Z") || first.ToMs != ms("2026-03-31T16:00:00Z") {
		t.Errorf("first entry: %+v", first)
	}
	if second.Model != "4090" || second.PerGPUHour.RatString() != "18/5" || second.FromMs != Always || second.ToMs != Forever {
		t.Errorf("second entry: %+v", second)
	}
	if third.Model != AnyModel || third.PerGPUHour.RatString() != "112" {
		t.Errorf("third entry: %+v", third)
	}
	if mustParse(t, "currency: USD\nprices: []").Hash == "" {
		t.Error("a book without prices has no version")
	}
}

func TestParseRefuses(t *testing.T) {
	entry := func(lines string) string { return "currency: USD\nprices:\n  - model: m\n" + lines }
	cases := []struct{ name, text, want string }{
		{"empty", "", "empty"},
		{"only a comment", "# nothing", "empty"},
		{"broken", "currency: [", "p.yaml:1:"},
		{"not a mapping", "- 1", `must be made of "key: value" lines`},
		{"no currency", "prices: []", "currency is missing"},
		{"unknown currency", "currency: XBT\nprices: []", `p.yaml:1:11: currency "XBT" is not an ISO 4217 code`},
		{"lower case currency", "currency: usd\nprices: []", "not an ISO 4217"},
		{"null currency", "currency:\nprices: []", "currency must be a text"},
		{"no prices", "currency: USD", "prices is missing"},
		{"prices no list", "currency: USD\nprices: 3", "must be a list"},
		{"unknown key", "currency: USD\npricse: []", `p.yaml:2:1: unknown key "pricse" in the file; did you mean "prices"?`},
		{"unknown key of an entry", entry("    per_gpu_hr: 1\n    per_gpu_hour: 2\n"), `p.yaml:4:5: unknown key "per_gpu_hr" in an entry of prices; did you mean "per_gpu_hour"?`},
		{"key twice", entry("    per_gpu_hour: 1\n    per_gpu_hour: 2\n"), `p.yaml:5:5: key "per_gpu_hour" is there twice, first in line 4`},
		{"file key twice", "currency: USD\ncurrency: EUR\nprices: []", `p.yaml:2:1: key "currency" is there twice`},
		{"no price", entry(""), "per_gpu_hour is missing"},
		{"no model", "currency: USD\nprices:\n  - per_gpu_hour: 1", "model is missing"},
		{"star not quoted", "currency: USD\nprices:\n  - model: *\n    per_gpu_hour: 1", `write the star in quotes: "*"`},
		{"alias", "currency: USD\nprices:\n  - model: &m x\n    per_gpu_hour: 1", "model must be a text"},
		{"empty region", entry("    region: \"\"\n    per_gpu_hour: 1\n"), "region is empty; leave the key out"},
		{"negative", entry("    per_gpu_hour: -1\n"), `p.yaml:4:19: per_gpu_hour "-1" is not a plain decimal`},
		{"NaN", entry("    per_gpu_hour: .nan\n"), "not a plain decimal"},
		{"NaN as text", entry("    per_gpu_hour: NaN\n"), "not a plain decimal"},
		{"infinite", entry("    per_gpu_hour: .inf\n"), "not a plain decimal"},
		{"exponent", entry("    per_gpu_hour: 1e3\n"), "not a plain decimal"},
		{"exponent with point", entry("    per_gpu_hour: 3.6e0\n"), "not a plain decimal"},
		{"hexadecimal", entry("    per_gpu_hour: 0x10\n"), "not a plain decimal"},
		{"underscore", entry("    per_gpu_hour: 1_000\n"), "not a plain decimal"},
		{"comma", entry("    per_gpu_hour: \"3,60\"\n"), "not a plain decimal"},
		{"fraction", entry("    per_gpu_hour: 1/3\n"), "not a plain decimal"},
		{"too many digits", entry("    per_gpu_hour: \"" + strings.Repeat("9", 31) + "\"\n"), "not a plain decimal"},
		{"null price", entry("    per_gpu_hour:\n"), "not a plain decimal"},
		{"list as price", entry("    per_gpu_hour: [1]\n"), "not a plain decimal"},
		{"date", entry("    per_gpu_hour: 1\n    valid_from: 2026-02-30\n"), `p.yaml:5:17: valid_from "2026-02-30" is neither a date`},
		{"time without zone", entry("    per_gpu_hour: 1\n    valid_from: 2026-02-03T00:00:00\n"), "neither a date"},
		{"ends before it starts", entry("    per_gpu_hour: 1\n    valid_from: 2026-03-01\n    valid_to: 2026-03-01\n"), "p.yaml:6:15: valid_to 2026-03-01T00:00:00Z is not after valid_from"},
		{"second document", "currency: USD\nprices: []\n---\ncurrency: EUR\nprices: []", "a second YAML document"},
		{"not UTF-8", "currency: \xff", "not valid UTF-8"},
		{"overlap", `currency: USD
prices:
  - {model: m, per_gpu_hour: 1, valid_to: 2026-03-15}
  - {model: other, per_gpu_hour: 1}
  - {model: m, per_gpu_hour: 2, valid_from: 2026-03-14}
`, "the entries of lines 3 and 5 are both valid from 2026-03-14T00:00:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, err := Parse("p.yaml", []byte(c.text))
			if err == nil {
				t.Fatalf("accepted: %+v", b)
			}
			if b != nil {
				t.Error("a book came with the error")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "p.yaml") {
				t.Errorf("error %q does not begin with the file and hold %q", err, c.want)
			}
		})
	}
}

func TestParseReportsAllFaultsAtOnce(t *testing.T) {
	_, err := Parse("p.yaml", []byte("currency: XX\nprices:\n  - model: a\n    per_gpu_hour: -1\n  - model: b\n    price: 1\n"))
	for _, want := range []string{"p.yaml:1:11:", "p.yaml:4:19:", "p.yaml:6:5:", "p.yaml:5:5: per_gpu_hour is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestHashIsOfWhatTheBookSays(t *testing.T) {
	a := mustParse(t, "currency: USD\nprices:\n  - {model: a, per_gpu_hour: 3.6}\n  - {model: b, per_gpu_hour: 1}\n")
	same := mustParse(t, "# reordered\nprices:\n  - {per_gpu_hour: \"1.00\", model: b}\n  - {model: a, per_gpu_hour: \"3.60\"}\ncurrency: USD\n")
	if a.Hash != same.Hash {
		t.Error("spelling changed the price version")
	}
	for _, other := range []string{
		"currency: EUR\nprices:\n  - {model: a, per_gpu_hour: 3.6}\n  - {model: b, per_gpu_hour: 1}\n",
		"currency: USD\nprices:\n  - {model: a, per_gpu_hour: 3.61}\n  - {model: b, per_gpu_hour: 1}\n",
		"currency: USD\nprices:\n  - {model: a, per_gpu_hour: 3.6, valid_to: 2030-01-01}\n  - {model: b, per_gpu_hour: 1}\n",
		"currency: USD\nprices:\n  - {model: a, region: b, per_gpu_hour: 3.6}\n  - {model: b, per_gpu_hour: 1}\n",
	} {
		if mustParse(t, other).Hash == a.Hash {
			t.Errorf("same version for %s", other)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("currency: USD\nprices: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Load(path); err != nil || b.Currency != "USD" {
		t.Errorf("Load: %v, %v", b, err)
	}
	if err := os.WriteFile(path, make([]byte, MaxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("large file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("currency: USD\nprices:\n  - model: \"*\"\n    per_gpu_hour: \"3.60\"\n    valid_from: 2026-03-01\n")
	f.Add(secondBook)
	f.Add("currency: [USD")
	f.Add("prices: &a [*a]\n<<: *a\n")
	f.Add("? x\n: !!str y\n--- |\n  z")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := Parse("p.yaml", []byte(text))
		if (b == nil) == (err == nil) {
			t.Fatalf("book %v with error %v", b, err)
		}
		if b == nil {
			return
		}
		for i := range b.Entries {
			if e := &b.Entries[i]; (e.PerGPUHour == nil) == (e.PerGPU == nil) || e.ToMs <= e.FromMs || e.Model+e.SKU == "" {
				t.Fatalf("accepted %+v", e)
			}
		}
	})
}
