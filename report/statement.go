package report

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpumeter/gpumeter/schema"
)

// StatementStore keeps closed periods.
type StatementStore interface {
	// Statements returns every statement of a tenant that was ever stored, in
	// any order, possibly several times, without Content.
	Statements(ctx context.Context, tenant string) ([]schema.Statement, error)
	// StatementContent returns the Content of the statement with that hash.
	StatementContent(ctx context.Context, tenant, hash string) ([]byte, error)
	// PutStatement stores a statement. When it returns nil the statement is on
	// disk.
	PutStatement(ctx context.Context, s *schema.Statement) error
	// Arrivals lists what was first stored in a span of stream time and can
	// change the usage of a span of event time, by the order of storing, and
	// counts all of it. It must leave out nothing that can change usage: a
	// period without arrivals is taken as unchanged.
	Arrivals(ctx context.Context, q schema.ArrivalQuery) (events []schema.StoredEvent, total int64, err error)
	// OtherArrivals does the same for lease events and corrections. It may return
	// some that turn out to change nothing.
	OtherArrivals(ctx context.Context, q schema.ArrivalQuery) (events []schema.OtherArrival, total int64, err error)
}

// Incidents knows what makes data incomplete or doubtful.
type Incidents interface {
	// Incidents returns the incidents that touch a span of event time, open and
	// closed ones.
	Incidents(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Incident, error)
}

// DefaultGrace is how long after its end a period stays open for late events.
const DefaultGrace = 10 * time.Minute

// Bounds of what a person may say on closing, in bytes.
const (
	MaxActor  = 200
	MaxReason = 2000
)

// MaxStatementIncidents is how many open incidents a statement lists at most.
const MaxStatementIncidents = 100

// StatementOptions configure Statements.
type StatementOptions struct {
	Service   *Service       // computes the figures; required
	Store     StatementStore // required
	Incidents Incidents      // required
	Grace     time.Duration  // DefaultGrace when 0
	// Versions lists what the tenant applied by an instant, in the order of applying, so
	// that an adjustment can say why a price changed. nil lists nothing.
	Versions func(ctx context.Context, tenant string, asOfMs int64) ([]schema.TermsVersion, error)
}

// Statements closes periods and shows what was closed.
//
// The adjustments of a statement hold, for each period closed before, its usage
// as of this closing minus its usage as of the closing before this one, each at the
// prices as of that closing: every statement carries the adjustments of all periods
// closed before it, so that is the instant through which they were billed. The
// statements of a tenant so add up to all its closed periods as known at the last
// closing.
type Statements struct {
	StatementOptions
	closing chan struct{} // held by the one who closes
}

// NewStatements returns a Statements.
func NewStatements(o StatementOptions) (*Statements, error) {
	if o.Service == nil || o.Store == nil || o.Incidents == nil {
		return nil, fmt.Errorf("report: StatementOptions lacks Service, Store or Incidents")
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Versions == nil {
		o.Versions = func(context.Context, string, int64) ([]schema.TermsVersion, error) { return nil, nil }
	}
	return &Statements{StatementOptions: o, closing: make(chan struct{}, 1)}, nil
}

// ConflictError says that what was asked for cannot be done in the state that the
// periods are in.
type ConflictError struct{ Msg string }

// Error says why, and what can be done.
func (e *ConflictError) Error() string { return e.Msg }

// NotClosedError says that there is no statement of a period.
type NotClosedError struct{ Period, Tenant string }

// Error names the period and says how to close it.
func (e *NotClosedError) Error() string {
	return fmt.Sprintf("period %s of tenant %s is not closed; gpumeter statement close --period %s closes it", e.Period, e.Tenant, e.Period)
}

func conflict(format string, args ...any) error {
	return &ConflictError{Msg: fmt.Sprintf(format, args...)}
}

// Frozen is a statement with its canonical bytes. Of a closed period these are
// the bytes that were stored when it was closed.
type Frozen struct {
	Statement
	Hash    string // SHA-256 of the bytes; empty while the period is open
	content []byte
}

// CloseParams say which period to close. Every text but Period and Actor may be
// empty.
type CloseParams struct {
	Tenant   string   // schema.DefaultTenant when empty
	Period   string   // YYYY-MM
	Zone     string   // that of the tenant's other statements when empty, else UTC
	By       []string // project when empty
	Actor    string   // who closes
	Reason   string
	Override string // why to close in spite of the grace time or open incidents
}

// Close freezes a period. It fails with a *RequestError, a *ConflictError or an
// *UnsettledError, or with what the stores say.
func (s *Statements) Close(ctx context.Context, p CloseParams) (*Frozen, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	// One after the other in this process; between processes the chain decides.
	select {
	case s.closing <- struct{}{}:
		defer func() { <-s.closing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	closed, err := s.closed(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	req, err := s.request(p.Tenant, p.Period, p.Zone, p.By, closed)
	if err != nil {
		return nil, err
	}
	incidents, err := s.mayClose(ctx, &req, &p, closed)
	if err != nil {
		return nil, err
	}
	if err := s.Service.known(ctx, req.AsOfMs, req.NowMs); err != nil {
		return nil, err
	}
	doc, err := s.compute(ctx, &req, p.Period, closed)
	if err != nil {
		return nil, err
	}
	if err := s.samePrices(ctx, &req, doc); err != nil {
		return nil, err
	}
	doc.setIncidents(incidents)
	return s.freeze(ctx, &req, &p, doc, closed)
}

func (p *CloseParams) check() error {
	if p.Tenant == "" {
		p.Tenant = schema.DefaultTenant
	}
	if p.Actor == "" {
		return wrong("actor", "who closes the period is missing")
	}
	for _, text := range [...]struct {
		param, value string
		most         int
	}{{"actor", p.Actor, MaxActor}, {"reason", p.Reason, MaxReason}, {"override", p.Override, MaxReason}} {
		if len(text.value) > text.most || !utf8.ValidString(text.value) {
			return wrong(text.param, "%d bytes, at most %d bytes of UTF-8 are allowed", len(text.value), text.most)
		}
	}
	return nil
}

// samePrices refuses a statement when prices were applied at the very moment of its
// closing instant, after they were read: the next one would take them for billed.
func (s *Statements) samePrices(ctx context.Context, r *Request, doc *Statement) error {
	book, err := s.book(ctx, r)
	if err != nil {
		return err
	}
	if currencyOf(book) != "" && (doc.PriceVersion == nil || *doc.PriceVersion != book.Hash) {
		return conflict("prices were applied while period %s was being closed; close it again", doc.Period)
	}
	return nil
}

// Closed returns the statements of a tenant that count, without their content, in the
// order of closing.
func (s *Statements) Closed(ctx context.Context, tenant string) ([]schema.Statement, error) {
	return s.closed(ctx, tenant)
}

// closed returns the tenant's statements in the order of closing.
func (s *Statements) closed(ctx context.Context, tenant string) ([]schema.Statement, error) {
	rows, err := s.Store.Statements(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("statements: %w", err)
	}
	return chain(tenant, rows)
}

func statementOf(closed []schema.Statement, period string) *schema.Statement {
	if i := slices.IndexFunc(closed, func(c schema.Statement) bool { return c.Period == period }); i >= 0 {
		return &closed[i]
	}
	return nil
}

// request is the question that a statement answers, as of now.
func (s *Statements) request(tenant, month, zone string, by []string, closed []schema.Statement) (Request, error) {
	now := s.Service.Now().UnixMilli()
	r := Request{Kind: Kinds[0], Tenant: tenant, NowMs: now, AsOfMs: now, ZoneName: zone, By: by}
	if zone == "" && len(closed) > 0 {
		r.ZoneName = closed[0].Zone
	}
	if err := r.zone(); err != nil {
		return r, err
	}
	if len(closed) > 0 && closed[0].Zone != r.ZoneName {
		return r, conflict("the statements of tenant %s are in the zone %s; with one in %s some hours would be billed twice or never", tenant, closed[0].Zone, r.ZoneName)
	}
	if len(by) == 0 {
		r.By = []string{"project"}
	}
	if err := checkStatementBy(r.By); err != nil {
		return r, err
	}
	var err error
	r.FromMs, r.ToMs, err = period(r.Zone, month)
	return r, err
}

// mayClose says why a period cannot be closed now. It returns the open incidents
// that are overridden.
func (s *Statements) mayClose(ctx context.Context, r *Request, p *CloseParams, closed []schema.Statement) ([]schema.Incident, error) {
	if c := statementOf(closed, p.Period); c != nil {
		return nil, alreadyClosed(c)
	}
	if len(closed) > 0 && r.AsOfMs < closed[len(closed)-1].AsOfMs {
		last := &closed[len(closed)-1]
		return nil, conflict("it is %s, and the statement of %s was closed at %s already: this machine's clock is behind", instantIn(r.Zone, r.AsOfMs), last.Period, instantIn(r.Zone, last.AsOfMs))
	}
	if r.NowMs < r.ToMs {
		return nil, conflict("period %s ends at %s; it cannot be closed before", p.Period, instantIn(r.Zone, r.ToMs))
	}
	if open := r.ToMs + s.Grace.Milliseconds(); r.NowMs < open && p.Override == "" {
		return nil, conflict("late events of period %s are waited for until %s; close it then, or now with a reason in --override", p.Period, instantIn(r.Zone, open))
	}
	incidents, err := s.Incidents.Incidents(ctx, p.Tenant, r.FromMs, r.ToMs)
	if err != nil {
		return nil, fmt.Errorf("statement: incidents: %w", err)
	}
	incidents = slices.DeleteFunc(incidents, func(i schema.Incident) bool { return i.ClosedAtMs != 0 })
	if len(incidents) > 0 && p.Override == "" {
		var texts []string
		for _, i := range incidents[:min(3, len(incidents))] {
			texts = append(texts, fmt.Sprintf("%s %s: %s", i.Kind, clip(i.Key), clip(i.Detail)))
		}
		return nil, conflict("%d incidents that touch period %s are open (%s); close it when they are resolved, or now with a reason in --override", len(incidents), p.Period, strings.Join(texts, "; "))
	}
	return incidents, nil
}

func alreadyClosed(c *schema.Statement) error {
	return conflict("period %s was closed at %s by %s; what arrived later is in the adjustments of the next statement", c.Period, instantIn(utc, c.ClosedAtMs), clip(c.ClosedBy))
}

// compute makes the statement of a request, still open, with the adjustments of
// all closed periods.
func (s *Statements) compute(ctx context.Context, r *Request, month string, closed []schema.Statement) (*Statement, error) {
	ch, err := s.Service.charges(ctx, r)
	if err != nil {
		return nil, err
	}
	groups, _, err := s.Service.collect(ctx, r, ch)
	if err := cmp.Or(err, ch.err()); err != nil {
		return nil, err
	}
	currency := ch.currency
	doc := &Statement{
		State: StateOpen, Tenant: r.Tenant, Period: month, Zone: r.ZoneName, From: instantIn(utc, r.FromMs), To: instantIn(utc, r.ToMs), AsOf: instantIn(utc, r.AsOfMs),
		By: r.By, Adjustments: []Adjustment{}, Incidents: []OpenIncident{},
	}
	if currency != "" {
		doc.Currency, doc.PriceVersion = &currency, orNil(ch.version())
	}
	var totals, adjusted sums
	doc.Rows, totals = render(r.By, linesOf(groups), currency)
	prices, err := s.priceChange(ctx, r, closed, ch.terms)
	if err != nil {
		return nil, err
	}
	for i := range closed {
		a, change, err := s.adjustment(ctx, r, &closed[i], prices)
		if err != nil {
			return nil, err
		}
		if a != nil {
			doc.Adjustments = append(doc.Adjustments, *a)
			adjusted.add(change)
		}
	}
	slices.SortFunc(doc.Adjustments, func(a, b Adjustment) int { return strings.Compare(a.Origin, b.Origin) })
	due := totals
	due.add(&adjusted)
	doc.Totals, doc.AdjustmentTotals, doc.Due = totals.figures(currency), adjusted.figures(currency), due.figures(currency)
	if len(closed) > 0 {
		doc.Previous = closed[len(closed)-1].Hash
	}
	doc.Quality, err = s.Service.Store.Quality(ctx, r.Tenant, r.FromMs, r.ToMs, r.AsOfMs)
	if err != nil {
		return nil, fmt.Errorf("statement: quality: %w", err)
	}
	return doc, nil
}

// arrivals is what came in after an instant, until the request's, and can have
// changed a closed period.
func (s *Statements) arrivals(ctx context.Context, r *Request, c *schema.Statement, afterMs int64) (Arrivals, error) {
	q := schema.ArrivalQuery{Tenant: r.Tenant, FromMs: c.FromMs, ToMs: c.ToMs, AfterMs: afterMs, AsOfMs: r.AsOfMs, Limit: MaxArrivals}
	events, total, err := s.Store.Arrivals(ctx, q)
	if err != nil {
		return Arrivals{}, fmt.Errorf("statement: arrivals of %s: %w", c.Period, err)
	}
	others, otherTotal, err := s.Store.OtherArrivals(ctx, q)
	if err != nil {
		return Arrivals{}, fmt.Errorf("statement: arrivals of %s: %w", c.Period, err)
	}
	return arrivalsOf(events, total, others, otherTotal), nil
}

func (d *Statement) setIncidents(list []schema.Incident) {
	d.IncidentsTotal = len(list)
	for _, i := range list[:min(len(list), MaxStatementIncidents)] {
		d.Incidents = append(d.Incidents, OpenIncident{Kind: i.Kind, Key: i.Key, Detail: i.Detail})
	}
}

// freeze stores a statement and makes sure that it is the one that counts.
func (s *Statements) freeze(ctx context.Context, r *Request, p *CloseParams, doc *Statement, closed []schema.Statement) (*Frozen, error) {
	closedAt := s.Service.Now().UnixMilli()
	doc.State, doc.ClosedAt, doc.ClosedBy, doc.Reason, doc.Override = StateClosed, instantIn(utc, closedAt), p.Actor, p.Reason, p.Override
	row := schema.Statement{
		Tenant: p.Tenant, Period: p.Period, Zone: r.ZoneName, FromMs: r.FromMs, ToMs: r.ToMs, AsOfMs: r.AsOfMs, ClosedAtMs: closedAt,
		ClosedBy: p.Actor, Reason: p.Reason, Override: p.Override, Previous: doc.Previous, Content: encodeStatement(doc),
	}
	row.Hash = hashOf(row.Content)
	if err := s.Store.PutStatement(ctx, &row); err != nil {
		return nil, fmt.Errorf("statement of %s: %w", p.Period, err)
	}
	now, err := s.closed(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	if c := statementOf(now, p.Period); c != nil && c.Hash != row.Hash {
		return nil, alreadyClosed(c)
	} else if c == nil && len(now) > len(closed) {
		return nil, conflict("period %s was closed at the same time as %s, which counts; close it again", p.Period, now[len(closed)].Period)
	} else if c == nil {
		return nil, fmt.Errorf("statement of %s: it was stored and is not there; ask gpumeter statement list before closing it again", p.Period)
	}
	return &Frozen{Statement: *doc, Hash: row.Hash, content: row.Content}, nil
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// frozen reads a statement back and checks that it is what was stored.
func (s *Statements) frozen(ctx context.Context, c *schema.Statement) (*Frozen, error) {
	content, err := s.Store.StatementContent(ctx, c.Tenant, c.Hash)
	if err != nil {
		return nil, fmt.Errorf("statement of %s: %w", c.Period, err)
	}
	if got := hashOf(content); got != c.Hash {
		return nil, fmt.Errorf("statement of %s: the stored content has the hash %s, not %s: it was changed after closing", c.Period, got, c.Hash)
	}
	f := &Frozen{Hash: c.Hash, content: content}
	if err := json.Unmarshal(content, &f.Statement); err != nil {
		return nil, fmt.Errorf("statement of %s: %w", c.Period, err)
	}
	return f, nil
}
