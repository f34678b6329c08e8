package e2e_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// dayMs is the day of the events. In New York the clocks change on it.
var dayMs = testkit.At("2026-03-08T00:00:00Z")

// tariffs change in the middle of a minute, and one model has no price.
var tariffs = []tariff{
	{model: "H100", perHour: "3.60", from: schema.MinTimeMs, to: testkit.At("2026-03-08T09:30:15.250Z")},
	{model: "H100", perHour: "2.88", from: testkit.At("2026-03-08T09:30:15.250Z"), to: schema.MaxTimeMs},
	{model: "H100", platform: "aws", perHour: "7.000001", from: testkit.At("2026-03-08T03:00:00Z"), to: testkit.At("2026-03-08T12:00:00Z")},
	{model: "L40S", perHour: "0.333333", from: schema.MinTimeMs, to: schema.MaxTimeMs},
}

func priceFile(t testing.TB) string {
	var b strings.Builder
	b.WriteString("currency: USD\nprices:\n")
	for _, p := range tariffs {
		fmt.Fprintf(&b, "  - model: %s\n    per_gpu_hour: %q\n", p.model, p.perHour)
		if p.platform != "" {
			fmt.Fprintf(&b, "    platform: %s\n", p.platform)
		}
		if p.from != schema.MinTimeMs {
			fmt.Fprintf(&b, "    valid_from: %s\n", schema.FormatTime(p.from))
		}
		if p.to != schema.MaxTimeMs {
			fmt.Fprintf(&b, "    valid_to: %s\n", schema.FormatTime(p.to))
		}
	}
	return file(t, "prices.yaml", b.String())
}

var questions = []question{
	{kind: "spend", by: []string{"project"}, zone: "UTC"},
	{kind: "usage", by: []string{"instance", "project"}, zone: "UTC"},
	{kind: "utilization", by: []string{"unit"}, zone: "Asia/Kolkata"},
	{kind: "spend", by: []string{"model", "platform"}, zone: "UTC"},
	{kind: "usage", by: []string{"hour"}, zone: "Asia/Kolkata"},
	{kind: "spend", by: []string{"day", "instance"}, zone: "America/New_York"},
	{kind: "waste", by: []string{"instance", "day"}, zone: "Asia/Kolkata"},
	{kind: "utilization", by: []string{"unit", "hour"}, zone: "America/New_York"},
	{kind: "waste", by: []string{"label:team"}, zone: "UTC"},
	{kind: "spend", by: nil, zone: "UTC"},
	// Bounds that cut hours, minutes and seconds.
	{kind: "spend", by: []string{"project", "hour"}, zone: "UTC", from: dayMs + 3*schema.HourMs + 17_023, to: dayMs + 9*schema.HourMs + 31*schema.MinuteMs + 41_999},
	{kind: "usage", by: []string{"unit"}, zone: "UTC", from: dayMs + 5*schema.HourMs + 29*schema.MinuteMs + 1, to: dayMs + 5*schema.HourMs + 29*schema.MinuteMs + 2_500},
}

func init() {
	for i := range questions {
		if questions[i].to == 0 {
			questions[i].from, questions[i].to = dayMs-2*schema.HourMs, dayMs+40*schema.HourMs
		}
	}
}

// The same distinct events give the same reports, to the byte, whatever happens on
// the way, and they are the reports that a plain reading of the rules gives.
//
// Each check publishes its events twice, to two tenants: in order and one by one;
// and shuffled, repeated, in batches of three kinds, to two consumers of which one
// is killed at some point of its work. Run more of them with -rapid.checks.
func TestAnyArrangement(t *testing.T) {
	few := true
	flag.Visit(func(f *flag.Flag) { few = few && f.Name != "rapid.checks" })
	if few {
		if err := flag.Set("rapid.checks", "6"); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, app.Options{})
	prices := priceFile(t)
	check, deaths := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		check++
		events := distinct(rapid.SliceOfN(rapid.Custom(drawEvent), 3, 40).Draw(r, "events"))
		point := rapid.SampledFrom([]string{"before-insert", "mid-insert", "raw-before-dirty", "dirty-before-ack", "during-ack"}).Draw(r, "dies at")
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "order"), 0))

		plain, wild := fmt.Sprintf("plain-%d", check), fmt.Sprintf("wild.%d", check) // a tenant with a byte that subjects do not have
		victim := startConsumer(t, s, point)
		deliveries := arrange(r, shuffle, wild, events)
		half := len(deliveries) / 2
		for _, m := range deliveries[:half] {
			s.publish(m)
		}
		for i := range events {
			m := schema.MessageOf(plain, &schema.Event{Usage: &events[i]})
			s.publish(message(plain, events[i].Source, m.ContentType, m.ID, m.Payload))
		}
		halted := false
		// The other consumer may have taken everything; then this one just dies idle.
		for deadline := time.Now().Add(time.Second); !halted && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			_, err := os.Stat(filepath.Join(victim.dir, "halted"))
			halted = err == nil
		}
		kill(victim)
		if halted {
			deaths++
		}
		for _, m := range deliveries[half:] {
			s.publish(m)
		}
		r.Logf("%d events, %d messages in the wild, killed at %s: %v", len(events), len(deliveries), point, halted)

		ask := func(tenant string) *server {
			// Its clock stands, so that reports do not differ by when they are asked; but not
			// before the prices are applied, or as of now they would not be known.
			clock := &stopped{}
			defer clock.ms.Store(clockMs)
			return start(t, app.Options{
				Roles: app.Roles{Serve: true}, NATSURL: s.nats, ClickHouseDSN: s.db, Tenant: tenant, Prices: prices,
				Clock: clock,
			})
		}
		one, other := ask(plain), ask(wild)
		defer one.stop()
		defer other.stop()
		s.settled(false)
		early := make([][]byte, 4)
		for i := range early {
			early[i] = one.report(&questions[i], "")
		}
		s.settled(true)
		stored := schema.FormatTime(time.Now().UnixMilli()) // all events are by now
		for i := range questions {
			q := &questions[i]
			a, b := one.report(q, ""), other.report(q, "")
			checkReference(r, a, events, tariffs, q)
			same(r, "another arrangement, "+q.String(), string(b), string(a))
			if i%3 == 1 {
				same(r, "computed from raw events, "+q.String(), timeless(other.report(q, stored)), timeless(a))
			}
			if i < len(early) {
				same(r, "before hours were summed up, "+q.String(), string(early[i]), string(a))
			}
		}
	})
	if deaths == 0 && !t.Failed() {
		t.Error("no consumer was killed at work; the test shows less than it says")
	}
}

// An aggregator that was held up writes what it computed long ago over what another
// one computed since, from more events. The newer figures stay.
func TestStaleAggregator(t *testing.T) {
	s := start(t, app.Options{
		Roles: app.Roles{Consume: true, Serve: true, Broker: true, Engine: true}, Prices: file(t, "prices.yaml", onePrice),
	})
	half := func(id, from, to string) {
		u := testkit.Usage("GPU-1", "i1", from, to)
		u.ID = id
		s.publish(message("default", u.Source, schema.ContentTypeEvent, "", schema.EncodeEvent(&schema.Event{Usage: &u})))
	}
	half("one", "2026-03-01T10:00:00Z", "2026-03-01T10:00:30Z")
	within(t, "the first half is stored", func() bool { return s.status().DirtyMinute == 1 })

	stale := &consumer{dir: t.TempDir()}
	stale.cmd = command(stale.dir, "aggregate", "--data", stale.dir, "--clickhouse", s.db, "--hour-every", "10m")
	stale.cmd.Env = append(stale.cmd.Env, "GPUMETER_HALT_AT=mid-recompute")
	if err := stale.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(stale) })
	within(t, "the first aggregator is held up", func() bool {
		_, err := os.Stat(filepath.Join(stale.dir, "halted"))
		return err == nil
	})
	half("two", "2026-03-01T10:00:30Z", "2026-03-01T10:01:00Z")
	within(t, "the second half is stored", func() bool { return s.status().DirtyMinute == 2 })
	start(t, app.Options{Roles: app.Roles{Aggregate: true}, ClickHouseDSN: s.db})
	s.settled(true)
	written := func() string { return s.sql("SELECT count() FROM usage_minute") }
	before := written()
	if err := os.WriteFile(filepath.Join(stale.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	within(t, "the first aggregator has written", func() bool { return written() != before })
	time.Sleep(time.Second) // it goes on to mark the hour
	s.settled(true)
	// The second span cuts the hour, so that it is read from minutes.
	for _, to := range []string{"2026-03-02", "2026-03-01T10:30:00Z"} {
		a := parse(t, s.get("/api/v1/reports/spend", url.Values{"from": {"2026-03-01"}, "to": {to}}))
		if a.Totals["allocated_ms"] != json.Number("60000") || a.Totals["cost"] != "0.06" {
			t.Errorf("to %s: %v, want one minute", to, a.Totals)
		}
	}
}

// clockMs is the instant of the servers that are asked, after everything else.
const clockMs = 4_000_000_000_000

func (s *server) report(q *question, asOf string) []byte {
	s.t.Helper()
	query := url.Values{"from": {schema.FormatTime(q.from)}, "to": {schema.FormatTime(q.to)}, "zone": {q.zone}}
	if len(q.by) > 0 {
		query.Set("by", strings.Join(q.by, ","))
	}
	if asOf != "" {
		query.Set("as_of", asOf)
	}
	return s.get("/api/v1/reports/"+q.kind, query)
}

// drawEvent draws an event of the day, with everything that events may have.
func drawEvent(r *rapid.T) schema.Usage {
	unit := rapid.IntRange(0, 2).Draw(r, "unit")
	u := schema.Usage{
		Unit:     fmt.Sprintf("GPU-%d", unit),
		Model:    []string{"H100", "L40S", "Unlisted"}[unit],
		Instance: rapid.SampledFrom([]string{"i1", "i2", "i3", ""}).Draw(r, "instance"),
		Project:  rapid.SampledFrom([]string{"a", "a", "b", "", "x' OR 1=1 --", "项目"}).Draw(r, "project"),
		Platform: rapid.SampledFrom([]string{"", "aws"}).Draw(r, "platform"),
		Node:     "node-1",
	}
	u.Source = rapid.SampledFrom([]string{"agent/node-1", "agent/node 2.ü"}).Draw(r, "source")
	// Many on the same minutes, so that they overlap, and two sources see the same.
	crowd := rapid.Map(rapid.Int64Range(0, 1), func(n int64) int64 { return 5*schema.HourMs + (28+n)*schema.MinuteMs })
	u.StartMs = dayMs + rapid.OneOf(
		crowd, crowd,
		rapid.Map(rapid.Int64Range(0, 24*60-1), func(n int64) int64 { return n * schema.MinuteMs }),
		rapid.Map(rapid.Int64Range(0, 23), func(n int64) int64 { return n*schema.HourMs - 30_000 }),
		rapid.Int64Range(0, 24*schema.HourMs-1),
	).Draw(r, "start")
	length := rapid.OneOf(
		rapid.Just(int64(schema.MinuteMs)),
		rapid.Int64Range(1, 1000),
		rapid.Int64Range(1, 3*schema.MinuteMs),
		rapid.Int64Range(schema.MinuteMs, 9*schema.HourMs),
	).Draw(r, "length")
	u.EndMs = u.StartMs + length
	maybe := func(name string, g *rapid.Generator[int64]) schema.Maybe {
		if rapid.IntRange(0, 2).Draw(r, name+" known") == 0 {
			return schema.Maybe{}
		}
		return schema.Some(g.Draw(r, name))
	}
	u.Utilization = maybe("utilization", rapid.OneOf(rapid.SampledFrom([]int64{0, 9_999, 10_000, 1_000_000}), rapid.Int64Range(0, 1_000_000)))
	if rapid.Bool().Draw(r, "states") {
		u.ActiveMs = maybe("active", rapid.Int64Range(0, length))
		u.IdleMs = maybe("idle", rapid.Int64Range(0, length-u.ActiveMs.Value))
	}
	u.MemoryUsedBytes = maybe("memory", rapid.Int64Range(0, 80<<30))
	u.EnergyMj = maybe("energy", rapid.Int64Range(0, 10_000*length))
	u.Share = maybe("share", rapid.SampledFrom([]int64{1, 250_000_000, 333_333_333, 500_000_000, 700_000_001, schema.ShareOne}))
	if team := rapid.SampledFrom([]string{"", "", "x", "y\"'\\"}).Draw(r, "team"); team != "" {
		u.Labels = schema.Labels{{Key: "team", Value: team}}
	}
	if rapid.Bool().Draw(r, "timed") {
		u.TimeMs = u.EndMs + 1
	}
	return u
}

// distinct gives every event an identity of its own: where it can, the one that an
// agent would, so that two sources often use the same id.
func distinct(events []schema.Usage) []schema.Usage {
	taken := map[string]bool{}
	for i := range events {
		u := &events[i]
		u.ID = schema.UsageID(u.Unit, u.StartMs)
		if taken[u.Source+u.ID] {
			u.ID = "event " + strconv.Itoa(i)
		}
		taken[u.Source+u.ID] = true
	}
	return events
}

// arrange repeats and shuffles events and puts them into messages of all kinds.
func arrange(r *rapid.T, random *rand.Rand, tenant string, events []schema.Usage) []*nats.Msg {
	var copies []schema.Usage
	for i := range events {
		for range 1 + random.IntN(3) {
			copies = append(copies, events[i])
		}
	}
	random.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
	var messages []*nats.Msg
	for len(copies) > 0 {
		// A message is of one source.
		source, most := copies[0].Source, 1+random.IntN(6)
		var part []schema.Usage
		copies = slices.DeleteFunc(copies, func(u schema.Usage) bool {
			if u.Source != source || len(part) >= most {
				return false
			}
			part = append(part, u)
			return true
		})
		id := ""
		if random.IntN(2) == 0 {
			id = fmt.Sprintf("%s/%d", tenant, len(messages))
		}
		contentType, payload := schema.ContentTypeCompact, []byte(nil)
		var err error
		switch {
		case random.IntN(2) == 0:
			if payload, err = schema.EncodeCompact(part); err != nil {
				r.Fatal(err)
			}
		case len(part) == 1:
			contentType, payload = schema.ContentTypeEvent, schema.EncodeEvent(&schema.Event{Usage: &part[0]})
		default:
			var list []string
			for i := range part {
				list = append(list, string(schema.EncodeEvent(&schema.Event{Usage: &part[i]})))
			}
			contentType, payload = schema.ContentTypeBatch, []byte("["+strings.Join(list, ",")+"]")
		}
		messages = append(messages, message(tenant, source, contentType, id, payload))
	}
	return messages
}

// stopped is a clock that stands at an instant, in Unix milliseconds, once it has one.
type stopped struct{ ms atomic.Int64 }

func (c *stopped) Now() time.Time {
	if ms := c.ms.Load(); ms != 0 {
		return time.UnixMilli(ms)
	}
	return time.Now()
}

func (c *stopped) At(real time.Time) time.Time { return real }
