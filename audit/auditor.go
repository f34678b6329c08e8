// Package audit proves that nothing is missing between the stream and what is
// kept, and says where something is.
//
// An Auditor compares the stream with storage, the numbers that sources give
// their events with each other, and ways of reading the same rows with each
// other. What does not fit becomes an incident, which ends when the cause does.
// Everything else that it keeps is a cache of proof: emptied, it is proved again.
package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gpumeter/gpumeter/schema"
)

// Stream is the stream as the auditor needs it.
type Stream interface {
	State(ctx context.Context) (schema.StreamState, error)
	// Message reads one message; nil when the stream does not have it any more.
	// There is nothing to settle.
	Message(ctx context.Context, sequence uint64) (*schema.Delivery, error)
}

// Proofs keeps how far everything was checked. A proof that knows less than a
// stored one changes nothing, so that auditors need not know of each other.
type Proofs interface {
	StreamProof(ctx context.Context, stream string, epoch uint64) (schema.StreamProof, error)
	SaveStreamProof(ctx context.Context, p schema.StreamProof) error
	SourceProofs(ctx context.Context) ([]schema.SourceProof, error)
	SaveSourceProofs(ctx context.Context, list []schema.SourceProof) error
}

// Rows is what the messages of a stream left. All ranges are after from, up to to.
type Rows interface {
	// Doubtful returns messages of which rows alone do not show that all is there.
	Doubtful(ctx context.Context, stream string, epoch, from, to uint64, limit int) ([]uint64, error)
	Stored(ctx context.Context, list []schema.Expected) ([]bool, error)
	Numbers(ctx context.Context, stream string, epoch, from, to uint64, graceMs int64) ([]schema.SourceProof, error)
	NewConflicts(ctx context.Context, stream string, epoch, from, to uint64) ([]schema.EventConflict, error)
	// Corrected returns the identities, source and id, that a correction settled.
	Corrected(ctx context.Context, tenant string) (map[[2]string]bool, error)
	TouchedHours(ctx context.Context, stream string, epoch, from, to uint64, limit int) ([]schema.TenantHour, error)
}

// Hours is what was made of the rows.
type Hours interface {
	PickHours(ctx context.Context, seed uint64, limit int) ([]schema.TenantHour, error)
	Marked(ctx context.Context, h schema.TenantHour) (bool, error)
	// ReadBothWays says where two ways of reading an hour disagree.
	ReadBothWays(ctx context.Context, h schema.TenantHour) (string, error)
	// Coarse says whether the minutes of an hour need not be kept.
	Coarse(ctx context.Context, h schema.TenantHour) (bool, error)
	KeptMinutes(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Cell, error)
	KeptHour(ctx context.Context, h schema.TenantHour) ([]schema.Cell, error)
}

// Incidents keeps the log of incidents.
type Incidents interface {
	// StandingIncidents returns the incidents that are open, and those that a
	// person closed.
	StandingIncidents(ctx context.Context) ([]schema.Incident, error)
	NoteIncidents(ctx context.Context, nowMs int64, list []schema.Incident) error
}

// Store is all that the auditor needs of storage.
type Store interface {
	Proofs
	Rows
	Hours
	Incidents
}

// AuditorOptions configure an Auditor. Stream, Store, Publish and Compute are
// required.
type AuditorOptions struct {
	Stream  Stream
	Store   Store
	Publish func(ctx context.Context, messages []schema.Message) ([]schema.Receipt, error)
	// Compute computes the usage per minute of a span of whole minutes from raw
	// events.
	Compute func(ctx context.Context, tenant string, fromMs, toMs int64) ([]schema.Cell, error)
	// Every is the time between two passes. Default 30 s.
	Every time.Duration
	// Grace is how long a number may be missing, counted from when the stream got
	// a later one. Default 10 min.
	Grace time.Duration
	// SilentAfter is how long a source may be quiet at least; it may be quiet for
	// twice the length of its intervals. Default 3 min.
	SilentAfter time.Duration
	// Since is when sources could first be heard: a program that was down heard
	// nobody. Default: any time.
	Since time.Time
	Rand  *rand.Rand // picks what is checked again; default: seeded by the machine
	Now   func() time.Time
	Log   *slog.Logger
}

// Bounds of a pass, so that its memory is bounded whatever there is to check.
const (
	stepMessages = 2_000 // messages compared at once; an agent puts up to some hundred events in one
	maxDoubtful  = 2_000 // of those, how many are read back from the stream
	samples      = 20    // older messages that a pass reads back
	touchedHours = 4     // newest hours that are checked because they were touched
	pickedHours  = 2     // hours that are checked by chance
	maxOpen      = 5_000 // open incidents of a kind
)

// Auditor checks continuously. Any number may run on one database: they do some
// work twice and note the same.
type Auditor struct {
	o AuditorOptions

	// Of one pass at a time.
	passing  sync.Mutex
	suspects map[string]bool   // hours that disagreed in the last pass
	offered  map[uint64]uint64 // messages published again, to the sequence that they got
	seen     map[uint64]bool   // holes that an earlier pass has seen
	epoch    uint64            // that offered and seen are of

	mu     sync.Mutex
	status Status
}

// Status is what the last pass found.
type Status struct {
	Verified uint64    // sequence up to which the stream is checked
	LastPass time.Time // end of the last pass without an error
	Took     time.Duration
	Err      error // of the last pass
}

// NewAuditor checks the options and returns an auditor.
func NewAuditor(o AuditorOptions) (*Auditor, error) {
	if o.Stream == nil || o.Store == nil || o.Publish == nil || o.Compute == nil {
		return nil, errors.New("audit: stream, store, publish and compute are required")
	}
	if o.Every < 0 || o.Grace < 0 || o.SilentAfter < 0 {
		return nil, fmt.Errorf("audit: times %v, %v and %v may not be negative", o.Every, o.Grace, o.SilentAfter)
	}
	setDefault(&o.Every, 30*time.Second)
	setDefault(&o.Grace, 10*time.Minute)
	setDefault(&o.SilentAfter, 3*time.Minute)
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Auditor{o: o, suspects: map[string]bool{}, offered: map[uint64]uint64{}, seen: map[uint64]bool{}}, nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Status returns what the last pass found.
func (a *Auditor) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Run checks until the context ends. A pass that fails is tried again.
func (a *Auditor) Run(ctx context.Context) error {
	for {
		begin := time.Now() // a duration, which steps of the clock leave alone
		err := a.Pass(ctx, false)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.o.Log.Warn("checking completeness failed and is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(a.o.Every, time.Since(begin))): // never more than half of the time
		}
	}
}

// Pass checks what came since the last pass, some of what was checked before, and
// everything that is open. A full pass checks all that the stream still has.
//
// Incidents are noted before the proof of their range, so that dying in between
// leads to a second look.
func (a *Auditor) Pass(ctx context.Context, full bool) error {
	a.passing.Lock()
	defer a.passing.Unlock()
	begin := time.Now()
	p, err := a.newPass(ctx, full)
	for _, part := range []func(context.Context) error{p.messages, p.heal, p.tails, p.gaps, p.conflicts, p.hours, p.note} {
		if err == nil {
			err = part(ctx)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Err = err
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	a.status.Verified, a.status.LastPass = p.verified, a.o.Now()
	a.status.Took = time.Since(begin)
	return nil
}

// pass is one look at everything.
type pass struct {
	*Auditor
	full     bool
	nowMs    int64
	state    schema.StreamState
	verified uint64
	caughtUp bool // all that is settled was looked at
	ledger   *ledger
	sources  []schema.SourceProof
	touched  []schema.TenantHour
}

func (a *Auditor) newPass(ctx context.Context, full bool) (*pass, error) {
	p := &pass{Auditor: a, full: full, nowMs: a.o.Now().UnixMilli()}
	state, err := a.o.Stream.State(ctx)
	if err != nil {
		return p, err
	}
	p.state = state
	if a.epoch != state.Epoch {
		a.epoch = state.Epoch
		clear(a.offered)
		clear(a.seen)
	}
	standing, err := a.o.Store.StandingIncidents(ctx)
	if err != nil {
		return p, err
	}
	p.ledger = newLedger(p.nowMs, standing)
	p.sources, err = a.o.Store.SourceProofs(ctx)
	return p, err
}

// note adds what was learned to the log, with the time of now and not that of the
// pass: a pass may be long, and what somebody was told as of an instant within it
// must not change afterwards.
func (p *pass) note(ctx context.Context) error {
	if len(p.ledger.notes) == 0 {
		return nil
	}
	standing, err := p.o.Store.StandingIncidents(ctx)
	if err != nil {
		return err
	}
	p.ledger.yield(standing)
	if err := p.o.Store.NoteIncidents(ctx, p.o.Now().UnixMilli(), p.ledger.notes); err != nil {
		return err
	}
	for i := range p.ledger.notes {
		n := &p.ledger.notes[i]
		if n.ClosedAtMs == 0 {
			p.o.Log.Warn("incident", "kind", n.Kind, "key", n.Key, "detail", n.Detail)
		} else {
			p.o.Log.Info("incident closed", "kind", n.Kind, "key", n.Key, "detail", n.Detail)
		}
	}
	p.ledger.notes = nil
	return nil
}
