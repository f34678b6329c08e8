package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/gpumeter/gpumeter/internal/engine/enginetest"
)

const (
	clientMode  = "test-client"
	clientConns = 32
	clientKills = 4 // per protocol
)

// clientMain inserts one row after the other over many connections, and
// prints the id of each row once its insert is acknowledged, until it is
// killed. Like a real client it goes on after an error.
func clientMain(args []string) int {
	protocol, tcp, web, run := clickhouse.Native, args[1], args[2], args[3]
	if args[0] == "http" {
		protocol = clickhouse.HTTP
	}
	base, err := strconv.ParseUint(run, 10, 16)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	db := openAddr(tcp, web, protocol)
	db.SetMaxOpenConns(clientConns)
	db.SetMaxIdleConns(clientConns)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // never for ever
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for conn := range uint64(clientConns) {
		wg.Go(func() {
			for n := uint64(0); ctx.Err() == nil; n++ {
				id := base<<40 | conn<<32 | n
				if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO m.%s VALUES (%d)", args[0], id)); err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return 1
}

// Clients that die while they insert must cost nothing: no acknowledged row is
// lost, the next client can go on, and the engine does not even restart. Left
// to itself, this version of ClickHouse would abort at nearly every kill of a
// client of the native port; see takeInput.
func TestClientsKilled(t *testing.T) {
	for _, name := range []string{"native", "http"} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.Start(t)
			db := open(t, e, clickhouse.HTTP)
			makeTable(t, db, name)

			acked := map[uint64]bool{}
			var slowest time.Duration
			for run := 1; run <= clientKills; run++ {
				cmd, out := reexec(t, clientMode, name, e.TCPAddr(), e.HTTPAddr(), strconv.Itoa(run))
				before := len(acked)
				// Kill it in full flight: 100 rows are acknowledged and more
				// are on the way.
				for len(acked) < before+100 {
					readID(t, out, acked)
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				// What it still managed to print was acknowledged as well. The
				// last line may be cut off.
				rest, _ := io.ReadAll(out)
				_ = cmd.Wait()
				lines := strings.Split(string(rest), "\n")
				for _, l := range lines[:len(lines)-1] {
					addID(t, l, acked)
				}

				killed := time.Now()
				eventually(t, 20*time.Second, "the engine answers a fresh client", func() error {
					if err := e.Ready(); err != nil {
						return err
					}
					fresh := openAddr(e.TCPAddr(), e.HTTPAddr(), clickhouse.Native)
					defer fresh.Close()
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					return fresh.PingContext(ctx)
				})
				slowest = max(slowest, time.Since(killed))
			}

			stored := map[uint64]bool{}
			eventually(t, 20*time.Second, "the rows can be read", func() error {
				rows, err := db.Query("SELECT DISTINCT id FROM m." + name)
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					var id uint64
					if err := rows.Scan(&id); err != nil {
						return err
					}
					stored[id] = true
				}
				return rows.Err()
			})
			lost := 0
			for id := range acked {
				if !stored[id] {
					lost++
				}
			}
			if lost > 0 {
				t.Errorf("%d of %d acknowledged rows are lost", lost, len(acked))
			}
			t.Logf("%s port: %d clients killed, %d restarts, answering within %v, %d rows acknowledged, %d stored",
				name, clientKills, e.Restarts(), slowest.Round(time.Millisecond), len(acked), len(stored))
			if e.Restarts() > 0 {
				t.Errorf("the engine restarted %d times: %v", e.Restarts(), e.State().Err)
			}
		})
	}
}

func readID(t *testing.T, out *bufio.Reader, into map[uint64]bool) {
	t.Helper()
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("the client ended: %v", err)
	}
	addID(t, strings.TrimSpace(line), into)
}

func addID(t *testing.T, s string, into map[uint64]bool) {
	t.Helper()
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("the client printed %q", s)
	}
	into[id] = true
}
