package producer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

const crashEnv = "GPUMETER_TEST_SPOOL"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		fillUntilKilled(path)
		return
	}
	os.Exit(m.Run())
}

// fillUntilKilled is the process that gets killed. It tells on its output what
// it knows for sure: "tick n" after a tick was stored, and "sent sequence id"
// before an event is released.
func fillUntilKilled(path string) {
	check := func(err error) {
		if err != nil {
			fmt.Println("fault", err)
			os.Exit(1)
		}
	}
	s, err := OpenSpool(SpoolOptions{Path: path})
	check(err)
	last, err := s.LastTick("a")
	check(err)
	n := int(max(last-testDay, 0))
	for {
		n++
		check(s.Advance("a", testDay+int64(n), crashFinished(n), []schema.Usage{usage("a", "open", n)}))
		fmt.Println("tick", n)
		if n%3 != 0 {
			continue
		}
		head, err := s.Head(5, 1<<20)
		check(err)
		for _, q := range head {
			fmt.Println("sent", q.Event.Sequence, q.Event.ID)
		}
		check(s.Release(head[len(head)-1].Position))
	}
}

// crashFinished are the events that tick n finishes. The open one of each tick is
// replaced by the next, so only those of the last tick before a kill are queued.
func crashFinished(n int) []schema.Usage {
	return []schema.Usage{usage("a", "x", n), usage("a", "y", n)}
}

// Killed at any moment while it writes and releases, the spool loses nothing that
// it had taken, queues what was open once, and gives no number to two events.
func TestSpoolSurvivesKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	r := rand.New(rand.NewPCG(1, 2))
	ids := map[string]string{}     // sequence -> id
	numbers := map[string]string{} // id -> sequence
	sent := map[string]bool{}
	ticks := 0
	note := func(sequence, id string) {
		if old, ok := ids[sequence]; ok && old != id {
			t.Fatalf("number %s is of %s and of %s", sequence, old, id)
		}
		if old, ok := numbers[id]; ok && old != sequence {
			t.Fatalf("%s has the numbers %s and %s", id, old, sequence)
		}
		ids[sequence], numbers[id] = id, sequence
	}
	for kill := range 12 {
		ticks = max(ticks, runAndKill(t, path, time.Duration(5+r.IntN(80))*time.Millisecond, kill%4 == 3, sent, note))
		s, err := OpenSpool(SpoolOptions{Path: path})
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		last, err := s.LastTick("a")
		must(t, err)
		if n := int(max(last-testDay, 0)); n < ticks {
			t.Fatalf("tick %d was stored, the spool knows %d", ticks, n)
		} else {
			ticks = n
		}
		have := map[string]bool{}
		head, err := s.Head(1<<30, 1<<30)
		must(t, err)
		for _, q := range head {
			if have[q.Event.ID] {
				t.Fatalf("%s is queued twice", q.Event.ID)
			}
			have[q.Event.ID] = true
			note(fmt.Sprint(q.Event.Sequence), q.Event.ID)
		}
		for n := 1; n <= ticks; n++ {
			for _, u := range crashFinished(n) {
				if !have[u.ID] && !sent[u.ID] {
					t.Fatalf("after kill %d: %s of tick %d of %d is lost", kill, u.ID, n, ticks)
				}
			}
		}
		if u := usage("a", "open", ticks); ticks > 0 && !have[u.ID] {
			t.Fatalf("after kill %d: the open event of tick %d is lost", kill, ticks)
		}
		must(t, s.Close())
	}
	if ticks < 12 || len(sent) == 0 {
		t.Errorf("only %d ticks and %d events sent: the test did not bite", ticks, len(sent))
	}
	for i := 1; i <= len(ids); i++ {
		if ids[fmt.Sprint(i)] == "" {
			t.Errorf("number %d was never given", i)
		}
	}
	t.Logf("%d ticks, %d events, %d sent", ticks, len(ids), len(sent))
}

func runAndKill(t *testing.T, path string, after time.Duration, early bool, sent map[string]bool, note func(sequence, id string)) (ticks int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	// Mostly the delay counts from when it writes; now and then the kill comes
	// while it is still opening the file.
	from := bufio.NewReader(pipe)
	if !early {
		_, err = from.Peek(1)
		must(t, err)
	}
	time.Sleep(after)
	must(t, cmd.Process.Kill())
	out, err := io.ReadAll(from)
	must(t, err)
	_ = cmd.Wait()
	whole := string(out[:bytes.LastIndexByte(out, '\n')+1]) // a line cut short was not said
	for lines := bufio.NewScanner(strings.NewReader(whole)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "tick":
			_, err := fmt.Sscan(f[1], &ticks)
			must(t, err)
		case "sent":
			sent[f[2]] = true
			note(f[1], f[2])
		default:
			t.Fatal(lines.Text())
		}
	}
	return ticks
}
