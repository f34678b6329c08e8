package report

import (
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

// The contents of a lease event in conflict are told apart by what a reader has to
// decide on: the instant, the state, and which of them counts.
func TestLeaseConflict(t *testing.T) {
	content := func(when, state string, sequence uint64, gpus schema.Maybe) schema.LeaseContent {
		l := schema.Lease{Header: schema.Header{Source: "cloud/x", ID: "l2"}, Instance: "i1", Project: "a", AtMs: at(when), State: state, Gpus: gpus, Labels: schema.Labels{{Key: "k", Value: "v"}}}
		return schema.LeaseContent{StoredLease: schema.StoredLease{Lease: l, Position: schema.Position{Stream: "USAGE_0", StreamSequence: sequence, StoredAtNs: at(when) * 1_000_000}}}
	}
	first, second := content("2026-03-01T11:00:00Z", "released", 7, schema.Maybe{}), content("2026-03-01T10:10:00Z", "running", 9, schema.Some(4))
	first.Counted = true
	store := &fakeStore{quality: schema.Quality{Conflicts: 1}, conflicts: []schema.Conflict{{Identity: first.Identity(), Leases: []schema.LeaseContent{first, second}}}}
	r := ask(t, service(t, store, ""), Params{Kind: "quality", From: "2026-03-01", To: "2026-04-01"})
	got := string(r.JSON())
	for _, want := range []string{
		`"conflict_list":[{"source":"cloud/x","id":"l2","contents":[{"counted":true,"instance":"i1","at":"2026-03-01T11:00:00Z","state":"released","gpus":null,"project":"a",`,
		`{"counted":false,"instance":"i1","at":"2026-03-01T10:10:00Z","state":"running","gpus":4,`, `"labels":{"k":"v"}`, `"stream_sequence":9`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	table := formatted(t, r, "table")
	for _, want := range []string{"cloud/x l2  counted", "set aside", "2026-03-01T10:10:00Z", "running, 4 GPUs", "USAGE_0/9/0"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
