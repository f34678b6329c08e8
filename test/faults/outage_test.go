package faults_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
	"github.com/gpumeter/gpumeter/schema"
)

// ClickHouse is away while events arrive: nothing is acknowledged, operators can
// see the backlog and why, readiness fails, and afterwards everything is there.
func TestClickHouseDown(t *testing.T) {
	const stuckAfter = 2 * time.Second
	c := newCluster(t)
	dir := filepath.Join(c.dir, "up")
	up := start(t, nil, "up", "--data", dir, "--clickhouse", c.dsn, "--nats", c.natsURL, "--listen", "127.0.0.1:0", "--prices", c.prices,
		"--stuck-after", stuckAfter.String(), "--batch-rows", "150", "--batch-age", "150ms", "--ack-wait", "2s", "--recompute-every", "100ms", "--hour-every", "1s")
	c.url = httpEndpoint(t, dir)
	l := newLoad(0)
	c.publishPart(t, l, 0)
	asOf := instant()
	c.settled(t, true)
	await(t, "it is ready", func() error { return ready(c.url) })

	c.engine.Kill()
	down := time.Now()
	c.publishPart(t, l, 1)
	floor := c.ackFloor(t)
	var reason error
	awaitFor(t, stuckAfter+5*time.Second, "readiness fails", func() error {
		if reason = ready(c.url); reason == nil {
			return errors.New("it says it is ready")
		}
		return nil
	})
	t.Logf("not ready after %v: %v", time.Since(down).Round(time.Millisecond), reason)
	if !strings.Contains(reason.Error(), "consumer: ") || !strings.Contains(reason.Error(), "messages waiting") {
		t.Errorf("the reason %q does not tell of the consumer and its backlog", reason)
	}
	time.Sleep(time.Until(down.Add(6 * time.Second)))

	if now := c.ackFloor(t); now != floor {
		t.Errorf("acknowledged up to %d, and to %d at the time when ClickHouse went", now, floor)
	}
	if ready(c.url) == nil {
		t.Error("ready again, though nothing is stored")
	}
	metrics := text(t, c.url+"/metrics")
	if metric(t, metrics, "gpumeter_consumer_waiting_messages")+metric(t, metrics, "gpumeter_consumer_unsettled_messages") == 0 ||
		metric(t, metrics, "gpumeter_consumer_failures_total") == 0 {
		t.Errorf("the metrics show no backlog or no failures:\n%s", metrics)
	}
	s := status(t, c.url)
	if s.Waiting+s.Unsettled == 0 || s.Failures == 0 || s.Error == "" {
		t.Errorf("the status shows no backlog, failure or error: %+v", s)
	}

	c.startEngine()
	c.publishPart(t, l, 2)
	c.settled(t, true)
	c.checkAll(t, l, 3, asOf)
	await(t, "it is ready again", func() error { return ready(c.url) })
	await(t, "the status is clean", func() error {
		if s := status(t, c.url); s.Waiting+s.Unsettled != 0 || s.DirtyMinute+s.DirtyHour != 0 || s.Error != "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if !up.Alive() || !c.serve.Alive() {
		t.Error("not everybody survived")
	}
}

// ackFloor is the sequence up to which everything is acknowledged. It waits until
// the acknowledgements that were on their way have arrived.
func (c *cluster) ackFloor(t testing.TB) (floor uint64) {
	t.Helper()
	for same := 0; same < 4; same++ {
		consumer, err := c.js.Consumer(t.Context(), "USAGE_0", "store")
		if err != nil {
			t.Fatal(err)
		}
		if now := consumer.CachedInfo().AckFloor.Stream; now != floor {
			floor, same = now, 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return floor
}

type statusAnswer struct {
	Waiting     int64 `json:"waiting_messages"`
	Unsettled   int64 `json:"unsettled_messages"`
	DirtyMinute int64 `json:"dirty_minutes"`
	DirtyHour   int64 `json:"dirty_hours"`
	Failures    int64
	Error       string
}

func status(t testing.TB, url string) (s statusAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(text(t, url+"/api/v1/status")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// ready is nil when the program says that it is ready, and otherwise what it
// says is wrong.
func ready(url string) error {
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Ready      bool
		Components []struct {
			Name, Detail string
			Ready        bool
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("readyz: %w", err)
	}
	if answer.Ready != (resp.StatusCode == http.StatusOK) {
		return fmt.Errorf("readyz contradicts itself: status %s and %+v", resp.Status, answer)
	}
	var faults []string
	for _, part := range answer.Components {
		if !part.Ready {
			faults = append(faults, part.Name+": "+part.Detail)
		}
	}
	if answer.Ready && len(faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}

func text(t testing.TB, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, resp.Status, err, b)
	}
	return string(b)
}

func metric(t testing.TB, page, name string) float64 {
	t.Helper()
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Errorf("no metric %s", name)
	return 0
}

func httpEndpoint(t testing.TB, dir string) string {
	t.Helper()
	var e struct{ HTTP string }
	b, err := os.ReadFile(filepath.Join(dir, "endpoints.json"))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil || e.HTTP == "" {
		t.Fatalf("endpoints of %s: %v %s", dir, err, b)
	}
	return e.HTTP
}

// The stream is away for twenty events of every unit, and the agent is killed in
// the middle of that. All that it had measured arrives, once.
func TestNATSDown(t *testing.T) {
	const (
		source      = "agent/spooling"
		outage      = 20 * time.Second
		sampleEvery = 500 * time.Millisecond
	)
	c := newCluster(t)
	c.consume(t, "")
	c.aggregate(t, "")
	var exporter exporter
	server := httptest.NewServer(&exporter)
	defer server.Close()
	agent := func() *process.Process {
		return start(t, nil, "agent", "--data", c.dir, "--scrape", server.URL, "--source", source,
			"--instance", "i-1", "--project", "p-1", "--sample-every", sampleEvery.String(), "--emit-every", "1s")
	}
	first := agent()
	c.awaitEvents(t, source, time.Now().Add(2*time.Second))

	c.broker.Kill()
	down := time.Now()
	time.Sleep(outage / 2)
	first.Kill()
	second := agent()
	time.Sleep(time.Until(down.Add(outage)))
	up := time.Now()
	c.startBroker()

	c.awaitEvents(t, source, up.Add(3*time.Second))
	must(t, second.Stop())
	c.settled(t, true)
	events := c.sourceEvents(t, source)
	units := c.checkSource(t, events)
	if len(units) != exporterUnits {
		t.Errorf("%d units, want %d", len(units), exporterUnits)
	}
	for unit, list := range units {
		inside := 0
		for _, e := range list {
			if e.StartMs > down.UnixMilli() && e.EndMs < up.UnixMilli() {
				inside++
			}
		}
		// Two are cut by its borders, two by the kill; the rest is for a machine
		// that is slow to read.
		if want := int(outage/time.Second) * 2 / 3; inside < want {
			t.Errorf("%s: %d events during the outage, want at least %d", unit, inside, want)
		}
		// Missing may only be what was not measured: the time of the dead agent,
		// and where this machine was too slow.
		if missing, unread := uncovered(list), exporter.unread(2*sampleEvery); missing > unread+sampleEvery {
			t.Errorf("%s: %v are missing, but nobody read the exporter for %v only", unit, missing, unread)
		}
	}
	t.Logf("%d events of %d units", len(events), len(units))
}

// An agent with ten minutes to report starts while the stream is away, is killed
// twice, and the stream comes back: ten minutes arrive, once.
func TestNATSDownForTenMinutes(t *testing.T) {
	c := newCluster(t)
	c.consume(t, "")
	c.aggregate(t, "")
	c.broker.Kill()
	agent := func() *process.Process {
		return start(t, nil, "agent", "--data", c.dir, "--simulate", "1", "--simulate-history", "10m", "--sample-every", "5s", "--emit-every", "10s")
	}
	agent().Kill()
	second := agent()
	// The first may have died before it noted anything: then the ten minutes are
	// those of the second.
	begin := time.Now()
	time.Sleep(2 * time.Second)
	second.Kill()
	third := agent()
	caughtUp := time.Now()
	time.Sleep(2 * time.Second)
	c.startBroker()

	c.awaitEvents(t, "", caughtUp)
	must(t, third.Stop())
	c.settled(t, true)
	events := c.sourceEvents(t, "")
	full := 0
	for _, list := range c.checkSource(t, events) {
		// Some simulated units are silent at times, and that is not missing.
		from := list[0].StartMs
		if uncovered(list) == 0 && from <= begin.Add(-10*time.Minute+10*time.Second).UnixMilli() && list[len(list)-1].EndMs >= caughtUp.UnixMilli() {
			full++
		}
	}
	if full < 5 {
		t.Errorf("%d units have all ten minutes, want at least 5", full)
	}
	t.Logf("%d events, %d units with all of the time", len(events), full)
}

// awaitEvents waits until the raw table has an event of a source ("" = any) that
// ends at an instant or later.
func (c *cluster) awaitEvents(t testing.TB, source string, at time.Time) {
	t.Helper()
	await(t, "events up to "+at.Format(time.TimeOnly)+" are stored", func() error {
		last, err := c.tryQuery("SELECT toUnixTimestamp64Milli(max(end)) FROM raw_usage WHERE " + ofSource(source))
		if err != nil {
			return err
		}
		if ms, _ := strconv.ParseInt(last, 10, 64); ms < at.UnixMilli() {
			return fmt.Errorf("%v are missing", at.Sub(time.UnixMilli(ms)))
		}
		return nil
	})
}

func ofSource(source string) string {
	if source == "" {
		return "1"
	}
	return "source = '" + source + "'"
}

// sourceEvents reads what is stored, every content of every identity once.
func (c *cluster) sourceEvents(t testing.TB, source string) []schema.Usage {
	t.Helper()
	var list []schema.Usage
	rows := c.query(t, "SELECT source, id, sequence, unit, instance, project, model, toUnixTimestamp64Milli(start), toUnixTimestamp64Milli(end), active_ms, idle_ms "+
		"FROM raw_usage WHERE "+ofSource(source)+" GROUP BY ALL ORDER BY unit, 8 FORMAT TSV")
	for line := range strings.Lines(rows) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number := func(i int) int64 {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
		u := schema.Usage{Unit: f[3], Instance: f[4], Project: f[5], Model: f[6], StartMs: number(7), EndMs: number(8)}
		u.Source, u.ID, u.Sequence = f[0], f[1], uint64(number(2))
		u.ActiveMs, u.IdleMs = schema.Some(number(9)), schema.Some(number(10))
		list = append(list, u)
	}
	return list
}

// checkSource checks that the events of each source are numbered from 1 without
// a gap or a repetition, that no identity comes twice, that no time of a unit is
// reported twice, and that reports say the same. It returns the events by unit.
func (c *cluster) checkSource(t testing.TB, events []schema.Usage) map[string][]schema.Usage {
	t.Helper()
	ids := map[string]bool{}
	numbers := map[string][]uint64{}
	units := map[string][]schema.Usage{}
	for _, u := range events {
		if key := u.Source + " " + u.ID; ids[key] {
			t.Errorf("event %s is there twice", key)
		} else {
			ids[key] = true
		}
		numbers[u.Source] = append(numbers[u.Source], u.Sequence)
		units[u.Unit] = append(units[u.Unit], u)
	}
	for source, list := range numbers {
		slices.Sort(list)
		for i, n := range list {
			if n != uint64(i+1) {
				t.Errorf("%s: event number %d is not there or there twice (%d of %d)", source, i+1, n, len(list))
				break
			}
		}
	}
	for unit, list := range units {
		for i := range list[1:] {
			if list[i].EndMs > list[i+1].StartMs {
				t.Errorf("%s: time is reported twice, by %s and %s", unit, list[i].ID, list[i+1].ID)
			}
		}
	}
	if len(events) == 0 {
		t.Fatal("no events")
	}
	first := slices.MinFunc(events, func(a, b schema.Usage) int { return int(a.StartMs - b.StartMs) }).StartMs
	l := &load{fromMs: schema.Floor(first, schema.HourMs), toMs: schema.Floor(first, schema.HourMs) + 24*schema.HourMs}
	compareTimes(t, c.report(t, l, "usage", "--by", "unit"), reference(events, byUnit))
	return units
}

// compareTimes compares the times of a report only: what simulated units cost is
// not known here.
func compareTimes(t testing.TB, printed []byte, want map[string]figures) {
	t.Helper()
	var got struct {
		Rows []struct {
			Unit    string
			Active  int64 `json:"active_ms"`
			Idle    int64 `json:"idle_ms"`
			Unknown int64 `json:"unknown_ms"`
		}
		Quality struct{ Conflicts, Quarantined, Gaps int64 }
	}
	if err := json.Unmarshal(printed, &got); err != nil {
		t.Fatal(err)
	}
	if q := got.Quality; q.Conflicts+q.Quarantined+q.Gaps != 0 {
		t.Errorf("quality %+v, want nothing", q)
	}
	if len(got.Rows) != len(want) {
		t.Errorf("%d units in the report, want %d", len(got.Rows), len(want))
	}
	for _, r := range got.Rows {
		if have := (figures{r.Active, r.Idle, r.Unknown}); have != want[r.Unit] {
			t.Errorf("%s: reported %+v, stored %+v", r.Unit, have, want[r.Unit])
		}
	}
}

// uncovered is how much time between its first and its last event a unit lacks.
func uncovered(list []schema.Usage) (missing time.Duration) {
	for i := range list[1:] {
		missing += time.Duration(list[i+1].StartMs-list[i].EndMs) * time.Millisecond
	}
	return missing
}

const exporterUnits = 3

// exporter shows what dcgm-exporter shows of some units whose utilization and
// energy change all the time, and notes when it was read.
type exporter struct {
	mu    sync.Mutex
	times []time.Time
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	e.mu.Lock()
	e.times = append(e.times, now)
	e.mu.Unlock()
	s := now.Unix()
	for i := range int64(exporterUnits) {
		labels := fmt.Sprintf(`{gpu="%d",UUID="GPU-00000000-0000-0000-0000-00000000000%d",device="nvidia%d",modelName="H100",Hostname="node-1"}`, i, i, i)
		fmt.Fprintf(w, "DCGM_FI_DEV_GPU_UTIL%s %d\n", labels, s*(i+1)*7%101)
		fmt.Fprintf(w, "DCGM_FI_DEV_FB_USED%s %d\n", labels, 1000+s%1000)
		fmt.Fprintf(w, "DCGM_FI_DEV_FB_FREE%s %d\n", labels, 9000-s%1000)
		fmt.Fprintf(w, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION%s %d\n", labels, now.UnixMilli()*(300+i))
	}
}

// unread sums up the times in which nobody read for longer than usual. Readings
// count from and to a tick, so each can cost up to that more.
func (e *exporter) unread(usual time.Duration) (sum time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.times[1:] {
		if pause := e.times[i+1].Sub(e.times[i]); pause > usual {
			sum += pause + usual
		}
	}
	return sum
}
