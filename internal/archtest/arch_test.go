// Package archtest keeps the shape of the project as DESIGN.md section 5 draws it:
// who may import whom, where binary fractions may not be, how long a file may get.
package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gpumeter/gpumeter/"

// folder is one row of the table: what the code below a folder may import of ours,
// each with the reason.
type folder struct {
	path string
	may  map[string]string
}

const language = "events, units, errors: the language of all parts"

// table has the longest paths first, so that a folder inside another one can have
// a row of its own. A new folder with Go code needs a row.
var table = []folder{
	{"internal/testkit/aggregatortest", map[string]string{
		"schema": language, "aggregator": "the suite that every store of the aggregator has to pass, named for what it drives",
	}},
	{"internal/testkit/cmd", nil},
	{"internal/testkit/process", map[string]string{"internal/engine": "finds its library"}},
	{"internal/engine/enginetest", map[string]string{"internal/engine": "starts one for a test"}},
	{"internal/testkit", map[string]string{
		"schema": language, "internal/clickhouse": "throw-away databases", "internal/jetstream": "in-process streams",
		"internal/engine": "the database's engine", "internal/engine/enginetest": "the engine of a test",
	}},
	{"internal/clickhouse", map[string]string{"schema": language}},
	{"internal/jetstream", map[string]string{"schema": language}},
	{"internal/gpu", map[string]string{"schema": language}},
	{"internal/engine", nil},
	{"internal/archtest", nil},
	{"internal/app", map[string]string{
		"schema": language, "producer": every, "consumer": every, "aggregator": every, "pricing": every, "report": every, "alert": every,
		"audit": every, "web": every, "internal/gpu": every, "internal/jetstream": every, "internal/clickhouse": every, "internal/engine": every,
	}},
	{"schema/usagepb", nil},
	{"schema", map[string]string{"schema/usagepb": "its own wire form, generated"}},
	{"producer", map[string]string{"schema": language}},
	{"consumer", map[string]string{"schema": language}},
	{"aggregator", map[string]string{"schema": language}},
	{"pricing", map[string]string{"schema": language}},
	{"report", map[string]string{"schema": language, "pricing": "puts prices on usage"}},
	{"alert", map[string]string{"schema": language}},
	{"audit", map[string]string{"schema": language}},
	{"web", map[string]string{"schema": language, "report": "shows it", "alert": "shows it", "audit": "shows it"}},
	{"cmd/gpumeter", map[string]string{
		"internal/app": "runs it", "schema": "checks a line before it is sent, and writes ratios exactly",
		"report": "checks a question before it is asked, so that a mistake shows without a server", "web": "types of the answers it reads",
		"pricing": "checks price files without a server", "internal/engine": "becomes the engine's child process",
	}},
	{"test", map[string]string{"schema": language, "internal/app": "runs it", "internal/testkit": "events, streams and processes", "internal/engine": "becomes its child process"}},
}

const every = "the one place that knows everybody"

// forTests is what tests may import beside what their folder may.
var forTests = []string{"internal/testkit", "internal/engine/enginetest"}

// testsOf lists what the tests of a folder may import besides, each with a reason.
var testsOf = map[string]map[string]string{
	"internal/jetstream":  {"consumer": "delivers to the real one", "internal/clickhouse": "which stores for real"},
	"internal/clickhouse": {"aggregator": "sums up what it stored", "consumer": "stores through the real one", "internal/jetstream": "which is fed by a real stream", "internal/engine": "with its settings"},
	"web":                 {"pricing": "terms and rentals for a real report of plans"},
	"test":                {"internal/jetstream": "puts messages on the stream", "internal/clickhouse": "reads what was stored"},
}

type goFile struct {
	path string // below the module, with slashes
	text []byte
	tree *ast.File
	pos  *token.FileSet
}

func (f *goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func goFiles(t *testing.T) []*goFile {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	var files []*goFile
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && at != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "bin" || name == "data") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		pos := token.NewFileSet()
		tree, err := parser.ParseFile(pos, at, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		files = append(files, &goFile{filepath.ToSlash(below), text, tree, pos})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files were found", len(files))
	}
	return files
}

func rowOf(at string) *folder {
	for i := range table {
		if at == table[i].path || strings.HasPrefix(at, table[i].path+"/") {
			return &table[i]
		}
	}
	return nil
}

func below(list []string, at string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return at == p || strings.HasPrefix(at, p+"/") })
}

func TestImports(t *testing.T) {
	for _, f := range goFiles(t) {
		at := path.Dir(f.path)
		row := rowOf(at)
		if row == nil {
			t.Errorf("%s: the folder %s has no row in the table of imports", f.path, at)
			continue
		}
		for _, spec := range f.tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, ok := strings.CutPrefix(imported, module)
			if !ok {
				continue
			}
			allowed := row.may[ours] != "" || ours == at && f.test()
			if f.test() {
				allowed = allowed || below(forTests, ours) || testsOf[row.path][ours] != "" || ours == "schema"
			}
			if !allowed {
				t.Errorf("%s imports %s, which %s may not", f.path, ours, row.path)
			}
		}
	}
}

// A table that goes by prefixes must not let a general row hide a special one.
func TestTable(t *testing.T) {
	for i, row := range table {
		for _, earlier := range table[:i] {
			if strings.HasPrefix(row.path, earlier.path+"/") {
				t.Errorf("the row of %s stands behind the one of %s and is never used", row.path, earlier.path)
			}
		}
		for to, why := range row.may {
			if why == "" || rowOf(to) == nil {
				t.Errorf("%s may import %s: no reason, or no such folder", row.path, to)
			}
		}
	}
	stages := []string{"producer", "consumer", "aggregator", "pricing", "report", "alert", "audit"}
	for _, s := range stages {
		for to := range rowOf(s).may {
			if slices.Contains(stages, to) && !(s == "report" && to == "pricing") {
				t.Errorf("the stage %s may import the stage %s", s, to)
			}
		}
	}
}

// Only the engine loads a library; everything else builds and runs without.
func TestLibraryLoading(t *testing.T) {
	for _, f := range goFiles(t) {
		if !below([]string{"internal/engine", "internal/archtest"}, path.Dir(f.path)) && bytes.Contains(f.text, []byte("purego")) {
			t.Errorf("%s mentions purego", f.path)
		}
	}
}

// inexact are names that bring in binary fractions.
var inexact = []string{
	"float32", "float64", "Float", "Float32", "Float64", "NewFloat", "SetFloat64", "ParseFloat", "FormatFloat", "AppendFloat", "complex64", "complex128",
}

// Money and time are exact: no binary fraction in prices and reports.
func TestNoBinaryFractions(t *testing.T) {
	seen := 0
	for _, f := range goFiles(t) {
		if f.test() || !below([]string{"pricing", "report"}, path.Dir(f.path)) {
			continue
		}
		seen++
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if slices.Contains(inexact, n.Name) {
					t.Errorf("%s:%d: %s", f.path, f.pos.Position(n.Pos()).Line, n.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.FLOAT || n.Kind == token.IMAG {
					t.Errorf("%s:%d: the constant %s", f.path, f.pos.Position(n.Pos()).Line, n.Value)
				}
			}
			return true
		})
	}
	if seen < 10 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// A file that nobody can keep in mind is two.
func TestFileLength(t *testing.T) {
	const most = 700
	for _, f := range goFiles(t) {
		if lines := bytes.Count(f.text, []byte("\n")); !f.test() && lines > most {
			t.Errorf("%s has %d lines, at most %d are allowed", f.path, lines, most)
		}
	}
}
