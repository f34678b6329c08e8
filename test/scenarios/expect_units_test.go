package scenarios_test

import (
	"strings"
	"testing"
)

func TestExpect(t *testing.T) {
	report := `{"by":["project","day"],"rows":[{"project":"a","day":"2026-03-01","allocated_ms":60000,"cost":"0.06","utilization":null},` +
		`{"project":"b","day":"2026-03-01","allocated_ms":1,"cost":"0.00","utilization":"0.5"}],` +
		`"totals":{"allocated_ms":60001,"cost":"0.060001"},"quality":{"conflicts":1},"events":[{"id":"e","counted":false},{"id":"e","counted":true}]}`
	for _, c := range []struct{ words, fault string }{
		{"project=a allocated=60s cost=0.060 utilization=none", ""},
		{"project=a day=2026-03-01 allocated=1m", ""},
		{"project=b allocated=1ms utilization=0.50", ""},
		{"total allocated=60.001s cost=0.060001", ""},
		{"quality conflicts=1", ""},
		{"rows=2 events=2", ""},
		{"no project=c", ""},
		{"event id=e counted=true", ""},
		{"project=a allocated=61s", "allocated is 60000, expected 61000"},
		{"project=a cost=0.0600001", "cost is 0.06, expected 0.0600001"},
		{"project=a cost=none", "cost is 0.06, expected none"},
		{"project=a utilization=0", "utilization is none, expected 0"},
		{"project=a alocated=60s", `"alocated" is no figure here`},
		{"project=c allocated=60s", "0 rows have project=c"},
		{"day=2026-03-01 allocated=60s", "2 rows have"},
		{"cost=0.06", "2 rows have"},
		{"project=a", "no figure is named"},
		{"no project=a", "there is such a row"},
		{"rows=3", "2 rows, expected 3"},
		{"quality late=0", `"late" is no figure here`},
		{"total allocated=60", "is not a length of time"},
		{"event id=e counted=maybe", "no event has"},
		{"event id=f counted=true", "no event has"},
		{"lines from=x", "no list liness"},
	} {
		err := expect([]byte(report), strings.Fields(c.words))
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("expect %s: %v, want %q", c.words, err, c.fault)
		}
	}
}
