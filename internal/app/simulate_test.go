package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/internal/gpu"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// pastOf makes a small past in a database of its own.
func pastOf(t *testing.T, e *engine.Engine, name string, s SimulateOptions) *clickhouse.DB {
	t.Helper()
	db := testkit.DB(t, e, name)
	if out := simulateInto(t, e, name, s); !strings.HasPrefix(out, "simulated "+strconv.Itoa(s.Instances)+" instances") {
		t.Errorf("it said %q", out)
	}
	return db
}

func simulateInto(t *testing.T, e *engine.Engine, name string, s SimulateOptions) string {
	t.Helper()
	var out bytes.Buffer
	o := Options{Data: t.TempDir(), ClickHouseDSN: fmt.Sprintf("http://%s/%s", e.HTTPAddr(), name), Out: &out, Logger: testkit.Logger(t)}
	if err := Simulate(t.Context(), o, s, func(string, int, int) {}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var (
	pastEnd   = testkit.At("2026-03-12T09:00:00Z")
	pastStart = pastEnd - 120*schema.HourMs
	smallPast = SimulateOptions{Instances: 18, Gpus: 2, Seed: 7, History: 120 * time.Hour, Until: time.UnixMilli(pastEnd + 1), Minutes: 6 * time.Hour}
)

// digest is what a table holds, whatever the order of its rows.
func digest(t *testing.T, e *engine.Engine, name, table, where string) string {
	t.Helper()
	query := "SELECT concat(toString(count()), ' rows ', toString(sum(cityHash64(toString(tuple(*)))))) FROM " + table + " FINAL WHERE " + where
	res, err := http.Post("http://"+e.HTTPAddr()+"/?database="+name, "text/plain", strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", res.Status, text, err)
	}
	return strings.TrimSpace(string(text))
}

func TestSimulateSameSeedSameDatabase(t *testing.T) {
	e := testkit.Engine(t)
	for name, seed := range map[string]uint64{"one": 7, "two": 7, "other": 8} {
		s := smallPast
		s.Seed = seed
		pastOf(t, e, name, s)
	}
	for _, table := range []string{"raw_usage", "raw_lease", "usage_hour", "usage_minute"} {
		one, two, other := digest(t, e, "one", table, "1"), digest(t, e, "two", table, "1"), digest(t, e, "other", table, "1")
		if one != two || one == other || strings.HasPrefix(one, "0 ") {
			t.Errorf("%s: %s, of the same seed %s, of another %s", table, one, two, other)
		}
	}
}

// expectedTotals adds up the fleet's events per project: usage as it is, held time
// that no usage covers as unknown, or idle while it is being provisioned.
func expectedTotals(t *testing.T, fleet *gpu.Fleet, fromMs, toMs int64) map[string][3]int64 {
	t.Helper()
	totals := map[string][3]int64{}
	add := func(project string, active, idle, unknown int64) {
		sum := totals[project]
		totals[project] = [3]int64{sum[0] + active, sum[1] + idle, sum[2] + unknown}
	}
	clip := func(from, to int64) int64 { return max(0, min(to, toMs)-max(from, fromMs)) }
	project, last := map[string]string{}, map[string]schema.Lease{}
	held := func(l schema.Lease, until, gpus int64) {
		switch l.State {
		case "provisioning":
			add(project[l.Instance], 0, gpus*clip(l.AtMs, until), 0)
		case "running":
			add(project[l.Instance], 0, 0, gpus*clip(l.AtMs, until))
		}
	}
	for _, l := range fleet.Leases() {
		if before, ok := last[l.Instance]; ok {
			held(before, l.AtMs, 2)
		} else {
			project[l.Instance] = l.Project
		}
		last[l.Instance] = l
	}
	for _, l := range last {
		held(l, toMs, 2)
	}
	for hour := fromMs; hour < toMs; hour += schema.HourMs {
		for _, u := range fleet.Hour(hour, nil) {
			if u.StartMs < hour || u.EndMs > hour+schema.HourMs {
				t.Fatalf("event %s to %s in the hour of %s", schema.FormatTime(u.StartMs), schema.FormatTime(u.EndMs), schema.FormatTime(hour))
			}
			known := u.ActiveMs.Value + u.IdleMs.Value
			add(u.Project, u.ActiveMs.Value, u.IdleMs.Value, -known)
		}
	}
	return totals
}

func usageOf(t *testing.T, db *clickhouse.DB, by []string, cuts ...int64) []schema.UsageRow {
	t.Helper()
	s := &usageStore{db: db, threshold: aggregator.DefaultThreshold}
	rows, err := s.Usage(t.Context(), schema.UsageQuery{Tenant: schema.DefaultTenant, By: by, Cuts: cuts, NowMs: pastEnd})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Sums of whole hours are those of the generated events.
func TestSimulateTotals(t *testing.T) {
	db := pastOf(t, testkit.Engine(t), "totals", smallPast)
	fleet, err := gpu.NewFleet(gpu.FleetOptions{Seed: 7, Instances: 18, Gpus: 2, FromMs: pastStart, ToMs: pastEnd})
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range [][2]int64{{pastStart, pastEnd}, {pastStart + 17*schema.HourMs, pastEnd - 3*schema.HourMs}, {pastEnd - 2*schema.HourMs, pastEnd}} {
		want, got := expectedTotals(t, fleet, span[0], span[1]), map[string][3]int64{}
		for _, r := range usageOf(t, db, []string{"project"}, span[0], span[1]) {
			sum := got[r.Keys[0]]
			got[r.Keys[0]] = [3]int64{sum[0] + r.ActiveMs, sum[1] + r.IdleMs, sum[2] + r.UnknownMs}
		}
		if len(got) < 8 || !reflect.DeepEqual(got, want) {
			t.Errorf("from %s to %s: %v, want %v", schema.FormatTime(span[0]), schema.FormatTime(span[1]), got, want)
		}
	}
}

// What the simulation keeps is what a rebuild computes, row for row; and questions
// that cut hours without minutes are answered as they are from minutes.
func TestSimulateIsWhatRebuildComputes(t *testing.T) {
	e := testkit.Engine(t)
	db := pastOf(t, e, "rebuilt", smallPast)
	var halfHours []int64
	for at := pastStart + schema.HourMs/2; at < pastEnd; at += 24 * schema.HourMs {
		halfHours = append(halfHours, at)
	}
	questions := map[string][]int64{
		"whole": {pastStart, pastEnd}, "days of half an hour": halfHours,
		"milliseconds":                        {pastStart + 4_321_987, pastStart + 4_321_988, pastStart + 50*schema.HourMs + 7, pastEnd - 30*schema.HourMs, pastEnd - schema.MinuteMs/2},
		"an hour":                             {pastStart + 30*schema.HourMs + 60_000, pastStart + 30*schema.HourMs + 120_500},
		"where minutes begin":                 {pastEnd - 6*schema.HourMs - 90_000, pastEnd - 6*schema.HourMs + 90_500},
		"beyond the end, and before the past": {pastStart - 100*schema.HourMs - 1, pastEnd + 5*schema.HourMs + 1},
	}
	answers := func() map[string]string {
		all := map[string]string{}
		for what, cuts := range questions {
			for _, by := range []string{"project", "instance", "unit"} {
				var lines []string
				for _, r := range usageOf(t, db, []string{by}, cuts...) {
					lines = append(lines, fmt.Sprint(r.Piece, r.Keys, r.Model, r.Region, r.ActiveMs, r.IdleMs, r.UnknownMs, r.UtilizationSum, r.MemoryByteMs, r.EnergyMj))
				}
				if len(lines) == 0 {
					t.Errorf("%s by %s: no rows", what, by)
				}
				slices.Sort(lines)
				all[what+" by "+by] = strings.Join(lines, "\n")
			}
		}
		return all
	}
	fine := "window >= toDateTime(" + strconv.FormatInt((pastEnd-6*schema.HourMs)/1000, 10) + ", 'UTC')"
	tables := func() string {
		return digest(t, e, "rebuilt", "usage_hour", "1") + "; minutes " + digest(t, e, "rebuilt", "usage_minute", fine)
	}
	had, kept := answers(), tables()
	rebuildAll(t, db)
	for what, now := range answers() {
		if now != had[what] {
			t.Errorf("%s: before the rebuild\n%s\nafter\n%s", what, had[what], now)
		}
	}
	if now := tables(); now != kept {
		t.Errorf("hours %s, after the rebuild %s", kept, now)
	}
}

func rebuildAll(t *testing.T, db *clickhouse.DB) {
	t.Helper()
	if err := db.Rebuild(t.Context(), func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	drainAll(t, db)
}

func drainAll(t *testing.T, db *clickhouse.DB) {
	t.Helper()
	d, err := aggregator.NewDriver(aggregator.Options{Store: db})
	if err == nil {
		err = d.Drain(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An event that comes late into an hour without minutes, of a unit that has usage
// there, changes the hour as it would if there were minutes.
func TestSimulateThenLateEvent(t *testing.T) {
	e := testkit.Engine(t)
	db := pastOf(t, e, "late", smallPast)
	fleet, err := gpu.NewFleet(gpu.FleetOptions{Seed: 7, Instances: 18, Gpus: 2, FromMs: pastStart, ToMs: pastEnd})
	if err != nil {
		t.Fatal(err)
	}
	hour := pastStart + 40*schema.HourMs
	late := fleet.Hour(hour, nil)[0]
	late.Source, late.Instance, late.Project = "late", "someone", "else"
	late.StartMs, late.EndMs = hour+20*schema.MinuteMs+500, hour+23*schema.MinuteMs
	late.ActiveMs, late.IdleMs = schema.Some(60_000), schema.Some(0)
	late.ID = schema.UsageID(late.Unit, late.StartMs)
	cuts := []int64{pastStart, hour, hour + schema.HourMs, pastEnd}
	was := usageOf(t, db, []string{"project"}, cuts...)
	store(t, db, []schema.Usage{late})
	drainAll(t, db)
	got := usageOf(t, db, []string{"project"}, cuts...)
	if i := slices.IndexFunc(got, func(r schema.UsageRow) bool { return r.Keys[0] == "else" }); i < 0 || got[i].Piece != 1 || got[i].AllocatedMs() != (late.EndMs-late.StartMs)/2 || len(got) != len(was)+1 {
		t.Fatalf("the late event is not there with half of its time: %+v", got)
	}
	hours := digest(t, e, "late", "usage_hour", "1")
	rebuildAll(t, db)
	if again := usageOf(t, db, []string{"project"}, cuts...); !reflect.DeepEqual(again, got) {
		t.Errorf("before a rebuild\n%+v\nafter\n%+v", got, again)
	}
	if again := digest(t, e, "late", "usage_hour", "1"); again != hours {
		t.Errorf("hours %s, after a rebuild %s", hours, again)
	}
}

// The auditor finds nothing wrong with what was simulated, and finds it when an hour
// without minutes is.
func TestSimulateThenAudit(t *testing.T) {
	e := testkit.Engine(t)
	r := newRig(t, e)
	simulateInto(t, e, "audit_"+strconv.FormatInt(rigs.Load(), 10), SimulateOptions{Instances: 9, Gpus: 1, Seed: 3, History: 3 * time.Hour, Until: time.UnixMilli(pastEnd), Minutes: time.Hour})
	for range 5 { // two of the three hours by chance in each
		r.pass()
	}
	r.wantOpen()
	at := time.UnixMilli(pastEnd - 3*schema.HourMs).UTC().Format(time.DateTime)
	r.exec("INSERT INTO usage_hour SELECT * REPLACE (active_ms + 1 AS active_ms, version + 1 AS version) FROM usage_hour FINAL WHERE window = '" + at + "' LIMIT 1")
	for range 10 {
		r.pass()
	}
	r.wantOpen("derived " + time.UnixMilli(pastEnd-3*schema.HourMs).UTC().Format(time.RFC3339))
}

func TestSimulateRefuses(t *testing.T) {
	e := testkit.Engine(t)
	pastOf(t, e, "full", SimulateOptions{Instances: 1, Gpus: 1, Seed: 1, History: time.Hour, Until: time.UnixMilli(pastEnd)})
	good := SimulateOptions{Instances: 1, Gpus: 1, Seed: 1, History: time.Hour, Until: time.UnixMilli(pastEnd)}
	with := func(f func(*SimulateOptions)) SimulateOptions {
		s := good
		f(&s)
		return s
	}
	for want, s := range map[string]SimulateOptions{
		"holds events already":             good,
		"is not over yet":                  with(func(s *SimulateOptions) { s.Until = time.Now().Add(time.Hour) }),
		"--history 1h30m0s is not":         with(func(s *SimulateOptions) { s.History = 90 * time.Minute }),
		"--minutes -1h0m0s is not":         with(func(s *SimulateOptions) { s.Minutes = -time.Hour }),
		"a fleet of 0 instances":           with(func(s *SimulateOptions) { s.Instances = 0 }),
		"17 GPUs of an instance":           with(func(s *SimulateOptions) { s.Gpus = 17 }),
		"is beyond what events may have":   with(func(s *SimulateOptions) { s.Until = time.UnixMilli(schema.MinTimeMs + 500*schema.HourMs) }),
		"--prices: open /no/such/prices.y": with(func(s *SimulateOptions) { s.Seed = 2 }),
	} {
		o := Options{Data: t.TempDir(), ClickHouseDSN: fmt.Sprintf("http://%s/full", e.HTTPAddr())}
		if strings.HasPrefix(want, "--prices") {
			o.PriceFiles = []string{"/no/such/prices.y"}
		}
		if err := Simulate(t.Context(), o, s, func(string, int, int) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Interrupted, it says what to do, and what is there is not taken for the whole.
func TestSimulateInterrupted(t *testing.T) {
	e := testkit.Engine(t)
	db := testkit.DB(t, e, "torn")
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Data: t.TempDir(), ClickHouseDSN: fmt.Sprintf("http://%s/torn", e.HTTPAddr())}
	err := Simulate(ctx, o, smallPast, func(_ string, done, _ int) {
		if done == 60 {
			cancel()
		}
	})
	if err == nil || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "remove it before another try") {
		t.Errorf("interrupted: %v", err)
	}
	if pending, err := db.RebuildPending(t.Context()); err != nil || !pending {
		t.Errorf("a rebuild is pending: %v, %v", pending, err)
	}
}
