package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page that points at a test which is not there claims something that nobody
// checks any more.
func TestDocsNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	defined, named := map[string]bool{}, map[string]string{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	mention := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z][A-Za-z]+\b`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "data"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".md") {
			for _, name := range mention.FindAllString(string(text), -1) {
				named[name] = path
			}
			return nil
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			defined[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(named) == 0 || len(defined) < 100 {
		t.Fatalf("%d tests named and %d defined: the search found too little", len(named), len(defined))
	}
	for name, path := range named {
		if !defined[name] {
			t.Errorf("%s names %s, and there is no such test", path, name)
		}
	}
}
