package engine_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/engine/enginetest"
)

// The test binary is also the engine's child, and on request a program that
// owns an engine (parentMode) or one that inserts (clientMode).
func TestMain(m *testing.M) {
	enginetest.Child()
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case parentMode:
			os.Exit(parentMain(os.Args[2]))
		case clientMode:
			os.Exit(clientMain(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func TestStartQueryInsertStop(t *testing.T) {
	o := enginetest.Options(t)
	var mu sync.Mutex
	var phases []engine.Phase
	o.OnState = func(s engine.State) {
		mu.Lock()
		defer mu.Unlock()
		phases = append(phases, s.Phase)
	}
	began := time.Now()
	e := enginetest.StartWith(t, o)
	t.Logf("answers after %v, resident memory %s", time.Since(began).Round(time.Millisecond), resident(e.PID()))

	if err := e.Ready(); err != nil {
		t.Error(err)
	}
	for _, p := range []clickhouse.Protocol{clickhouse.Native, clickhouse.HTTP} {
		db := open(t, e, p)
		var version, zone, async string
		row := db.QueryRow("SELECT version(), timezone(), toString(getSetting('async_insert'))")
		if err := row.Scan(&version, &zone, &async); err != nil {
			t.Fatal(p, err)
		}
		if !strings.HasPrefix(version, "26.") || zone != "UTC" || async != "false" {
			t.Errorf("%v: version %s, zone %s, async_insert %s", p, version, zone, async)
		}
		table := "t_" + strings.ToLower(p.String())
		makeTable(t, db, table)
		if _, err := db.Exec("INSERT INTO m."+table+" SELECT number FROM numbers(?)", 1000); err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, table); n != 1000 {
			t.Errorf("%v: %d rows, want 1000", p, n)
		}
		_ = db.Close()
	}

	pid := e.PID()
	began = time.Now()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
	if alive(pid) {
		t.Errorf("process %d is there after Stop", pid)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := e.Ready(); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("Ready after Stop: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []engine.Phase{engine.Starting, engine.Running, engine.Stopped}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

// What the configuration asks for is what the server has: some keys that a
// ClickHouse server knows mean nothing to this one.
func TestConfiguration(t *testing.T) {
	o := enginetest.Options(t)
	o.Dir = filepath.Join(o.Dir, `a & <b> "c"`) // has to be escaped
	o.MaxMemory = 1 << 30
	e := enginetest.StartWith(t, o)
	db := open(t, e, clickhouse.HTTP)

	for name, want := range map[string]string{
		"path":                          filepath.Join(o.Dir, "data") + "/",
		"max_server_memory_usage":       strconv.Itoa(1 << 30),
		"mark_cache_size":               strconv.Itoa(128 << 20),
		"primary_index_cache_size":      strconv.Itoa(128 << 20),
		"uncompressed_cache_size":       strconv.Itoa(64 << 20),
		"background_pool_size":          strconv.Itoa(min(max(runtime.NumCPU(), 2), 4)),
		"background_schedule_pool_size": "8",
	} {
		var got string
		if err := db.QueryRow("SELECT value FROM system.server_settings WHERE name = ?", name).Scan(&got); err != nil {
			t.Fatal(name, err)
		}
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}

	// Loopback only.
	for _, addr := range []string{e.TCPAddr(), e.HTTPAddr()} {
		_, port, _ := net.SplitHostPort(addr)
		for _, host := range otherAddresses(t) {
			if c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second); err == nil {
				_ = c.Close()
				t.Errorf("port %s answers on %s", port, host)
			}
		}
	}

	// A query that wants more than there is fails, and the engine stays.
	if _, err := db.Exec("SELECT groupArray(number) FROM numbers(1000000000) FORMAT Null"); err == nil || !strings.Contains(err.Error(), "MEMORY_LIMIT") {
		t.Errorf("a query for 8 GB under a limit of 1 GiB: %v", err)
	}
	if err := e.Ready(); err != nil || e.Restarts() != 0 {
		t.Errorf("after the memory limit: %v, %d restarts", err, e.Restarts())
	}
	// Small pools must not keep parts from being merged.
	makeTable(t, db, "merged")
	for i := range 30 {
		if _, err := db.Exec("INSERT INTO m.merged VALUES (?)", i); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, "parts are merged", func() error {
		var parts uint64
		if err := db.QueryRow("SELECT count() FROM system.parts WHERE table = 'merged' AND active").Scan(&parts); err != nil {
			return err
		}
		if parts > 15 {
			return fmt.Errorf("%d active parts", parts)
		}
		return nil
	})
}

func TestChildKilled(t *testing.T) {
	e := enginetest.Start(t)
	tcp, web, first := e.TCPAddr(), e.HTTPAddr(), e.PID()
	db := open(t, e, clickhouse.Native)
	makeTable(t, db, "t")
	if _, err := db.Exec("INSERT INTO m.t SELECT number FROM numbers(12345)"); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the engine is back", func() error {
		if e.PID() == first {
			return errors.New("death not noticed")
		}
		return e.Ready()
	})
	t.Logf("back after %v", time.Since(began).Round(time.Millisecond))
	if e.TCPAddr() != tcp || e.HTTPAddr() != web {
		t.Errorf("addresses changed: %s %s, were %s %s", e.TCPAddr(), e.HTTPAddr(), tcp, web)
	}
	if e.Restarts() != 1 {
		t.Errorf("%d restarts, want 1", e.Restarts())
	}
	if s := e.State(); s.Err == nil || !strings.Contains(s.Err.Error(), "killed") {
		t.Errorf("last error %v, want one that says killed", s.Err)
	}
	if n := count(t, open(t, e, clickhouse.Native), "t"); n != 12345 {
		t.Errorf("%d rows after the restart, want 12345", n)
	}
}

func TestSecondEngineRefused(t *testing.T) {
	o := enginetest.Options(t)
	e := enginetest.StartWith(t, o)
	_, err := engine.Start(t.Context(), o)
	if !errors.Is(err, engine.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d holds %s", os.Getpid(), o.Dir)) {
		t.Fatalf("second start: %v", err)
	}
	if err := e.Ready(); err != nil || e.Restarts() != 0 {
		t.Errorf("the first engine suffered: %v", err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	enginetest.StartWith(t, o) // the folder is free again
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := enginetest.Options(t)
	o.TCPPort = l.Addr().(*net.TCPAddr).Port
	_, err = engine.Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "port is taken") || !strings.Contains(err.Error(), strconv.Itoa(o.TCPPort)) {
		t.Fatalf("start on a taken port: %v", err)
	}
	// Another engine's answer on the HTTP port is not taken for our own.
	other := enginetest.Start(t)
	_, port, _ := net.SplitHostPort(other.HTTPAddr())
	o.TCPPort = 0
	o.HTTPPort, _ = strconv.Atoi(port)
	if _, err = engine.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "port is taken") {
		t.Fatalf("start on another engine's HTTP port: %v", err)
	}
}

func TestLibraryMissing(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "libchdb.so")

	_, err := engine.Find(gone)
	wantMissing(t, err, "make engine", "npm ci", gone)

	t.Setenv(engine.EnvLibrary, gone)
	_, err = engine.Find("")
	wantMissing(t, err, "make engine", "npm ci", gone, engine.EnvLibrary)
	o := enginetest.Options(t)
	_, err = engine.Start(t.Context(), o)
	wantMissing(t, err, "make engine", gone)

	t.Setenv(engine.EnvLibrary, "")
	empty := t.TempDir()
	t.Chdir(empty)
	_, err = engine.Find("")
	wantMissing(t, err, "make engine", "npm ci", engine.EnvLibrary, filepath.Join(empty, "node_modules"))

	// A file that is no library is an error with its reason, not a hang.
	if err := os.WriteFile(gone, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Library = gone
	_, err = engine.Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "load library") {
		t.Errorf("start with a file that is no library: %v", err)
	}
}

func TestOptionsValidate(t *testing.T) {
	_, err := engine.Start(t.Context(), engine.Options{TCPPort: 70000, HTTPPort: -1, MaxMemory: 1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, word := range []string{"Dir", "TCPPort 70000", "HTTPPort -1", "MaxMemory 1 "} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %s", err, word)
		}
	}
	if err := (engine.Options{Dir: "x", TCPPort: 9000, HTTPPort: 9000}).Validate(); err == nil {
		t.Error("one port for both accepted")
	}
}

const parentMode = "test-parent"

// parentMain owns an engine until it is killed.
func parentMain(dir string) int {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e, err := engine.Start(context.Background(), engine.Options{Dir: dir, Command: []string{exe, engine.ChildCommand}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(e.PID())
	time.Sleep(time.Minute) // never for ever
	return 1
}

func TestParentKilled(t *testing.T) {
	o := enginetest.Options(t)
	parent, out := reexec(t, parentMode, o.Dir)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("the parent said nothing: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("engine process %q: %v", line, err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	began := time.Now()
	// Without waiting: Start has to wait for the orphan, which holds the lock.
	e := enginetest.StartWith(t, o)
	t.Logf("started after the orphan in %v", time.Since(began).Round(time.Millisecond))
	if alive(pid) {
		t.Errorf("process %d outlived its parent and the folder was opened again", pid)
	}
	if e.Restarts() != 0 {
		t.Errorf("%d restarts, want 0", e.Restarts())
	}
}

func wantMissing(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, engine.ErrLibraryMissing) {
		t.Errorf("%v is not ErrLibraryMissing", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// reexec runs the test binary in another mode; it is killed when the test ends.
func reexec(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, bufio.NewReader(out)
}

func open(t *testing.T, e *engine.Engine, p clickhouse.Protocol) *sql.DB {
	t.Helper()
	db := openAddr(e.TCPAddr(), e.HTTPAddr(), p)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openAddr(tcp, web string, p clickhouse.Protocol) *sql.DB {
	addr := tcp
	if p == clickhouse.HTTP {
		addr = web
	}
	return clickhouse.OpenDB(&clickhouse.Options{Addr: []string{addr}, Protocol: p})
}

func makeTable(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	for _, q := range []string{
		"CREATE DATABASE IF NOT EXISTS m ENGINE = Atomic",
		"CREATE TABLE m." + name + " (id UInt64) ENGINE = MergeTree ORDER BY id SETTINGS fsync_after_insert = 1, fsync_part_directory = 1",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, db *sql.DB, table string) (n uint64) {
	t.Helper()
	if err := db.QueryRow("SELECT count() FROM m." + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s: %v", within, what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// alive says whether the process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func resident(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// otherAddresses are the addresses of this machine that are not loopback.
func otherAddresses(t *testing.T) (hosts []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, ip.IP.String())
		}
	}
	return hosts
}
