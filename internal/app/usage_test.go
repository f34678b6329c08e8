package app

import (
	"context"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine/enginetest"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

func TestMain(m *testing.M) {
	enginetest.Child()
	// A check costs some queries; -rapid.checks=N on the command line still wins.
	_ = flag.Set("rapid.checks", "15")
	os.Exit(m.Run())
}

// However a span is cut, and whether its hours are summed up yet or not, the
// pieces hold exactly the time that the events cover.
func TestUsageIsExactForAnyCuts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	db := testkit.DB(t, testkit.Engine(t), "cuts")
	events := []schema.Usage{
		testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"),
		testkit.Usage("GPU-2", "i1", "2026-03-01T10:59:30Z", "2026-03-01T11:00:30Z"),
		testkit.Usage("GPU-3", "i2", "2026-03-01T09:59:59.999Z", "2026-03-01T13:30:00.001Z"), // reaches over hours
		testkit.Usage("GPU-3", "i2", "2026-03-01T13:30:00.001Z", "2026-03-01T13:30:00.002Z"),
	}
	store(t, db, events)
	d, err := aggregator.NewDriver(aggregator.Options{Store: db, HourEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pass(ctx, false); err != nil {
		t.Fatal(err)
	}
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	from, to := testkit.At("2026-03-01T09:00:00Z"), testkit.At("2026-03-01T14:00:00Z")
	check := func(t *rapid.T) {
		cuts := rapid.SliceOfN(rapid.OneOf(
			rapid.Int64Range(from, to),
			rapid.Map(rapid.Int64Range(from/schema.MinuteMs, to/schema.MinuteMs), func(m int64) int64 { return m * schema.MinuteMs }),
		), 2, 6).Draw(t, "cuts")
		slices.Sort(cuts)
		if cuts = slices.Compact(cuts); len(cuts) < 2 {
			return
		}
		for _, asOf := range []int64{0, time.Now().UnixMilli()} {
			rows, err := s.Usage(ctx, schema.UsageQuery{Tenant: "default", By: []string{"unit"}, Cuts: cuts, AsOfMs: asOf})
			if err != nil {
				t.Fatal(err)
			}
			got := map[int]map[string]int64{}
			for _, r := range rows {
				if got[r.Piece] == nil {
					got[r.Piece] = map[string]int64{}
				}
				got[r.Piece][r.Keys[0]] += r.AllocatedMs()
			}
			for piece := range cuts[:len(cuts)-1] {
				want := map[string]int64{}
				for _, e := range events {
					want[e.Unit] += max(0, min(e.EndMs, cuts[piece+1])-max(e.StartMs, cuts[piece]))
				}
				for unit, ms := range want {
					if got[piece][unit] != ms {
						t.Fatalf("as of %d, [%s, %s) of %s: %d ms, want %d", asOf, schema.FormatTime(cuts[piece]), schema.FormatTime(cuts[piece+1]), unit, got[piece][unit], ms)
					}
				}
			}
		}
	}
	t.Run("hours not summed up", func(t *testing.T) { rapid.Check(t, check) })
	if err := d.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("hours summed up", func(t *testing.T) { rapid.Check(t, check) })
}

// store writes events and their marks as a consumer does.
func store(t *testing.T, db *clickhouse.DB, events []schema.Usage) {
	t.Helper()
	batch := db.NewBatch()
	var marks []schema.Mark
	for i := range events {
		batch.Usage(&schema.Position{Tenant: "default", Stream: "S", Epoch: 1, StreamSequence: uint64(i + 1), StoredAtNs: int64(i + 1)}, &events[i])
		for ms := schema.Floor(events[i].StartMs, schema.MinuteMs); ms < events[i].EndMs; ms += schema.MinuteMs {
			marks = append(marks, schema.Mark{Grain: schema.GrainMinute, Tenant: "default", WindowMs: ms, ID: uint64(i + 1), Units: []uint64{schema.UnitHash(events[i].Unit)}})
		}
	}
	if err := batch.WriteRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.WriteMarks(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
}

// Every dimension can be filtered by, in sums and in the list of events alike.
func TestFiltersSelectTheSameEventsAsSums(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "filters")
	u := testkit.Usage("GPU-1", "i1", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	u.Region, u.Labels = "r", schema.Labels{{Key: "team's", Value: `x' OR 1=1 --`}}
	other := testkit.Usage("GPU-2", "i2", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
	other.Project, other.Node, other.Platform, other.Region, other.Model = "b", "n2", "p2", "r2", "m2"
	store(t, db, []schema.Usage{u, other})
	d, err := aggregator.NewDriver(aggregator.Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	from, to := u.StartMs, u.EndMs
	for by, value := range map[string]string{
		"project": u.Project, "instance": u.Instance, "unit": u.Unit, "node": u.Node, "model": u.Model, "platform": u.Platform, "region": u.Region,
		"label:team's": u.Labels[0].Value,
	} {
		filter := map[string]string{by: value}
		events, _, err := s.Events(t.Context(), schema.EventQuery{Tenant: "default", FromMs: from, ToMs: to, Filter: filter})
		if err != nil || len(events) != 1 || events[0].Unit != u.Unit {
			t.Errorf("events by %s: %v, %v", by, events, err)
		}
		for _, asOf := range []int64{0, time.Now().UnixMilli()} {
			rows, err := s.Usage(t.Context(), schema.UsageQuery{Tenant: "default", Cuts: []int64{from, to}, By: []string{by}, Filter: filter, AsOfMs: asOf})
			if err != nil || len(rows) != 1 || rows[0].Keys[0] != value || rows[0].AllocatedMs() != 60_000 {
				t.Errorf("usage by %s as of %d: %+v, %v", by, asOf, rows, err)
			}
		}
	}
}
