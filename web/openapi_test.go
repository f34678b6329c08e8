package web

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

var update = flag.Bool("update", false, "write web/ui/openapi.json anew")

// everything has every dependency, so that every route exists. None is called.
func everything(t *testing.T) Deps {
	d := Deps{
		Reports: &report.Service{}, Board: &report.Service{}, Plans: &report.Service{}, Statements: struct{ Statements }{}, Prices: struct{ Prices }{},
		Quarantine: struct{ Quarantine }{},
		Ingest:     func(context.Context, []schema.Message) ([]schema.Receipt, error) { return nil, nil },
		Status:     func(context.Context) (any, error) { return nil, nil },
		Ready:      func() []Component { return nil },
		Changed:    func(context.Context) (string, error) { return "", nil },
		Background: func(func(context.Context) error) {}, SignIn: SignIn{Now: time.Now},
		Metrics: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler), Tenant: "default", Version: "dev",
	}
	for v, i := reflect.ValueOf(d), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("Deps.%s is not set here: its routes would be missing from the document", v.Type().Field(i).Name)
		}
	}
	return d
}

// The page's types are made from ui/openapi.json, so it has to be the document that
// the program serves.
func TestOpenAPIDocument(t *testing.T) {
	const file = "ui/openapi.json"
	w := httptest.NewRecorder()
	Handler(everything(t)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var want bytes.Buffer
	if err := json.Indent(&want, w.Body.Bytes(), "", " "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not the document that is served: go test ./web -run TestOpenAPIDocument -update", file)
	}
}

// Huma leaves out the fields of an embedded type that is not exported: the name in a path
// would then be empty, whatever is asked for.
func TestEveryPathParameterIsRead(t *testing.T) {
	s, _ := newServer(everything(t))
	seen := 0
	for path, item := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete, item.Patch} {
			if op == nil {
				continue
			}
			for _, name := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(path, -1) {
				seen++
				if !slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "path" && p.Name == name[1] }) {
					t.Errorf("%s %s: %s is never read", op.Method, path, name[0])
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d parameters were looked at", seen)
	}
}
