// Package enginetest gives tests a private embedded ClickHouse.
//
// The engine runs as a child process of the test binary, so that binary has to
// know how to be one. In a package whose tests need an engine:
//
//	func TestMain(m *testing.M) { enginetest.Main(m) }
//
//	func TestStore(t *testing.T) {
//		e := enginetest.Start(t)
//		db, err := clickhouse.Open(&clickhouse.Options{Addr: []string{e.TCPAddr()}})
//		...
//	}
//
// An engine takes about half a second to start. It is stopped, and its folder
// removed, when the test ends.
package enginetest

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/engine"
)

// Child must be called first in a TestMain. When the process is the child of
// an engine it serves, and then exits; otherwise Child does nothing.
func Child() {
	if len(os.Args) > 1 && os.Args[1] == engine.ChildCommand {
		os.Exit(engine.Main(os.Args[2:]))
	}
}

// Main is a whole TestMain for packages that need nothing else in theirs.
func Main(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// Options returns options for an engine in a folder of the test. What the
// engine has to say goes to the test's log.
func Options(t testing.TB) engine.Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return engine.Options{
		Dir:       t.TempDir(),
		Command:   []string{exe, engine.ChildCommand},
		MaxMemory: 4 << 30,
		Logger:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// Start starts an engine for the test, and fails the test, never skips it,
// when that cannot be done.
func Start(t testing.TB) *engine.Engine {
	t.Helper()
	return StartWith(t, Options(t))
}

// StartWith is Start with other options; take them from [Options].
func StartWith(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := engine.Start(ctx, o)
	if err != nil {
		t.Fatalf("start the embedded ClickHouse: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Errorf("stop the embedded ClickHouse: %v", err)
		}
	})
	return e
}
