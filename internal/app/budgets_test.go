package app

import (
	"os"
	"strings"
	"testing"
)

func TestBudgets(t *testing.T) {
	b, err := parseBudgets([]byte("currency: CNY\nbudgets:\n  - month: \"300000\"\n  - {project: a, month: 120000.10}\n  - {project: \"\", month: '5'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter map[string]string
		want   string
	}{
		{nil, "300000.00"}, {map[string]string{"project": "a"}, "120000.10"}, {map[string]string{"project": ""}, "5.00"}, {map[string]string{"project": "b"}, ""},
		{map[string]string{"model": "m"}, ""}, {map[string]string{"project": "a", "model": "m"}, ""},
	} {
		got := ""
		if of := b.of("t", c.filter); of != nil {
			got = of.Amount.FloatString(2)
			if of.Currency != "CNY" {
				t.Errorf("currency %s", of.Currency)
			}
		}
		if got != c.want {
			t.Errorf("budget of %v: %q, want %q", c.filter, got, c.want)
		}
	}
	if (*budgets)(nil).of("t", nil) != nil {
		t.Error("a budget without a file")
	}
}

func TestBudgetsRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                   "it is empty",
		"currency: yuan\n":                                   "not an ISO 4217 code",
		"currency: CNY\nbudget: []\n":                        "unknown field",
		"currency: CNY\nbudgets: [{}]\n":                     "month is missing",
		"currency: CNY\nbudgets: [{month: 0}]\n":             "not an amount above 0",
		"currency: CNY\nbudgets: [{month: -1}]\n":            "not an amount above 0",
		"currency: CNY\nbudgets: [{month: 1e9}]\n":           "not an amount above 0",
		"currency: CNY\nbudgets: [{month: 1/3}]\n":           "not an amount above 0",
		"currency: CNY\nbudgets: [{month: 1}, {month: 2}]\n": "two budgets without a project",
		"currency: CNY\nbudgets: [{project: a, month: 1}, {project: a, month: 2}]\n": "two budgets of the project",
		"currency: [\n": "",
	} {
		_, err := parseBudgets([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want ...%s", text, err, want)
		}
	}
	path := t.TempDir() + "/b.yaml"
	if _, err := readBudgets(path); err == nil || !strings.Contains(err.Error(), "--budgets") {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("currency: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBudgets(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a wrong file: %v", err)
	}
	if _, err := readBudgets("../../deploy/budgets.example.yaml"); err != nil {
		t.Error(err)
	}
}
