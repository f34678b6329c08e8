package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

func formatted(t *testing.T, a Writer, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, a, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tableStore has a project in every state, one with a name in Chinese.
func tableStore() *fakeStore {
	return &fakeStore{spans: []span{
		gpu("2026-03-01T00:00:00Z", "2026-03-15T00:00:00Z", "project=推理", "util=425000"),
		gpu("2026-03-01T00:00:00Z", "2026-03-01T00:12:30Z", "project=idle", "state=idle", "util=0", "energy=300"),
		gpu("2026-03-01T00:00:00Z", "2026-03-01T00:00:04.250Z", "project=", "model=x", "state=unknown"),
	}}
}

func TestTables(t *testing.T) {
	store := tableStore()
	store.quality = schema.Quality{Conflicts: 2, Gaps: 1}
	s := service(t, store, p360)
	for kind, want := range map[string]string{
		"spend": `
project  allocated         cost  idle waste  unpriced
(none)       4.25s      unknown     unknown     4.25s
idle       12m 30s     0.75 USD    0.75 USD         0
推理      336h 00m  1209.60 USD    0.00 USD         0
total     336h 12m  1210.35 USD    0.75 USD     4.25s
`,
		"waste": `
project  idle waste  of cost  held idle  free cost  free  unknown  unpriced
idle       0.75 USD  100.0 %    12m 30s   0.00 USD     0        0         0
推理       0.00 USD    0.0 %          0   0.00 USD     0        0         0
(none)      unknown  unknown          0    unknown     0    4.25s     4.25s
total      0.75 USD    0.1 %    12m 30s   0.00 USD     0    4.25s     4.25s
`,
		"utilization": `
project  utilization   active     idle  unknown  allocated
(none)       unknown    0.0 %    0.0 %  100.0 %      4.25s
idle           0.0 %    0.0 %  100.0 %    0.0 %    12m 30s
推理          42.5 %  100.0 %    0.0 %    0.0 %   336h 00m
total         42.5 %   99.9 %    0.1 %    0.0 %   336h 12m
`,
		"usage": `
project  allocated    active  held idle  free  unknown     energy
(none)       4.25s         0          0     0    4.25s    unknown
idle       12m 30s         0    12m 30s     0        0  0.063 kWh
推理      336h 00m  336h 00m          0     0        0    unknown
total     336h 12m  336h 00m    12m 30s     0    4.25s  0.063 kWh
`,
		"quality": `
2 identities in conflict (what was stored first counts)
0 quarantined messages or events (not counted; see gpumeter quarantine list)
0 late events (counted)
0 held events (they end in the future by the clock of their source, and count from then on)
1 missing sequence numbers (reported by no event that arrived)
0 ms of units reported for instances whose lease held none (not counted)
0 open incidents
`,
	} {
		got := formatted(t, ask(t, s, Params{Kind: kind, From: "2026-03-01", To: "2026-04-01", By: []string{"project"}}), "table")
		if kind != "quality" {
			want += "\ndata quality: 2 identities in conflict (what was stored first counts); 1 missing sequence numbers (reported by no event that arrived)\n"
		}
		want = kind + " from 2026-03-01T00:00:00Z to 2026-04-01T00:00:00Z (UTC), as of 2027-01-01T12:00:00Z\n" + want
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestTableSaysNothingAboutGoodData(t *testing.T) {
	got := formatted(t, ask(t, service(t, tableStore(), p360), Params{From: "2026-03-01", To: "2026-04-01", Filter: map[string]string{"project": "idle"}}), "table")
	if strings.Contains(got, "quality") || !strings.Contains(got, "only project=idle\n") {
		t.Errorf("got\n%s", got)
	}
}

// F7: names may hold anything, and none of it may reach past its own cell.
func TestHostileNames(t *testing.T) {
	names := []string{`x' OR 1=1 --`, `=cmd|'/C calc'!A0`, "+1+1", "-2+3", "@SUM(A1)", `"quoted", with comma`, "line\nbreak", "\x1b[31mred", "-5.5", "😀", "</script>", "a\u202eb"}
	var spans []span
	for _, n := range names {
		spans = append(spans, gpu("2026-03-01", "2026-03-02", "project="+n))
	}
	r := ask(t, service(t, &fakeStore{spans: spans}, p360), Params{From: "2026-03-01", To: "2026-03-02", By: []string{"project", "label:a\"b"}})
	var parsed struct {
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal([]byte(formatted(t, r, "json")), &parsed); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range parsed.Rows {
		seen[row["project"].(string)] = true
		if _, ok := row[`label:a"b`]; !ok {
			t.Error("label key lost")
		}
	}
	rows, err := csv.NewReader(strings.NewReader(formatted(t, r, "csv"))).ReadAll()
	if err != nil || len(rows) != len(names)+1 {
		t.Fatalf("%d lines, %v", len(rows), err)
	}
	cells := map[string]bool{}
	for _, row := range rows {
		cells[row[0]] = true
	}
	table := formatted(t, r, "table")
	for _, n := range names {
		if !seen[n] {
			t.Errorf("JSON has no %q", n)
		}
		escaped := n
		if strings.ContainsRune("=+@", rune(n[0])) || n == "-2+3" {
			escaped = "'" + n
		}
		if !cells[escaped] {
			t.Errorf("CSV has no %q", escaped)
		}
	}
	if strings.ContainsAny(table, "\x1b\u202e") || strings.Count(table, "\n") != len(names)+4 {
		t.Errorf("a name reaches the terminal:\n%q", table)
	}
}

func TestCSV(t *testing.T) {
	s := service(t, tableStore(), p360)
	got := formatted(t, ask(t, s, Params{From: "2026-03-01", To: "2026-04-01", By: []string{"project"}, Filter: map[string]string{"project": ""}}), "csv")
	want := "project,allocated_ms,known_ms,active_ms,idle_ms,unknown_ms,utilization,cost,idle_waste,unpriced_ms,free_ms,free_cost,energy_mj,overlap_ms,oversubscribed_ms,used_cost,unused_cost,list_cost,effective_cost,useful_cost,unknown_cost,stopped_cost,minimum_cost,commitment_unused_cost,rework_cost,meter_cost,credit_cost,currency\r\n" +
		",4250,0,0,0,4250,,,,4250,0,,,0,0,,,,,,,,,,,,,USD\r\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got = formatted(t, ask(t, s, Params{Kind: "quality", From: "2026-03-01", To: "2026-04-01"}), "csv")
	if !strings.HasPrefix(got, "from,to,conflicts,quarantined,late,gaps,held,outside_lease_ms,open_incidents\r\n2026-03-01T00:00:00Z,") {
		t.Errorf("got %q", got)
	}
	if err := Write(&bytes.Buffer{}, nil, "xml"); err == nil || !strings.Contains(err.Error(), "table, json, csv") {
		t.Errorf("unknown format: %v", err)
	}
}

func TestDuration(t *testing.T) {
	for ms, want := range map[int64]string{0: "0", 1: "0.001s", 4250: "4.25s", 60_000: "1m 00s", 3_599_999: "59m 59s", 3_600_000: "1h 00m", 2_678_400_000: "744h 00m"} {
		if got := Duration(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}
