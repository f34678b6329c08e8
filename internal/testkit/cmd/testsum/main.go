// Testsum reads the output of `go test -json` and prints what a person wants
// to see of it: one line for each package, everything that a failed test said,
// each skipped test with its reason, and a last line "N passed, N failed, N
// skipped". It exits 1 when anything failed, or when nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if !s.finish() {
		os.Exit(1)
	}
}

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

type testID struct{ pkg, test string }

type summary struct {
	out     io.Writer
	running map[testID][]string // output of tests that have not ended
	pkgs    map[string]*pkgState
	builds  map[string][]string // compiler output by import path

	passed, failed int
	skipped        []string
	failures       []string
}

type pkgState struct {
	output                  []string // outside of any test
	passed, failed, skipped int
}

func newSummary(out io.Writer) *summary {
	return &summary{
		out:     out,
		running: map[testID][]string{},
		pkgs:    map[string]*pkgState{},
		builds:  map[string][]string{},
	}
}

// read takes all events. What is no event is passed on as it is.
func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var ev event
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &ev) != nil || ev.Action == "" {
				fmt.Fprint(s.out, line)
			} else {
				s.add(ev)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) add(ev event) {
	switch ev.Action {
	case "build-output":
		s.builds[ev.ImportPath] = append(s.builds[ev.ImportPath], ev.Output)
		return
	case "build-fail":
		return // the package's own failure names it
	}
	pkg := s.pkgs[ev.Package]
	if pkg == nil {
		pkg = &pkgState{}
		s.pkgs[ev.Package] = pkg
	}
	if ev.Test == "" {
		s.addPackage(ev, pkg)
		return
	}
	id := testID{ev.Package, ev.Test}
	switch ev.Action {
	case "run":
		s.running[id] = nil
	case "output":
		s.running[id] = append(s.running[id], ev.Output)
	case "pass":
		pkg.passed++
		delete(s.running, id)
	case "skip":
		pkg.skipped++
		s.skipped = append(s.skipped, fmt.Sprintf("%s %s: %s", ev.Package, ev.Test, reason(s.running[id])))
		delete(s.running, id)
	case "fail":
		s.fail(id, pkg, "")
	}
}

// fail counts a failed test and prints what it said.
func (s *summary) fail(id testID, pkg *pkgState, note string) {
	pkg.failed++
	s.failures = append(s.failures, id.pkg+" "+id.test+note)
	fmt.Fprintf(s.out, "--- %s %s%s\n", id.pkg, id.test, note)
	for _, o := range s.running[id] {
		fmt.Fprint(s.out, o)
	}
	delete(s.running, id)
}

func (s *summary) addPackage(ev event, pkg *pkgState) {
	switch ev.Action {
	case "output":
		pkg.output = append(pkg.output, ev.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	// A test that never ended was cut off by a panic, a time-out or os.Exit.
	var open []testID
	for id := range s.running {
		if id.pkg == ev.Package {
			open = append(open, id)
		}
	}
	slices.SortFunc(open, func(a, b testID) int { return strings.Compare(a.test, b.test) })
	for _, id := range open {
		s.fail(id, pkg, " (did not finish)")
	}

	word := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "none"}[ev.Action]
	if ev.Action == "fail" {
		for _, o := range s.builds[ev.FailedBuild] {
			fmt.Fprint(s.out, o)
		}
		for _, o := range pkg.output {
			if !strings.HasPrefix(o, "FAIL") && strings.TrimSpace(o) != "PASS" {
				fmt.Fprint(s.out, o)
			}
		}
		if pkg.failed == 0 { // it did not build, or failed outside of a test
			pkg.failed = 1
			s.failures = append(s.failures, ev.Package)
		}
	}
	s.passed += pkg.passed
	s.failed += pkg.failed
	fmt.Fprintf(s.out, "%-4s %s  %d passed, %d failed, %d skipped  %v\n", word, ev.Package,
		pkg.passed, pkg.failed, pkg.skipped, time.Duration(ev.Elapsed*float64(time.Second)).Round(10*time.Millisecond))
	pkg.output = nil
}

// finish prints the totals and says whether all is well.
func (s *summary) finish() bool {
	// Whatever has no end in the input failed, too: go test itself was cut off.
	for id := range s.running {
		pkg := s.pkgs[id.pkg]
		s.fail(id, pkg, " (did not finish)")
		s.failed++
	}
	if len(s.skipped) > 0 {
		fmt.Fprintln(s.out, "\nskipped:")
		for _, l := range s.skipped {
			fmt.Fprintln(s.out, " ", l)
		}
	}
	if len(s.failures) > 0 {
		fmt.Fprintln(s.out, "\nfailed:")
		for _, l := range s.failures {
			fmt.Fprintln(s.out, " ", l)
		}
	}
	ran := s.passed+s.failed > 0
	if !ran {
		fmt.Fprintln(s.out, "\nno test ran")
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skipped))
	return ran && s.failed == 0
}

// reason is what a skipped test said, without the position and the frame that
// the testing package puts around it.
func reason(output []string) string {
	var said []string
	for _, o := range output {
		o = strings.TrimSpace(o)
		if o == "" || strings.HasPrefix(o, "=== ") || strings.HasPrefix(o, "--- ") {
			continue
		}
		if pos, text, ok := strings.Cut(o, ": "); ok && strings.Contains(pos, ".go:") {
			o = text
		}
		said = append(said, o)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, "; ")
}
