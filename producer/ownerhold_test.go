package producer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/schema"
)

// owned is a reading of unit a. An owner is an instance, or instance@project.
func owned(owner string) []schema.Reading {
	r := schema.Reading{Unit: "a", Model: "m", Utilization: schema.Some(500_000)}
	r.Instance, r.Project, _ = strings.Cut(owner, "@")
	if r.Instance != "" && r.Project == "" {
		r.Project = "p-" + r.Instance
	}
	return []schema.Reading{r}
}

func holdMeter(t interface {
	Helper()
	Fatal(...any)
}, hold time.Duration, last int64) *Meter {
	t.Helper()
	m, err := NewMeter(MeterOptions{Source: "s", OwnerHold: hold, LastTickMs: last})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// held adds up the time of each owner of unit a.
func held(events []schema.Usage) map[string]int64 {
	ms := map[string]int64{}
	for i := range events {
		ms[events[i].Instance+"/"+events[i].Project] += events[i].LengthMs()
	}
	return ms
}

// I11: the label is absent from 10:03 to 10:05 of a lease from 10:00 to 10:10.
func TestALabelThatFlickersStaysWithItsOwner(t *testing.T) {
	for _, c := range []struct {
		name      string
		hold      time.Duration
		back      string // who is read from 10:05 on
		want      map[string]int64
		emittedBy string // the tick by which nothing is undecided
	}{
		{"the same owner", 3 * time.Minute, "i", map[string]int64{"i/p-i": 600_000}, "10:05:10"},
		{"another owner", 3 * time.Minute, "j", map[string]int64{"i/p-i": 180_000, "/": 120_000, "j/p-j": 300_000}, "10:05:10"},
		{"another owner in the same project", 3 * time.Minute, "j@p-i", map[string]int64{"i/p-i": 180_000, "/": 120_000, "j/p-i": 300_000}, "10:05:10"},
		{"the same instance in another project", 3 * time.Minute, "i@q", map[string]int64{"i/p-i": 180_000, "/": 120_000, "i/q": 300_000}, "10:05:10"},
		{"nobody", 3 * time.Minute, "", map[string]int64{"i/p-i": 180_000, "/": 420_000}, "10:06:00"},
		{"too late", time.Minute, "i", map[string]int64{"i/p-i": 480_000, "/": 120_000}, "10:04:00"},
		{"no hold", 0, "i", map[string]int64{"i/p-i": 480_000, "/": 120_000}, "10:03:10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := holdMeter(t, c.hold, 0)
			var events []schema.Usage
			begin := testDay + 10*schema.HourMs
			for at := begin; at <= begin+10*schema.MinuteMs; at += 10_000 {
				owner := "i"
				switch minute := at - begin; {
				case minute > 5*schema.MinuteMs:
					owner = c.back
				case minute > 3*schema.MinuteMs:
					owner = ""
				}
				finished, err := m.Tick(at, owned(owner), nil)
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, finished...)
				clock := time.UnixMilli(at).UTC().Format(time.TimeOnly)
				if undecided := len(m.Undecided()) > 0; undecided != (clock > "10:03:00" && clock < c.emittedBy) {
					t.Errorf("at %s something is undecided: %v, want it from 10:03:10 to before %s", clock, undecided, c.emittedBy)
				}
			}
			if got := held(append(events, m.Close()...)); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			for i := range events {
				if err := events[i].Validate(); err != nil || schema.Floor(events[i].StartMs, 60_000) != schema.Floor(events[i].EndMs-1, 60_000) || events[i].ID != schema.UsageID("a", events[i].StartMs) {
					t.Errorf("%s to %d: %v", events[i].ID, events[i].EndMs, err)
				}
			}
		})
	}
}

// A unit of several owners, and one that is read with and without an owner at once,
// are what the readings say.
func TestUnitsOfSeveralReadingsAreNotHeld(t *testing.T) {
	for name, before := range map[string][]schema.Reading{"two owners": append(owned("i"), owned("j")...), "one owner": owned("i")} {
		after := owned("")
		if name == "one owner" {
			after = append(owned(""), owned("j")...)
		}
		m := holdMeter(t, time.Minute, testDay)
		for i, readings := range [][]schema.Reading{before, after} {
			if _, err := m.Tick(testDay+10_000*int64(i+1), readings, nil); err != nil {
				t.Fatal(err)
			}
		}
		if kept := m.Undecided(); len(m.undecided) > 0 || len(kept) > 0 {
			t.Errorf("%s before: undecided %v", name, kept)
		}
	}
}

// interval is one tick's: from the tick before, with what was read at its end.
type interval struct {
	from, to int64
	owner    string
	new      bool // nothing is known from before: a start, a gap
}

// naiveOwners says who had each interval, by looking at all of them at once. The
// time that is undecided at the end has no entry.
func naiveOwners(list []interval, primes []interval, holdMs int64) map[int64]string {
	// readings in order of time: intervals and the readings that only set a beginning
	type reading struct {
		at    int64
		owner string
		in    *interval
		new   bool
	}
	var all []reading
	for i := range list {
		all = append(all, reading{list[i].to, list[i].owner, &list[i], list[i].new})
	}
	for _, p := range primes {
		all = append(all, reading{p.to, p.owner, nil, true})
	}
	slices.SortFunc(all, func(a, b reading) int { return int(a.at - b.at) })
	got := map[int64]string{}
	for i := 0; i < len(all); i++ {
		if all[i].in == nil {
			continue
		}
		got[all[i].in.from] = all[i].owner
		// An absence begins where the owner was read at the reading before, and
		// that reading was metered and is remembered.
		if all[i].owner != "" || i == 0 || all[i].new || all[i-1].in == nil || all[i-1].owner == "" || holdMs == 0 {
			continue
		}
		owner, since := all[i-1].owner, all[i].in.from
		last := i
		for last+1 < len(all) && all[last+1].owner == "" {
			last++
		}
		verdict, known := "", true
		switch {
		case last+1 < len(all) && all[last+1].owner == owner && all[last+1].at-since <= holdMs:
			verdict = owner
		case last+1 == len(all) && all[last].at-since < holdMs:
			known = false
		}
		// Once the hold is over the rest is nobody's anyway.
		for k := i; k <= last; k++ {
			if all[k].in == nil {
				continue
			}
			if got[all[k].in.from] = verdict; !known {
				delete(got, all[k].in.from)
			}
		}
		i = last
	}
	return got
}

// Whatever is read, with gaps, failed reads, and crashes at any tick, every
// interval is once in one event, of the owner that looking at all readings at once
// gives, and what is undecided at the end is in none.
func TestOwnerHoldProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holdMs := 10_000 * rapid.SampledFrom([]int64{0, 1, 2, 3, 6, 18}).Draw(t, "hold")
		m := holdMeter(t, time.Duration(holdMs)*time.Millisecond, 0)
		at := testDay + 10_000*rapid.Int64Range(0, 6).Draw(t, "start")
		var events []schema.Usage
		var list, primes []interval
		fresh := true // the meter knows no holdings
		owner := ""
		for range rapid.IntRange(1, 80).Draw(t, "ticks") {
			if rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				owner = rapid.SampledFrom([]string{"i", "i", "", "", "", "j"}).Draw(t, "owner")
			}
			last := m.LastTick()
			at += 10_000 * rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 1, 1, 2, 4, 13}).Draw(t, "periods")
			finished, err := m.Tick(at, owned(owner), nil)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, finished...)
			if last == 0 || at-last > 25_000 {
				primes = append(primes, interval{to: at, owner: owner, new: true})
				fresh = true
			} else {
				list = append(list, interval{from: last, to: at, owner: owner, new: fresh})
				fresh = false
			}
			if rapid.IntRange(0, 9).Draw(t, "crash") == 0 {
				// What the spool gives to the next process.
				events = append(events, m.Open()...)
				kept := m.Undecided()
				m = holdMeter(t, time.Duration(holdMs)*time.Millisecond, at)
				m.Restore(kept)
				fresh = true
			}
		}
		undecided := m.Undecided()
		events = append(events, m.Open()...)
		if again := m.Undecided(); len(again) != len(undecided) {
			t.Fatal("asking changes what is undecided")
		}
		got := map[int64]string{}
		ids := map[string]bool{}
		for i := range events {
			u := &events[i]
			if err := u.Validate(); err != nil || ids[u.ID] || (u.Project != "") != (u.Instance != "") {
				t.Fatalf("%s of %q and %q, seen before: %v: %v", u.ID, u.Instance, u.Project, ids[u.ID], err)
			}
			ids[u.ID] = true
			for from := u.StartMs; from < u.EndMs; from += 10_000 {
				if _, twice := got[from]; twice {
					t.Fatalf("%d is in two events", from)
				}
				got[from] = u.Instance
			}
		}
		want := map[int64]string{}
		owners := naiveOwners(list, primes, holdMs)
		for _, in := range list {
			owner, decided := owners[in.from]
			for from := in.from; from < in.to && decided; from += 10_000 {
				want[from] = owner
			}
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Fatalf("hold %d, intervals %+v, primes %+v:\n got %s\nwant %s", holdMs, list, primes, g, w)
		}
	})
}

// What is undecided survives a kill: it is in the spool, is not sent, and the next
// process decides it.
func TestUndecidedTimeSurvivesAKill(t *testing.T) {
	for _, back := range []string{"i", ""} {
		path := filepath.Join(t.TempDir(), "spool")
		s, err := OpenSpool(SpoolOptions{Path: path})
		must(t, err)
		m := holdMeter(t, time.Minute, 0)
		at := testDay + 40_000
		tick := func(s *Spool, owner string) {
			finished, err := m.Tick(at, owned(owner), nil)
			must(t, err)
			must(t, s.AdvanceUndecided("s", at, finished, m.Open(), m.Undecided()))
			at += 10_000
		}
		for _, owner := range []string{"i", "i", "", "", ""} { // absent from 00:00:50 on, over the minute
			tick(s, owner)
		}
		must(t, s.Close())
		s, err = OpenSpool(SpoolOptions{Path: path})
		must(t, err)
		queued := func() (events []schema.Usage) {
			head, err := s.Head(1000, 1<<20)
			must(t, err)
			for _, q := range head {
				events = append(events, q.Event)
			}
			return events
		}
		if got := held(queued()); got["i/p-i"] != 10_000 || got["/"] != 0 {
			t.Fatalf("queued after the kill: %v", got)
		}
		last, err := s.LastTick("s")
		must(t, err)
		m = holdMeter(t, time.Minute, last)
		kept, err := s.Undecided("s")
		must(t, err)
		m.Restore(kept)
		at += 20_000 // away for so long that the meter begins anew
		tick(s, back)
		for range 3 {
			tick(s, back)
		}
		must(t, s.CloseOpen("s"))
		// 10 s before, 30 s undecided, and 30 s of the ticks after.
		want := map[string]map[string]int64{"i": {"i/p-i": 70_000}, "": {"i/p-i": 10_000, "/": 60_000}}[back]
		if got := held(queued()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("back is %q: %v, want %v", back, got, want)
		}
		if left, err := s.Undecided("s"); err != nil || len(left) > 0 {
			t.Errorf("still undecided: %v, %v", left, err)
		}
		must(t, s.Close())
	}
}

// A spool of the format before is read, kept, and made into one of this.
func TestSpoolOfFormatOneIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s, err := OpenSpool(SpoolOptions{Path: path})
	must(t, err)
	must(t, s.Advance("a", testDay+1, []schema.Usage{usage("a", "x", 1)}, []schema.Usage{usage("a", "y", 2)}))
	must(t, s.Close())
	edit := func(f func(tx *bolt.Tx) error) {
		db, err := bolt.Open(path, 0o600, nil)
		must(t, err)
		must(t, db.Update(f))
		must(t, db.Close())
	}
	edit(func(tx *bolt.Tx) error {
		return errors.Join(tx.DeleteBucket(bucketHeld), tx.Bucket(bucketMeta).Put(keyFormat, []byte("gpumeter spool 1")))
	})
	s, err = OpenSpool(SpoolOptions{Path: path})
	must(t, err)
	if n := s.Stats().Events; n != 2 {
		t.Errorf("%d events, want the queued and the unfinished one", n)
	}
	must(t, s.AdvanceUndecided("a", testDay+2, nil, nil, []schema.Usage{usage("a", "h", 3)}))
	must(t, s.Close())
	s, err = OpenSpool(SpoolOptions{Path: path})
	must(t, err)
	if kept, err := s.Undecided("a"); err != nil || len(kept) != 1 || s.Stats().Events != 2 {
		t.Errorf("undecided: %v, %v; %d events", kept, err, s.Stats().Events)
	}
	must(t, s.Close())
	edit(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte("gpumeter spool 3")) })
	if _, err := OpenSpool(SpoolOptions{Path: path}); !errors.Is(err, ErrSpoolCorrupt) || !strings.Contains(err.Error(), "gpumeter spool 3") {
		t.Errorf("a format of the future: %v", err)
	}
}
