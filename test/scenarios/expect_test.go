package scenarios_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdExpect compares figures of the last JSON answer, exactly:
//
//	expect total allocated=60s cost=0.06       the totals
//	expect project=a allocated=60s             the row that has these keys
//	expect no project=b                        there is no such row
//	expect rows=2 events=3                     how many there are
//	expect quality conflicts=1 late=0
//	expect event id=e1 counted=true            an entry of another list
//	expect due cost=0.06                       another part with figures
//
// What is neither a key nor a figure of the answer is an error.
func cmdExpect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("expect [total | quality | no | event] NAME=VALUE ...")
	}
	if err := expect(worldOf(ts).last, args); err != nil {
		ts.Fatalf("%v", err)
	}
}

func expect(document []byte, args []string) error {
	var doc object
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("the last answer is no JSON: %w\n%s", err, document)
	}
	switch first := args[0]; {
	case first == "total":
		totals, _ := doc["totals"].(object)
		if totals == nil {
			totals, _ = doc["total"].(object) // of an explanation
		}
		return figures(totals, args[1:])
	case first == "no":
		rows, _, err := pick(doc, "rows", keysOf(doc), args[1:])
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("there is such a row: %s", show(rows[0]))
		}
		return err
	case !strings.Contains(first, "="):
		if part, ok := doc[first].(object); ok {
			return figures(part, args[1:])
		}
		return entry(doc, first, args[1:])
	}
	if counted, err := counts(doc, args); counted || err != nil {
		return err
	}
	rows, rest, err := pick(doc, "rows", keysOf(doc), args)
	if err != nil {
		return err
	}
	if len(rows) != 1 || len(rest) == len(args) {
		return fmt.Errorf("%d rows have %s; the rows are\n%s", len(rows), strings.Join(args, " "), showAll(doc["rows"]))
	}
	return figures(rows[0], rest)
}

// keysOf returns what a report is grouped by.
func keysOf(doc object) (keys []string) {
	by, _ := doc["by"].([]any)
	for _, k := range by {
		keys = append(keys, fmt.Sprint(k))
	}
	return keys
}

// counts compares lengths of lists, if that is what all words are about.
func counts(doc object, args []string) (all bool, err error) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		list, ok := doc[key].([]any)
		if !ok {
			return false, nil
		}
		if strconv.Itoa(len(list)) != value {
			return true, fmt.Errorf("%d %s, expected %s:\n%s", len(list), key, value, showAll(doc[key]))
		}
	}
	return true, nil
}

// entry finds the entry of a list ("event" of "events") by the first word, and
// compares the others.
func entry(doc object, name string, args []string) error {
	if _, ok := doc[name+"s"].([]any); !ok || len(args) == 0 {
		return fmt.Errorf("the answer has no list %ss; it has %s", name, strings.Join(slices.Sorted(maps.Keys(doc)), ", "))
	}
	key, _, _ := strings.Cut(args[0], "=")
	found, rest, err := pick(doc, name+"s", []string{key}, args)
	if err != nil {
		return err
	}
	if len(found) > 0 && len(rest) == 0 {
		return nil
	}
	for _, f := range found {
		if err = figures(f, rest); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no %s has %s (%w); there are\n%s", name, strings.Join(args, " "), err, showAll(doc[name+"s"]))
}

// pick returns the objects of a list that have the words which are keys, and the
// other words.
func pick(doc object, list string, keys, args []string) (found []object, rest []string, err error) {
	items, ok := doc[list].([]any)
	if !ok {
		return nil, nil, fmt.Errorf("the answer has no %s", list)
	}
	want := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		switch {
		case !ok:
			return nil, nil, fmt.Errorf("%q is not NAME=VALUE", a)
		case slices.Contains(keys, key):
			want[key] = value
		default:
			rest = append(rest, a)
		}
	}
	for _, item := range items {
		o, _ := item.(object)
		same := true
		for key, value := range want {
			same = same && fmt.Sprint(o[key]) == value
		}
		if same {
			found = append(found, o)
		}
	}
	return found, rest, nil
}

// figures compares figures one by one.
func figures(o object, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no figure is named")
	}
	for _, a := range args {
		name, want, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", a)
		}
		got, known := o[name]
		if ms, inMs := o[name+"_ms"]; !known && inMs {
			got, known = ms, true
			if want != "none" {
				d, err := time.ParseDuration(want)
				if err != nil {
					return fmt.Errorf("%s: %q is not a length of time such as 60s or 744h", name, want)
				}
				want = strconv.FormatInt(d.Milliseconds(), 10)
			}
		}
		if !known {
			return fmt.Errorf("%q is no figure here; there are %s", name, strings.Join(slices.Sorted(maps.Keys(o)), ", "))
		}
		if !equal(got, want) {
			return fmt.Errorf("%s is %s, expected %s; all: %s", name, text(got), want, show(o))
		}
	}
	return nil
}

// equal compares numbers by value, everything else as it is written.
func equal(got any, want string) bool {
	if text(got) == want {
		return true
	}
	a, okA := new(big.Rat).SetString(text(got))
	b, okB := new(big.Rat).SetString(want)
	return okA && okB && a.Cmp(b) == 0
}

func text(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(v)
}

func show(o object) string {
	b, _ := json.Marshal(o) // was read from JSON
	return string(b)
}

func showAll(v any) string {
	items, _ := v.([]any)
	var b strings.Builder
	for _, item := range items {
		line, _ := json.Marshal(item)
		b.Write(append(line, '\n'))
	}
	return b.String()
}
