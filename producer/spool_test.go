package producer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/gpumeter/gpumeter/schema"
)

func openSpool(t testing.TB, o SpoolOptions) *Spool {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "spool")
	}
	o.noSync = true
	s, err := OpenSpool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// usage makes a one-minute event of a unit, n minutes into the test day.
func usage(source, unit string, n int) schema.Usage {
	start := testDay + int64(n)*60_000
	return schema.Usage{
		Header: schema.Header{Source: source, ID: schema.UsageID(unit, start), TimeMs: start + 60_000},
		Unit:   unit, StartMs: start, EndMs: start + 60_000, Instance: "i", Project: "p", Model: "NVIDIA H100 80GB HBM3",
		Utilization: schema.Some(420_000), ActiveMs: schema.Some(60_000), IdleMs: schema.Some(0), EnergyMj: schema.Some(42_000_000),
	}
}

// queue shows what is queued as sequence:unit/minute.
func queue(t testing.TB, s *Spool) string {
	t.Helper()
	head, err := s.Head(1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, q := range head {
		all = append(all, fmt.Sprintf("%d:%s/%d", q.Event.Sequence, q.Event.Unit, (q.Event.StartMs-testDay)/60_000))
	}
	return strings.Join(all, " ")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestSpoolKeepsOrderAndNumbersOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, SpoolOptions{Path: path})
	must(t, s.Append([]schema.Usage{usage("a", "x", 1), usage("b", "y", 1), usage("a", "z", 1)}))
	equal(t, "numbers are by source", queue(t, s), "1:x/1 1:y/1 2:z/1")
	head, err := s.Head(2, 1<<20)
	must(t, err)
	must(t, s.Release(head[1].Position))
	must(t, s.Close())

	s = openSpool(t, SpoolOptions{Path: path})
	must(t, s.Append([]schema.Usage{usage("a", "z", 1), usage("a", "x", 2)}))
	equal(t, "an identity that is queued keeps its number", queue(t, s), "2:z/1 3:x/2")
	head, err = s.Head(10, 1)
	must(t, err)
	if len(head) != 1 || s.Stats().Events != 2 || int(s.Stats().Bytes) < 2*head[0].Bytes-20 {
		t.Errorf("%d of %+v", len(head), s.Stats())
	}
	want := usage("a", "z", 1)
	want.Sequence = 2
	if got := fmt.Sprintf("%+v", head[0].Event); got != fmt.Sprintf("%+v", want) {
		t.Errorf("the event changed on the way: %s", got)
	}
	must(t, s.Release(1<<60))
	must(t, s.Append([]schema.Usage{usage("a", "x", 3)}))
	equal(t, "numbers never come back", queue(t, s), "4:x/3")
}

// A kill between two ticks must neither lose the open minute nor number it twice.
func TestSpoolQueuesWhatWasOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, SpoolOptions{Path: path})
	must(t, s.Advance("a", testDay+1, nil, []schema.Usage{usage("a", "x", 1), usage("a", "y", 1)}))
	must(t, s.Advance("a", testDay+2, []schema.Usage{usage("a", "x", 1)}, []schema.Usage{usage("a", "x", 2)}))
	must(t, s.Advance("b", testDay+2, nil, []schema.Usage{usage("b", "q", 2)}))
	equal(t, "open events are not sent", queue(t, s), "1:x/1")
	must(t, s.Close())

	s = openSpool(t, SpoolOptions{Path: path})
	equal(t, "after a restart", queue(t, s), "1:x/1 2:x/2 1:q/2")
	last, err := s.LastTick("a")
	must(t, err)
	if last != testDay+2 {
		t.Errorf("last tick %d", last)
	}
	must(t, s.Close())
	s = openSpool(t, SpoolOptions{Path: path})
	equal(t, "after another", queue(t, s), "1:x/1 2:x/2 1:q/2")
	must(t, s.Release(1<<60))
	must(t, s.Close())
	s = openSpool(t, SpoolOptions{Path: path})
	equal(t, "sent and started once more", queue(t, s), "")

	must(t, s.Advance("a", testDay+3, nil, []schema.Usage{usage("a", "x", 3)}))
	must(t, s.CloseOpen("b"))
	equal(t, "closing another source", queue(t, s), "")
	must(t, s.CloseOpen("a"))
	equal(t, "closing", queue(t, s), "3:x/3")
}

// An error of a write leaves open whether it happened. Offering the same tick
// again must be right in both cases.
func TestSpoolStoresATickOnce(t *testing.T) {
	s := openSpool(t, SpoolOptions{})
	must(t, s.Advance("a", testDay+5, []schema.Usage{usage("a", "x", 1)}, nil))
	must(t, s.Release(1<<60)) // sent, so the identity is not in the queue any more
	must(t, s.Advance("a", testDay+5, []schema.Usage{usage("a", "x", 1)}, nil))
	equal(t, "repeated", queue(t, s), "")
	if err := s.Advance("a", testDay+4, []schema.Usage{usage("a", "x", 1)}, nil); !errors.Is(err, ErrTickRepeated) {
		t.Errorf("earlier tick: %v", err)
	}
}

func TestSpoolFull(t *testing.T) {
	for _, o := range []SpoolOptions{{MaxEvents: 3}, {MaxBytes: 400}} {
		s := openSpool(t, o)
		must(t, s.Advance("a", testDay+1, []schema.Usage{usage("a", "x", 1), usage("a", "x", 2)}, []schema.Usage{usage("a", "x", 3)}))
		// The open event is counted: there must be room for it at a restart.
		err := s.Advance("a", testDay+2, []schema.Usage{usage("a", "x", 3)}, []schema.Usage{usage("a", "x", 4)})
		if !errors.Is(err, ErrSpoolFull) {
			t.Fatalf("%+v: %v", o, err)
		}
		if err := s.Append([]schema.Usage{usage("a", "x", 9)}); !errors.Is(err, ErrSpoolFull) {
			t.Fatalf("%+v: %v", o, err)
		}
		equal(t, "nothing was written", queue(t, s), "1:x/1 2:x/2")
		head, err := s.Head(1, 0)
		must(t, err)
		must(t, s.Release(head[0].Position))
		must(t, s.Advance("a", testDay+2, []schema.Usage{usage("a", "x", 3)}, []schema.Usage{usage("a", "x", 4)}))
		equal(t, "the same again", queue(t, s), "2:x/2 3:x/3")
		must(t, s.Close())
		s = openSpool(t, SpoolOptions{Path: s.o.Path, MaxBytes: o.MaxBytes, MaxEvents: o.MaxEvents})
		equal(t, "reopened", queue(t, s), "2:x/2 3:x/3 4:x/4")
	}
}

func TestSpoolSetsAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, SpoolOptions{Path: path})
	must(t, s.Append([]schema.Usage{usage("a", "x", 1), usage("a", "x", 2)}))
	head, err := s.Head(1, 0)
	must(t, err)
	must(t, s.SetAside(head[0].Position, "too\x00large"))
	must(t, s.SetAside(head[0].Position, "a second time"))
	must(t, s.Close())
	s = openSpool(t, SpoolOptions{Path: path})
	equal(t, "queue", queue(t, s), "2:x/2")
	asides, err := s.Asides()
	must(t, err)
	if len(asides) != 1 || asides[0].Reason != "too large" || asides[0].Event.Sequence != 1 || s.Stats().SetAside != 1 {
		t.Errorf("%+v, %+v", asides, s.Stats())
	}
}

func TestSpoolRefusesInvalidEvents(t *testing.T) {
	s := openSpool(t, SpoolOptions{})
	bad := usage("a", "x", 1)
	bad.EndMs = bad.StartMs
	var fault *schema.Error
	if err := s.Append([]schema.Usage{usage("a", "y", 1), bad}); !errors.As(err, &fault) {
		t.Errorf("%v", err)
	}
	equal(t, "all or nothing", queue(t, s), "")
}

// Whatever is wrong with the file, opening it says so; it neither ends the
// process nor begins anew.
func TestSpoolFaultyFiles(t *testing.T) {
	filled := func(t *testing.T, path string) {
		s := openSpool(t, SpoolOptions{Path: path})
		for i := range 200 {
			must(t, s.Append([]schema.Usage{usage("a", "GPU-473571f2", i)}))
		}
		must(t, s.Close())
	}
	edit := func(t *testing.T, path string, change func([]byte) []byte) {
		raw, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, change(raw), 0o600))
	}
	for name, prepare := range map[string]func(t *testing.T, path string){
		"text": func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("log line\n", 9999)), 0o600))
		},
		"short": func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("x"), 0o600)) },
		"another database": func(t *testing.T, path string) {
			db, err := bolt.Open(path, 0o600, nil)
			must(t, err)
			must(t, db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err }))
			must(t, db.Close())
		},
		"another format": func(t *testing.T, path string) {
			filled(t, path)
			db, err := bolt.Open(path, 0o600, nil)
			must(t, err)
			must(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte("gpumeter spool 9")) }))
			must(t, db.Close())
		},
		"cut": func(t *testing.T, path string) {
			filled(t, path)
			edit(t, path, func(raw []byte) []byte { return raw[:len(raw)/4] })
		},
		"cut near its end": func(t *testing.T, path string) {
			filled(t, path)
			var used int64 // the file is longer
			db, err := bolt.Open(path, 0o600, nil)
			must(t, err)
			must(t, db.View(func(tx *bolt.Tx) error { used = tx.Size(); return nil }))
			must(t, db.Close())
			edit(t, path, func(raw []byte) []byte { return raw[:used-4096] })
		},
		"cut to its head": func(t *testing.T, path string) {
			filled(t, path)
			edit(t, path, func(raw []byte) []byte { return raw[:8192] })
		},
		"a changed event": func(t *testing.T, path string) {
			filled(t, path)
			edit(t, path, func(raw []byte) []byte { return []byte(strings.ReplaceAll(string(raw), "H100 80GB", "H200 80GB")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spool")
			prepare(t, path)
			s, err := OpenSpool(SpoolOptions{Path: path})
			if !errors.Is(err, ErrSpoolCorrupt) || s != nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("%v, %v", s, err)
			}
			t.Log(err)
			if _, err := os.Stat(path); err != nil {
				t.Error("the file is gone")
			}
		})
	}
}

func TestSpoolOfAnotherProcess(t *testing.T) {
	s := openSpool(t, SpoolOptions{})
	if _, err := OpenSpool(SpoolOptions{Path: s.o.Path}); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("%v", err)
	}
	if _, err := OpenSpool(SpoolOptions{}); err == nil {
		t.Error("no path was accepted")
	}
}

func BenchmarkAdvance8(b *testing.B) {
	s, err := OpenSpool(SpoolOptions{Path: filepath.Join(b.TempDir(), "spool")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	tick := testDay
	for b.Loop() {
		tick++
		var open []schema.Usage
		for i := range 8 {
			open = append(open, usage("a", fmt.Sprint("GPU-", i), int(tick-testDay)))
		}
		if err := s.Advance("a", tick, nil, open); err != nil {
			b.Fatal(err)
		}
	}
}
