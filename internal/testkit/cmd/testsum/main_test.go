package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name, in string
		ok       bool
		last     string
		shows    []string
		hides    []string
	}{
		{
			name: "passed and skipped",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    a_test.go:9: needs a GPU\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"pass","Package":"p","Elapsed":1.25}
`,
			ok: true, last: "1 passed, 0 failed, 1 skipped",
			shows: []string{"ok   p  1 passed, 0 failed, 1 skipped  1.25s", "p TestB: needs a GPU"},
			hides: []string{"chatter"},
		},
		{
			name: "failed",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p"}
{"Action":"pass","Package":"q"}
`,
			last:  "0 passed, 1 failed, 0 skipped",
			shows: []string{"got 1, want 2", "FAIL p", "p TestA"},
		},
		{
			name: "does not build",
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
`,
			last:  "0 passed, 1 failed, 0 skipped",
			shows: []string{"a.go:1: undefined: x"},
		},
		{
			name: "panic",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: no\n"}
{"Action":"fail","Package":"p"}
`,
			last:  "0 passed, 1 failed, 0 skipped",
			shows: []string{"panic: no", "TestA (did not finish)"},
		},
		{
			name: "cut off",
			in: `{"Action":"run","Package":"p","Test":"TestA"}
`,
			last: "0 passed, 1 failed, 0 skipped",
		},
		{
			name:  "no test",
			in:    "go: cannot find main module\n{\"Action\":\"skip\",\"Package\":\"p\"}\n",
			last:  "0 passed, 0 failed, 0 skipped",
			shows: []string{"go: cannot find main module", "no test ran"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			if err := s.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			if ok := s.finish(); ok != c.ok {
				t.Errorf("ok is %v, want %v", ok, c.ok)
			}
			got := out.String()
			if !strings.HasSuffix(got, "\n"+c.last+"\n") {
				t.Errorf("last line is not %q", c.last)
			}
			for _, w := range c.shows {
				if !strings.Contains(got, w) {
					t.Errorf("does not show %q", w)
				}
			}
			for _, w := range c.hides {
				if strings.Contains(got, w) {
					t.Errorf("shows %q", w)
				}
			}
			if t.Failed() {
				t.Log(got)
			}
		})
	}
}
