package clickhouse_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/schema"
)

// Versions come back as they were applied, in one order, once however often they were
// stored, and to their tenant only.
func TestTermsComeBackAsTheyWere(t *testing.T) {
	db := testkit.DB(t, testkit.Engine(t), "terms")
	first := schema.TermsVersion{
		Tenant: "t'1", Kind: schema.TermsBook, Name: schema.DefaultBook, Hash: strings.Repeat("b", 64), Version: strings.Repeat("c", 64),
		AppliedAtMs: testkit.At("2026-03-01T00:00:00.001Z"), AppliedBy: `o'neil\`, Reason: "line\nbreak", Forced: "因为",
		Content: []byte("currency: USD # \x00'\\\n" + strings.Repeat("#", 1<<20)),
	}
	same := first // applied at the same instant
	same.Hash, same.Content = strings.Repeat("d", 64), []byte("x")
	contract := schema.TermsVersion{Tenant: first.Tenant, Kind: schema.TermsContract, Name: "c-1", Hash: strings.Repeat("a", 64), Version: "v", AppliedAtMs: first.AppliedAtMs + 1, Content: []byte("y")}
	gone := schema.TermsVersion{Tenant: first.Tenant, Kind: schema.TermsContract, Name: "c-1", AppliedAtMs: first.AppliedAtMs + 2, AppliedBy: "ann", Withdrawn: true}
	profile := schema.TermsVersion{Tenant: first.Tenant, Kind: schema.TermsProfile, Name: "aws", Hash: strings.Repeat("e", 64), AppliedAtMs: first.AppliedAtMs + 3, Content: []byte("z")}
	for _, list := range [][]schema.TermsVersion{{gone, profile, same}, {contract, first}, {contract, first, gone}} {
		if err := db.PutTerms(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	want := []schema.TermsVersion{first, same, contract, gone, profile}
	for n, asOf := range map[int]int64{0: first.AppliedAtMs - 1, 2: first.AppliedAtMs, 4: gone.AppliedAtMs, 5: 0} {
		got, err := db.TermsVersions(t.Context(), first.Tenant, asOf)
		if err != nil || len(got) != n {
			t.Fatalf("as of %d: %d versions, %v; want %d", asOf, len(got), err, n)
		}
		for i, w := range want[:n] {
			w.Content = nil
			if fmt.Sprintf("%#v", got[i]) != fmt.Sprintf("%#v", w) {
				t.Errorf("got  %#v\nwant %#v", got[i], w)
			}
		}
	}
	for _, w := range want {
		if content, err := db.TermsContent(t.Context(), &w); err != nil || string(content) != string(w.Content) {
			t.Errorf("content of %s %s differs: %v", w.Kind, w.Name, err)
		}
	}
	if list, err := db.TermsVersions(t.Context(), "other", 0); err != nil || len(list) != 0 {
		t.Errorf("another tenant sees %v, %v", list, err)
	}
	first.Tenant = "other"
	if _, err := db.TermsContent(t.Context(), &first); err == nil {
		t.Error("another tenant reads the content")
	}
}
