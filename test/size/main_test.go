// Package size_test asks the built program questions about more data than fits in
// memory comfortably, and holds the answers against the generator's own arithmetic
// and the processes against a cap of memory.
//
// Plain tests run it small. GPUMETER_SIZE=full (make size) runs it in full: some
// minutes, and some GiB of disk.
package size_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// The caps. What the engine's server may allocate is a setting; its process has
// its library, its caches and its threads beside that.
const (
	engineMemory = 2 << 30
	engineCap    = engineMemory + 1<<30
	programCap   = 1 << 30
)

func full() bool { return os.Getenv("GPUMETER_SIZE") == "full" }

// program is a running gpumeter up.
type program struct {
	process.Process
	t      *testing.T
	http   string
	db     string
	engine int // process
}

const prices = `
currency: USD
prices:
  - {model: H100, per_gpu_hour: "3.60", valid_to: 2026-06-02T03:04:00Z}
  - {model: H100, per_gpu_hour: "7.20", valid_from: 2026-06-02T03:04:00Z}
  - {model: A100, per_gpu_hour: "10.80"}
`

func TestMain(m *testing.M) { process.Main(m) }

func start(t *testing.T) *program {
	t.Helper()
	dir := t.TempDir()
	list, data := filepath.Join(dir, "prices.yaml"), filepath.Join(dir, "data")
	if err := os.WriteFile(list, []byte(prices), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, Process: process.Process{
		Name: "up", Log: filepath.Join(dir, "log"), Patience: 2 * time.Minute,
		Args: []string{"up", "--data", data, "--listen", "127.0.0.1:0", "--prices", list, "--engine-memory", strconv.Itoa(engineMemory), "--hour-every", "1s"},
	}}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		p.Kill()
		if t.Failed() {
			t.Logf("the program said:\n%s", p.Said())
		}
	})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	var e struct{ HTTP, ClickHouse string }
	b, err := os.ReadFile(filepath.Join(data, "endpoints.json"))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil || e.HTTP == "" || e.ClickHouse == "" {
		t.Fatalf("endpoints %s: %v", b, err)
	}
	p.http, p.db = e.HTTP, e.ClickHouse
	for _, child := range process.Children(p.Pid()) { // the engine is the largest
		if memory(child, "VmRSS:") > memory(p.engine, "VmRSS:") {
			p.engine = child
		}
	}
	return p
}

// memory reads a line of a process's status, in bytes; 0 where there is none.
func memory(pid int, line string) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), line)
	if f := strings.Fields(rest); len(f) > 0 {
		kib, _ := strconv.ParseInt(f[0], 10, 64)
		return kib << 10
	}
	return 0
}

// peaks says what the processes took at most since the last call, and fails when
// that is beyond the caps.
func (p *program) peaks(what string, begin time.Time) {
	p.t.Helper()
	program, engine := memory(p.Pid(), "VmHWM:"), memory(p.engine, "VmHWM:")
	p.t.Logf("%-40s %8s  program %4d MiB, engine %4d MiB", what, time.Since(begin).Round(time.Millisecond), program>>20, engine>>20)
	if program == 0 || engine == 0 || program > programCap || engine > engineCap {
		p.t.Errorf("%s: beyond the caps of %d and %d MiB, or not measured", what, programCap>>20, engineCap>>20)
	}
	for _, id := range []int{p.Pid(), p.engine} {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", id), []byte("5"), 0)
	}
}

func (p *program) request(method, address string, body io.Reader) []byte {
	p.t.Helper()
	req, err := http.NewRequest(method, address, body)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s, %v\n%.2000s", address, res.Status, err, b)
	}
	return b
}

// command runs a command of the program against the running one.
func (p *program) command(args ...string) []byte {
	p.t.Helper()
	cmd := process.Command(append(args, "--url", p.http)...)
	cmd.Stderr = p.t.Output()
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("gpumeter %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// sql runs a statement in the database.
func (p *program) sql(statement string) {
	p.t.Helper()
	u, err := url.Parse(p.db)
	if err != nil {
		p.t.Fatal(err)
	}
	p.request(http.MethodPost, "http://"+u.Host+"/?database="+strings.TrimPrefix(u.Path, "/"), strings.NewReader(statement))
}

// settled waits until every mark is worked off.
func (p *program) settled() {
	p.t.Helper()
	patience := 3 * time.Minute
	if full() {
		patience = 40 * time.Minute
	}
	err := process.Await(patience, "all is summed up", func() error {
		var st struct {
			Minutes int `json:"dirty_minutes"`
			Hours   int `json:"dirty_hours"`
			Error   string
		}
		if err := json.Unmarshal(p.request(http.MethodGet, p.http+"/api/v1/status", nil), &st); err != nil {
			return err
		}
		if st.Minutes+st.Hours != 0 || st.Error != "" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

type figures struct {
	Allocated int64   `json:"allocated_ms"`
	Active    int64   `json:"active_ms"`
	Idle      int64   `json:"idle_ms"`
	Unknown   int64   `json:"unknown_ms"`
	Unpriced  int64   `json:"unpriced_ms"`
	Cost      *string `json:"cost"`
	Waste     *string `json:"idle_waste"`
}

type row struct {
	Project, Instance, Day, Hour string
	figures
}

type answer struct {
	Rows     []row   `json:"rows"`
	Totals   figures `json:"totals"`
	RowCount int64   `json:"row_count"`
	Next     string  `json:"next"`
}

func (p *program) report(kind, query string) (a answer) {
	p.t.Helper()
	begin := time.Now()
	b := p.request(http.MethodGet, p.http+"/api/v1/reports/"+kind+"?"+query, nil)
	if err := json.Unmarshal(b, &a); err != nil {
		p.t.Fatal(err)
	}
	p.peaks(kind+" "+strings.TrimPrefix(query, span), begin)
	return a
}

// sum is the generator's own arithmetic. A millisecond costs a whole number of
// millionths, so amounts are integers.
type sum struct{ allocated, active, idle, unknown, unpriced, cost, waste int64 }

func (s *sum) add(model string, at, allocated, active, idle int64) {
	s.allocated += allocated
	s.active += active
	s.idle += idle
	s.unknown += allocated - active - idle
	price := int64(0)
	switch {
	case model == "H100" && at < change:
		price = 1
	case model == "H100":
		price = 2
	case model == "A100":
		price = 3
	default:
		s.unpriced += allocated
	}
	s.cost += price * allocated
	s.waste += price * idle
}

// change is when the price of an H100 doubles, in the middle of an hour and between
// two events.
const change = 1_780_369_440_000

func (s *sum) same(f *figures) bool {
	amount := func(text *string, micros int64) bool {
		if text == nil {
			return micros == 0
		}
		r, ok := new(big.Rat).SetString(*text)
		return ok && r.Cmp(big.NewRat(micros, 1_000_000)) == 0
	}
	return s.allocated == f.Allocated && s.active == f.Active && s.idle == f.Idle && s.unknown == f.Unknown && s.unpriced == f.Unpriced &&
		amount(f.Cost, s.cost) && amount(f.Waste, s.waste)
}
