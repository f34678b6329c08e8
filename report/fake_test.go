package report

import (
	"cmp"
	"context"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// span is usage in one state: what an aggregator would have made of events.
type span struct {
	from, to int64
	dims     map[string]string
	state    string // active, idle, free, unknown
	util     int64  // millionths; -1 = unknown
	share    int64  // parts of two that the owner is charged; 0 = whole
	storedMs int64
	energyMj int64 // per ms; 0 = not reported
	twice    bool  // several events reported it
	crowded  bool  // claimed by too many
	sign     int64 // -1 takes the time back; 0 = 1
}

// fakeStore answers by walking over all spans for every piece.
type fakeStore struct {
	spans     []span
	events    []schema.StoredEvent
	quality   schema.Quality
	leases    []schema.LeaseSegment
	timelines map[string][]schema.LeaseSegment // by instance: its usage counts while one holds
	sources   []schema.SourceQuality
	conflicts []schema.Conflict
	open      []schema.Incident
	err       error
	queries   []schema.UsageQuery
	extra     []schema.UsageRow // returned besides what spans give
}

func (f *fakeStore) Usage(_ context.Context, q schema.UsageQuery) ([]schema.UsageRow, error) {
	f.queries = append(f.queries, q)
	if f.err != nil {
		return nil, f.err
	}
	rows := map[string]*schema.UsageRow{}
	for instance := range f.timelines {
		f.leased(rows, &q, instance)
	}
	for _, s := range f.spans {
		if f.timelines[s.dims["instance"]] != nil || !matches(s.dims, q.Filter) || q.AsOfMs != 0 && s.storedMs > q.AsOfMs {
			continue
		}
		for i := range len(q.Cuts) - 1 {
			ms := min(s.to, q.Cuts[i+1]) - max(s.from, q.Cuts[i])
			if ms <= 0 {
				continue
			}
			row := rowFor(rows, &q, i, 0, s.dims)
			sums := s.sums(ms)
			if s.sign < 0 {
				sums.ActiveMs, sums.IdleMs, sums.FreeMs, sums.UnknownMs = -sums.ActiveMs, -sums.IdleMs, -sums.FreeMs, -sums.UnknownMs
				sums.UtilizationMs, sums.UtilizationSum, sums.EnergyMj, sums.EnergyMs = 0, nil, 0, 0
				sums.OverlapMs, sums.OversubscribedMs = -sums.OverlapMs, -sums.OversubscribedMs
			}
			row.Add(sums)
		}
	}
	list := slices.Clone(f.extra)
	for _, r := range rows { // in Go's random order, on purpose
		list = append(list, *r)
	}
	return list, nil
}

// rowFor is the row that time belongs to.
func rowFor(rows map[string]*schema.UsageRow, q *schema.UsageQuery, piece, rate int, dims map[string]string) *schema.UsageRow {
	row := schema.UsageRow{Piece: piece, Model: dims["model"], Platform: dims["platform"], Region: dims["region"], Rate: rate}
	for _, key := range q.By {
		row.Keys = append(row.Keys, dims[key])
	}
	id := strings.Join(append([]string{strconv.Itoa(piece), strconv.Itoa(rate), row.Model, row.Platform, row.Region}, row.Keys...), "\x00")
	if rows[id] == nil {
		rows[id] = &row
	}
	return rows[id]
}

// leased adds the usage of an instance while its lease holds GPUs, and of these as many
// as nobody reported. It cuts time wherever anything changes, so that in each part the
// same units report.
func (f *fakeStore) leased(rows map[string]*schema.UsageRow, q *schema.UsageQuery, instance string) {
	cuts := slices.Clone(q.Cuts)
	first, last := cuts[0], cuts[len(cuts)-1]
	for _, s := range f.timelines[instance] {
		cuts = append(cuts, s.FromMs, s.ToMs)
	}
	for _, s := range q.Rated[instance] {
		cuts = append(cuts, s.FromMs, s.ToMs)
	}
	var spans []span
	for _, s := range f.spans {
		if s.dims["instance"] == instance {
			spans = append(spans, s)
			cuts = append(cuts, s.from, s.to)
		}
	}
	if q.NowMs > 0 {
		cuts = append(cuts, q.NowMs)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for k, from := range cuts[:len(cuts)-1] {
		ms := cuts[k+1] - from
		n := slices.IndexFunc(f.timelines[instance], func(s schema.LeaseSegment) bool { return s.FromMs <= from && from < s.ToMs })
		if n < 0 || from < first || from >= last || !f.timelines[instance][n].Held() {
			continue
		}
		lease := &f.timelines[instance][n]
		rate := 0
		for _, s := range q.Rated[instance] {
			if s.FromMs <= from && from < s.ToMs {
				rate = s.Rate
			}
		}
		piece := 0
		for q.Cuts[piece+1] <= from {
			piece++
		}
		reporting := int64(0)
		for _, s := range spans {
			if s.from <= from && from < s.to {
				reporting++ // of its own unit
				if matches(s.dims, q.Filter) {
					rowFor(rows, q, piece, rate, s.dims).Add(s.sums(ms))
				}
			}
		}
		dims := map[string]string{"instance": instance, "project": lease.Project, "platform": lease.Platform, "region": lease.Region, "model": lease.Model}
		if more := lease.Gpus - reporting; more > 0 && matches(dims, q.Filter) && (q.NowMs == 0 || from < q.NowMs) {
			row := rowFor(rows, q, piece, rate, dims)
			if lease.Idle() {
				row.IdleMs += more * ms
			} else {
				row.UnknownMs += more * ms
			}
		}
	}
}

func (s *span) sums(ms int64) *schema.Sums {
	if s.share > 0 {
		ms = ms * s.share / 2
	}
	var v schema.Sums
	switch s.state {
	case "active":
		v.ActiveMs = ms
	case "idle":
		v.IdleMs = ms
	case "free":
		v.IdleMs, v.FreeMs = ms, ms
	default:
		v.UnknownMs = ms
	}
	if s.util >= 0 && s.state != "unknown" {
		v.UtilizationMs, v.UtilizationSum = ms, new(big.Int).Mul(big.NewInt(s.util), big.NewInt(ms))
	}
	if s.energyMj > 0 {
		v.EnergyMj, v.EnergyMs = s.energyMj*ms, ms
	}
	if s.twice {
		v.OverlapMs = ms
	}
	if s.crowded {
		v.OversubscribedMs = ms
	}
	return &v
}

func matches(dims, filter map[string]string) bool {
	for k, v := range filter {
		if dims[k] != v {
			return false
		}
	}
	return true
}

func (f *fakeStore) Events(_ context.Context, q schema.EventQuery) ([]schema.StoredEvent, string, error) {
	if f.err != nil {
		return nil, "", f.err
	}
	var page []schema.StoredEvent
	first, _ := strconv.Atoi(q.After)
	for i := first; i < len(f.events); i++ {
		e := f.events[i]
		dims := map[string]string{"project": e.Project, "instance": e.Instance, "unit": e.Unit, "model": e.Model}
		if e.StartMs >= q.ToMs || e.EndMs <= q.FromMs || !matches(dims, q.Filter) {
			continue
		}
		if len(page) == q.Limit {
			return page, strconv.Itoa(i), nil
		}
		page = append(page, e)
	}
	return page, "", nil
}

func (f *fakeStore) Leases(context.Context, schema.EventQuery) ([]schema.LeaseSegment, error) {
	return f.leases, f.err
}

func (f *fakeStore) Sources(context.Context, string, int64, int64, int64) ([]schema.SourceQuality, int64, error) {
	return f.sources, int64(len(f.sources)), f.err
}

func (f *fakeStore) Quality(context.Context, string, int64, int64, int64) (schema.Quality, error) {
	return f.quality, f.err
}

func (f *fakeStore) Conflicts(_ context.Context, _ string, _, _, _ int64, limit int) ([]schema.Conflict, error) {
	return f.conflicts[:min(limit, len(f.conflicts))], f.err
}

// at reads RFC 3339 or a UTC date.
func at(text string) int64 {
	if !strings.Contains(text, "T") {
		text += "T00:00:00Z"
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

// gpu is one active GPU of project a over [from, to); more are key=value.
func gpu(from, to string, more ...string) span {
	s := span{from: at(from), to: at(to), state: "active", util: 1_000_000, dims: map[string]string{"project": "a", "instance": "i1", "unit": "GPU-0", "model": "m"}}
	for _, kv := range more {
		k, v, _ := strings.Cut(kv, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "state":
			s.state = v
		case "util":
			s.util = n
		case "share":
			s.share = n
		case "energy":
			s.energyMj = n
		case "stored":
			s.storedMs = at(v)
		default:
			s.dims[k] = v
		}
	}
	return s
}

// fixed are terms that never change.
func fixed(book *pricing.Book) func(context.Context, string, int64) (*pricing.Terms, error) {
	return func(context.Context, string, int64) (*pricing.Terms, error) { return &pricing.Terms{Book: book}, nil }
}

// chargesNow is what the time of a request costs.
func chargesNow(t interface {
	Helper()
	Fatal(...any)
}, s *Service, r *Request) *charges {
	t.Helper()
	ch, err := s.charges(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func bookOf(t testing.TB, yaml string) *pricing.Book {
	t.Helper()
	b, err := pricing.Parse("prices.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// p360 is the price of the acceptance cases.
const p360 = "currency: USD\nprices:\n  - {model: m, per_gpu_hour: \"3.60\"}\n"

var clock = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

func service(t testing.TB, store Store, yaml string) *Service {
	t.Helper()
	o := Options{Store: store, Now: func() time.Time { return clock }, Settled: settledUntil(math.MaxInt64)}
	if yaml != "" {
		book := bookOf(t, yaml)
		o.Terms = fixed(book)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// settledUntil is how far a store knows all that the stream stored.
type settledUntil int64

func (s settledUntil) AwaitSettled(_ context.Context, asOfMs int64) error {
	if asOfMs > int64(s) {
		return &UnsettledError{AsOfMs: asOfMs, Waiting: 3}
	}
	return nil
}

func ask(t testing.TB, s *Service, p Params) *Report {
	t.Helper()
	r, err := s.Report(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines writes a report as "keys allocated-seconds cost", one row a line.
func lines(r *Report) string {
	var b strings.Builder
	for i := range r.Rows {
		b.WriteString(strings.Join(r.Rows[i].Keys, ",") + " " + figuresText(&r.Rows[i].Figures, r.Currency) + "\n")
	}
	b.WriteString("= " + figuresText(&r.Totals, r.Currency))
	return b.String()
}

func figuresText(f *Figures, currency string) string {
	seconds := new(big.Rat).SetFrac64(f.AllocatedMs, 1000)
	return pricing.Exact(seconds) + "s " + cmp.Or(amountText(f.Cost, currency), "null")
}

func want(t *testing.T, r *Report, text string) {
	t.Helper()
	text = strings.Join(slices.DeleteFunc(strings.Split(strings.ReplaceAll(text, "\t", ""), "\n"), func(l string) bool { return l == "" }), "\n")
	if got := lines(r); got != text {
		t.Errorf("got\n%s\nwant\n%s", got, text)
	}
}

func (f *fakeStore) Incidents(context.Context, string, int64, int64, int64) ([]schema.Incident, error) {
	return f.open, f.err
}
