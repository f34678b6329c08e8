package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/app"
)

// recorded holds output of real exporters that is not part of the project. The
// fixtures in testdata show the same points and always run.
const recorded = "../../../shared/testdata/gpu"

const (
	sampleEvery = 500 * time.Millisecond
	// watts is what every board draws: a watt is a millijoule in a millisecond.
	watts = 400
)

// states of a unit, as a report should show them.
type state int

const (
	active state = iota
	idle
	unknown
)

var scrapes = []struct {
	file  string
	extra bool // of the recorded ones
	units map[string]state
	// metered: the boards whose energy counter the test moves.
	metered []string
}{
	{file: "testdata/mig-4-instances.prom", metered: []string{"GPU-11111111-0000-4000-8000-000000000001"}, units: map[string]state{
		"GPU-11111111-0000-4000-8000-000000000001/gi/5": idle, "GPU-11111111-0000-4000-8000-000000000001/gi/7": idle,
		"GPU-11111111-0000-4000-8000-000000000001/gi/8": active, "GPU-11111111-0000-4000-8000-000000000001/gi/9": idle,
	}},
	{file: "testdata/title-and-cut-line.prom", metered: []string{"GPU-22222222-0000-4000-8000-000000000001", "GPU-22222222-0000-4000-8000-000000000002"},
		units: map[string]state{"GPU-22222222-0000-4000-8000-000000000001": idle, "GPU-22222222-0000-4000-8000-000000000002": active}},
	{file: "testdata/smi-mig-unknown.prom", metered: []string{"GPU-33333333-0000-4000-8000-000000000001", "GPU-33333333-0000-4000-8000-000000000002"},
		units: map[string]state{
			"GPU-33333333-0000-4000-8000-000000000001/gi/2": unknown, "GPU-33333333-0000-4000-8000-000000000001/gi/7": unknown,
			"GPU-33333333-0000-4000-8000-000000000002": active,
		}},
	{file: "dcgm-exporter_a100-mig_4-active.prom", extra: true, metered: []string{"GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd"}, units: map[string]state{
		"GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd/gi/5": idle, "GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd/gi/7": idle,
		"GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd/gi/8": active, "GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd/gi/9": idle,
	}},
	{file: "dcgm-exporter_a100-mig_idle-instance.prom", extra: true, units: map[string]state{"GPU-7099682b-a20d-2bcc-74ab-b9060454d81e/gi/8": idle}},
	{file: "dcgm-exporter_a100_mig-disabled-empty.prom", extra: true, units: map[string]state{"GPU-7099682b-a20d-2bcc-74ab-b9060454d81e": idle}},
	{file: "nvidia_gpu_exporter_demo-2xH200-mig-xid.prom", extra: true,
		metered: []string{"GPU-1c67088e-9ecb-4564-bb97-6151ecc2ef64", "GPU-ef427e4f-1970-42f2-ab0c-ecf0e56a33b9"}, units: map[string]state{
			"GPU-1c67088e-9ecb-4564-bb97-6151ecc2ef64/gi/2": unknown, "GPU-1c67088e-9ecb-4564-bb97-6151ecc2ef64/gi/7": unknown,
			"GPU-ef427e4f-1970-42f2-ab0c-ecf0e56a33b9": active,
		}},
}

// Exporters' output becomes usage with the right state, and with the energy of a
// board counted once, however many units repeat its counter.
func TestScrapes(t *testing.T) {
	t.Parallel() // mostly waits
	o := app.Options{Data: t.TempDir(), SampleEvery: sampleEvery, EmitEvery: time.Second, Instance: "i1", Project: "a"}
	missing := 0
	want := map[string]state{}
	for _, c := range scrapes {
		path := c.file
		if c.extra {
			path = filepath.Join(recorded, c.file)
		}
		text, err := os.ReadFile(path)
		if c.extra && os.IsNotExist(err) {
			missing++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		exporter := httptest.NewServer(exporterOf(string(text)))
		t.Cleanup(exporter.Close)
		o.ScrapeURLs = append(o.ScrapeURLs, exporter.URL+"/metrics")
		for unit, s := range c.units {
			want[unit] = s
		}
	}
	if missing > 0 {
		t.Logf("%d recorded scrapes are not present and were not run", missing)
	}
	began := time.Now()
	s := start(t, o)
	// Whole emit periods, so that events come of their own accord too.
	within(t, "every unit has events", func() bool {
		return time.Since(began) > 4*time.Second && s.sql("SELECT uniqExact(unit) FROM raw_usage") == fmt.Sprint(len(want)) && s.status().Events > int64(2*len(want))
	})
	s.stop() // sends what is open
	o.ScrapeURLs = nil
	s = start(t, o)
	s.settled(false)

	a := parse(t, s.get("/api/v1/reports/usage", url.Values{"by": {"unit"}, "from": {began.Add(-time.Hour).UTC().Format(time.DateOnly)}}))
	got := map[string]map[string]int64{}
	for _, r := range a.Rows {
		unit := r["unit"].(string)
		got[unit] = map[string]int64{}
		for _, k := range []string{"allocated_ms", "active_ms", "idle_ms", "unknown_ms", "energy_mj"} {
			if n, ok := r[k].(json.Number); ok {
				got[unit][k], _ = n.Int64()
			}
		}
		if _, ok := want[unit]; !ok {
			t.Errorf("a unit that no exporter has: %v", r)
		}
	}
	for unit, wanted := range want {
		checkState(t, unit, wanted, got[unit])
	}
	for _, c := range scrapes {
		if c.extra && missing > 0 {
			continue
		}
		checkTogether(t, c.units, got)
		for _, board := range c.metered {
			checkEnergy(t, board, c.units, got)
		}
	}
	if gaps := a.Quality["gaps"]; gaps != json.Number("0") || a.Quality["conflicts"] != json.Number("0") {
		t.Errorf("quality %v", a.Quality)
	}
}

func checkState(t *testing.T, unit string, want state, r map[string]int64) {
	t.Helper()
	wrong := r["allocated_ms"] < 1000
	switch want {
	case unknown:
		wrong = wrong || r["unknown_ms"] != r["allocated_ms"] || r["active_ms"] != 0 || r["idle_ms"] != 0
	case active:
		wrong = wrong || r["active_ms"] == 0 || r["idle_ms"] != 0
	case idle:
		wrong = wrong || r["idle_ms"] == 0 || r["active_ms"] != 0
	}
	// A busy machine may miss a reading. That is the only unknown time.
	if want != unknown && 3*r["unknown_ms"] > r["allocated_ms"] {
		wrong = true
	}
	if wrong {
		t.Errorf("%s: %v, want %s", unit, r, [...]string{"active", "idle", "unknown"}[want])
	}
}

// checkTogether: the units of one exporter are read at the same instants, so they
// are known for equally long.
func checkTogether(t *testing.T, units map[string]state, got map[string]map[string]int64) {
	t.Helper()
	known := map[string]int64{}
	allocated := map[int64]bool{}
	for unit, s := range units {
		allocated[got[unit]["allocated_ms"]] = true
		if s != unknown {
			known[unit] = got[unit]["active_ms"] + got[unit]["idle_ms"]
		}
	}
	times := map[int64]bool{}
	for _, ms := range known {
		times[ms] = true
	}
	if len(times) > 1 || len(allocated) > 1 {
		t.Errorf("units of one exporter differ: known for %v, allocated %v ms", known, allocated)
	}
}

// checkEnergy compares the energy of all units of a board with the movement of
// its counter over the time that the units cover. No more may be missing than the
// steps at both ends and the time for which the exporter could not be read.
func checkEnergy(t *testing.T, board string, units map[string]state, got map[string]map[string]int64) {
	t.Helper()
	var energy, covered, unread int64
	for unit, s := range units {
		r := got[unit]
		if unit == board || strings.HasPrefix(unit, board+"/") {
			energy += r["energy_mj"]
			covered = max(covered, r["allocated_ms"])
		}
		if s != unknown {
			unread = max(unread, r["unknown_ms"])
		}
	}
	step := watts * sampleEvery.Milliseconds()
	moved := watts * covered
	if energy%step != 0 || energy > moved+step || energy < moved-watts*unread-2*step || energy == 0 {
		t.Errorf("%s: its units used %d mJ in %d ms, and its counter moved by %d mJ", board, energy, covered, moved)
	}
}

var (
	dcgmCounter = regexp.MustCompile(`(?m)^(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\{[^}]*\}) \S+`) // millijoules
	smiCounter  = regexp.MustCompile(`(?m)^(nvidia_smi_energy_joules_total\{[^}]*\}) \S+`)
)

// exporterOf serves the text with its energy counters moving: all boards draw the
// same power, and a counter steps once in each period of sampling.
func exporterOf(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mj := time.Now().Truncate(sampleEvery).UnixMilli() % 1e11 * watts // not so large as to look blank
		page := dcgmCounter.ReplaceAllString(text, fmt.Sprintf("${1} %d", mj))
		fmt.Fprint(w, smiCounter.ReplaceAllString(page, fmt.Sprintf("${1} %d.%03d", mj/1000, mj%1000)))
	})
}
