package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/schema"
)

// Reports answers questions about usage; *report.Service is one. An error that
// is a *report.RequestError is the asker's.
type Reports interface {
	Report(ctx context.Context, p report.Params) (*report.Report, error)
	Explain(ctx context.Context, p report.ExplainParams) (*report.Explanation, error)
}

// Quarantine gives access to what could not be accepted.
type Quarantine interface {
	// List returns up to limit items, newest first, that follow the cursor
	// after, and the cursor of the next page, empty on the last one.
	List(ctx context.Context, tenant string, limit int, after string) (items []schema.QuarantinedItem, next string, err error)
	// Redrive offers items to the stream again and returns how many it took.
	// Empty refs mean everything not driven again yet. ErrNotFound says that a
	// ref names nothing.
	Redrive(ctx context.Context, tenant string, refs []Ref) (int, error)
}

// ErrNotFound is returned by a Quarantine for a Ref that names no item.
var ErrNotFound = errors.New("not found")

// Component is a part of the program that has to make progress.
type Component struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail" doc:"Why it is not ready, or what it last did"`
}

// Deps is what the handler works on. Routes whose dependency is nil do not
// exist, so a server without a stream does not pretend to take events.
type Deps struct {
	Reports    Reports
	Board      Board
	Plans      Plans
	Statements Statements
	Prices     Prices
	// Ingest offers messages to the stream and returns one receipt for each, in
	// order, after the stream's answer. It may keep none of its argument.
	Ingest     func(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error)
	Quarantine Quarantine
	// Status returns what an operator wants to see; it is written as JSON.
	Status func(ctx context.Context) (any, error)
	// Ready returns the state of every component. None at all is ready.
	Ready   func() []Component
	Metrics http.Handler
	// Changed returns a text that differs whenever anything that is stored does. With nil,
	// answers that are kept are computed anew every few seconds.
	Changed func(ctx context.Context) (string, error)
	// Background runs a function until the program stops. It keeps live figures up to date;
	// with nil they stand still.
	Background func(run func(ctx context.Context) error)
	SignIn     SignIn
	Log        *slog.Logger // slog.Default when nil
	Tenant     string       // schema.DefaultTenant when empty
	Version    string       // of the program, for the OpenAPI document
}

// Ref names one item of the quarantine. Its text is
// stream/epoch/sequence/place.
type Ref struct {
	Stream   string
	Epoch    uint64 // creation of the stream, Unix nanoseconds
	Sequence uint64
	Place    int32 // -1 when the whole message is meant
}

// RefOf returns the Ref of an item.
func RefOf(i *schema.QuarantinedItem) Ref {
	return Ref{Stream: i.Stream, Epoch: i.Epoch, Sequence: i.StreamSequence, Place: i.Place}
}

// String is the inverse of ParseRef.
func (r Ref) String() string {
	return fmt.Sprintf("%s/%d/%d/%d", r.Stream, r.Epoch, r.Sequence, r.Place)
}

// ParseRef reads the text of a Ref.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || parts[0] == "" {
		return Ref{}, fmt.Errorf("%q is not STREAM/EPOCH/SEQUENCE/PLACE as quarantine list shows it", s)
	}
	epoch, err1 := strconv.ParseUint(parts[1], 10, 64)
	sequence, err2 := strconv.ParseUint(parts[2], 10, 64)
	place, err3 := strconv.ParseInt(parts[3], 10, 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Ref{}, fmt.Errorf("%q is not STREAM/EPOCH/SEQUENCE/PLACE as quarantine list shows it", s)
	}
	return Ref{Stream: parts[0], Epoch: epoch, Sequence: sequence, Place: int32(place)}, nil
}
