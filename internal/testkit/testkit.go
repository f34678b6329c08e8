// Package testkit gives tests a real stream, a real database and events to feed
// them with. Tests only.
package testkit

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/engine/enginetest"
	"github.com/gpumeter/gpumeter/internal/jetstream"
	"github.com/gpumeter/gpumeter/schema"
)

// Main is a whole TestMain for packages whose tests need a database.
func Main(m *testing.M) { enginetest.Main(m) }

// Engine starts an embedded ClickHouse for the test.
func Engine(t testing.TB) *engine.Engine { return enginetest.Start(t) }

// DB opens a migrated database of its own on the engine.
func DB(t testing.TB, e *engine.Engine, name string) *clickhouse.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	db, err := clickhouse.Open(ctx, fmt.Sprintf("http://%s/%s", e.HTTPAddr(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return db
}

// Broker starts an embedded NATS with the stream of events.
func Broker(t testing.TB) (*jetstream.Server, *nats.Conn) {
	t.Helper()
	s, err := jetstream.StartServer(jetstream.ServerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	nc := Connect(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := jetstream.EnsureStream(ctx, nc, jetstream.StreamOptions{}); err != nil {
		t.Fatal(err)
	}
	return s, nc
}

// Connect connects a client to the broker.
func Connect(t testing.TB, s *jetstream.Server) *nats.Conn {
	t.Helper()
	nc, err := jetstream.Connect(s.URL(), t.Name(), Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Logger writes warnings to the test's log.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// At reads an RFC 3339 instant as milliseconds.
func At(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

// Usage makes an event of one busy GPU.
func Usage(unit, instance, from, to string) schema.Usage {
	u := schema.Usage{
		Unit: unit, Instance: instance, Project: "a", StartMs: At(from), EndMs: At(to),
		Model: "H100", Platform: "self", Node: "node-1", Utilization: schema.Some(500_000),
	}
	u.Source, u.ID = "agent/node-1", schema.UsageID(unit, u.StartMs)
	return u
}
