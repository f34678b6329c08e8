package app

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// haltPoints returns the function that stages call at their named points. It does
// nothing unless GPUMETER_HALT_AT names a point, as "point" or "point:n" for its
// n-th time: then the process says so in DATA/halted and waits there until
// DATA/go exists. Fault tests kill it, or something that it depends on, exactly
// there.
func haltPoints(dir string) func(string) {
	want := os.Getenv("GPUMETER_HALT_AT")
	if want == "" {
		return func(string) {}
	}
	want, number, _ := strings.Cut(want, ":")
	n, _ := strconv.ParseInt(number, 10, 64)
	n = max(n, 1)
	var seen atomic.Int64
	return func(point string) {
		if point != want || seen.Add(1) != n {
			return
		}
		_ = os.WriteFile(filepath.Join(dir, "halted"), []byte(point), 0o644)
		for {
			if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
