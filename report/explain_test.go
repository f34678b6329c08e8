package report

import (
	"encoding/json"
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
