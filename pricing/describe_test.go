package pricing

import (
	"slices"
	"testing"
)

func TestRulesSayHowSureTheyAre(t *testing.T) {
	profiles := shipped(t)
	for _, c := range []struct {
		platform string
		want     ProfileRule
	}{
		{"aws", ProfileRule{"time.minimum", "1m", Confirmed}},
		{"aws", ProfileRule{"billed.compute", "running", Confirmed}},
		{"aws", ProfileRule{"spot.notice", "", Unverified}},
		{"huawei", ProfileRule{"zone", "Asia/Shanghai", Confirmed}},
		{"huawei", ProfileRule{"amount.decimals", "2", Unverified}}, // by its group
		{"autodl", ProfileRule{"billed.no_gpu_per_hour", "0.1", Confirmed}},
		{"exact", ProfileRule{"zone", "UTC", OwnRule}},
	} {
		if got := profiles[c.platform].Rules(); !slices.Contains(got, c.want) {
			t.Errorf("%s: no %+v in %+v", c.platform, c.want, got)
		}
	}
	for _, r := range profiles["volcengine"].Rules() {
		if r.Status != Unverified {
			t.Errorf("volcengine: %+v", r)
		}
	}
}

func TestLengthText(t *testing.T) {
	for l, want := range map[Length]string{0: "0ms", 1: "1ms", 1500: "1500ms", 90_000: "90s", 60_000: "1m", 5_400_000: "90m", 7_200_000: "2h", 259_200_000: "3d"} {
		if got := l.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(l), got, want)
		}
	}
}

func TestProfileTextIsTheShippedOne(t *testing.T) {
	names := ProfileNames()
	if len(names) != len(shipped(t)) || !slices.IsSorted(names) {
		t.Errorf("%v", names)
	}
	for _, name := range names {
		text, ok := ProfileText(name)
		if f, err := ParseProfile(name, text); !ok || err != nil || f.Platform != name {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if _, ok := ProfileText("../profiles"); ok {
		t.Error("a profile of no platform")
	}
}

func TestDiscountOfACommitment(t *testing.T) {
	c, err := LoadAny("../deploy/contract.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := c.(*Contract).Commitments
	if got := list[0].Discount(); Exact(got) != "0.2" || list[1].Discount() != nil {
		t.Errorf("%v and %v", got, list[1].Discount())
	}
	if a := c.(*Contract).Rules[0].Adjustment(); a.Kind != Uplift || a.Stage != StageRegion || Exact(a.Value) != "0.15" {
		t.Errorf("%+v", a)
	}
}

// The guides' price list at its low end.
func TestCatalogue(t *testing.T) {
	b, err := Load("../deploy/prices.catalogue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string][2]string{
		"NVIDIA GeForce RTX 3060": {"2", ""}, "NVIDIA GeForce RTX 4090": {"4", ""}, "Tesla T4": {"6.94", "1500"},
		"NVIDIA A100-SXM4-80GB": {"20", "15000"}, "NVIDIA H100 80GB HBM3": {"30", "25000"}, "NVIDIA L40S": {"", ""},
	} {
		hour, ok := b.Price(model, "any", "", 0)
		if got := priceText(hour, ok); got != want[0] {
			t.Errorf("%s: %s per hour, want %s", model, got, want[0])
		}
		month, _ := b.Lookup(Item{Model: model, Plan: "month"}, 0)
		if got := month.Entry; (got != nil && got.PerGPU != nil) != (want[1] != "") || want[1] != "" && Exact(got.PerGPU) != want[1] {
			t.Errorf("%s per month: %+v, want %s", model, got, want[1])
		}
	}
	if p, _ := b.Lookup(Item{Model: "NVIDIA A100-SXM4-80GB", Plan: PlanSpot}, 0); Exact(p.PerGPUHour) != "12" {
		t.Errorf("spot %+v", p)
	}
	if m, _ := b.Meter("egress_bytes", "any", "", 0); Exact(m.Cost(rat("1000000000000"))) != "500" {
		t.Errorf("a TB costs %+v", m)
	}
}
