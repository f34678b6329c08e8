package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// squeeze joins the columns of tables with single blanks.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

func TestPricesCheckReadsEveryDocument(t *testing.T) {
	dir := filepath.Join("..", "..", "deploy")
	aws := filepath.Join(t.TempDir(), "aws.yaml")
	code, text, _ := gpumeter(t, nil, "prices", "profiles", "aws")
	if code != 0 || os.WriteFile(aws, []byte(text), 0o600) != nil {
		t.Fatalf("exit %d", code)
	}
	code, stdout, stderr := gpumeter(t, nil, "prices", "check", filepath.Join(dir, "prices.example.yaml"), filepath.Join(dir, "prices.catalogue.yaml"),
		filepath.Join(dir, "contract.example.yaml"), aws)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	stdout = squeeze(stdout)
	for _, want := range []string{
		"line model platform region per GPU-hour from to\n",
		"NVIDIA H100 80GB HBM3 aliyun any 35 CNY always until further notice\n",
		"18 entries and 2 meters in CNY, version ",
		"line model platform region plan per GPU from to GPU GiB interconnect source\n",
		"NVIDIA A100-SXM4-80GB any any month 15000 CNY per month always until further notice 80 NVLink market guide A\n",
		"egress_bytes any any 0.5 CNY per GB always until further notice\n",
		"contract framework-2026 with aliyun in CNY, from 2025-12-31T16:00:00Z to 2026-12-31T16:00:00Z\n",
		"base-a100 NVIDIA A100-SXM4-80GB training 10 16000 CNY per month 20% off 20000 20% off ",
		"bulk volume discount 20% model NVIDIA A100-SXM4-80GB, plan month, 10 GPUs or more\n",
		"ceiling cap cap 30 CNY model NVIDIA H100 80GB HBM3\n",
		"sla: 99.9% available, credit of 2 times what an outage cost, in money, for any outage, at most 100% of a month\n",
		"meter egress_bytes: 0.5 CNY per GB\n",
		"quote fine-tuning: 50000 CNY for project assistant\n",
		"clause scale_out: within 2h\n",
		"clause certificate ISO 27001: until 2027-03-01T00:00:00Z\n",
		"profile of aws, 8 confirmed, 13 unverified\n",
		"time.minimum 1m confirmed\n",
		"spot.notice left out unverified\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// Files that are right are shown whole, those that are wrong not at all, and all that is
// wrong in all of them is said.
func TestPricesCheckSaysAllThatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	book := file("book.yaml", "currency: USD\nprices:\n  - {sku: a, plan: month, per_node: 80, gpus_per_node: 7}\n  - {model: m, per_gpu_hour: 1, currency: EUR}\n")
	wrong := file("wrong.yaml", "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 1, per_gpu: 2}\n  - {model: n, per_gpu: 2}\n")
	profile := file("profile.yaml", "platform: p\nzone: Mars\nbilled: {compute: [running], storage: []}\n")
	none := file("none.yaml", "a: 1\n")
	code, stdout, stderr := gpumeter(t, nil, "prices", "check", wrong, profile, book, none, book+"x")
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{
		wrong + ":3:42: per_gpu is a second price", wrong + ":4:25: per_gpu is the price of a term", profile + `:2:7: zone is "Mars"`, none + ":1:1: no document of prices", book + "x",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	if strings.Contains(stdout, "wrong.yaml") || strings.Contains(stdout, "profile.yaml") {
		t.Errorf("a wrong file is shown:\n%s", stdout)
	}
	for _, want := range []string{
		"line sku model platform region plan per GPU of a node from to\n",
		"3 a any any month 80/7 USD per month 80 of 7 GPUs always until further notice\n",
		"4 m any any 1 EUR per hour always until further notice\n",
	} {
		if !strings.Contains(squeeze(stdout), want) {
			t.Errorf("no %q in\n%s", want, squeeze(stdout))
		}
	}
}

func TestPricesProfiles(t *testing.T) {
	code, stdout, _ := gpumeter(t, nil, "prices", "profiles")
	for _, want := range []string{"profile rules settles zone sources\n", "volcengine 0 confirmed, 21 unverified hour Asia/Shanghai 0\n", "exact 21 of your own at the end of a run UTC 0\n"} {
		if code != 0 || !strings.Contains(squeeze(stdout), want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, squeeze(stdout))
		}
	}
}
