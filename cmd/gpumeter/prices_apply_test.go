package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/web"
)

// fakePrices refuses to be changed without a force.
type fakePrices struct{ asked web.ApplyRequest }

func (f *fakePrices) Apply(_ context.Context, _ string, r web.ApplyRequest) (*web.AppliedPrices, error) {
	f.asked = r
	a := &web.AppliedPrices{DryRun: r.DryRun}
	for _, d := range r.Documents {
		a.Documents = append(a.Documents, web.AppliedDocument{File: d.File, Kind: "book", Name: "default", Version: web.PriceVersion{Version: "v2"}, Changes: []string{"m: 2\x1b instead of 4"}, ChangesTotal: 3, ClosedPeriods: []string{"2026-03"}})
	}
	if r.Force == "" && r.DryRun {
		a.Refused = "period 2026-03 is closed"
	} else if r.Force == "" {
		return nil, &report.ConflictError{Msg: "period 2026-03 is closed"}
	}
	return a, nil
}

func (f *fakePrices) Withdraw(_ context.Context, _, kind, name string, r web.ApplyRequest) (*web.AppliedPrices, error) {
	f.asked = r
	return &web.AppliedPrices{Documents: []web.AppliedDocument{{Kind: kind, Name: name, Version: web.PriceVersion{Withdrawn: true, AppliedAt: "2026-03-01T00:00:00Z"}}}}, nil
}

func (f *fakePrices) List(context.Context, string) (*web.PriceList, error) {
	v := []web.PriceVersion{{Version: "v1", AppliedBy: "ann", Reason: "first"}, {Version: "v2", AppliedBy: "bob", Forced: "agreed"}}
	return &web.PriceList{Documents: []web.PriceDocument{{Kind: "book", Name: "default", Current: &v[1], Versions: v}}}, nil
}

func (f *fakePrices) Content(_ context.Context, _, kind, name, version string) ([]byte, *web.PriceVersion, error) {
	return []byte("# " + kind + " " + name + " " + version + "\n"), &web.PriceVersion{}, nil
}

func TestPricesVersions(t *testing.T) {
	f := &fakePrices{}
	server := httptest.NewServer(web.Handler(web.Deps{Prices: f, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", "currency: USD\nprices: []\n"), write("bad.yaml", "currency: USD\nprises: []\n")
	const who = " --by ann --reason renewal"
	for _, c := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"apply " + good + " --force agreed" + who, "book default: applied, version v2\n  m: 2\uFFFD instead of 4\n  and 2 changes more\n  closed months that change: 2026-03\n", "", 0},
		{"apply " + good + who, "", "period 2026-03 is closed", 1},
		{"apply " + good + " --dry-run" + who, "book default: would be applied", "period 2026-03 is closed", 1},
		{"apply " + good + " " + bad + who, "", bad + ":2:1: unknown key", 1},
		{"apply " + good + "x" + who, "", "no such file", 1},
		{"apply " + good + " --by ann", "", "--by and --reason are needed", 2},
		{"apply" + who, "", "requires at least 1 arg", 2},
		{"diff " + good, "book default: would be applied, version v2", "", 0},
		{"list", "default  v2       ", "", 0},
		{"list --format json", `"applied_by":"bob"`, "", 0},
		{"list --format csv", "", "is not one of table, json", 2},
		{"show contract c/1 --version v1", "# contract c/1 v1\n", "", 0},
		{"show nothing x", "", "path.kind", 2},
		{"withdraw contract c/1" + who, "contract c/1: withdrawn, since 2026-03-01T00:00:00Z\n", "", 0},
		{"withdraw contract c/1", "", "--by and --reason are needed", 2},
	} {
		f.asked = web.ApplyRequest{}
		code, stdout, stderr := gpumeter(t, nil, append(append([]string{"prices"}, strings.Fields(c.line)...), "--url", server.URL)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit %d, %q, %q", c.line, code, stdout, stderr)
		}
		if strings.Contains(c.line, bad) && f.asked.By != "" {
			t.Errorf("%s: the server was asked %v", c.line, f.asked)
		}
	}
}
