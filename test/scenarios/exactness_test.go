package scenarios_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// exactnessFile is the page that shows every case with its scenario and result.
const exactnessFile = "../../docs/exactness.md"

// scenario is a file of this folder, or a Go test that stands for a case.
type scenario struct {
	id, title string
	file      string // relative to the repository
	pending   string // what it waits for; empty: it runs
	elsewhere bool   // a Go test
}

var (
	titleLine = regexp.MustCompile(`(?m)\A# ([A-JP][0-9]+[\w-]*): ([^\n]+)\n`)
	// Words of testscript that mean something else than they seem to in a scenario:
	// "stop" would end it there, passed.
	wrongWord   = regexp.MustCompile(`(?m)^(?:! )?(stop|kill|wait|skip)\b`)
	pendingLine = regexp.MustCompile(`(?m)^pending "([^"]+)"$`)
)

// catalogue reads what there is, in the order of the ids. A file whose name, first
// line and content do not agree is an error.
func catalogue(dir string) (list []scenario, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		m := titleLine.FindStringSubmatch(string(b))
		if m == nil || m[1] != name {
			return nil, fmt.Errorf(`%s: the first line has to be "# %s: what happens, in a line"`, f, name)
		}
		if m := wrongWord.FindStringSubmatch(scriptOf(string(b))); m != nil {
			return nil, fmt.Errorf("%s: %q is not for scenarios; use down, crash, settle or pending", f, m[1])
		}
		s := scenario{id: name, title: strings.TrimSuffix(m[2], "."), file: "test/scenarios/" + name + ".txt"}
		if p := pendingLine.FindStringSubmatch(string(b)); p != nil {
			s.pending = p[1]
		} else if !strings.Contains(string(b), "\nexpect ") && !strings.Contains(string(b), "\ncmp ") && !strings.Contains(string(b), "\nstdout ") {
			return nil, fmt.Errorf("%s expects nothing", f)
		}
		list = append(list, s)
	}
	others, err := elsewhere(filepath.Join(dir, "elsewhere"))
	if err != nil {
		return nil, err
	}
	list = append(list, others...)
	slices.SortFunc(list, func(a, b scenario) int {
		return cmp.Or(cmp.Compare(a.id[0], b.id[0]), cmp.Compare(numberOf(a.id), numberOf(b.id)), cmp.Compare(a.id, b.id))
	})
	return list, nil
}

// scriptOf cuts off the files behind a script.
func scriptOf(text string) string {
	if at := strings.Index(text, "\n-- "); at >= 0 {
		text = text[:at]
	}
	return text
}

// elsewhere reads the cases that are Go tests: id | what | package | test.
func elsewhere(file string) (list []scenario, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "|")
		if len(f) != 4 {
			return nil, fmt.Errorf("%s:%d: not ID | WHAT | PACKAGE | TEST", file, i+1)
		}
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		s := scenario{id: f[0], title: f[1], file: f[2] + " `" + f[3] + "`", elsewhere: true}
		if !definesTest(filepath.Join("..", "..", f[2]), f[3]) {
			// No name, because pages may only name tests that exist.
			s.file, s.pending = f[2], "exactness: the Go test is not there"
		}
		list = append(list, s)
	}
	return list, nil
}

func definesTest(dir, name string) bool {
	name, _, _ = strings.Cut(name, "/")
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return slices.ContainsFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(b), "\nfunc "+name+"(")
	})
}

func numberOf(id string) int {
	digits := strings.TrimRight(strings.TrimLeft(id, "ABCDEFGHIJP"), "")
	end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		digits = digits[:end]
	}
	n, _ := strconv.Atoi(digits)
	return n
}

// results is how the scenarios of a run ended.
type results struct {
	mu sync.Mutex
	of map[string]string
}

func (r *results) note(name string, failed, skipped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case failed:
		r.of[name] = "fail"
	case skipped:
		r.of[name] = "pending"
	default:
		r.of[name] = "pass"
	}
}

// finish prints the sum, and compares the page with what the run gave, or writes
// it. A run of some of the scenarios says nothing about the page.
func (r *results) finish(t *testing.T, list []scenario) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, ran, reasons := map[string]int{}, 0, []string{}
	for _, s := range list {
		result := r.of[s.id]
		switch {
		case s.elsewhere && s.pending == "":
			continue
		case s.elsewhere:
			result = "pending"
		}
		count[result]++
		if result != "" {
			ran++
		}
		if result == "pending" {
			reasons = append(reasons, s.id+" ("+s.pending+")")
		}
	}
	t.Logf("%d scenarios passed, %d failed, %d pending: %s", count["pass"], count["fail"], count["pending"], strings.Join(reasons, ", "))
	if count[""] > 0 {
		t.Logf("%d of %d scenarios ran, so %s is not compared", ran, ran+count[""], filepath.Base(exactnessFile))
		return
	}
	old, err := os.ReadFile(exactnessFile)
	if err != nil {
		t.Error(err)
		return
	}
	page, err := withTable(string(old), r.table(list))
	switch {
	case err != nil:
		t.Error(err)
	case *update:
		if err := os.WriteFile(exactnessFile, []byte(page), 0o644); err != nil {
			t.Error(err)
		}
	case page != string(old):
		t.Errorf("docs/exactness.md does not say what this run gave; go test ./test/scenarios -update writes it anew\n%s", firstDifference(string(old), page))
	}
}

const (
	beginTable = "<!-- table: written by go test ./test/scenarios -update -->\n"
	endTable   = "<!-- end of table -->\n"
)

// withTable puts the table between its marks and leaves the rest of the page.
func withTable(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, beginTable)
	_, after, closed := strings.Cut(rest, endTable)
	if !ok || !closed {
		return "", fmt.Errorf("docs/exactness.md has lost the marks of its table")
	}
	return before + beginTable + table + endTable + after, nil
}

func (r *results) table(list []scenario) string {
	var b strings.Builder
	b.WriteString("\n| case | what it is | where | result |\n|---|---|---|---|\n")
	count := map[string]int{}
	for _, s := range list {
		result, where := r.of[s.id], "["+filepath.Base(s.file)+"](../"+s.file+")"
		switch {
		case s.elsewhere && s.pending == "":
			result, where = "Go test", s.file
		case s.elsewhere:
			result, where = "pending", s.file
		}
		count[result]++
		if s.pending != "" {
			result += ": " + s.pending
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.id, strings.ReplaceAll(s.title, "|", `\|`), where, result)
	}
	fmt.Fprintf(&b, "\n%d scenarios pass, %d are pending, %d cases are Go tests.\n\n", count["pass"], count["pending"], count["Go test"])
	return b.String()
}

func firstDifference(old, page string) string {
	a, b := strings.Split(old, "\n"), strings.Split(page, "\n")
	for i := range b {
		if i >= len(a) || a[i] != b[i] {
			return fmt.Sprintf("line %d:\n-%s\n+%s", i+1, strings.Join(a[min(i, len(a)):min(i+1, len(a))], ""), b[i])
		}
	}
	return "the page is longer than it should be"
}
