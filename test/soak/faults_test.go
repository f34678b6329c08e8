package soak_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// fault is something that goes wrong during a storm. Its kind, its target and its
// times are a function of the seed; how far the target is just then is not.
type fault struct {
	at     time.Duration // since the start of the storm
	kind   string
	target string
	lasts  time.Duration
	point  string        // of faultHalt
	goOn   bool          // of faultHalt: it goes on afterwards, and is not killed
	step   time.Duration // of faultClock
}

const (
	faultKill    = "kill"      // kill -9, and a new start after a while
	faultRestart = "restart"   // SIGTERM, and a new start after a while
	faultStop    = "stop"      // SIGSTOP for a while
	faultSlow    = "slow disk" // runs only every other moment, as if every access took long
	faultFull    = "full disk" // no room for a while
	faultHalt    = "halt"      // stopped at a named point of its work, then killed or let go
	faultClock   = "clock"     // the clock of all processes steps
)

func (f fault) String() string {
	s := fmt.Sprintf("%5.1fs %s %s for %v", f.at.Seconds(), f.kind, f.target, f.lasts.Round(time.Millisecond))
	switch f.kind {
	case faultHalt:
		s += fmt.Sprintf(" at %s, killed=%v", f.point, !f.goOn)
	case faultClock:
		s = fmt.Sprintf("%5.1fs clock steps by %v", f.at.Seconds(), f.step)
	}
	return s
}

// planFaults draws the faults of one storm. One part has one fault at a time.
func planFaults(seed uint64, round int, w weather) []fault {
	rnd := draw(seed, drawFaults, round)
	var list []fault
	busy := map[string]time.Duration{}
	for range w.faults {
		f := drawFault(rnd)
		// The last ones are over when the storm is, more or less.
		f.at = time.Duration(rnd.Int64N(int64(w.storm * 9 / 10)))
		// Starting takes about a second.
		if end, ok := busy[f.target]; ok && f.at < end {
			f.at = end
		}
		if f.at >= w.storm {
			continue
		}
		busy[f.target] = f.at + f.lasts + 1500*time.Millisecond
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return list
}

// fullDisks are the parts whose disk may be full.
var fullDisks = []string{"broker", "agent", "engine"}

// spare is what is left of a part's full disk. The embedded ClickHouse that merges
// parts while its disk fills up to the last byte replaces them by a part of empty
// files, without any error, and what was acknowledged is gone. So it refuses to
// write from [engine.KeepFree] on, and what it writes by then needs some room.
var spare = map[string]uint64{"engine": 64 << 20}

func drawFault(rnd *rand.Rand) fault {
	any := append([]string{"broker", "engine"}, workers...)
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(rnd.Int64N(int64(high-low))) }
	switch n := rnd.IntN(20); {
	case n < 7:
		return fault{kind: faultKill, target: pick(any), lasts: between(0, 3*time.Second)}
	case n < 9:
		return fault{kind: faultRestart, target: pick(any), lasts: between(0, time.Second)}
	case n < 13:
		// At times longer than the stream waits for a consumer.
		return fault{kind: faultStop, target: pick(any), lasts: between(200*time.Millisecond, 5*time.Second)}
	case n < 14:
		return fault{kind: faultSlow, target: pick([]string{"broker", "engine"}), lasts: between(2*time.Second, 5*time.Second)}
	case n < 15:
		return fault{kind: faultFull, target: pick(fullDisks), lasts: between(time.Second, 4*time.Second)}
	case n < 16:
		step := between(-8*time.Second, 0)
		if rnd.IntN(2) == 0 {
			step = between(0, time.Minute)
		}
		return fault{kind: faultClock, target: "clock", step: step.Truncate(time.Millisecond)}
	}
	f := fault{kind: faultHalt, target: pick(workers[:4]), lasts: between(0, 4*time.Second), goOn: rnd.IntN(2) == 0}
	points := []string{"before-insert", "mid-insert", "raw-before-dirty", "dirty-before-ack", "during-ack"}
	if f.target == "aggregate-1" || f.target == "aggregate-2" {
		points = []string{"before-recompute", "mid-recompute", "recompute-before-clear", "hours-put"}
	}
	f.point = fmt.Sprintf("%s:%d", pick(points), 1+rnd.IntN(3))
	return f
}

// storm lets the faults happen and returns when all are over.
func (p *pipeline) storm(faults []fault, happened func(f fault, note string), before func(says time.Time)) error {
	begin := time.Now()
	var halting sync.Mutex // the files that say so are there once
	var all sync.WaitGroup
	errs := make([]error, len(faults))
	for i, f := range faults {
		all.Go(func() {
			time.Sleep(time.Until(begin.Add(f.at)))
			if f.kind == faultClock {
				happened(f, "")
				errs[i] = p.clock.step(f.step, before)
				return
			}
			if f.kind == faultHalt {
				halting.Lock()
				defer halting.Unlock()
			}
			part := p.parts[f.target]
			part.Lock()
			defer part.Unlock()
			note, err := p.happen(part, f)
			happened(f, note)
			if err != nil {
				errs[i] = fmt.Errorf("%v: %w", f, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// happen makes one fault happen and undoes it.
func (p *pipeline) happen(part *part, f fault) (note string, err error) {
	if !part.Alive() {
		return "", fmt.Errorf("%s is not there, and nobody killed it:\n%s", part.Name, part.Said())
	}
	switch f.kind {
	case faultKill:
		part.Kill()
		time.Sleep(f.lasts)
		return "", part.Start()
	case faultRestart:
		if err := part.Stop(); err != nil {
			return "", err
		}
		time.Sleep(f.lasts)
		return "", part.Start()
	case faultStop:
		return "", part.pause(f.lasts)
	case faultSlow:
		for end := time.Now().Add(f.lasts); time.Now().Before(end); {
			if err := part.pause(60 * time.Millisecond); err != nil {
				return "", err
			}
			time.Sleep(40 * time.Millisecond)
		}
		return "", nil
	case faultFull:
		return p.fullDisk(part, f)
	}
	return p.halt(part, f)
}

// pause stops the part and lets it go on after a while.
func (p *part) pause(d time.Duration) error {
	err := p.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}

func (p *pipeline) fullDisk(part *part, f fault) (note string, err error) {
	d := p.disks[f.target]
	if !d.mounted {
		return "left out: no right to mount", nil
	}
	if err := d.fill(spare[f.target]); err != nil {
		return "", err
	}
	time.Sleep(f.lasts)
	if err := d.makeRoom(); err != nil {
		return "", err
	}
	if f.target != "broker" {
		return "", nil
	}
	// JetStream shuts itself down for good when it cannot write. Its operator has to
	// start it again.
	part.Kill()
	return "", part.Start()
}

// halt lets a worker get to a point of its work and stop there.
func (p *pipeline) halt(part *part, f fault) (note string, err error) {
	halted, letGo := filepath.Join(p.dir, "halted"), filepath.Join(p.dir, "go")
	for _, file := range []string{halted, letGo} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return "", err
		}
	}
	part.Kill()
	if err := part.Launch("GPUMETER_HALT_AT=" + f.point); err != nil {
		return "", err
	}
	there := func() error { _, err := os.Stat(halted); return err }
	if process.Await(8*time.Second, "it halts", there) != nil {
		// Its colleague has all the work, or what it needs is away.
		part.Kill()
		return "did not get there", part.Start()
	}
	time.Sleep(f.lasts)
	if f.goOn {
		return "", os.WriteFile(letGo, nil, 0o644)
	}
	part.Kill()
	return "", part.Start()
}
