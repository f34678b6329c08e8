package report

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/schema"
)

// Store is what a report needs to know about stored events.
type Store interface {
	// Usage sums usage per piece and group, exactly, for any cuts.
	Usage(ctx context.Context, q schema.UsageQuery) ([]schema.UsageRow, error)
	// Events lists the events that overlap a span, in an order that does not
	// change between pages. next is empty on the last page.
	Events(ctx context.Context, q schema.EventQuery) (events []schema.StoredEvent, next string, err error)
	// Leases lists the states of leases that overlap a span, by instance and time.
	// Filters on what a lease has no value for leave it out.
	Leases(ctx context.Context, q schema.EventQuery) ([]schema.LeaseSegment, error)
	// Quality counts what a reader has to know about the data of a span.
	// asOfMs 0 means everything stored so far.
	Quality(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (schema.Quality, error)
	// Sources says the same of each source, those with most late events first, at
	// most schema.MaxSources of them, and how many sources there are.
	Sources(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) (list []schema.SourceQuality, total int64, err error)
	// Conflicts lists the first limit of what Quality counts as conflicts.
	Conflicts(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64, limit int) ([]schema.Conflict, error)
	// Incidents lists the incidents that were open and touch a span, the oldest
	// first.
	Incidents(ctx context.Context, tenant string, fromMs, toMs, asOfMs int64) ([]schema.Incident, error)
}

// MaxConflicts bounds the conflicts that a quality report lists; it counts all.
const MaxConflicts = 100

// DefaultThreshold is the utilization in millionths from which a unit counts as
// active when its event gives nothing but a utilization.
const DefaultThreshold = 10_000

// Options configure a Service.
type Options struct {
	Store Store // required
	// Terms returns what a tenant pays by, as known at an instant (0 = now). nil, or
	// nil terms, price nothing. It is asked once per report, so that one report never
	// mixes two versions.
	Terms func(ctx context.Context, tenant string, asOfMs int64) (*pricing.Terms, error)
	// Settled says whether an answer as of an instant can still change; nil
	// refuses every such question.
	Settled Settled
	// Rated knows what was rented. nil: leased time costs what usage without a lease
	// does, and Plans and Advise refuse with a *ConflictError.
	Rated Rated
	// Ledger keeps what was charged; nil = nothing is booked.
	Ledger Ledger
	// Budget is what may be spent in a month on what a filter lets through, nil = nothing is
	// set. A nil Budget sets none at all.
	Budget func(tenant string, filter map[string]string) *Budget
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// ThresholdMillionths is used by Explain only, and has to be the one that
	// usage was computed with; DefaultThreshold when 0.
	ThresholdMillionths int64
}

// Service computes reports. It may be used by many goroutines.
type Service struct{ Options }

// New returns a Service. It fails when there is no store.
func New(o Options) (*Service, error) {
	if o.Store == nil {
		return nil, fmt.Errorf("report: Options.Store is nil")
	}
	if o.Terms == nil {
		o.Terms = func(context.Context, string, int64) (*pricing.Terms, error) { return nil, nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Settled == nil {
		o.Settled = nobody{}
	}
	if o.ThresholdMillionths == 0 {
		o.ThresholdMillionths = DefaultThreshold
	}
	return &Service{o}, nil
}

func currencyOf(b *pricing.Book) string {
	if b == nil {
		return ""
	}
	return b.Currency
}
