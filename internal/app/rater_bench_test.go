package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// BenchmarkBookMonth books a month of instances that run all the time under Alibaba's
// rules, and then what one of them changes by being released an hour earlier or later.
// GPUMETER_BENCH_INSTANCES sets how many there are; default 1000. The yardstick is a
// statement that the engine has nothing to do for.
func BenchmarkBookMonth(b *testing.B) {
	instances, _ := strconv.Atoi(os.Getenv("GPUMETER_BENCH_INSTANCES"))
	if instances == 0 {
		instances = 1000
	}
	db := testkit.DB(b, testkit.Engine(b), "book")
	from, now := testkit.At("2026-03-01T00:00:00Z"), testkit.At("2026-04-01T06:00:00Z")
	sequence := uint64(0)
	lease := func(instances, step int, state string, atMs int64) {
		b.Helper()
		batch := db.NewBatch()
		for i := range instances {
			sequence++
			l := &schema.Lease{Instance: fmt.Sprintf("instance-%07d", i), AtMs: atMs, State: state, Project: fmt.Sprint("project-", i%50), Platform: "alibaba-ecs", Model: "H100", Gpus: schema.Some(8)}
			l.Source, l.ID = "cloud", fmt.Sprint(i, "/", state, "/", step)
			batch.Other(&schema.Position{Tenant: "t", Stream: "S", StreamSequence: sequence, StoredAtNs: now*1e6 + int64(sequence)}, &schema.Event{Lease: l})
		}
		if err := batch.WriteRaw(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	lease(instances, 0, "running", from)
	book, err := pricing.Parse("prices.yaml", []byte("currency: CNY\nprices: [{model: H100, per_gpu_hour: \"34.56\"}]"))
	if err != nil {
		b.Fatal(err)
	}
	profiles, err := pricing.Profiles()
	if err != nil {
		b.Fatal(err)
	}
	r := &rater{
		store: db, rated: ratedStore{&usageStore{db: db, threshold: aggregator.DefaultThreshold}}.some, clock: fixedClock(now), at: func(string) {}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		terms: func(context.Context, string, int64) (*pricing.Terms, error) {
			return &pricing.Terms{Book: book, Profiles: profiles}, nil
		},
	}
	start := time.Now()
	n, err := r.rate(b.Context(), &rateJob{Tenant: "t", Why: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("a month of %d instances: %d entries in %v", instances, n, time.Since(start).Round(time.Millisecond))
	b.Run("dirty hour of one", func(b *testing.B) {
		step := 0
		for b.Loop() {
			b.StopTimer()
			step++
			lease(1, step, "released", now-int64(step%20+1)*schema.HourMs)
			b.StartTimer()
			if _, err := r.rate(b.Context(), &rateJob{Tenant: "t", Instances: []string{"instance-0000000"}, Why: "bench"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("yardstick", func(b *testing.B) {
		for b.Loop() {
			if err := db.Exec(b.Context(), "SELECT 1"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// fixedClock stands still.
type fixedClock int64

func (c fixedClock) Now() time.Time         { return time.UnixMilli(int64(c)).UTC() }
func (c fixedClock) At(time.Time) time.Time { return c.Now() }
