package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"

	"github.com/goccy/go-yaml"

	"github.com/gpumeter/gpumeter/report"
)

// budgetFile is a file of budgets:
//
//	currency: CNY
//	budgets:
//	  - month: "300000"         # all that is spent
//	  - project: llm-train
//	    month: "120000"         # of effective cost, each calendar month
//
// It says what may be spent, not what is: it changes no figure but the one beside it, so
// it has no versions as prices have.
type budgetFile struct {
	Currency string        `yaml:"currency"`
	Budgets  []budgetEntry `yaml:"budgets"`
}

type budgetEntry struct {
	Project *string     `yaml:"project"`
	Month   exactAmount `yaml:"month"`
}

// exactAmount is a decimal as it is written: YAML would make a float of it.
type exactAmount struct{ *big.Rat }

var plainDecimal = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,6})?$`)

// UnmarshalYAML reads the text of a value.
func (a *exactAmount) UnmarshalYAML(text []byte) error {
	s := string(bytes.Trim(bytes.TrimSpace(text), `"'`))
	x, ok := new(big.Rat).SetString(s)
	if !plainDecimal.MatchString(s) || !ok || x.Sign() <= 0 {
		return fmt.Errorf("month: %q is not an amount above 0 with at most six decimals, such as \"120000\" or \"99.50\"", s)
	}
	a.Rat = x
	return nil
}

// budgets are what may be spent in a month, by project; the key nil is all.
type budgets struct {
	currency string
	all      *big.Rat
	projects map[string]*big.Rat
}

// readBudgets reads a file; without one there are none.
func readBudgets(path string) (*budgets, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--budgets: %w", err)
	}
	b, err := parseBudgets(text)
	if err != nil {
		return nil, fmt.Errorf("--budgets %s: %w", path, err)
	}
	return b, nil
}

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

func parseBudgets(text []byte) (*budgets, error) {
	var f budgetFile
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	switch err := d.Decode(&f); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty; it needs a currency and a list of budgets")
	case err != nil:
		return nil, errors.New(yaml.FormatError(err, false, false)) // with line and column
	}
	if !currencyCode.MatchString(f.Currency) {
		return nil, fmt.Errorf("currency: %q is not an ISO 4217 code such as CNY", f.Currency)
	}
	b := &budgets{currency: f.Currency, projects: map[string]*big.Rat{}}
	for i, e := range f.Budgets {
		switch {
		case e.Month.Rat == nil:
			return nil, fmt.Errorf("budgets[%d]: month is missing", i)
		case e.Project == nil && b.all != nil:
			return nil, fmt.Errorf("budgets[%d]: there are two budgets without a project, which are for all", i)
		case e.Project == nil:
			b.all = e.Month.Rat
		case b.projects[*e.Project] != nil:
			return nil, fmt.Errorf("budgets[%d]: there are two budgets of the project %q", i, *e.Project)
		default:
			b.projects[*e.Project] = e.Month.Rat
		}
	}
	return b, nil
}

// of is the budget for what a filter lets through: all, or one project. For parts of
// those there is none.
func (b *budgets) of(_ string, filter map[string]string) *report.Budget {
	if b == nil {
		return nil
	}
	amount := b.all
	if project, one := filter["project"]; one && len(filter) == 1 {
		amount = b.projects[project]
	} else if len(filter) > 0 {
		return nil
	}
	if amount == nil {
		return nil
	}
	return &report.Budget{Amount: amount, Currency: b.currency}
}
