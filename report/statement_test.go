package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
	"pgregory.net/rapid"
)

// fakeStatements keeps statements and answers for arrivals from the spans of a
// fakeStore, which are one event each.
type fakeStatements struct {
	*fakeStore
	mu        sync.Mutex
	rows      []schema.Statement
	incidents []schema.Incident
	beforePut func(*schema.Statement)
}

func (f *fakeStatements) Statements(context.Context, string) ([]schema.Statement, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := slices.Clone(append(f.rows, f.rows...)) // repeated, as a store may
	slices.Reverse(rows)
	for i := range rows {
		rows[i].Content = nil
	}
	return rows, nil
}

func (f *fakeStatements) StatementContent(_ context.Context, _, hash string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		if r.Hash == hash {
			return slices.Clone(r.Content), nil
		}
	}
	return nil, errors.New("no such statement")
}

func (f *fakeStatements) PutStatement(_ context.Context, s *schema.Statement) error {
	if f.beforePut != nil {
		f.beforePut(s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, *s)
	return nil
}

func (f *fakeStatements) OtherArrivals(context.Context, schema.ArrivalQuery) ([]schema.OtherArrival, int64, error) {
	return nil, 0, nil
}

func (f *fakeStatements) Arrivals(_ context.Context, q schema.ArrivalQuery) (events []schema.StoredEvent, total int64, err error) {
	for i, s := range f.spans {
		if s.from < q.ToMs && s.to > q.FromMs && s.storedMs > q.AfterMs && s.storedMs <= q.AsOfMs {
			if total++; len(events) < q.Limit {
				e := schema.StoredEvent{Counted: true}
				e.ID, e.StartMs, e.EndMs, e.StoredAtNs = fmt.Sprint(i), s.from, s.to, s.storedMs*1e6
				events = append(events, e)
			}
		}
	}
	return events, total, nil
}

func (f *fakeStatements) Incidents(context.Context, string, int64, int64) ([]schema.Incident, error) {
	return slices.Clone(f.incidents), nil
}

// office closes periods of a fake store at instants that the test sets.
type office struct {
	*Statements
	store *fakeStatements
	now   time.Time
	t     testing.TB
}

func newOffice(t testing.TB, yaml string, spans ...span) *office {
	o := &office{store: &fakeStatements{fakeStore: &fakeStore{spans: spans}}, t: t}
	s := service(t, o.store.fakeStore, yaml)
	s.Now = func() time.Time { return o.now }
	var err error
	if o.Statements, err = NewStatements(StatementOptions{Service: s, Store: o.store, Incidents: o.store, Grace: 72 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *office) at(when string) *office {
	o.now = time.UnixMilli(at(when))
	return o
}

func (o *office) close(period string) *Frozen {
	o.t.Helper()
	f, err := o.Close(o.t.Context(), CloseParams{Period: period, Actor: "ann"})
	if err != nil {
		o.t.Fatalf("closing %s: %v", period, err)
	}
	return f
}

func (o *office) show(period string) *Frozen {
	o.t.Helper()
	f, err := o.Show(o.t.Context(), StatementParams{Period: period})
	if err != nil {
		o.t.Fatal(err)
	}
	return f
}

// refused wants an error with the text, of the type of like.
func refused[E error](t *testing.T, err error, text string) {
	t.Helper()
	var like E
	if !errors.As(err, &like) || !strings.Contains(err.Error(), text) {
		t.Errorf("%T %v; want a %T with %q", err, err, like, text)
	}
}

func brief(f *StatementFigures) string { return fmt.Sprint(f.AllocatedMs, " ", text(f.Cost)) }

func TestClosedMonthStaysAsItWas(t *testing.T) { // B1
	o := newOffice(t, p360,
		gpu("2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z", "stored=2026-03-10T11:00:00Z"),
		gpu("2026-03-31T23:59:00Z", "2026-04-01T00:00:00Z", "stored=2026-04-09"),
		gpu("2026-04-10", "2026-04-11", "stored=2026-04-11"))
	march := o.at("2026-04-05").close("2026-03")
	if march.Totals.AllocatedMs != schema.HourMs || *march.Totals.Cost != "3.60" || march.Previous != "" || len(march.Adjustments) != 0 {
		t.Fatalf("%s", march.JSON())
	}
	o.at("2026-05-04")
	if again := o.show("2026-03"); string(again.JSON()) != string(march.JSON()) || again.Hash != march.Hash || hashOf(again.JSON()) != march.Hash {
		t.Errorf("now %s\nwas %s", again.JSON(), march.JSON())
	}
	preview := o.show("2026-04")
	april := o.close("2026-04")
	for _, f := range []*Frozen{preview, april} {
		if len(f.Adjustments) != 1 {
			t.Fatalf("%s", f.JSON())
		}
		a := f.Adjustments[0]
		if a.Origin != "2026-03" || a.BilledThrough != "2026-04-05T00:00:00Z" || len(a.Rows) != 1 || a.Rows[0].Keys["project"] != "a" || brief(&a.Rows[0].StatementFigures) != "60000 0.06" ||
			brief(&f.Totals) != "86400000 86.40" || brief(&f.Due) != "86460000 86.46" || a.Events.Total != 1 || a.Events.Listed[0].Start != "2026-03-31T23:59:00Z" {
			t.Errorf("%s: %s", f.State, f.JSON())
		}
	}
	if preview.State != StateOpen || april.State != StateClosed || april.Previous != march.Hash {
		t.Errorf("%s %s, follows %q", preview.State, april.State, april.Previous)
	}
	for format, want := range map[string]string{"table": "adjustment of 2026-03, billed through 2026-04-05T00:00:00Z:", "csv": "adjustment,2026-03,a,60000,"} {
		var b strings.Builder
		if err := Write(&b, april, format); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, b.String())
		}
	}
	d, err := o.Diff(t.Context(), DiffParams{Period: "2026-03"})
	if err != nil || brief(&d.Totals) != "60000 0.06" || len(d.Rows) != 1 || d.Events.Total != 1 {
		t.Errorf("%v %s", err, d.JSON())
	}
	d, err = o.Diff(t.Context(), DiffParams{Period: "2026-03", AsOf: "2026-04-08"})
	if err != nil || len(d.Rows) != 0 || brief(&d.Totals) != "0 " || d.Events.Total != 0 || d.AsOf != "2026-04-08T00:00:00Z" {
		t.Errorf("%v %s", err, d.JSON())
	}
}

// Each statement bills what came in since the one before it: not again what that
// one billed, and of months long closed too.
func TestAdjustmentsAreBilledOnce(t *testing.T) {
	o := newOffice(t, p360,
		gpu("2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z", "stored=2026-04-20"),
		gpu("2026-03-11T10:00:00Z", "2026-03-11T10:01:00Z", "stored=2026-05-20"),
		gpu("2026-04-11T10:00:00Z", "2026-04-11T10:02:00Z", "stored=2026-05-21", "project=b"),
		// Stored at the very instant of a closing: billed there, not later.
		gpu("2026-03-12T10:00:00Z", "2026-03-12T10:05:00Z", "stored=2026-05-05"))
	list := func(f *Frozen) (texts []string) {
		for _, a := range f.Adjustments {
			texts = append(texts, a.Origin+" "+brief(&a.Totals))
		}
		return texts
	}
	for _, c := range []struct {
		at, period string
		want       []string
	}{
		{"2026-04-05", "2026-03", nil},
		{"2026-05-05", "2026-04", []string{"2026-03 3900000 3.90"}},
		{"2026-06-05", "2026-05", []string{"2026-03 60000 0.06", "2026-04 120000 0.12"}},
		{"2026-07-05", "2026-06", nil},
	} {
		if got := list(o.at(c.at).close(c.period)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.period, got, c.want)
		}
	}
}

func TestClosingIsRefused(t *testing.T) {
	o := newOffice(t, p360)
	closing := func(p CloseParams) error {
		p.Actor = "ann"
		_, err := o.Close(t.Context(), p)
		return err
	}
	march := CloseParams{Period: "2026-03"}
	refused[*ConflictError](t, o.at("2026-03-31T23:59:59.999Z").try(march), "ends at 2026-04-01T00:00:00Z")
	march.Override = "now"
	refused[*ConflictError](t, closing(march), "ends at 2026-04-01T00:00:00Z") // not even so
	march.Override = ""
	refused[*ConflictError](t, o.at("2026-04-03T23:59:59.999Z").try(march), "waited for until 2026-04-04T00:00:00Z")
	refused[*ConflictError](t, o.try(CloseParams{Period: "2026-03", Zone: "America/New_York"}), "2026-04-04T00:00:00-04:00")
	o.at("2026-04-04")
	for period, zone := range map[string]string{"2026-3": "", "2026-13": "", "1999-12": "", "march": "", "2026-03": "Mars/Olympus"} {
		refused[*RequestError](t, closing(CloseParams{Period: period, Zone: zone}), "")
	}
	refused[*RequestError](t, closing(CloseParams{Period: "2026-03", By: []string{"hour"}}), "day")
	refused[*RequestError](t, closing(CloseParams{Period: "2026-03", Reason: strings.Repeat("x", MaxReason+1)}), "2001 bytes")
	if _, err := o.Close(t.Context(), march); err == nil {
		t.Error("nobody may close a period")
	}
	o.store.incidents = []schema.Incident{
		{Kind: schema.IncidentSourceGap, Key: "agent/1", Detail: "3 missing"}, {Kind: schema.IncidentSilent, Key: "agent/2", ClosedAtMs: 5},
	}
	refused[*ConflictError](t, closing(march), "1 incidents that touch period 2026-03 are open (source_gap agent/1: 3 missing)")
	march.Override = "node burnt"
	f, err := o.Close(t.Context(), CloseParams{Period: "2026-03", Actor: "ann", Override: "node burnt"})
	if err != nil || f.Override != "node burnt" || f.IncidentsTotal != 1 || f.Incidents[0].Key != "agent/1" {
		t.Fatalf("%v %s", err, f.JSON())
	}
	var table strings.Builder
	if err := f.Table(&table); err != nil || !strings.Contains(table.String(), "open incidents: node burnt") || !strings.Contains(table.String(), "open incident: source_gap agent/1: 3 missing") {
		t.Error(table.String())
	}
	refused[*ConflictError](t, o.at("2026-05-01").try(march), "was closed at 2026-04-04T00:00:00Z by ann")
	refused[*ConflictError](t, o.at("2026-04-03").try(CloseParams{Period: "2026-02"}), "clock is behind")
	refused[*ConflictError](t, o.at("2026-06-03").try(CloseParams{Period: "2026-04", Zone: "Asia/Shanghai"}), "are in the zone UTC")
	_, err = o.Diff(t.Context(), DiffParams{Period: "2026-02"})
	refused[*NotClosedError](t, err, "2026-02 of tenant default is not closed")
	_, err = o.Diff(t.Context(), DiffParams{Period: "2026-03", AsOf: "2026-04-01"})
	refused[*RequestError](t, err, "before the period was closed")
	_, err = o.Diff(t.Context(), DiffParams{Period: "2026-03", AsOf: "2026-06-04"})
	refused[*RequestError](t, err, "in the future")
	_, err = o.Show(t.Context(), StatementParams{Period: "2026-07"})
	refused[*RequestError](t, err, "nothing to show yet")
}

func (o *office) try(p CloseParams) error {
	p.Actor = "ann"
	_, err := o.Close(o.t.Context(), p)
	return err
}

// An answer as of an instant is refused while it could change.
func TestAsOfHasToBeSettled(t *testing.T) {
	o := newOffice(t, p360, gpu("2026-03-10T10:00:00Z", "2026-03-10T11:00:00Z", "stored=2026-03-10T11:00:00Z"))
	o.at("2026-04-05")
	o.Service.Settled = settledUntil(at("2026-04-04"))
	refused[*UnsettledError](t, o.try(CloseParams{Period: "2026-03"}), "3 messages of the stream are not processed yet")
	for asOf, want := range map[string]string{"2026-04-04": "", "2026-04-04T00:00:00.001Z": "could still change", "2026-04-05": "could still change", "2026-04-05T00:00:00.001Z": "in the future"} {
		_, err := o.Service.Report(t.Context(), Params{From: "2026-03-01", To: "2026-04-01", AsOf: asOf})
		_, explained := o.Service.Explain(t.Context(), ExplainParams{Params: Params{From: "2026-03-01", To: "2026-04-01", AsOf: asOf}})
		for _, err := range []error{err, explained} {
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("as of %s: %v, want %q", asOf, err, want)
			}
		}
	}
	o.Service.Settled = settledUntil(math.MaxInt64)
	o.close("2026-03")
	o.Service.Settled = settledUntil(at("2026-04-04"))
	_, err := o.at("2026-04-06").Diff(t.Context(), DiffParams{Period: "2026-03", AsOf: "2026-04-06"})
	refused[*UnsettledError](t, err, "could still change")
	blind, err := New(Options{Store: o.store.fakeStore})
	if err != nil {
		t.Fatal(err)
	}
	_, err = blind.Report(t.Context(), Params{AsOf: "2026-04-01"})
	refused[*UnsettledError](t, err, "no access to the stream")
}

// Two who close at the same time: one counts for all readers, the other is told.
func TestTwoClosingsAtOnce(t *testing.T) {
	for _, other := range []string{"2026-03", "2026-02"} {
		o := newOffice(t, p360)
		o.at("2026-04-05")
		rival, err := NewStatements(o.StatementOptions) // as of another process
		if err != nil {
			t.Fatal(err)
		}
		o.store.beforePut = func(*schema.Statement) {
			o.store.beforePut = nil
			o.now = o.now.Add(-time.Second)
			if _, err := rival.Close(t.Context(), CloseParams{Period: other, Actor: "bob"}); err != nil {
				t.Fatal(err)
			}
			o.now = o.now.Add(time.Second)
		}
		err = o.try(CloseParams{Period: "2026-03"})
		want := map[string]string{"2026-03": "closed at 2026-04-04T23:59:59Z by bob", "2026-02": "at the same time as 2026-02"}[other]
		refused[*ConflictError](t, err, want)
		if list, err := o.List(t.Context(), ""); err != nil || len(list.Statements) != 1 || list.Statements[0].ClosedBy != "bob" {
			t.Errorf("%v, %v", list, err)
		}
	}
}

func TestChain(t *testing.T) {
	st := func(hash, previous string, closedAt int64) schema.Statement {
		return schema.Statement{Period: hash, Hash: hash, Previous: previous, ClosedAtMs: closedAt}
	}
	for _, c := range []struct {
		name, want string
		rows       []schema.Statement
	}{
		{"in order", "a b c", []schema.Statement{st("c", "b", 3), st("a", "", 1), st("b", "a", 2)}},
		{"the first at a fork", "a b", []schema.Statement{st("a", "", 1), st("c", "a", 3), st("b", "a", 2)}},
		{"the lower hash at the same time", "a b", []schema.Statement{st("a", "", 1), st("c", "a", 2), st("b", "a", 2)}},
		{"the one built upon", "a c d", []schema.Statement{st("a", "", 1), st("b", "a", 2), st("c", "a", 3), st("d", "c", 4)}},
		{"one is missing", "is missing", []schema.Statement{st("a", "", 1), st("c", "b", 3)}},
		{"the first is missing", "is missing", []schema.Statement{st("b", "a", 3)}},
		{"none", "", nil},
	} {
		list, err := chain("default", c.rows)
		var names []string
		for _, s := range list {
			names = append(names, s.Hash)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestChangedStatementIsAnError(t *testing.T) {
	o := newOffice(t, p360).at("2026-04-05")
	o.close("2026-03")
	o.store.rows[0].Content = []byte(strings.Replace(string(o.store.rows[0].Content), "ann", "bob", 1))
	if _, err := o.Show(t.Context(), StatementParams{Period: "2026-03"}); err == nil || !strings.Contains(err.Error(), "was changed after closing") {
		t.Errorf("%v", err)
	}
}

// A new price list does not touch what is closed; the difference shows it (J1). One that
// says that it always held makes no adjustment either.
func TestNewPricesLeaveClosedMonthsAlone(t *testing.T) {
	o := newOffice(t, p360, gpu("2026-03-01", "2026-04-01", "stored=2026-04-01"), gpu("2026-03-05", "2026-03-06", "stored=2026-04-06", "project=b"))
	march := o.at("2026-04-05").close("2026-03")
	changed := bookOf(t, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"3.60\", valid_to: 2026-03-15}\n  - {model: m, per_gpu_hour: \"2.88\", valid_from: 2026-03-15}\n")
	o.Service.Terms = fixed(changed)
	o.at("2026-05-05")
	if again := o.show("2026-03"); string(again.JSON()) != string(march.JSON()) || *again.Totals.Cost != "2678.40" {
		t.Errorf("%s", again.JSON())
	}
	if a := o.close("2026-04").Adjustments; len(a) != 1 || brief(&a[0].Totals) != "86400000 86.40" || len(a[0].Rows) != 1 {
		t.Errorf("%+v", a)
	}
	d, err := o.Diff(t.Context(), DiffParams{Period: "2026-03"})
	if err != nil || brief(&d.Totals) != "86400000 -207.36" || *d.PriceVersion == *d.PriceVersionNow { // 2384.64 + 86.40 - 2678.40
		t.Errorf("%v %s", err, d.JSON())
	}
	r := ask(t, o.Service, Params{From: "2026-03-01", To: "2026-04-01", Filter: map[string]string{"project": "a"}})
	if amountText(r.Totals.Cost, "USD") != "2384.64" {
		t.Errorf("J1: %v", r.Totals.Cost)
	}
}

// changing has the prices of the properties until an instant, and others from then on.
func changing(t testing.TB, atMs int64) func(context.Context, string, int64) (*pricing.Terms, error) {
	old, new := bookOf(t, propertyPrices), bookOf(t, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"1.7\"}\n  - {model: unlisted, per_gpu_hour: \"0.01\", valid_from: 2026-03-03}\n")
	return func(_ context.Context, _ string, asOfMs int64) (*pricing.Terms, error) {
		if asOfMs != 0 && asOfMs < atMs {
			return &pricing.Terms{Book: old}, nil
		}
		return &pricing.Terms{Book: new}, nil
	}
}

// A price that is changed for a closed month is billed as an adjustment by the next
// statement, also when no event came in, with the version that it is from; and once.
func TestChangedPriceIsAnAdjustment(t *testing.T) {
	o := newOffice(t, "", gpu("2026-03-01", "2026-04-01", "stored=2026-04-01"), gpu("2026-04-01", "2026-05-01", "stored=2026-05-01"))
	old, new := bookOf(t, p360), bookOf(t, "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"3.60\", valid_to: 2026-03-15}\n  - {model: m, per_gpu_hour: \"2.88\", valid_from: 2026-03-15}\n")
	applied := at("2026-04-20")
	o.Service.Terms = func(_ context.Context, _ string, asOfMs int64) (*pricing.Terms, error) {
		if asOfMs < applied {
			return &pricing.Terms{Book: old}, nil
		}
		return &pricing.Terms{Book: new}, nil
	}
	o.Versions = func(context.Context, string, int64) ([]schema.TermsVersion, error) {
		return []schema.TermsVersion{
			{Kind: schema.TermsBook, Name: "default", Version: old.Hash, AppliedAtMs: at("2026-02-01")}, {Kind: schema.TermsContract, Name: "c", AppliedAtMs: at("2026-03-02")},
			{Kind: schema.TermsBook, Name: "default", Version: new.Hash, AppliedAtMs: applied, AppliedBy: "bob", Reason: "renegotiated", Forced: "agreed with finance"},
		}, nil
	}
	march := o.at("2026-04-05").close("2026-03")
	if *march.Totals.Cost != "2678.40" || *march.PriceVersion != old.Hash {
		t.Fatalf("%s", march.JSON())
	}
	d, err := o.at("2026-05-05").Diff(t.Context(), DiffParams{Period: "2026-03"})
	if err != nil || brief(&d.Totals) != "0 -293.76" || len(d.Prices) != 1 {
		t.Errorf("%v %s", err, d.JSON())
	}
	april := o.close("2026-04")
	if len(april.Adjustments) != 1 || *april.Totals.Cost != "2073.60" || *april.Due.Cost != "1779.84" {
		t.Fatalf("%s", april.JSON())
	}
	a := april.Adjustments[0]
	want := PriceSource{Kind: "book", Name: "default", Version: new.Hash, AppliedAt: "2026-04-20T00:00:00Z", AppliedBy: "bob", Reason: "renegotiated", Forced: "agreed with finance"}
	if a.Origin != "2026-03" || brief(&a.Totals) != "0 -293.76" || a.Events.Total != 0 || len(a.Prices) != 1 || a.Prices[0] != want { // 408 h x -0.72
		t.Errorf("%+v", a)
	}
	var b strings.Builder
	if err := Write(&b, april, "table"); err != nil || !strings.Contains(b.String(), "applied at 2026-04-20T00:00:00Z by bob: renegotiated; in spite of closed periods: agreed with finance") {
		t.Errorf("%v\n%s", err, b.String())
	}
	if again := o.show("2026-03"); string(again.JSON()) != string(march.JSON()) {
		t.Errorf("March changed: %s", again.JSON())
	}
	if may := o.at("2026-06-05").close("2026-05"); len(may.Adjustments) != 0 {
		t.Errorf("billed twice: %s", may.JSON())
	}
}

// Prices in another currency cannot be set off against what was billed.
func TestAdjustmentOfTwoCurrencies(t *testing.T) {
	o := newOffice(t, p360, gpu("2026-03-01", "2026-04-01", "stored=2026-04-01"))
	o.at("2026-04-05").close("2026-03")
	usd, eur := o.Service.Terms, fixed(bookOf(t, "currency: EUR\nprices:\n  - {model: m, per_gpu_hour: \"3.60\"}\n"))
	o.Service.Terms = func(ctx context.Context, tenant string, asOfMs int64) (*pricing.Terms, error) {
		if asOfMs <= at("2026-04-05") {
			return usd(ctx, tenant, asOfMs)
		}
		return eur(ctx, tenant, asOfMs)
	}
	_, err := o.at("2026-05-05").Close(t.Context(), CloseParams{Period: "2026-04", Actor: "ann"})
	refused[*ConflictError](t, err, "period 2026-03 was billed in USD and the price list is now in EUR")
}

// Prices that are applied at the closing instant, behind the back of the one who
// closes, are not taken for billed.
func TestPricesAppliedWhileClosing(t *testing.T) {
	o := newOffice(t, p360, gpu("2026-03-01", "2026-04-01", "stored=2026-04-01"))
	asked, old, new := 0, o.Service.Terms, fixed(bookOf(t, propertyPrices))
	o.Service.Terms = func(ctx context.Context, tenant string, asOfMs int64) (*pricing.Terms, error) {
		if asked++; asked > 1 {
			return new(ctx, tenant, asOfMs)
		}
		return old(ctx, tenant, asOfMs)
	}
	_, err := o.at("2026-04-05").Close(t.Context(), CloseParams{Period: "2026-03", Actor: "ann"})
	refused[*ConflictError](t, err, "prices were applied while period 2026-03 was being closed")
}

func TestUnpricedTimeIsNotZero(t *testing.T) {
	o := newOffice(t, "", gpu("2026-03-05", "2026-03-06", "stored=2026-03-06"), gpu("2026-03-06", "2026-03-07", "stored=2026-04-07")).at("2026-04-05")
	march := o.close("2026-03")
	if march.Totals.Cost != nil || march.Due.Cost != nil || march.Totals.UnpricedMs != dayMs || march.Currency != nil {
		t.Errorf("%s", march.JSON())
	}
	if a := o.at("2026-05-05").close("2026-04").Adjustments; len(a) != 1 || a[0].Totals.Cost != nil || a[0].Totals.UnpricedMs != dayMs {
		t.Errorf("%+v", a)
	}
}

// The statements of a tenant add up to its closed months as known at the last
// closing, exactly, whatever arrives when; what is shown is off by less than one
// last digit per statement and origin. Frozen bytes do not change. A difference is
// what is known now minus what is frozen.
func TestStatementsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(rt, "zone")
		o := newOffice(t, propertyPrices)
		o.Service.Terms = changing(t, at("2026-05-05")+rapid.Int64Range(-dayMs, 120*dayMs).Draw(rt, "prices applied"))
		for range rapid.IntRange(1, 10).Draw(rt, "events") {
			from := at("2026-01-20") + rapid.Int64Range(0, 100*dayMs).Draw(rt, "from")
			s := gpu("2026-01-01", "2026-01-02", "project="+rapid.SampledFrom([]string{"a", "b", ""}).Draw(rt, "project"),
				"model="+rapid.SampledFrom([]string{"m", "n", "unlisted"}).Draw(rt, "model"), "state="+rapid.SampledFrom([]string{"active", "idle", "free", "unknown"}).Draw(rt, "state"))
			s.from, s.to = from, from+rapid.Int64Range(1, 9*dayMs).Draw(rt, "length")
			s.storedMs = s.to
			if rapid.Bool().Draw(rt, "late") {
				s.storedMs = at("2026-05-05") + rapid.Int64Range(0, 150*dayMs).Draw(rt, "stored")
			}
			if rapid.IntRange(0, 3).Draw(rt, "retracts") == 0 { // takes time back, as a correction does
				s.sign = -1
				o.store.spans = append(o.store.spans, func() span { w := s; w.sign, w.storedMs = 1, w.from; return w }())
			}
			o.store.spans = append(o.store.spans, s)
		}
		order := rapid.Permutation([]string{"2026-02", "2026-03", "2026-04"}).Draw(rt, "order")
		o.at("2026-05-05")
		var last string
		frozen := map[string]string{}
		var billed sums
		for _, p := range order {
			o.now = o.now.Add(time.Duration(rapid.Int64Range(0, 60*dayMs).Draw(rt, "pause")) * time.Millisecond)
			f, err := o.Close(t.Context(), CloseParams{Period: p, Actor: "x", Zone: zone})
			if err != nil {
				rt.Fatal(err)
			}
			frozen[p], last = string(f.JSON()), f.AsOf
			due, err := (&Statement{By: []string{}, Rows: []StatementRow{{StatementFigures: f.Due}}}).exactLines()
			if err != nil {
				rt.Fatal(err)
			}
			billed.exact.accumulate(&due[0].Figures, 1)
			if shown := f.Due.Cost; shown != nil {
				amount, _ := new(big.Rat).SetString(*shown)
				billed.shown.accumulate(&Figures{Cost: amount}, 1)
			}
		}
		var known Figures
		for _, p := range order {
			req, err := o.request("default", p, zone, nil, nil)
			if err != nil {
				rt.Fatal(err)
			}
			req.AsOfMs = at(last)
			_, totals, err := o.Service.collect(t.Context(), &req, chargesNow(t, o.Service, &req))
			if err != nil {
				rt.Fatal(err)
			}
			f := totals.figures()
			known.accumulate(&f, 1)
		}
		if got, want := comparable(billed.exact), comparable(known); got != want {
			rt.Fatalf("in the order %v statements add up to %s, known is %s", order, got, want)
		}
		if known.Cost != nil {
			off := new(big.Rat).Sub(known.Cost, orZero(billed.shown.Cost))
			if off.Abs(off).Cmp(big.NewRat(6, 1_000_000)) >= 0 {
				rt.Fatalf("shown amounts are off by %s", off)
			}
		}
		o.now = o.now.Add(time.Duration(rapid.Int64Range(0, 90*dayMs).Draw(rt, "later")) * time.Millisecond)
		for p, was := range frozen {
			if now := string(o.show(p).JSON()); now != was || !json.Valid([]byte(now)) {
				rt.Fatalf("%s changed:\n%s\n%s", p, now, was)
			}
			checkDifference(rt, o, p, zone, was)
		}
	})
}

func orZero(x *big.Rat) *big.Rat {
	if x == nil {
		return new(big.Rat)
	}
	return x
}

func checkDifference(t *rapid.T, o *office, p, zone, was string) {
	d, err := o.Diff(o.t.Context(), DiffParams{Period: p})
	if err != nil {
		t.Fatal(err)
	}
	var doc Statement
	if err := json.Unmarshal([]byte(was), &doc); err != nil {
		t.Fatal(err)
	}
	then, err1 := doc.exactLines()
	change, err2 := (&Statement{By: d.By, Rows: d.Rows}).exactLines()
	req, err3 := o.request("default", p, zone, nil, nil)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	groups, _, err := o.Service.collect(o.t.Context(), &req, chargesNow(o.t, o.Service, &req))
	if err != nil {
		t.Fatal(err)
	}
	byKey := func(lists ...[]line) map[string]Figures {
		m := map[string]Figures{}
		for _, list := range lists {
			for _, l := range list {
				f := m[l.keys[0]]
				f.accumulate(&l.Figures, 1)
				m[l.keys[0]] = f
			}
		}
		return m
	}
	sum, now := byKey(then, change), byKey(linesOf(groups))
	for key := range byKey(then, change, linesOf(groups)) {
		if got, want := comparable(sum[key]), comparable(now[key]); got != want {
			t.Fatalf("%s of %q: frozen plus difference is %s, known now is %s", p, key, got, want)
		}
	}
}
