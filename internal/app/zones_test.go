package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/internal/clickhouse"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// zoneChecksEnv sets how many random months TestMonthIsTheSumOfItsDaysAndHours
// draws; with it every day of every month is asked for by itself.
const zoneChecksEnv = "GPUMETER_ZONE_CHECKS"

var zoneNames = []string{"UTC", "Asia/Shanghai", "Asia/Kolkata", "America/New_York", "Europe/Berlin"}

// zoneBook holds prices of a whole number of millionths per millisecond, so that
// every amount is exact and no rounding hides a difference. One price changes
// inside a minute, one model has none.
const zoneBook = `
currency: USD
prices:
  - {model: H100, per_gpu_hour: "3.60", valid_to: 2026-03-15T10:20:30.250Z}
  - {model: H100, per_gpu_hour: "7.20", valid_from: 2026-03-15T10:20:30.250Z}
  - {model: A100, per_gpu_hour: "10.80"}
`

// zoneStore is a store with events, and the reports over it.
type zoneStore struct {
	db      *clickhouse.DB
	driver  *aggregator.Driver
	reports *report.Service
	n       uint64 // events so far
}

func newZoneStore(t *testing.T, name string) *zoneStore {
	t.Helper()
	db := testkit.DB(t, testkit.Engine(t), name)
	driver, err := aggregator.NewDriver(aggregator.Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	book, err := pricing.Parse("zones", []byte(zoneBook))
	if err != nil {
		t.Fatal(err)
	}
	reports, err := report.New(report.Options{
		Settled: allStored{},
		Store:   &usageStore{db: db, threshold: aggregator.DefaultThreshold},
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) {
			return &pricing.Terms{Book: book}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &zoneStore{db: db, driver: driver, reports: reports}
}

// put stores events as a consumer does and has them summed up.
func (s *zoneStore) put(ctx context.Context, t failer, tenant string, events []schema.Usage, hours bool) {
	t.Helper()
	batch := s.db.NewBatch()
	var marks []schema.Mark
	for i := range events {
		s.n++
		batch.Usage(&schema.Position{Tenant: tenant, Stream: "S", Epoch: 1, StreamSequence: s.n, StoredAtNs: int64(s.n)}, &events[i])
		for ms := schema.Floor(events[i].StartMs, schema.MinuteMs); ms < events[i].EndMs; ms += schema.MinuteMs {
			marks = append(marks, schema.Mark{Grain: schema.GrainMinute, Tenant: tenant, WindowMs: ms, ID: s.n, Units: []uint64{schema.UnitHash(events[i].Unit)}})
		}
	}
	err := errors.Join(batch.WriteRaw(ctx), s.db.WriteMarks(ctx, marks))
	if err == nil && hours {
		err = s.driver.Drain(ctx)
	}
	for more := !hours; more && err == nil; {
		more, err = s.driver.Pass(ctx, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func (s *zoneStore) ask(ctx context.Context, t failer, tenant, zone, from, to string, by ...string) *report.Report {
	t.Helper()
	r, err := s.reports.Report(ctx, report.Params{Kind: "spend", Tenant: tenant, From: from, To: to, Zone: zone, By: by})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// figuresText writes what has to add up, exactly.
func figuresText(f *report.Figures) string {
	amount := func(x *big.Rat) string {
		if x == nil {
			return "0"
		}
		return x.RatString()
	}
	return fmt.Sprintf("allocated %d, active %d, idle %d, unknown %d, unpriced %d, free %d, cost %s, waste %s, free cost %s",
		f.AllocatedMs, f.ActiveMs, f.IdleMs, f.UnknownMs, f.UnpricedMs, f.FreeMs, amount(f.Cost), amount(f.IdleWaste), amount(f.FreeCost))
}

func sumText(rows []report.Row) string {
	var sum report.Figures
	sum.Cost, sum.IdleWaste, sum.FreeCost = new(big.Rat), new(big.Rat), new(big.Rat)
	for i := range rows {
		f := &rows[i].Figures
		sum.AllocatedMs += f.AllocatedMs
		sum.ActiveMs += f.ActiveMs
		sum.IdleMs += f.IdleMs
		sum.UnknownMs += f.UnknownMs
		sum.UnpricedMs += f.UnpricedMs
		sum.FreeMs += f.FreeMs
		for _, a := range [][2]*big.Rat{{sum.Cost, f.Cost}, {sum.IdleWaste, f.IdleWaste}, {sum.FreeCost, f.FreeCost}} {
			if a[1] != nil {
				a[0].Add(a[0], a[1])
			}
		}
	}
	return figuresText(&sum)
}

// In every zone the month's total is the sum of its days and of its hours, each
// day's row is the report over that day alone, and no bucket holds more or less
// than the events cover between its local midnights.
func TestMonthIsTheSumOfItsDaysAndHours(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	s := newZoneStore(t, "zones")
	checks, everyDay := "2", false
	if text := os.Getenv(zoneChecksEnv); text != "" {
		checks, everyDay = text, true
	}
	setChecks(t, checks)
	t.Logf("%s months; %s=N draws N of them and asks for each of their days", checks, zoneChecksEnv)
	tenants := 0
	rapid.Check(t, func(rt *rapid.T) {
		tenants++
		tenant := "t" + strconv.Itoa(tenants)
		month := rapid.OneOf(
			rapid.SampledFrom([]time.Time{date(2026, 3, 1), date(2026, 11, 1), date(2026, 10, 1)}),
			rapid.Map(rapid.IntRange(0, 59), func(n int) time.Time { return date(2024, 1, 1).AddDate(0, n, 0) }),
		).Draw(rt, "month")
		events := drawMonth(rt, month)
		late := rapid.IntRange(0, len(zoneNames)-1).Draw(rt, "zones asked before the hours are summed up")
		s.put(ctx, rt, tenant, events, false)
		for i, zone := range zoneNames {
			if i == late+1 {
				s.put(ctx, rt, tenant, nil, true)
			}
			some := rapid.IntRange(1, 31).Draw(rt, "day of "+zone)
			s.checkMonth(ctx, rt, tenant, zone, month, events, func(day int, length time.Duration) bool {
				return everyDay || day == some || length != 24*time.Hour
			})
		}
	})
}

// setChecks sets how many checks the properties of a test make, where a check is
// slow.
func setChecks(t *testing.T, n string) {
	t.Helper()
	usual := flag.Lookup("rapid.checks").Value.String()
	if err := flag.Set("rapid.checks", n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", usual) })
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// drawMonth makes events on some units from two days before the month to two
// days after it. Those of one unit do not overlap, so that adding their lengths
// says how long the unit was held.
func drawMonth(t *rapid.T, month time.Time) []schema.Usage {
	var events []schema.Usage
	for i, model := range []string{"H100", "A100", "none"} {
		at := month.AddDate(0, 0, -2).UnixMilli()
		end := month.AddDate(0, 1, 2).UnixMilli()
		for n := 0; at < end && n < 40; n++ {
			// Pauses and lengths go from milliseconds to days, evenly.
			at += spread(t, "pause", 31)
			length := 1 + spread(t, "length", 26)
			u := schema.Usage{
				Unit: "GPU-" + strconv.Itoa(i), Instance: rapid.SampledFrom([]string{"i1", "i2", ""}).Draw(t, "instance"),
				Project: "a", Node: "n", Model: model, StartMs: at, EndMs: at + length,
			}
			u.Source, u.ID = "s", schema.UsageID(u.Unit, u.StartMs)
			active := length * rapid.Int64Range(0, 1000).Draw(t, "active") / 1000
			u.ActiveMs, u.IdleMs = schema.Some(active), schema.Some((length-active)*rapid.Int64Range(0, 1000).Draw(t, "idle")/1000)
			events = append(events, u)
			at = u.EndMs
		}
	}
	return events
}

// spread draws less than 2^bits milliseconds, of any magnitude.
func spread(t *rapid.T, name string, bits int) int64 {
	return rapid.Int64Range(0, 1<<31-1).Draw(t, name) >> (31 - rapid.IntRange(bits-10, bits).Draw(t, name+" bits"))
}

// covered is how long the events last inside [from, to).
func covered(events []schema.Usage, from, to time.Time) (ms int64) {
	for i := range events {
		ms += max(0, min(events[i].EndMs, to.UnixMilli())-max(events[i].StartMs, from.UnixMilli()))
	}
	return ms
}

func (s *zoneStore) checkMonth(ctx context.Context, t *rapid.T, tenant, zone string, month time.Time, events []schema.Usage, ask func(day int, length time.Duration) bool) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	next := month.AddDate(0, 1, 0)
	from, to := month.Format(time.DateOnly), next.Format(time.DateOnly)
	total := s.ask(ctx, t, tenant, zone, from, to)
	midnight := func(day time.Time) time.Time { return time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, loc) }
	if want := covered(events, midnight(month), midnight(next)); total.Totals.AllocatedMs != want {
		t.Fatalf("%s in %s: %d ms, the events cover %d", from, zone, total.Totals.AllocatedMs, want)
	}
	want := figuresText(&total.Totals)
	days, hours := s.ask(ctx, t, tenant, zone, from, to, "day"), s.ask(ctx, t, tenant, zone, from, to, "hour")
	for what, r := range map[string]*report.Report{"days": days, "hours": hours} {
		if got := sumText(r.Rows); got != want {
			t.Fatalf("the %s of %s in %s are %s, the month %s", what, from, zone, got, want)
		}
		if got := figuresText(&r.Totals); got != want {
			t.Fatalf("the total by %s of %s in %s is %s, the month's %s", what, from, zone, got, want)
		}
	}
	rows := map[string]*report.Figures{}
	for i := range days.Rows {
		rows[days.Rows[i].Keys[0]] = &days.Rows[i].Figures
	}
	busy := 0
	for day := month; day.Before(next); day = day.AddDate(0, 0, 1) {
		name, begin, end := day.Format(time.DateOnly), midnight(day), midnight(day.AddDate(0, 0, 1))
		ms := covered(events, begin, end)
		row := rows[name]
		if ms == 0 && row == nil {
			continue
		}
		busy++
		if row == nil || row.AllocatedMs != ms {
			t.Fatalf("%s in %s, a day of %s: %+v, the events cover %d ms", name, zone, end.Sub(begin), row, ms)
		}
		if !ask(day.Day(), end.Sub(begin)) {
			continue
		}
		alone := s.ask(ctx, t, tenant, zone, name, day.AddDate(0, 0, 1).Format(time.DateOnly))
		if got, want := figuresText(row), figuresText(&alone.Totals); got != want {
			t.Fatalf("%s in %s: the row is %s, the report over that day %s", name, zone, got, want)
		}
	}
	if busy != len(days.Rows) {
		t.Fatalf("%s in %s: %d rows for %d days with usage", from, zone, len(days.Rows), busy)
	}
}

// Days and months of one busy unit are as long as the clock makes them, and an
// hour that comes twice is two rows.
func TestBucketsAtChangesOfTheClock(t *testing.T) {
	s := newZoneStore(t, "clocks")
	var events []schema.Usage
	for _, span := range [][2]time.Time{{date(2026, 2, 28), date(2026, 4, 2)}, {date(2026, 9, 30), date(2026, 11, 5)}} {
		for at := span[0]; at.Before(span[1]); at = at.AddDate(0, 0, 1) {
			u := schema.Usage{Unit: "GPU-1", Instance: "i1", Project: "a", Node: "n", Model: "A100", StartMs: at.UnixMilli(), EndMs: at.AddDate(0, 0, 1).UnixMilli(), Utilization: schema.Some(500_000)}
			u.Source, u.ID = "s", schema.UsageID(u.Unit, u.StartMs)
			events = append(events, u)
		}
	}
	s.put(t.Context(), t, "default", events, true)
	for _, c := range []struct {
		zone, from, to string
		days, hours    int // rows of the span
		day            string
		dayHours       int64
	}{
		{"America/New_York", "2026-10-31", "2026-11-04", 4, 97, "2026-11-01", 25},
		{"America/New_York", "2026-03-01", "2026-04-01", 31, 743, "2026-03-08", 23},
		{"Europe/Berlin", "2026-03-01", "2026-04-01", 31, 743, "2026-03-29", 23},
		{"Europe/Berlin", "2026-10-01", "2026-11-01", 31, 745, "2026-10-25", 25},
		{"Asia/Kolkata", "2026-03-01", "2026-04-01", 31, 744, "2026-03-29", 24},
		{"Asia/Shanghai", "2026-10-01", "2026-11-01", 31, 744, "2026-10-25", 24},
		{"UTC", "2026-10-01", "2026-11-01", 31, 744, "2026-10-25", 24},
	} {
		days, hours := s.ask(t.Context(), t, "", c.zone, c.from, c.to, "day"), s.ask(t.Context(), t, "", c.zone, c.from, c.to, "hour")
		if len(days.Rows) != c.days || len(hours.Rows) != c.hours || days.Totals.AllocatedMs != int64(c.hours)*schema.HourMs {
			t.Errorf("%s %s: %d days, %d hours, %d ms; want %d, %d and all of them", c.zone, c.from, len(days.Rows), len(hours.Rows), days.Totals.AllocatedMs, c.days, c.hours)
		}
		for i := range days.Rows {
			want := int64(24)
			if days.Rows[i].Keys[0] == c.day {
				want = c.dayHours
			}
			// 10.80 an hour.
			cost := new(big.Rat).Mul(big.NewRat(want, 1), big.NewRat(108, 10))
			if days.Rows[i].AllocatedMs != want*schema.HourMs || days.Rows[i].Cost.Cmp(cost) != 0 {
				t.Errorf("%s %s: %d ms for %s, want %d h for %s", c.zone, days.Rows[i].Keys[0], days.Rows[i].AllocatedMs, days.Rows[i].Cost.FloatString(6), want, cost.FloatString(6))
			}
		}
		seen := map[int64]bool{}
		for i := range hours.Rows {
			at, err := time.Parse(time.RFC3339, hours.Rows[i].Keys[0])
			if err != nil || seen[at.UnixMilli()] || hours.Rows[i].AllocatedMs != schema.HourMs {
				t.Fatalf("%s: the hour %v: %v, seen before: %v, %d ms", c.zone, hours.Rows[i].Keys, err, seen[at.UnixMilli()], hours.Rows[i].AllocatedMs)
			}
			seen[at.UnixMilli()] = true
		}
	}
	twice := s.ask(t.Context(), t, "", "America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T07:00:00Z", "hour")
	if len(twice.Rows) != 2 || twice.Rows[0].Keys[0] != "2026-11-01T01:00:00-04:00" || twice.Rows[1].Keys[0] != "2026-11-01T01:00:00-05:00" {
		t.Errorf("the hour that comes twice: %+v", twice.Rows)
	}
	old, current := s.ask(t.Context(), t, "", "Europe/Kiev", "2026-03-01", "2026-04-01", "day"), s.ask(t.Context(), t, "", "Europe/Kyiv", "2026-03-01", "2026-04-01", "day")
	if len(old.Rows) != 31 || len(old.Rows) != len(current.Rows) || old.FromMs != current.FromMs {
		t.Errorf("Europe/Kiev: %d rows from %d, Europe/Kyiv: %d rows from %d", len(old.Rows), old.FromMs, len(current.Rows), current.FromMs)
	}
	for i := range min(len(old.Rows), len(current.Rows)) {
		if a, b := figuresText(&old.Rows[i].Figures), figuresText(&current.Rows[i].Figures); a != b || old.Rows[i].Keys[0] != current.Rows[i].Keys[0] {
			t.Errorf("Europe/Kiev: %v %s, Europe/Kyiv: %v %s", old.Rows[i].Keys, a, current.Rows[i].Keys, b)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "+08:00", "utc+8"} {
		var wrong *report.RequestError
		if _, err := s.reports.Report(t.Context(), report.Params{From: "2026-03-01", To: "2026-04-01", Zone: zone}); !errors.As(err, &wrong) || wrong.Param != "zone" {
			t.Errorf("zone %q: %v, want an error about the zone", zone, err)
		}
	}
}

// allStored is the answer where tests write to the database themselves.
type allStored struct{}

func (allStored) AwaitSettled(context.Context, int64) error { return nil }
