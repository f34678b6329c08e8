package app

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// BenchmarkLeasedMonth asks for a month of leased instances by project, with and
// without their leases. Every instance has a GPU for about five hours, reported
// once a minute, and two lease events at odd milliseconds.
// GPUMETER_BENCH_INSTANCES sets how many there are; default 20000.
func BenchmarkLeasedMonth(b *testing.B) {
	instances, _ := strconv.Atoi(os.Getenv("GPUMETER_BENCH_INSTANCES"))
	if instances == 0 {
		instances = 20_000
	}
	db := testkit.DB(b, testkit.Engine(b), "month")
	from, to := testkit.At("2026-03-01T00:00:00Z"), testkit.At("2026-04-01T00:00:00Z")
	leasedMonth(b, db, instances, from)
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	ask := func(b *testing.B, tenant string, by ...string) {
		for b.Loop() {
			rows, err := s.Usage(b.Context(), schema.UsageQuery{Tenant: tenant, Cuts: []int64{from, to}, By: by})
			if err != nil || len(rows) == 0 {
				b.Fatal(len(rows), err)
			}
		}
	}
	b.Run("by project", func(b *testing.B) { ask(b, "leased", "project") })
	b.Run("by instance", func(b *testing.B) { ask(b, "leased", "instance") })
	b.Run("by project without leases", func(b *testing.B) { ask(b, "free", "project") })
	b.Run("outside of leases", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.outsideLease(b.Context(), "leased", from, to, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func leasedMonth(b *testing.B, db *clickhouse.DB, instances int, from int64) {
	b.Helper()
	batch := db.NewBatch()
	for i := range instances {
		at := from + int64(i)*2_654_435_761%2_160_000_000
		for k, state := range []string{"running", "released"} {
			l := &schema.Lease{Instance: fmt.Sprintf("instance-%07d", i), AtMs: at + int64(k)*(5*schema.HourMs+1234), State: state, Project: fmt.Sprint("project-", i%50), Model: "H100"}
			l.Source, l.ID = "cloud", fmt.Sprint(i, "/", state)
			batch.Other(&schema.Position{Tenant: "leased", Stream: "S", StreamSequence: uint64(2*i + k + 1), StoredAtNs: l.AtMs * 1e6}, &schema.Event{Lease: l})
		}
	}
	if err := batch.WriteRaw(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, tenant := range []string{"leased", "free"} {
		minutes := fmt.Sprintf("SELECT '%s' AS tenant, number AS i, toDateTime(intDiv(%d + number * 2654435761 %% 2160000000, 60000) * 60 + 60 * k, 'UTC') AS minute, "+
			"concat('GPU-', toString(number)) AS unit, xxHash64(unit) AS unit_hash, concat('instance-', leftPad(toString(number), 7, '0')) AS instance, "+
			"concat('project-', toString(number %% 50)) AS project FROM numbers(%d) ARRAY JOIN range(300) AS k", tenant, from, instances)
		for _, statement := range []string{
			"INSERT INTO usage_minute (tenant, `window`, unit_hash, owner, unit, instance, project, model, active_ms, version) SELECT tenant, minute, unit_hash, sipHash128(instance), unit, instance, project, 'H100', 60000, 1 FROM (" + minutes + ")",
			"INSERT INTO usage_hour (tenant, `window`, unit_hash, owner, unit, instance, project, model, active_ms, version) SELECT tenant, toStartOfHour(minute, 'UTC') AS hour, unit_hash, sipHash128(any(instance)), any(unit), any(instance), any(project), 'H100', 60000 * count(), count() FROM (" + minutes + ") GROUP BY tenant, hour, unit_hash",
			"INSERT INTO raw_usage (tenant, span, minute, unit_hash, unit, start, end, source, id, instance, project, model, utilization, stored_at) SELECT tenant, 0, minute, unit_hash, unit, minute, minute + 60, 'agent', concat(unit, toString(minute)), instance, project, 'H100', 500000, minute FROM (" + minutes + ")",
		} {
			if err := db.Exec(b.Context(), statement); err != nil {
				b.Fatal(err)
			}
		}
	}
}
