package engine

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An engine that is there and does not answer is not ready, and when it stays
// like that it is replaced. SIGSTOP makes one that hangs.
func TestHangingChild(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := Start(t.Context(), Options{
		Dir:     t.TempDir(),
		Command: []string{exe, ChildCommand},
		pace:    pace{pingEvery: 200 * time.Millisecond, pingWait: 300 * time.Millisecond, pingFails: 2, pingKills: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	hung := e.PID()
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	sawDown := false
	for end := time.Now().Add(20 * time.Second); ; {
		err := e.Ready()
		if err != nil && strings.Contains(err.Error(), "does not answer") {
			sawDown = true
		}
		if err == nil && e.PID() != hung {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not replaced: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !sawDown {
		t.Error("was never reported as not answering")
	}
	if pidAlive(hung) || e.Restarts() != 1 {
		t.Errorf("alive %v, %d restarts", pidAlive(hung), e.Restarts())
	}
}

// Stop always ends, and never leaves a process: it kills what hangs.
func TestStopHangingChild(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := Start(t.Context(), Options{Dir: t.TempDir(), Command: []string{exe, ChildCommand}})
	if err != nil {
		t.Fatal(err)
	}
	pid := e.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := e.Stop(ctx); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Stop took %v with half a second to go", took)
	}
	if pidAlive(pid) {
		t.Error("process is still there")
	}
}

func TestPlacesToLook(t *testing.T) {
	names, npm := libraryNames("linux", "amd64")
	if npm != "@chdb/lib-linux-x64-gnu" || names[0] != "libchdb.so" {
		t.Errorf("%v %s", names, npm)
	}
	if _, npm := libraryNames("darwin", "arm64"); npm != "@chdb/lib-darwin-arm64" {
		t.Error(npm)
	}
	dir := t.TempDir()
	for _, p := range placesToLook("", dir) {
		if !strings.HasPrefix(p, dir+"/node_modules/") {
			t.Errorf("%s is above a working directory that is in no module", p)
		}
	}
}

func TestLastWords(t *testing.T) {
	w := &lastWords{}
	_, _ = w.Write([]byte("first line\n"))
	for range 1000 {
		_, _ = w.Write([]byte("noise noise\n"))
	}
	_, _ = w.Write([]byte("last line\n"))
	s := w.String()
	if !strings.HasPrefix(s, "first line") || !strings.HasSuffix(s, "last line") || len(s) > 2*wordsLimit+10 {
		t.Errorf("%d bytes: %.40s ... %s", len(s), s, s[len(s)-40:])
	}
}
