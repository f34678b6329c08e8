package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

func sourcesStore() *fakeStore {
	return &fakeStore{sources: []schema.SourceQuality{
		{Source: "agent/late \"1\"", Events: 1560, Late: 1560, WorstDelayMs: schema.Some(26 * schema.HourMs), ClockOffsetMs: schema.Some(0), LastEventMs: at("2026-03-02T12:00:00Z")},
		{Source: "agent/\x1bahead", Held: 2, ClockOffsetMs: schema.Some(600_000), LastEventMs: at("2026-03-01T12:01:00Z") + 7},
		{Source: "script", Events: 1, WorstDelayMs: schema.Some(0), LastEventMs: at("2026-03-01T12:01:00Z")},
	}}
}

// A source without events has no delay, and one that says no times no clock.
func TestSourcesJSON(t *testing.T) {
	s := service(t, sourcesStore(), p360)
	got := string(ask(t, s, Params{Kind: "quality", From: "2026-03-01", To: "2026-04-01"}).JSON())
	want := `"sources":[{"source":"agent/late \"1\"","events":1560,"late":1560,"held":0,"worst_delay_ms":93600000,"clock_offset_ms":0,"last_event":"2026-03-02T12:00:00Z"},` +
		`{"source":"agent/\u001bahead","events":0,"late":0,"held":2,"worst_delay_ms":null,"clock_offset_ms":600000,"last_event":"2026-03-01T12:01:00.007Z"},` +
		`{"source":"script","events":1,"late":0,"held":0,"worst_delay_ms":0,"clock_offset_ms":null,"last_event":"2026-03-01T12:01:00Z"}],"sources_total":3,"quality":{`
	if !strings.Contains(got, want) || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var read struct{ Sources []SourceFigures }
	if err := json.Unmarshal([]byte(got), &read); err != nil || len(read.Sources) != 3 || *read.Sources[1].ClockOffsetMs != 600_000 || read.Sources[1].WorstDelayMs != nil {
		t.Errorf("read back %+v: %v", read, err)
	}
	if got := string(ask(t, s, Params{Kind: "spend", From: "2026-03-01", To: "2026-04-01"}).JSON()); strings.Contains(got, "sources") {
		t.Errorf("sources in a report of spend: %s", got)
	}
	if got := string(ask(t, service(t, &fakeStore{}, p360), Params{Kind: "quality"}).JSON()); !strings.Contains(got, `"sources":[],"sources_total":0,`) {
		t.Errorf("without sources: %s", got)
	}
}

func TestSourcesTable(t *testing.T) {
	store := sourcesStore()
	r := ask(t, service(t, store, p360), Params{Kind: "quality", From: "2026-03-01", To: "2026-04-01", Zone: "Asia/Shanghai"})
	r.SourcesTotal = 203
	want := `
source          events  late  worst delay  held  clock ahead                     last heard
agent/late "1"    1560  1560      26h 00m     0            0      2026-03-02T20:00:00+08:00
agent/` + "\uFFFD" + `ahead         0     0      unknown     2      10m 00s  2026-03-01T20:01:00.007+08:00
script               1     0            0     0      unknown      2026-03-01T20:01:00+08:00
and 200 more

0 identities in conflict`
	if got := formatted(t, r, "table"); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
