package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
)

type settled struct{}

func (settled) AwaitSettled(context.Context, int64) error { return nil }

// rented is one instance of two GPUs that runs from 1 to 11 March.
type rented struct{ asked []int64 }

func (r *rented) Usage(_ context.Context, _ string, asOfMs, nowMs int64) (*pricing.Usage, error) {
	r.asked = append(r.asked, asOfMs, nowMs)
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := pricing.Segment{Span: pricing.Span{FromMs: from.UnixMilli(), ToMs: from.AddDate(0, 0, 10).UnixMilli()}, State: "running", Project: "a", Platform: "p", Model: "m", Gpus: 2}
	return &pricing.Usage{Rentals: []*pricing.Rental{{Instance: "i", Segments: []pricing.Segment{s}}}}, nil
}

func plansBench(t *testing.T) (*bench, *rented) {
	t.Helper()
	book, err := pricing.Parse("prices.yaml", []byte("currency: CNY\nprices: [{model: m, per_gpu_hour: 10}]"))
	if err != nil {
		t.Fatal(err)
	}
	contract, err := pricing.ParseContract("c.yaml", []byte("contract: c\nplatform: p\ncurrency: CNY\nvalid_from: 2026-03-01\nvalid_to: 2026-04-01\ncommitments: [{id: base, model: m, project: a, gpus: 2, term: month, per_gpu: 3720}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rented{}
	service, err := report.New(report.Options{
		Store: &store{}, Rated: r, Settled: settled{}, Now: func() time.Time { return clock },
		Terms: func(context.Context, string, int64) (*pricing.Terms, error) {
			return &pricing.Terms{Book: book, Contracts: []*pricing.Contract{contract}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{store: &store{}}
	b.Server = httptest.NewServer(Handler(Deps{Reports: service, Plans: service, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(b.Close)
	return b, r
}

// The fixed paths win over {kind}, and every mistake is the asker's.
func TestPlansAndAdvise(t *testing.T) {
	b, rented := plansBench(t)
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"plans?from=2026-03-01&to=2026-04-01", 200, `"utilization":"0.322581","coverage":"1","purchased":"7440.00","refunded":"0.00","cost":"7440.00","used_cost":"2400.00","unused_cost":"5040.00","on_demand_cost":"4800.00","savings":"-2640.00"`},
		{"plans?from=2026-03-01&to=2026-04-01&format=table", 200, "This plan is dearer than on demand at your use: 7440.00 bought 480 GPU-hours that would have cost 4800.00 on demand; it breaks even at 372 hours of 744"},
		{"plans?from=2026-03-01&to=2026-04-01&format=csv&project=a&filter=model%3Dm", 200, "base,c,commitment,,a,p,,m,month,2,"},
		{"plans?from=2026-03-01&to=2026-04-01&platform=q", 200, `"plans":[],"totals":[]`},
		{"advise?from=2026-03-01&to=2026-04-01&step=8&spot_rework=0.1", 200, `"code":"on_demand"`},
		{"advise?from=2026-03-01&to=2026-04-01&format=table", 200, "Stay on demand: it costs 4800.00 CNY, and no plan is cheaper; a GPU by the month breaks even when it is wanted 50.0 % of the time"},
		{"advise?from=2026-03-01&to=2026-04-01&format=csv", 200, "mix,p,,m,,month,0,4800.00,"},
		{"plans?instance=i", 422, "instance"},
		{"plans?filter=instance%3Di", 422, "is not a key that plans have"},
		{"plans?by=project", 422, "by"},
		{"plans?zone=Mars", 422, "query.zone"},
		{"plans?step=8", 422, "step"},
		{"plans?model=a&model=b", 422, "is there twice"},
		{"advise?step=-1", 422, "step"},
		{"advise?spot_rework=much", 422, "query.spot_rework"},
		{"advise?format=xml", 422, "format"},
		{"spend", 200, `"rows":`},
	} {
		code, header, body := b.get(t, "/api/v1/reports/"+c.path)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.path, code, body, c.code, c.want)
		}
		if code == 200 && !strings.Contains(c.path, "format") && (header.Get("Content-Type") != "application/json" || !json.Valid([]byte(body))) {
			t.Errorf("%s: %s %s", c.path, header.Get("Content-Type"), body)
		}
	}
	rented.asked = nil
	b.get(t, "/api/v1/reports/plans?from=2026-03-01&as_of=2026-03-05")
	if at := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC).UnixMilli(); len(rented.asked) != 2 || rented.asked[0] != at || rented.asked[1] != at {
		t.Errorf("asked as of and until %v, want %d", rented.asked, at)
	}
	_, _, doc := b.get(t, "/openapi.json")
	for _, want := range []string{`"/api/v1/reports/plans"`, `"/api/v1/reports/advise"`, `"too_dear_at_this_use"`} {
		if !strings.Contains(doc, want) {
			t.Errorf("no %s in the document", want)
		}
	}
}

// A server that does not read rentals has no such routes; one that is set up wrongly
// says what it lacks.
func TestPlansWithoutRentals(t *testing.T) {
	b := start(t)
	if code, _, body := b.get(t, "/api/v1/reports/plans"); code != 422 || !strings.Contains(body, "spend") {
		t.Errorf("%d %s", code, body)
	}
	service, err := report.New(report.Options{Store: &store{}})
	if err != nil {
		t.Fatal(err)
	}
	b.Server = httptest.NewServer(Handler(Deps{Plans: service, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(b.Close)
	if code, _, body := b.get(t, "/api/v1/reports/advise"); code != 409 || !strings.Contains(body, "does not read rentals") {
		t.Errorf("%d %s", code, body)
	}
}
