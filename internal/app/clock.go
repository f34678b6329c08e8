package app

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// ClockFile is the environment variable that names a file of clock steps, one
// JSON object a line: {"real":"<RFC 3339>","says":"<RFC 3339>"}. From the instant
// real of the machine's clock on, the program's clock says says, and goes on from
// there. Scenarios live in another month that way; nothing else should.
const ClockFile = "GPUMETER_CLOCK"

// Clock is the program's idea of time.
type Clock interface {
	Now() time.Time
	// At translates an instant of the machine's clock, such as the time at which
	// the stream stored a message. An instant always translates to the same.
	At(real time.Time) time.Time
}

// SystemClock returns the machine's clock, or the one that [ClockFile] moves.
func SystemClock() Clock { return &fileClock{path: os.Getenv(ClockFile)} }

// fileClock is the machine's clock with the steps of a file. Steps are only ever
// added at the end.
type fileClock struct {
	path string

	mu    sync.Mutex
	size  int64
	steps []clockStep
}

type clockStep struct {
	Real time.Time `json:"real"`
	Says time.Time `json:"says"`
}

func (c *fileClock) Now() time.Time { return c.At(time.Now()) }

func (c *fileClock) At(real time.Time) time.Time {
	if c.path == "" {
		return real
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(); err != nil {
		panic(err) // a scenario with half a clock proves nothing
	}
	for i := len(c.steps) - 1; i >= 0; i-- {
		if s := c.steps[i]; !real.Before(s.Real) {
			return s.Says.Add(real.Sub(s.Real))
		}
	}
	return real
}

func (c *fileClock) read() error {
	f, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("%s: %w", ClockFile, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == c.size {
		return err
	}
	c.steps = c.steps[:0]
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s clockStep
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("%s %s: line %d: %w", ClockFile, c.path, len(c.steps)+1, err)
		}
		c.steps = append(c.steps, s)
	}
	c.size = info.Size()
	return nil
}
