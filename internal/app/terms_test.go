package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/internal/testkit"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
	"github.com/gpumeter/gpumeter/web"
)

// memoryTerms is a termsDB as the real one behaves.
type memoryTerms struct {
	mu    sync.Mutex
	rows  []schema.TermsVersion
	reads int
}

func (m *memoryTerms) PutTerms(_ context.Context, versions []schema.TermsVersion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = append(m.rows, versions...)
	return nil
}

func (m *memoryTerms) TermsVersions(_ context.Context, tenant string, asOfMs int64) (list []schema.TermsVersion, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.rows {
		if v.Content = nil; v.Tenant == tenant && (asOfMs == 0 || v.AppliedAtMs <= asOfMs) {
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(a, b schema.TermsVersion) int {
		if a.AppliedAtMs != b.AppliedAtMs {
			return int(a.AppliedAtMs - b.AppliedAtMs)
		}
		return strings.Compare(a.Hash, b.Hash)
	})
	return list, nil
}

func (m *memoryTerms) TermsContent(_ context.Context, v *schema.TermsVersion) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	for _, r := range m.rows {
		if r.Tenant == v.Tenant && r.Kind == v.Kind && r.Name == v.Name && r.Hash == v.Hash {
			return r.Content, nil
		}
	}
	return nil, errors.New("not there")
}

// desk applies documents at instants that the test sets.
type desk struct {
	*termsStore
	t      *testing.T
	memory *memoryTerms
	nowMs  int64
	closed []schema.Statement
}

func (d *desk) Now() time.Time           { return time.UnixMilli(d.nowMs) }
func (d *desk) At(t time.Time) time.Time { return t }

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, memory: &memoryTerms{}}
	var err error
	if d.termsStore, err = newTermsStore(d.memory, d); err != nil {
		t.Fatal(err)
	}
	d.termsStore.closed = func(context.Context, string) ([]schema.Statement, error) { return d.closed, nil }
	return d
}

func (d *desk) at(when string) *desk { d.nowMs = testkit.At(when); return d }

func (d *desk) try(force string, texts ...string) (*web.AppliedPrices, error) {
	r := web.ApplyRequest{By: "ann", Reason: "why", Force: force}
	for i, text := range texts {
		r.Documents = append(r.Documents, web.PriceFile{File: fmt.Sprintf("f%d.yaml", i), Content: text})
	}
	return d.Apply(d.t.Context(), "default", r)
}

func (d *desk) apply(texts ...string) *web.AppliedPrices {
	d.t.Helper()
	a, err := d.try("", texts...)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

// price is what a GPU-hour of any model costs at an instant, as known at another.
func (d *desk) price(at, asOf string) string {
	d.t.Helper()
	asOfMs := int64(0)
	if asOf != "" {
		asOfMs = testkit.At(asOf)
	}
	terms, err := d.Terms(d.t.Context(), "default", asOfMs)
	if err != nil {
		d.t.Fatal(err)
	}
	p, ok := terms.Book.Price("m", "", "", testkit.At(at))
	if !ok {
		return "unpriced"
	}
	return p.PerGPUHour.RatString() + " " + terms.Book.Currency
}

const (
	flat    = "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 4}\n"
	halfway = "currency: USD\nprices:\n  - {model: m, per_gpu_hour: 4, valid_to: 2026-03-15}\n  - {model: m, per_gpu_hour: 2, valid_from: 2026-03-15}\n"
)

func contract(id, from, to string) string {
	return fmt.Sprintf("contract: %s\nplatform: p\ncurrency: USD\nvalid_from: %s\nvalid_to: %s\n", id, from, to)
}

func TestTermsAsKnownAtAnInstant(t *testing.T) {
	d := newDesk(t)
	if got := d.price("2026-03-20T00:00:00Z", ""); got != "unpriced" {
		t.Errorf("before anything was applied: %s", got)
	}
	first := d.at("2026-03-10T00:00:00Z").apply(flat)
	if a := first.Documents[0]; a.Unchanged || a.Previous != "" || a.ChangesTotal != 1 || a.Version.AppliedAt != "2026-03-10T00:00:00.000Z" {
		t.Errorf("%+v", a)
	}
	if a := d.at("2026-03-11T00:00:00Z").apply(flat).Documents[0]; !a.Unchanged || a.Version.AppliedAt != "2026-03-10T00:00:00.000Z" || len(d.memory.rows) != 1 {
		t.Errorf("applied again: %+v, %d versions", a, len(d.memory.rows))
	}
	d.at("2026-03-20T00:00:00Z").apply(halfway)
	for asOf, want := range map[string]string{
		"2026-03-09T23:59:59.999Z": "unpriced", "2026-03-10T00:00:00Z": "4 USD", "2026-03-19T23:59:59.999Z": "4 USD", "2026-03-20T00:00:00Z": "2 USD", "": "2 USD",
	} {
		if got := d.price("2026-03-16T00:00:00Z", asOf); got != want {
			t.Errorf("as of %q: %s, want %s", asOf, got, want)
		}
	}
	reads := d.memory.reads
	if d.price("2026-03-16T00:00:00Z", ""); d.memory.reads != reads {
		t.Error("a document is read again although it cannot change")
	}
	// Another process that starts sees the same; it checks what it reads.
	again := newDesk(t)
	again.memory.rows = slices.Clone(d.memory.rows)
	if got := again.price("2026-03-16T00:00:00Z", "2026-03-15T00:00:00Z"); got != "4 USD" {
		t.Error(got)
	}
	again.memory.rows[1].Content = []byte(flat)
	if _, err := again.Terms(t.Context(), "default", 0); err == nil || !strings.Contains(err.Error(), "was changed after it was applied") {
		t.Errorf("changed content: %v", err)
	}
}

// Of two that are applied at once, or with a clock that went back, each is later than
// what was there.
func TestVersionsRise(t *testing.T) {
	d := newDesk(t).at("2026-03-10T00:00:00Z")
	d.apply(flat)
	d.apply(halfway)
	d.at("2026-03-01T00:00:00Z").apply(flat)
	var at []int64
	for _, v := range d.memory.rows {
		at = append(at, v.AppliedAtMs-testkit.At("2026-03-10T00:00:00Z"))
	}
	if fmt.Sprint(at) != "[0 1 2]" || d.price("2026-03-16T00:00:00Z", "") != "4 USD" {
		t.Errorf("applied at %v, and then %s", at, d.price("2026-03-16T00:00:00Z", ""))
	}
	d.closed = []schema.Statement{{Period: "2026-01", AsOfMs: testkit.At("2026-03-10T00:00:01Z")}}
	if a := d.apply(contract("c", "2026-03-01", "2026-04-01")).Documents[0]; a.Version.AppliedAt != "2026-03-10T00:00:01.001Z" {
		t.Errorf("after a closing: %+v", a)
	}
}

// Two processes can apply at the same instant: both versions are kept, and everybody
// takes the same one.
func TestVersionsOfOneInstant(t *testing.T) {
	one, other := newDesk(t).at("2026-03-10T00:00:00Z"), newDesk(t).at("2026-03-10T00:00:00Z")
	one.apply(flat)
	other.apply(halfway)
	rows := []schema.TermsVersion{one.memory.rows[0], other.memory.rows[0]}
	want := "4 USD"
	if rows[1].Hash > rows[0].Hash {
		want = "2 USD"
	}
	for _, d := range []*desk{one, other} {
		d.memory.rows = rows
		if got := d.price("2026-03-16T00:00:00Z", ""); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if list, err := d.List(t.Context(), "default"); err != nil || len(list.Documents[0].Versions) != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	}
}

func TestContractsAndProfiles(t *testing.T) {
	d := newDesk(t)
	profile, err := os.ReadFile("../../pricing/profiles/aws.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d.at("2026-03-01T00:00:00Z").apply(contract("z", "2026-01-01", "2027-01-01"))
	d.at("2026-03-02T00:00:00Z").apply(contract("b", "2026-01-01", "2027-01-01"), contract("a", "2026-01-01", "2027-01-01"))
	d.at("2026-03-03T00:00:00Z").apply(contract("z", "2026-01-01", "2026-12-01"), strings.Replace(string(profile), "zone: ", "zone: Asia/Tokyo # ", 1))
	if _, err := d.at("2026-03-04T00:00:00Z").Withdraw(t.Context(), "default", "contract", "b", web.ApplyRequest{By: "bob", Reason: "ended"}); err != nil {
		t.Fatal(err)
	}
	show := func(asOf string) string {
		terms, err := d.Terms(t.Context(), "default", testkit.At(asOf))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, c := range terms.Contracts {
			list = append(list, c.ID)
		}
		return fmt.Sprint(list, " ", terms.Profile("aws").Zone, " ", len(terms.Profiles))
	}
	shipped := len(d.shipped)
	for asOf, want := range map[string]string{
		"2026-03-01T00:00:00Z": "[z] ", "2026-03-02T00:00:00Z": "[z a b] ", "2026-03-03T00:00:00Z": "[z a b] Asia/Tokyo", "2026-03-04T00:00:00Z": "[z a] Asia/Tokyo",
	} {
		if got := show(asOf); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, fmt.Sprint(" ", shipped)) || !strings.Contains(want, "Tokyo") && strings.Contains(got, "Tokyo") {
			t.Errorf("as of %s: %s, want %s and %d profiles", asOf, got, want, shipped)
		}
	}
	for _, c := range [][2]string{{"contract", "b"}, {"contract", "none"}, {"profile", "gcp"}} {
		if _, err := d.Withdraw(t.Context(), "default", c[0], c[1], web.ApplyRequest{By: "bob", Reason: "x"}); !errors.Is(err, web.ErrNotFound) {
			t.Errorf("%v: %v", c, err)
		}
	}
	list, err := d.List(t.Context(), "default")
	if err != nil || len(list.Documents) != 4 || len(list.Documents[0].Versions) != 2 || list.Documents[0].Current.Version != list.Documents[0].Versions[1].Version {
		t.Errorf("%+v, %v", list, err)
	}
	if content, v, err := d.Content(t.Context(), "default", "contract", "z", list.Documents[0].Versions[0].Version); err != nil || string(content) != contract("z", "2026-01-01", "2027-01-01") || v.AppliedBy != "ann" {
		t.Errorf("%s %+v %v", content, v, err)
	}
	for _, version := range []string{"", "nonsense"} {
		if _, _, err := d.Content(t.Context(), "default", "contract", "b", version); !errors.Is(err, web.ErrNotFound) {
			t.Errorf("version %q of what is withdrawn: %v", version, err)
		}
	}
}

// A closed period is changed with a reason only; and of several documents either all
// are applied or none.
func TestClosedPeriodsAreProtected(t *testing.T) {
	d := newDesk(t).at("2026-03-01T00:00:00Z")
	d.apply(flat)
	d.closed = []schema.Statement{{Period: "2026-03", FromMs: testkit.At("2026-03-01T00:00:00Z"), ToMs: testkit.At("2026-04-01T00:00:00Z"), AsOfMs: testkit.At("2026-04-05T00:00:00Z")}}
	d.at("2026-04-10T00:00:00Z")
	const eur = "currency: EUR\nprices: []\n"
	for _, c := range []struct {
		name, want string // "" = applied
		force      string
		texts      []string
	}{
		{"a change in the middle of it", "period 2026-03 is closed, and the book default changes it: m, platform any other, region any other: 2 USD per GPU-hour instead of 4 USD per GPU-hour, from 2026-03-15T00:00:00Z to further notice", "", []string{halfway}},
		{"with a contract of another year", "--force REASON", "", []string{contract("later", "2027-01-01", "2028-01-01"), halfway}},
		{"a contract in it", "contract c is applied, from 2026-03-31T00:00:00Z", "", []string{contract("c", "2026-03-31", "2026-04-30")}},
		{"a profile", "period 2026-03 is closed, and the profile x changes it: the profile of platform x is applied", "", []string{"platform: x\nzone: UTC\nbilled: {compute: [running], storage: []}\n"}},
		{"another currency", "no reason can force it", "because", []string{eur}},
		{"prices from its end on", "", "", []string{strings.ReplaceAll(halfway, "2026-03-15", "2026-04-01")}},
		{"the same prices in other words", "", "", []string{strings.ReplaceAll(halfway, "2026-03-15", "2026-04-01") + "# a word\n"}},
		{"a contract from its end on", "", "", []string{contract("c", "2026-04-01", "2026-05-01")}},
		{"forced", "", "agreed", []string{halfway}},
	} {
		before := len(d.memory.rows)
		a, err := d.try(c.force, c.texts...)
		if c.want == "" {
			if err != nil || len(d.memory.rows) != before+1 {
				t.Errorf("%s: %v", c.name, err)
			} else if forced := d.memory.rows[before].Forced; forced != c.force || (len(a.Documents[0].ClosedPeriods) > 0) != (c.force != "") {
				t.Errorf("%s: forced %q, %+v", c.name, forced, a)
			}
			continue
		}
		var conflict *report.ConflictError
		if !errors.As(err, &conflict) || !strings.Contains(err.Error(), c.want) || len(d.memory.rows) != before {
			t.Errorf("%s: %v, %d versions more", c.name, err, len(d.memory.rows)-before)
		}
	}
	dry, err := d.Apply(t.Context(), "default", web.ApplyRequest{By: "a", Reason: "b", DryRun: true, Documents: []web.PriceFile{{File: "f", Content: flat}}})
	if err != nil || !strings.Contains(dry.Refused, "--force REASON") || len(dry.Documents[0].Changes) != 1 || dry.Documents[0].Version.AppliedAt != "" || d.price("2026-03-20T00:00:00Z", "") != "2 USD" {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
}

func TestDocumentsThatAreNotValid(t *testing.T) {
	d := newDesk(t).at("2026-03-01T00:00:00Z")
	for want, texts := range map[string][]string{
		"f1.yaml:2:1: unknown key":     {flat, "currency: USD\nprises: []\n"},
		"f1.yaml: is the book default": {flat, halfway},
		"f0.yaml: empty":               {""},
	} {
		_, err := d.try("", texts...)
		var invalid *web.InvalidDocument
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) || len(d.memory.rows) > 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, r := range []web.ApplyRequest{{By: "ann"}, {Reason: "x"}, {By: strings.Repeat("x", 201), Reason: "x"}, {By: "ann", Reason: "x"}} {
		var wrong *report.RequestError
		if _, err := d.Apply(t.Context(), "default", r); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := d.Withdraw(t.Context(), "default", "book", "default", web.ApplyRequest{By: "ann", Reason: "x"}); err == nil || !strings.Contains(err.Error(), "cannot be withdrawn") {
		t.Error(err)
	}
}
