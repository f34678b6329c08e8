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
	"testing"
	"time"

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
