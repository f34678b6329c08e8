package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// BenchmarkLeasedMonth asks for a month of leased instances by project, with and
// without their leases. Every instance has a GPU for about an hour, reported once a
// minute, and two lease events at odd milliseconds. GPUMETER_BENCH_INSTANCES sets
// how many there are; default 20000. engine-cpu-ms is what the database used.
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
		defer engineCPU(b)()
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
		defer engineCPU(b)()
		for b.Loop() {
			if _, err := s.outsideLease(b.Context(), "leased", from, to, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// engineCPU measures the time that child processes of this one, the engine among
// them, use until the returned function is called. It is in clock ticks of 10 ms.
func engineCPU(b *testing.B) func() {
	b.Helper()
	ticks := func() (sum int64) {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			b.Fatal(err)
		}
		for _, path := range stats {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it ended
			}
			// After the name, which ends with the last ")": state, parent, ..., user
			// and system time as the 12th and 13th.
			f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
			if f[1] == strconv.Itoa(os.Getpid()) {
				for _, field := range f[11:13] {
					n, err := strconv.ParseInt(field, 10, 64)
					if err != nil {
						b.Fatal(err)
					}
					sum += n
				}
			}
		}
		return sum
	}
	before := ticks()
	return func() { b.ReportMetric(float64(10*(ticks()-before))/float64(b.N), "engine-cpu-ms/op") }
}

func leasedMonth(b *testing.B, db *clickhouse.DB, instances int, from int64) {
	b.Helper()
	batch := db.NewBatch()
	for i := range instances {
		at := from + int64(i)*2_654_435_761%2_160_000_000
		for k, state := range []string{"running", "released"} {
			l := &schema.Lease{Instance: fmt.Sprintf("instance-%07d", i), AtMs: at + int64(k)*(schema.HourMs+1234), State: state, Project: fmt.Sprint("project-", i%50), Model: "H100"}
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
			"concat('project-', toString(number %% 50)) AS project FROM numbers(%d) ARRAY JOIN range(60) AS k", tenant, from, instances)
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
