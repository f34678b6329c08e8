package producer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

var testDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// meterCases are told as a timeline: a time of day, then what is read of each
// unit, and below it, indented, the events that this tick finishes.
//
//	unit owner utilization [key=value ...]; the next unit
//
// A unit a.2 is GPU instance 2 of board a. An owner is instance/project, or "-"
// for nobody; a utilization is thousandths, or "?". "fail" is a failed read, and
// "close" ends what is open.
var meterCases = map[string]string{
	"one event a minute": `
00:00:00 a i/p 500
00:00:10 a i/p 400
00:00:20 a i/p 300
00:00:30 a i/p 0
00:00:40 a i/p 9
00:00:50 a i/p 10
00:01:00 a i/p 31
  a/00:00:00 i/p to 00:01:00 active=40000 idle=20000 util=125000
00:01:10 a i/p 1000
close
  a/00:01:00 i/p to 00:01:10 active=10000 idle=0 util=1000000
`,
	"unknown is neither active nor idle": `
00:00:00 a i/p ?
00:00:10 a i/p ?
00:00:20 a i/p 200
00:00:30 a i/p 0
close
  a/00:00:00 i/p to 00:00:30 active=10000 idle=10000 util=100000
00:00:40 a i/p ?
close
  a/00:00:30 i/p to 00:00:40 active=0 idle=0
`,
	"a new owner begins a new event": `
00:00:00 a i/p 500
00:00:10 a i/p 500
00:00:20 a j/q 0
  a/00:00:00 i/p to 00:00:10 active=10000 idle=0 util=500000
00:00:30 a - 0
  a/00:00:10 j/q to 00:00:20 active=0 idle=10000 util=0
00:00:40 a i/p 0
  a/00:00:20 - to 00:00:30 active=0 idle=10000 util=0
close
  a/00:00:30 i/p to 00:00:40 active=0 idle=10000 util=0
`,
	"owners of one unit have their own events": `
00:00:00 a i/p 500 share=500000000; a j/q 500 share=500000000
00:00:10 a i/p 500 share=500000000; a j/q 500 share=500000000
00:00:20 a j/q 500
  a/00:00:00/i i/p to 00:00:10 active=10000 idle=0 util=500000 share=500000000
  a/00:00:00/j j/q to 00:00:10 active=10000 idle=0 util=500000 share=500000000
00:00:30 a i/p 500; a j/q 500
  a/00:00:10 j/q to 00:00:20 active=10000 idle=0 util=500000
close
  a/00:00:20/i i/p to 00:00:30 active=10000 idle=0 util=500000
  a/00:00:20/j j/q to 00:00:30 active=10000 idle=0 util=500000
`,
	"another share begins a new event": `
00:00:00 a i/p 500 share=500000000; a j/q 500 share=500000000
00:00:10 a i/p 500 share=500000000; a j/q 500 share=500000000
00:00:20 a i/p 500 share=400000000; a j/q 500 share=600000000
  a/00:00:00/i i/p to 00:00:10 active=10000 idle=0 util=500000 share=500000000
  a/00:00:00/j j/q to 00:00:10 active=10000 idle=0 util=500000 share=500000000
close
  a/00:00:10/i i/p to 00:00:20 active=10000 idle=0 util=500000 share=400000000
  a/00:00:10/j j/q to 00:00:20 active=10000 idle=0 util=500000 share=600000000
`,
	"a failed read is unknown time of the last owner": `
00:00:00 a i/p 500
00:00:10 a i/p 500
00:00:20 fail
00:00:30 fail
00:00:40 a i/p 0
close
  a/00:00:00 i/p to 00:00:40 active=10000 idle=10000 util=250000
`,
	"a vanished unit is held for a while and then forgotten": `
00:00:00 a i/p 500; b i/p 0
00:00:10 a i/p 500; b i/p 0
00:00:20 b i/p 0
00:00:30 b i/p 0
00:00:40 b i/p 0
  a/00:00:00 i/p to 00:00:30 active=10000 idle=0 util=500000
close
  b/00:00:00 i/p to 00:00:40 active=0 idle=40000 util=0
`,
	"a unit that comes back goes on": `
00:00:00 a i/p 500; b i/p 0
00:00:10 a i/p 500; b i/p 0
00:00:20 b i/p 0
00:00:30 a i/p 300; b i/p 0
close
  a/00:00:00 i/p to 00:00:30 active=20000 idle=0 util=400000
  b/00:00:00 i/p to 00:00:30 active=0 idle=30000 util=0
`,
	"a long gap is in no event": `
00:00:00 a i/p 500 mj=0
00:00:10 a i/p 500 mj=1000
00:00:40 a i/p 500 mj=5000
  a/00:00:00 i/p to 00:00:10 active=10000 idle=0 util=500000 mj=1000
00:00:50 a i/p 500 mj=7000
close
  a/00:00:40 i/p to 00:00:50 active=10000 idle=0 util=500000 mj=2000
`,
	"a missed tick is bridged, and cut at the minute": `
00:00:40 a i/p 500 mj=0
00:00:50 a i/p 500 mj=100
00:01:10 a i/p 0 mj=301
  a/00:00:40 i/p to 00:01:00 active=10000 idle=10000 util=250000 mj=200
close
  a/00:01:00 i/p to 00:01:10 active=0 idle=10000 util=0 mj=101
`,
	"energy comes from the counter": `
00:00:00 a - 0 mj=1000
00:00:10 a - 0 mj=1500
00:00:20 a - 0 mj=200
00:00:30 a - 0 mj=260
00:00:40 a - 0
00:00:50 a - 0 mj=300
00:01:00 a - 0 mj=999999999999
  a/00:00:00 - to 00:01:00 active=0 idle=60000 util=0 mj=600
00:01:10 a - 0 mj=999999999999
close
  a/00:01:00 - to 00:01:10 active=0 idle=10000 util=0 mj=0
`,
	"energy without a counter is unknown": `
00:00:00 a - 0
00:00:10 a - 0 mj=5
close
  a/00:00:00 - to 00:00:10 active=0 idle=10000 util=0
`,
	"a board's energy is counted once and divided by weight": `
00:00:00 a.1 i/p 0 mj=0 weight=3; a.2 j/p 0 mj=0 weight=2; a.3 k/p 0 mj=0 weight=2
00:00:10 a.1 i/p 0 mj=100 weight=3; a.2 j/p 0 mj=100 weight=2; a.3 k/p 0 mj=100 weight=2
close
  a/gi/1/00:00:00 i/p to 00:00:10 active=0 idle=10000 util=0 mj=42
  a/gi/2/00:00:00 j/p to 00:00:10 active=0 idle=10000 util=0 mj=29
  a/gi/3/00:00:00 k/p to 00:00:10 active=0 idle=10000 util=0 mj=29
`,
	"a board that is cut up has not gone silent": `
00:00:00 a i/p 500
00:00:10 a i/p 500
00:00:20 a.1 j/p 0
  a/00:00:00 i/p to 00:00:10 active=10000 idle=0 util=500000
00:00:30 a i/p 0
  a/gi/1/00:00:10 j/p to 00:00:20 active=0 idle=10000 util=0
close
  a/00:00:20 i/p to 00:00:30 active=0 idle=10000 util=0
`,
	"memory is a mean over the time with a reading": `
00:00:00 a i/p 0 used=1 total=9
00:00:10 a i/p 0 used=10 total=100
00:00:20 a i/p 0
00:00:30 a i/p 0 used=21 total=100
close
  a/00:00:00 i/p to 00:00:30 active=0 idle=30000 util=0 used=16 total=100
`,
	"a reading that no event can carry is refused alone": `
00:00:00 a i/p 0
00:00:10 a i/p 0 used=-1 share=2000000000; b i/p 0 used=-1 total=99999999999999999
close
  b/00:00:00 i/p to 00:00:10 active=0 idle=10000 util=0
`,
	"the same owner twice counts once": `
00:00:00 a i/p 0
00:00:10 a i/p 500; a i/p 0
close
  a/00:00:00 i/p to 00:00:10 active=10000 idle=0 util=500000
`,
	"the clock goes back": `
00:00:00 a i/p 500
00:00:20 a i/p 500
00:00:10 a i/p 500
  the clock is behind the last tick
00:00:20 a i/p 500
  the clock is behind the last tick
00:00:30 a i/p 500
close
  a/00:00:00 i/p to 00:00:30 active=30000 idle=0 util=500000
`,
}

func TestMeter(t *testing.T) {
	for name, timeline := range meterCases {
		t.Run(name, func(t *testing.T) {
			m := newMeter(t, MeterOptions{Source: "agent/test", HoldFor: 20 * time.Second})
			var got strings.Builder
			got.WriteString("\n")
			for line := range strings.Lines(strings.TrimPrefix(timeline, "\n")) {
				if strings.HasPrefix(line, " ") {
					continue
				}
				got.WriteString(line)
				var events []schema.Usage
				var err error
				if line = strings.TrimSpace(line); line == "close" {
					events = m.Close()
				} else {
					at, readings, failure := parseTick(t, line)
					events, err = m.Tick(at, readings, failure)
				}
				if errors.Is(err, ErrClockBack) {
					got.WriteString("  the clock is behind the last tick\n")
				} else if err != nil {
					t.Fatal(err)
				}
				for i := range events {
					if err := events[i].Validate(); err != nil {
						t.Error(err)
					}
					got.WriteString("  " + showEvent(&events[i]) + "\n")
				}
			}
			if got.String() != timeline {
				t.Errorf("got:%s\nwant:%s", got.String(), timeline)
			}
		})
	}
}

func newMeter(t testing.TB, o MeterOptions) *Meter {
	t.Helper()
	m, err := NewMeter(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func parseTick(t *testing.T, line string) (int64, []schema.Reading, error) {
	t.Helper()
	clock, rest, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		t.Fatal(err)
	}
	ms := testDay + (at.Sub(at.Truncate(24 * time.Hour))).Milliseconds()
	if rest == "fail" {
		return ms, nil, errors.New("no answer")
	}
	var readings []schema.Reading
	for part := range strings.SplitSeq(rest, "; ") {
		readings = append(readings, parseReading(t, strings.Fields(part)))
	}
	return ms, readings, nil
}

func parseReading(t *testing.T, f []string) schema.Reading {
	t.Helper()
	board, gi, sliced := strings.Cut(f[0], ".")
	r := schema.Reading{Unit: board, Board: board}
	if sliced {
		r.Unit = board + "/gi/" + gi
	}
	if f[1] != "-" {
		r.Instance, r.Project, _ = strings.Cut(f[1], "/")
	}
	number := func(s string) schema.Maybe {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return schema.Some(v)
	}
	if f[2] != "?" {
		r.Utilization = schema.Some(number(f[2]).Value * 1000)
	}
	for _, kv := range f[3:] {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "mj":
			r.BoardEnergyMj = number(v)
		case "weight":
			r.EnergyWeight = number(v).Value
		case "share":
			r.Share = number(v)
		case "used":
			r.MemoryUsedBytes = number(v)
		case "total":
			r.MemoryTotalBytes = number(v)
		default:
			t.Fatalf("unknown key %q", k)
		}
	}
	return r
}

func showEvent(u *schema.Usage) string {
	clock := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.TimeOnly) }
	owner := "-"
	if u.Instance != "" {
		owner = u.Instance + "/" + u.Project
	}
	s := fmt.Sprintf("%s %s to %s active=%d idle=%d", strings.Replace(u.ID, schema.FormatTime(u.StartMs), clock(u.StartMs), 1),
		owner, clock(u.EndMs), u.ActiveMs.Value, u.IdleMs.Value)
	for _, f := range []struct {
		name string
		m    schema.Maybe
	}{{"util", u.Utilization}, {"used", u.MemoryUsedBytes}, {"total", u.MemoryTotalBytes}, {"mj", u.EnergyMj}, {"share", u.Share}} {
		if f.m.Known {
			s += fmt.Sprintf(" %s=%d", f.name, f.m.Value)
		}
	}
	return s
}

// A tick that never comes costs the hour no more than itself: an owner's event
// carries on over a restart when the gap is short.
func TestMeterGoesOnAfterARestart(t *testing.T) {
	at, readings, _ := parseTick(t, "00:00:40 a i/p 500 mj=700")
	m := newMeter(t, MeterOptions{Source: "s", LastTickMs: at - 20_000})
	if _, err := m.Tick(at, readings, nil); err != nil {
		t.Fatal(err)
	}
	open := m.Open()
	if len(open) != 1 || open[0].LengthMs() != 20_000 || open[0].EnergyMj.Known {
		t.Errorf("%+v", open)
	}
}

func TestEventIDStaysWithinItsBound(t *testing.T) {
	long := strings.Repeat("x", schema.MaxNameBytes)
	a, b := eventID("GPU-a", long, testDay, true), eventID("GPU-a", long[1:]+"y", testDay, true)
	if len(a) > schema.MaxNameBytes || a == b || a != eventID("GPU-a", long, testDay, true) {
		t.Errorf("%s and %s", a, b)
	}
}

func TestMeterOptionsAreChecked(t *testing.T) {
	for _, o := range []MeterOptions{
		{}, {Source: "s", SampleEvery: -1}, {Source: "s", SampleEvery: time.Microsecond}, {Source: "s", EmitEvery: 15 * time.Second},
		{Source: "s", EmitEvery: time.Second}, {Source: "s", EmitEvery: 2 * time.Hour}, {Source: "s", HoldFor: -1},
		{Source: "s", Threshold: schema.Some(schema.UtilizationOne + 1)}, {Source: "s", Threshold: schema.Some(-1)},
	} {
		if _, err := NewMeter(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}
