package web

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/report"
)

// prices has one document and says what it was asked.
type prices struct{ asked ApplyRequest }

func (p *prices) Apply(_ context.Context, _ string, r ApplyRequest) (*AppliedPrices, error) {
	p.asked = r
	switch {
	case len(r.Documents) == 0:
		return nil, &report.RequestError{Param: "documents", Msg: "there is none"}
	case r.Documents[0].Content == "bad":
		return nil, &InvalidDocument{[]DocumentFault{{r.Documents[0].File + ":3:5", `unknown key "x"`}, {"g", "empty"}}}
	case r.Force == "":
		return nil, &report.ConflictError{Msg: "period 2026-03 is closed; --force REASON"}
	}
	return &AppliedPrices{DryRun: r.DryRun, Documents: []AppliedDocument{{Kind: "book", Name: "default", Version: PriceVersion{Version: "v2"}}}}, nil
}

func (p *prices) Withdraw(_ context.Context, _, kind, name string, r ApplyRequest) (*AppliedPrices, error) {
	p.asked = r
	if name != "c/1" {
		return nil, fmt.Errorf("no %s %s is in force: %w", kind, name, ErrNotFound)
	}
	return &AppliedPrices{Documents: []AppliedDocument{{Kind: kind, Name: name}}}, nil
}

func (p *prices) List(context.Context, string) (*PriceList, error) {
	return &PriceList{Documents: []PriceDocument{{Kind: "book", Name: "default", Versions: []PriceVersion{{Version: "v1"}}}}}, nil
}

func (p *prices) Content(_ context.Context, _, kind, name, version string) ([]byte, *PriceVersion, error) {
	if version == "none" {
		return nil, nil, ErrNotFound
	}
	return []byte("currency: USD # " + kind + " " + name + version + "\n"), &PriceVersion{Hash: "abc"}, nil
}

func TestPrices(t *testing.T) {
	p := &prices{}
	b := &bench{}
	b.Server = httptest.NewServer(Handler(Deps{Prices: p}))
	t.Cleanup(b.Close)
	const who = "?by=ann&reason=renewal"
	for _, c := range []struct {
		method, path, contentType, body string
		code                            int
		want                            string
	}{
		{"GET", "", "", "", 200, `"versions":[{"version":"v1"`},
		{"GET", "?tenant=other", "", "", 422, "answers for the tenant default"},
		{"GET", "/book/default", "", "", 200, "currency: USD # book default\n"},
		{"GET", "/contract/c%2F1?version=x", "", "", 200, "# contract c/1x\n"},
		{"GET", "/book/default?version=none", "", "", 404, "not found"},
		{"GET", "/nothing/default", "", "", 422, "path.kind"},
		{"POST", who + "&force=agreed&dry_run=true", "application/yaml", "currency: USD", 200, `"dry_run":true`},
		{"POST", who + "&force=agreed", "application/json", `{"documents":[{"file":"a","content":"b"},{"file":"c","content":"d"}]}`, 200, `"version":"v2"`},
		{"POST", who, "application/yaml", "currency: USD", 409, "period 2026-03 is closed; --force REASON"},
		{"POST", who + "&file=my.yaml", "application/yaml", "bad", 422, `{"message":"unknown key \"x\"","location":"my.yaml:3:5"}`},
		{"POST", who, "application/json", "{}", 422, "there is none"},
		{"POST", who, "application/json", "[", 422, "the body is not"},
		{"POST", who, "text/plain", "currency: USD", 415, "neither application/yaml nor application/json"},
		{"POST", "?by=ann", "application/yaml", "currency: USD", 422, "reason"},
		{"POST", who + "&forced=1", "application/yaml", "currency: USD", 422, "forced"},
		{"POST", who + "&tenant=other", "application/yaml", "currency: USD", 422, "answers for the tenant default"},
		{"DELETE", "/contract/c%2F1" + who, "", "", 200, `"name":"c/1"`},
		{"DELETE", "/contract/d" + who, "", "", 404, "no contract d is in force"},
		{"DELETE", "/contract/d", "", "", 422, "reason"},
	} {
		code, _, body := b.do(t, c.method, "/api/v1/prices"+c.path, c.contentType, c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, code, body)
		}
		if c.contentType == "application/json" && c.code == 200 && fmt.Sprint(p.asked) != "{[{a b} {c d}] ann renewal agreed false}" {
			t.Errorf("asked %v", p.asked)
		}
	}
	if _, header, _ := b.do(t, "GET", "/api/v1/prices/book/default", "", ""); header.Get("ETag") != `"abc"` || !strings.HasPrefix(header.Get("Content-Type"), "application/yaml") {
		t.Errorf("%v", header)
	}
	if _, _, body := b.do(t, "GET", "/openapi.json", "", ""); !strings.Contains(body, `"/api/v1/prices/{kind}/{name}"`) {
		t.Error("not in the OpenAPI document")
	}
}
