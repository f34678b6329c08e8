package pricing

import (
	"strings"
	"testing"
)

func promising(t *testing.T, clauses string) []*Contract {
	t.Helper()
	return []*Contract{contractOf(t, "clauses: {"+clauses+"}\n")}
}

func TestExpiring(t *testing.T) {
	list := promising(t, "certificates: {MLPS 3: 2026-05-01, ISO 27001: 2026-04-01, DSL: 2026-09-01}")
	now := ms("2026-04-01T00:00:00Z")
	got := Expiring(list, now, 30*dayMs)
	if len(got) != 2 || got[0].Certificate != "ISO 27001" || !got[0].Expired || got[1].Certificate != "MLPS 3" || got[1].Expired || got[1].Platform != "p" {
		t.Errorf("%+v", got)
	}
	if len(Expiring(list, now, 30*dayMs-1)) != 1 || len(Expiring(list, ms("2027-01-01T00:00:00Z"), dayMs)) != 0 {
		t.Error("a day less, or after the contract")
	}
}

func TestChecklist(t *testing.T) {
	now := ms("2026-04-01T00:00:00Z")
	for _, c := range []struct{ clauses, held string }{
		{"", ""},
		{"no_training: true, encryption: [TLS 1.3]", "no_training, encryption in transit"},
		{"encryption: [at-rest], scale_out: 2h", "encryption at rest, scale_out"},
		{"encryption: [end_to_end], certificates: {MLPS 3: 2026-05-01}", "encryption in transit, encryption at rest, MLPS 3"},
		{"certificates: {MLPS 3: 2026-04-01}", ""},
	} {
		var held []string
		list := Checklist(promising(t, c.clauses), now, "MLPS 3")
		for _, item := range list {
			if item.Held {
				held = append(held, item.Item)
			}
		}
		if strings.Join(held, ", ") != c.held || len(list) != 6 {
			t.Errorf("%s: %v", c.clauses, list)
		}
	}
}

func TestScaleOuts(t *testing.T) {
	now := ms("2026-04-02T00:00:00Z")
	start := now - dayMs
	minutes := func(list ...int64) (ready []int64) {
		for _, m := range list {
			ready = append(ready, start+m*60_000)
		}
		return ready
	}
	requests := []CapacityRequest{
		{"p", start, minutes(10, 120)}, // all of it is ready after two hours, which is in time
		{"p", start, minutes(30, 121)},
		{"p", start, []int64{start + 60_000, 0}}, // one never came
		{"p", now - hourMs, nil},                 // still in time
		{"p", start, []int64{now + hourMs}},      // by what is known now it is not there
		{"q", start, minutes(600)},               // nobody promised anything
	}
	got := ScaleOuts(promising(t, "scale_out: 2h"), requests, now)
	if len(got) != 2 || got[0].Requests != 5 || got[0].Late != 3 || got[0].Waiting != 1 || got[0].P50Ms != 121*60_000 || got[0].P95Ms != dayMs || got[1].Late != 0 || got[1].P50Ms != 600*60_000 {
		t.Errorf("%+v", got)
	}
}

func TestTransparent(t *testing.T) {
	profile := profileOf(t, "")
	lines := (&Terms{Book: mustParse(t, "currency: CNY\nprices: [{model: m, per_gpu_hour: 1}]")}).Rate(&Usage{Rentals: []*Rental{
		during("i", "a", "08:00", "09:00", func(s *Segment) { s.Evidence = "ab" }), during("j", "a", "08:00", "09:00", func(s *Segment) { s.Model = "x" }),
	}})
	if got := Transparent(lines, "p", profile); got.Lines != 2 || got.Rules != 0 || Exact(got.Score) != "0.5" || strings.Join(got.ScoreTexts, ", ") != "priced 0.5, with a unit 0.5, with a source 0.5, with evidence 0.5" {
		t.Errorf("%+v", got)
	}
	if got := Transparent(nil, "p", profile); got.Score != nil {
		t.Errorf("nothing has the score %s", Exact(got.Score))
	}
}
