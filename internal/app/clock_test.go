package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An instant translates to the same however many steps are added after it, and
// the clock goes on from each step.
func TestClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	t.Setenv(ClockFile, path)
	real := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	says := time.Date(2026, 3, 31, 23, 59, 0, 0, time.UTC)
	step := func(real, says time.Time) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "{\"real\":%q,\"says\":%q}\n", real.Format(time.RFC3339Nano), says.Format(time.RFC3339Nano))
	}
	step(real, says)
	c := SystemClock()
	check := func(at, want time.Time) {
		t.Helper()
		if got := c.At(at); !got.Equal(want) {
			t.Errorf("at %v the clock says %v, want %v", at, got, want)
		}
	}
	check(real.Add(-time.Second), real.Add(-time.Second))
	check(real, says)
	check(real.Add(time.Minute), says.Add(time.Minute))
	step(real.Add(2*time.Minute), says.AddDate(0, 0, 9))
	check(real.Add(time.Minute), says.Add(time.Minute))
	check(real.Add(2*time.Minute), says.AddDate(0, 0, 9))
	check(real.Add(3*time.Minute), says.AddDate(0, 0, 9).Add(time.Minute))
	// Backwards, as a machine's clock may go.
	step(real.Add(4*time.Minute), says)
	check(real.Add(5*time.Minute), says.Add(time.Minute))

	t.Setenv(ClockFile, "")
	if now := time.Now(); !SystemClock().At(now).Equal(now) {
		t.Error("without a file the clock is not the machine's")
	}
}
