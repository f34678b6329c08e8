package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

func stored(id, from, to string, sequence uint64) schema.StoredEvent {
	return schema.StoredEvent{
		Usage: schema.Usage{
			Header: schema.Header{Source: "agent/node-7", ID: id, Sequence: sequence},
			Unit:   "GPU-0", Instance: "i1", Project: "a", Model: "m", StartMs: at(from), EndMs: at(to),
			Utilization: schema.Some(420_000), Labels: schema.Labels{{Key: "team", Value: "t"}},
		},
		Position: schema.Position{Stream: "USAGE_0", StreamSequence: 10 + sequence, StoredAtNs: at(to)*1_000_000 + 7}, Counted: true,
	}
}

func TestExplain(t *testing.T) {
	conflict := stored("e2", "2026-03-14T23:00:00Z", "2026-03-15T01:00:00Z", 3)
	conflict.Counted = false
	store := &fakeStore{
		spans:  []span{gpu("2026-03-14T22:00:00Z", "2026-03-15T00:30:00Z"), gpu("2026-03-14T22:00:00Z", "2026-03-14T23:00:00Z", "model=other")},
		events: []schema.StoredEvent{stored("e1", "2026-03-14T22:00:00Z", "2026-03-14T23:00:00Z", 1), stored("e2", "2026-03-14T23:00:00Z", "2026-03-15T00:30:00Z", 2), conflict},
	}
	s := service(t, store, j1)
	p := ExplainParams{Params: Params{From: "2026-03-14T22:30:00Z", To: "2026-03-16", Filter: map[string]string{"project": "a"}}, Limit: 2}
	e, err := s.Explain(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	total := ask(t, s, p.Params).Totals
	if got, want := text(e.Total.Cost), amountText(total.Cost, "USD"); got != want || want != "6.84" || e.Total.AllocatedMs != total.AllocatedMs || e.Total.UnpricedMs != 1_800_000 {
		t.Errorf("total %s of %d ms (%d unpriced), the report says %s of %d ms", got, e.Total.AllocatedMs, e.Total.UnpricedMs, want, total.AllocatedMs)
	}
	var sums []string
	for _, l := range e.Lines {
		sums = append(sums, l.Arithmetic+" -> "+orUnknown(l.Amount, e.Currency))
	}
	if got, want := strings.Join(sums, "\n"), "5400000 ms / 3600000 x 3.6 = 5.4 -> 5.40 USD\n1800000 ms, no price -> unknown\n1800000 ms / 3600000 x 2.88 = 1.44 -> 1.44 USD"; got != want {
		t.Errorf("lines\n%s\nwant\n%s", got, want)
	}
	if len(e.Events) != 2 || e.Next == "" {
		t.Fatalf("%d events, next %q", len(e.Events), e.Next)
	}
	first, second := e.Events[0], e.Events[1]
	if first.ClippedStart != "2026-03-14T22:30:00Z" || first.ClippedMs != 1_800_000 || first.ActiveMs != 3_600_000 || text(first.Sequence) != "1" ||
		first.StoredAt != "2026-03-14T23:00:00.000000007Z" || first.StreamSequence != 11 || first.Labels["team"] != "t" || text(first.Utilization) != "0.42" {
		t.Errorf("first event %+v", first)
	}
	if len(second.Pieces) != 2 || second.Pieces[0].Price.Line != 3 || second.Pieces[1].Price.PerGPUHour != "2.88" || text(second.Pieces[1].Amount) != "1.44" ||
		text(second.Pieces[0].Price.ValidTo) != "2026-03-15T00:00:00Z" || second.Pieces[0].Price.ValidFrom != nil {
		t.Errorf("second event %+v", second.Pieces)
	}
	p.After = e.Next
	last, err := s.Explain(t.Context(), p)
	if err != nil || len(last.Events) != 1 || last.Next != "" || last.Events[0].Counted || len(last.Events[0].Pieces) != 0 || text(last.Total.Cost) != "6.84" {
		t.Errorf("last page %+v, %v", last, err)
	}
	if !json.Valid(e.JSON()) || strings.Count(formatted(t, e, "csv"), "\r\n") != 3 {
		t.Error("JSON or CSV is broken")
	}
	table := formatted(t, last, "table")
	for _, want := range []string{"cost 6.84 USD", "price version ", "no: conflict", "only project=a", "line 3"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	if !strings.Contains(formatted(t, e, "table"), "more events: --after 2") {
		t.Error("the table hides that there is more")
	}
}

// What lies outside of the lease is shown as such, and priced nowhere: the pieces of
// an event are its clipped interval without it.
func TestExplainOutsideLease(t *testing.T) {
	half := stored("half", "2026-03-01T00:00:00Z", "2026-03-01T04:00:00Z", 1)
	half.NotHeld = []schema.Interval{{FromMs: at("2026-03-01T00:00:00Z"), ToMs: at("2026-03-01T01:30:00Z")}, {FromMs: at("2026-03-01T02:00:00Z"), ToMs: at("2026-03-01T02:15:00Z")},
		{FromMs: at("2026-03-01T03:30:00Z"), ToMs: at("2026-03-01T04:00:00Z")}}
	none := stored("none", "2026-03-01T00:00:00Z", "2026-03-01T04:00:00Z", 2)
	none.NotHeld = []schema.Interval{{FromMs: none.StartMs, ToMs: none.EndMs}}
	taken := half
	taken.ID, taken.Counted = "taken", false
	store := &fakeStore{spans: []span{gpu("2026-03-01T01:00:00Z", "2026-03-01T03:00:00Z")}, events: []schema.StoredEvent{half, none, taken, stored("all", "2026-03-01T00:00:00Z", "2026-03-01T04:00:00Z", 3)}}
	e, err := service(t, store, j1).Explain(t.Context(), ExplainParams{Params: Params{From: "2026-03-01T01:00:00Z", To: "2026-03-01T03:00:00Z"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range e.Events {
		v := &e.Events[i]
		line := fmt.Sprint(v.ID, " ", v.ClippedMs, " ", v.OutsideLeaseMs)
		for _, p := range v.Pieces {
			line += fmt.Sprint(" ", p.From[11:16], "-", p.To[11:16], "=", p.Ms, " ", text(p.Amount))
		}
		got = append(got, line)
	}
	want := []string{
		"half 7200000 2700000 01:30-02:00=1800000 1.80 02:15-03:00=2700000 2.70", "none 7200000 7200000",
		"taken 7200000 2700000", "all 7200000 0 01:00-03:00=7200000 7.20",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	table := formatted(t, e, "table")
	for _, want := range []string{"no: outside of its lease", "yes, all but 45m 00s outside of its lease"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestExplainWithoutPrices(t *testing.T) {
	store := &fakeStore{spans: []span{gpu("2026-03-01", "2026-03-02")}, events: []schema.StoredEvent{stored("e1", "2026-03-01", "2026-03-02", 0)}}
	e, err := service(t, store, "").Explain(t.Context(), ExplainParams{Params: Params{From: "2026-03-01", To: "2026-03-02"}})
	if err != nil || e.Total.Cost != nil || e.Currency != nil || e.PriceVersion != nil || e.Events[0].Sequence != nil || e.Events[0].Pieces[0].Amount != nil {
		t.Errorf("%+v, %v", e, err)
	}
	store.events[0].Labels, store.events[0].LabelsText = nil, `{"a":"b"}`
	e, err = service(t, store, "").Explain(t.Context(), ExplainParams{Params: Params{From: "2026-03-01", To: "2026-03-02"}})
	if err != nil || e.Events[0].Labels["a"] != "b" {
		t.Errorf("labels as text: %v, %v", e, err)
	}
	for _, limit := range []int{-1, MaxPage + 1} {
		if _, err := service(t, store, "").Explain(t.Context(), ExplainParams{Limit: limit}); err == nil {
			t.Errorf("limit %d accepted", limit)
		}
	}
}
