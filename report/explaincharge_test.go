package report

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// A person can redo every charge from the table: time, price and how it is rounded, what
// was bought and what of it was used, and what has no price.
func TestExplainTableOfCharges(t *testing.T) {
	profile, err := pricing.ParseProfile("p.yaml", []byte("platform: p\nzone: UTC\nbilled: {compute: [running, stopping], storage: []}\ntime: {minimum: 1h, minimum_per: start}\namount: {rounding: half_up, decimals: 2, per: line}\n"))
	if err != nil {
		t.Fatal(err)
	}
	contract, err := pricing.ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: USD\nvalid_from: 2026-03-01\nvalid_to: 2026-04-01\n"+
		"commitments: [{id: base, model: m, gpus: 1, term: hour, per_gpu: 2, from: 2026-03-02T08:00:00Z, to: 2026-03-02T09:00:00Z}]\n"+
		"adjustments: [{id: ours, stage: negotiated, discount: 10%}]\ncredits: [{id: green, amount: 1, at: 2026-03-02T08:30:00Z, reason: green power}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	segment := func(state, model string, gpus int64, from, to string) pricing.Segment {
		return pricing.Segment{Span: pricing.Span{FromMs: at(from), ToMs: at(to)}, State: state, Project: "a", Platform: "p", Model: model, Gpus: gpus, Evidence: "ab12"}
	}
	usage := &pricing.Usage{NowMs: clock.UnixMilli(), Rentals: []*pricing.Rental{
		{Instance: "i1", Segments: []pricing.Segment{segment("running", "m", 2, "2026-03-02T08:00:00Z", "2026-03-02T08:10:00Z"), segment("stopped_free", "m", 2, "2026-03-02T08:10:00Z", "2026-03-02T09:00:00Z")}},
		{Instance: "i2", Segments: []pricing.Segment{segment("running", "x", 1, "2026-03-02T08:00:00Z", "2026-03-02T09:00:00Z")}},
	}}
	timelines := map[string][]schema.LeaseSegment{}
	for _, r := range usage.Rentals {
		for _, s := range r.Segments {
			timelines[r.Instance] = append(timelines[r.Instance], schema.LeaseSegment{Owner: schema.Owner{Instance: r.Instance, Project: "a", Platform: "p", Model: s.Model}, FromMs: s.FromMs, ToMs: s.ToMs, State: s.State, Gpus: s.Gpus})
		}
	}
	terms := &pricing.Terms{Book: bookOf(t, p360), Profiles: []*pricing.Profile{profile}, Contracts: []*pricing.Contract{contract}}
	s, err := New(Options{Store: &fakeStore{timelines: timelines}, Now: func() time.Time { return clock }, Settled: settledUntil(1 << 62), Rated: fakeRated{usage},
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) { return terms, nil }})
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Explain(t.Context(), ExplainParams{Params: Params{From: "2026-03-02", To: "2026-03-03"}})
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(formatted(t, e, "table"), "\ncharges")
	got, _, _ = strings.Cut(got, "\n\n")
	for i := range e.Charges { // digests hold those of documents
		got = strings.ReplaceAll(got, e.Charges[i].ID, "ID")
		if v := e.Charges[i].PriceVersion; v != nil {
			got = strings.ReplaceAll(got, (*v)[:12], "VERSION")
		}
	}
	const want = `, each of all of its span; amounts are exact
charge ID: purchase gpu of base 2026-03-02T08:00:00Z to 2026-03-02T09:00:00Z hour x 1
    list price: 2 USD per GPU-hour (contract c, version VERSION, line 6)
    bought for 2026-03-02T08:00:00Z to 2026-03-02T09:00:00Z: 1 x 2 = 2
    billed 2 USD, effective 0 USD, at list price 0 USD
charge ID: usage used gpu of base instance i1 project a 2026-03-02T08:00:00Z to 2026-03-02T08:10:00Z running x 1
    used by i1, 600 s x 1 GPUs of base at 2 per GPU-hour (contract c, version VERSION, line 6)
    its part of the purchase: 1/3
    at list price it would have cost 0.6
    billed 0 USD, effective 1/3 USD, at list price 0.6 USD
    rests on the event with the payload ab12
charge ID: usage unused gpu of base 2026-03-02T08:10:00Z to 2026-03-02T09:00:00Z hour x 1
    unused: nothing used it, 3000 s x 1 GPUs of base at 2 per GPU-hour (contract c, version VERSION, line 6)
    its part of the purchase: 5/3
    billed 0 USD, effective 5/3 USD, at list price 0 USD
charge ID: usage gpu instance i1 project a 2026-03-02T08:00:00Z to 2026-03-02T08:10:00Z running x 1
    metered 600 s + 3000 s up to the minimum = billable 3600 s
    list price: 3.6 USD per GPU-hour (version VERSION, line 3)
    negotiated ours: 3.6 x 0.9 = 3.24
    cost: 3600 s / 3600 x 1 x 3.24 = 3.24
    billed 3.24 USD, effective 3.24 USD, at list price 3.6 USD
    rests on the event with the payload ab12
charge ID: usage gpu instance i1 project a 2026-03-02T08:10:00Z to 2026-03-02T09:00:00Z stopped_free x 2
    metered 3000 s - excluded 3000 s (the state stopped_free is not billed) = billable 0 s
    nothing is billed, so it costs 0
    billed 0 USD, effective 0 USD, at list price 0 USD
    rests on the event with the payload ab12
charge ID: usage gpu instance i2 project a 2026-03-02T08:00:00Z to 2026-03-02T09:00:00Z running x 1
    metered 3600 s = billable 3600 s
    there is no price for x on p
    billed unknown, effective unknown, at list price unknown
    rests on the event with the payload ab12
charge ID: credit gpu 2026-03-02T08:30:00Z to 2026-03-02T08:30:00Z
    green: green power
    given back: -1
    billed -1 USD, effective -1 USD, at list price 0 USD`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
