// Command mutants proves that tests can fail: it breaks the code in one place at
// a time, as a list says, and runs the tests that must notice.
//
//	mutants [-md FILE] LIST
//
// The list holds entries separated by blank lines:
//
//	name: the consumer acknowledges before it stores
//	file: consumer/consumer.go
//	- text that is there, exactly once, without the leading "- "
//	+ what stands there instead; several lines of either kind are one text
//	test: ./consumer -run TestSettleOrder
//
// The working tree is not touched: the go command is given an overlay. A mutant
// that does not compile proves nothing and is an error; so are tests that fail
// without a mutant, and a mutant that every test survives. With -md the result is
// written as a table.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type mutant struct {
	line             int
	name, file, test string
	old, new         []string
}

func main() {
	table := flag.String("md", "", "write the result as a table to this file")
	only := flag.String("only", "", "run only the mutants whose name holds this text")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "mutants: name the list")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *table, *only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(list, table, only string, out io.Writer) error {
	mutants, err := read(list)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !strings.Contains(m.name, only) })
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var survivors int
	text := &strings.Builder{}
	text.WriteString("| what is broken | where | noticed by |\n|---|---|---|\n")
	sound := map[string]bool{} // tests that pass as the code is
	for i := range mutants {
		m := &mutants[i]
		if !sound[m.test] {
			if names, err := goTest(m.test, os.Environ()); err != nil || len(names) > 0 {
				return fmt.Errorf("%s:%d: go test %s fails without a mutant: %v %v", list, m.line, m.test, err, names)
			}
			sound[m.test] = true
		}
		caught, err := m.try(dir)
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", list, m.line, m.name, err)
		}
		who := strings.Join(caught, ", ")
		if who == "" {
			who = "**nobody**"
			survivors++
		}
		fmt.Fprintf(out, "%-70s %s\n", m.name, who)
		fmt.Fprintf(text, "| %s | %s | %s |\n", m.name, m.file, who)
	}
	if table != "" {
		if err := os.WriteFile(table, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d mutants, %d survived\n", len(mutants), survivors)
	if survivors > 0 {
		return errors.New("a mutant that no test notices needs a test")
	}
	return nil
}

func read(list string) ([]mutant, error) {
	b, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	var m mutant
	flush := func() error {
		if m.name == "" && m.file == "" {
			return nil
		}
		if m.name == "" || m.file == "" || m.test == "" || len(m.old) == 0 {
			return fmt.Errorf("%s:%d: an entry needs name, file, - lines and test", list, m.line)
		}
		mutants = append(mutants, m)
		m = mutant{}
		return nil
	}
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch key, value, _ := strings.Cut(line, ": "); {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			if err := flush(); err != nil {
				return nil, err
			}
		case strings.HasPrefix(line, "- "):
			m.old = append(m.old, line[2:])
		case strings.HasPrefix(line, "+ ") || line == "+":
			m.new = append(m.new, strings.TrimPrefix(line[1:], " "))
		case key == "name":
			m.name, m.line = value, n
		case key == "file":
			m.file = value
		case key == "test":
			m.test = value
		default:
			return nil, fmt.Errorf("%s:%d: %q is not a line of an entry", list, n, line)
		}
	}
	return mutants, flush()
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try returns the tests that fail on the mutant.
func (m *mutant) try(dir string) ([]string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	old, replacement := strings.Join(m.old, "\n"), strings.Join(m.new, "\n")
	if n := strings.Count(string(source), old); n != 1 {
		return nil, fmt.Errorf("the text to break is %d times in %s", n, m.file)
	}
	mutated, overlay := filepath.Join(dir, "mutant"+filepath.Ext(m.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), old, replacement, 1)), 0o644); err != nil {
		return nil, err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		return nil, err
	}
	// By GOFLAGS, so that a test that builds the program builds the broken one.
	env := append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	build := exec.Command("go", "build", "./...")
	build.Env = env
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return goTest(m.test, env)
}

// goTest runs tests and returns the names of those that fail.
func goTest(tests string, env []string) ([]string, error) {
	test := exec.Command("go", append([]string{"test", "-count=1", "-timeout=10m"}, strings.Fields(tests)...)...)
	test.Env = env
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	var names []string
	for _, match := range failed.FindAllStringSubmatch(string(out), -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if err != nil && len(names) == 0 {
		return nil, fmt.Errorf("go test %s: %w and no test failed\n%s", tests, err, out)
	}
	return names, nil
}
