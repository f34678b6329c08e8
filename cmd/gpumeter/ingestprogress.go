package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress tells a person how far a long input is: as a bar on a terminal, as a
// line every few seconds elsewhere.
type progress struct {
	out        io.Writer
	now        func() time.Time
	totalBytes int64 // 0 when the input has no known end
	bar        *progressbar.ProgressBar

	started, said time.Time
	lines         int64
	bytes         int64
}

const sayEvery = 5 * time.Second

func newProgress(out io.Writer, totalBytes int64, now func() time.Time) *progress {
	p := &progress{out: out, now: now, totalBytes: totalBytes, started: now()}
	p.said = p.started
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		length := totalBytes
		if length == 0 {
			length = -1
		}
		p.bar = progressbar.NewOptions64(length, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("ingest"),
			progressbar.OptionShowBytes(true), progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// add counts a line.
func (p *progress) add(bytes int64) {
	p.lines++
	p.bytes += bytes
	if p.bar != nil {
		_ = p.bar.Add64(bytes) // a bar that cannot be drawn is no reason to stop
		return
	}
	if now := p.now(); now.Sub(p.said) >= sayEvery {
		p.said = now
		fmt.Fprintln(p.out, p.text(now))
	}
}

func (p *progress) text(now time.Time) string {
	ms := max(1, now.Sub(p.started).Milliseconds())
	s := fmt.Sprintf("ingest: %d lines, %d lines/s", p.lines, p.lines*1000/ms)
	if p.totalBytes > 0 && p.bytes > 0 {
		left := time.Duration(max(0, p.totalBytes-p.bytes) * ms / p.bytes * int64(time.Millisecond))
		s += fmt.Sprintf(", %d %%, about %s left", min(100, p.bytes*100/p.totalBytes), left.Round(time.Second))
	}
	return s
}

// say writes a line without leaving half a bar in front of it.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
