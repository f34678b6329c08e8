package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// newMeter returns a function that shows how far a long command is: a bar with
// rate and remaining time on a terminal, plain lines every few seconds elsewhere.
func newMeter(out io.Writer, unit string) func(what string, done, total int) {
	m := &steps{out: out, unit: unit, now: time.Now}
	if file, ok := out.(*os.File); ok {
		m.terminal = term.IsTerminal(int(file.Fd()))
	}
	return m.show
}

// steps follows a command through its steps, each with a known total.
type steps struct {
	out      io.Writer
	unit     string
	terminal bool
	now      func() time.Time

	what          string
	bar           *progressbar.ProgressBar
	started, said time.Time
}

func (m *steps) show(what string, done, total int) {
	now := m.now()
	if what != m.what {
		m.what, m.started, m.said, m.bar = what, now, now, nil
		if m.terminal {
			m.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(m.out), progressbar.OptionSetDescription(what),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(m.unit),
				progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())
		}
	}
	if m.bar != nil {
		_ = m.bar.Set(done) // a bar that cannot be drawn is no reason to stop
		return
	}
	if now.Sub(m.said) < sayEvery {
		return
	}
	m.said = now
	fmt.Fprintln(m.out, m.text(done, total, now))
}

func (m *steps) text(done, total int, now time.Time) string {
	ms := max(1, now.Sub(m.started).Milliseconds())
	s := fmt.Sprintf("%s: %d of %d %s, %d/s", m.what, done, total, m.unit, int64(done)*1000/ms)
	if done > 0 && done < total {
		left := time.Duration(int64(total-done)*ms/int64(done)) * time.Millisecond
		s += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return s
}
