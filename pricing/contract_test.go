package pricing

import (
	"slices"
	"strings"
	"testing"
)

const framework = `contract: f-2026
platform: p
currency: CNY
valid_from: 2026-01-01
valid_to: 2027-01-01
commitments:
  - {id: base, model: m, project: a, gpus: 32, term: month, per_gpu: "25000", stated: {discount: 20%, of_per_gpu: "31250"}}
adjustments:
  - {id: ten, stage: volume, discount: 20%, model: [m], min_gpus: 10}
  - {id: storage, stage: bundle, discount: 5%, additive: true, with: [storage_byte_seconds, ten]}
  - {id: framework, stage: cap, cap: "30", model: [m], valid_from: 2026-06-01}
sla: {target: 99.9%, credit_ratio: 2, trigger: any}
meters:
  - {meter: egress_bytes, per: GB, price: "0.5"}
quotes:
  - {id: job, project: a, fee: "50000"}
clauses: {scale_out: 2h, checkpoint: 1h, no_training: true, encryption: [tls], certificates: {ISO 27001: 2027-03-01}}
`

func TestContract(t *testing.T) {
	c, err := ParseContract("c.yaml", []byte(framework))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Commitment(&c.Commitments[0]); got.Gpus != 32 || got.FromMs != ms("2026-01-01T00:00:00Z") || got.ToMs != ms("2027-01-01T00:00:00Z") || Exact(got.Price) != "25000" || got.Platform != "p" {
		t.Errorf("%+v", got)
	}
	before, after := ms("2026-05-31T23:59:59Z"), ms("2026-06-01T00:00:00Z")
	for _, c2 := range []struct {
		name    string
		segment Segment
		at      int64
		gpus    int64
		meter   bool
		want    string
		price   string // of a list price of 40
	}{
		{"F7 and F8", Segment{Platform: "p", Model: "m"}, before, 10, true, "storage ten", "30"},
		{"F7", Segment{Platform: "p", Model: "m"}, before, 10, false, "ten", "32"},
		{"too few, and no bundle without the volume", Segment{Platform: "p", Model: "m"}, before, 9, true, "", "40"},
		{"a cap from June on", Segment{Platform: "p", Model: "m"}, after, 9, true, "framework", "30"},
		{"all of them", Segment{Platform: "p", Model: "m"}, after, 10, false, "framework ten", "30"},
		{"another model", Segment{Platform: "p", Model: "x"}, after, 100, true, "", "40"},
		{"another platform", Segment{Platform: "q", Model: "m"}, after, 100, true, "", "40"},
		{"after the contract", Segment{Platform: "p", Model: "m"}, ms("2027-01-01T00:00:00Z"), 100, true, "", "40"},
	} {
		rules := c.Adjustments(&c2.segment, c2.at, Active{
			Enough: func(r *Rule, _ int64) bool { return c2.gpus >= r.MinGpus },
			Meter:  func(name string, _ int64) bool { return c2.meter && name == "storage_byte_seconds" },
		})
		var ids []string
		for _, r := range rules {
			ids = append(ids, r.ID)
		}
		slices.Sort(ids)
		price, _ := Adjust(rat("40"), rules)
		if strings.Join(ids, " ") != c2.want || Exact(price) != c2.price {
			t.Errorf("%s: %v and %s, want %s and %s", c2.name, ids, Exact(price), c2.want, c2.price)
		}
	}
}

func TestContractFaults(t *testing.T) {
	for _, c := range []struct{ old, changed, want string }{
		{"discount: 20%, of_per_gpu", "discount: 40%, of_per_gpu", "c.yaml:7: commitment base states a discount of 40 %, and 25000 instead of 31250 is 20 % cheaper"},
		{"of_per_gpu: \"31250\"", "of_per_gpu: \"20000\"", "25000 instead of 20000 is 25 % dearer"}, // E21: a plan that is dearer than the hours
		{"of_per_gpu: \"31250\"", "of_per_gpu: \"0\"", "commitment base states a discount of a price of 0"},
		{"valid_to: 2027-01-01", "valid_to: 2025-01-01", "c.yaml:5:11: valid_to 2025-01-01T00:00:00Z is not after"},
		{"currency: CNY", "currency: RMB", `c.yaml:3:11: currency "RMB" is not an ISO 4217 code`},
		{"term: month", "term: mnth", `term is "mnth"; did you mean "month"?`},
		{"gpus: 32", "gpus: 0", "commitment base is of 0 gpus"},
		{"gpus: 32", "gpus: 32, from: 2025-12-01", "is not within the contract"},
		{"{id: storage", "{id: ten", `id "ten" is there twice, first in line 9`},
		{"discount: 20%, model", "model", "c.yaml:9: adjustment ten changes nothing"},
		{"discount: 20%, model", "discount: 20%, uplift: 5%, model", "has several of"},
		{"discount: 20%, model", "discount: 120%, model", "a discount of more than the whole price"},
		{"discount: 20%, model", "discount: -20%, model", "must be a plain decimal"},
		{"{id: ten, stage: volume", "{id: ten, additive: true, stage: region", "cannot be additive"},
		{"stage: cap, cap", "stage: negotiated, cap", "the stage cap is for caps"},
		{"min_gpus: 10", "min_gpus: 10, with: [storage]", "adjustments need each other: ten needs storage needs ten"},
		{"valid_from: 2026-06-01", "valid_from: 2026-06-01, valid_to: 2026-05-01", "adjustment framework ends at"},
		{"per: GB", "per: KB", `per is "KB"; did you mean "GB"?`},
		{"trigger: any", "trigger: all", `trigger is "all"`},
		{"target: 99.9%, ", "", "target is missing in sla"},
		{"scale_out: 2h", "scaleout: 2h", `unknown key "scaleout" in clauses; did you mean "scale_out"?`},
		{"2027-03-01}", "soon}", `certificates.ISO 27001 "soon" is neither a date`},
	} {
		if !strings.Contains(framework, c.old) {
			t.Fatalf("no %q in the example", c.old)
		}
		got, err := ParseContract("c.yaml", []byte(strings.Replace(framework, c.old, c.changed, 1)))
		if got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.changed, err, c.want)
		}
	}
}

func FuzzParseContract(f *testing.F) {
	f.Add(framework)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseContract("c.yaml", []byte(text)); (c == nil) == (err == nil) {
			t.Fatalf("%v and %v", c, err)
		}
	})
}
