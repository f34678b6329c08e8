// Package app is the running program: it builds the stages from options, starts
// them, watches over them and stops them in order. It is the one place that
// knows every part.
package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/gpumeter/gpumeter/aggregator"
	"github.com/gpumeter/gpumeter/schema"
)

// Roles are the parts that one process runs.
type Roles struct {
	Agent     bool // read GPUs and publish events
	Consume   bool // store events
	Aggregate bool // recompute touched windows
	Serve     bool // answer reports over HTTP
	Broker    bool // embedded NATS, when NATSURL is empty
	Engine    bool // embedded ClickHouse, when ClickHouseDSN is empty
}

// AllRoles is what `up` runs.
var AllRoles = Roles{Agent: true, Consume: true, Aggregate: true, Serve: true, Broker: true, Engine: true}

// needsStream and needsDB say what a role works on.
func (r Roles) needsStream() bool { return r.Agent || r.Consume || r.Serve }
func (r Roles) needsDB() bool     { return r.Consume || r.Aggregate || r.Serve }

// Options configure the program. The zero value of a field means its default.
type Options struct {
	Roles  Roles
	Data   string // directory of everything that is kept; default ./data
	Listen string // of HTTP; default 127.0.0.1:8080; port 0 takes a free one
	SignIn SignIn // of HTTP
	Tenant string

	NATSURL        string // empty: embedded, or the one in Data/endpoints.json
	NATSListen     string // of the embedded NATS; default 127.0.0.1:0
	ClickHouseDSN  string // empty: embedded, or the one in Data/endpoints.json
	EngineLibrary  string
	EngineMemory   int64    // bytes that the embedded ClickHouse may allocate; 0 = half of the machine's
	EngineHTTPPort int      // of the embedded ClickHouse; 0 takes a free one
	EngineCommand  []string // re-executes the program as an engine; nil: the own executable

	// Prices and PriceFiles are files of a price book, contracts and platform profiles
	// that are applied at start where they differ from what is in force. Without any, what
	// was applied before stays in force.
	Prices     string
	PriceFiles []string
	Budgets    string // file of budgets; empty = there are none

	ScrapeURLs  []string
	SourceName  string // of the agent's events; default agent/<host>, with a number when there are several
	Instance    string // who holds units without an owner label
	Project     string
	Platform    string
	Region      string
	Node        string
	SampleEvery time.Duration
	EmitEvery   time.Duration
	OwnerHold   time.Duration // how long a unit read without an owner may still be its last owner's; 0 = not at all
	SpoolBytes  int64
	Threshold   int64 // activity threshold in millionths

	Simulate        int // nodes
	SimulateSeed    uint64
	SimulateHistory time.Duration

	BatchRows   int
	BatchAge    time.Duration
	AckWait     time.Duration
	DebounceFor time.Duration // aggregator: between two looks for marks
	HourEvery   time.Duration // aggregator: how long an hour's mark rests
	AuditEvery  time.Duration // between two checks of completeness; 0 = none
	GapGrace    time.Duration // how long a number of a source may be missing; default 10 min
	SilentAfter time.Duration // how long a source may be quiet at least; default 3 min
	StuckAfter  time.Duration // readiness: backlog without progress; default 15 s

	// FutureTolerance is how much later than the stream stored it an event may
	// end; one that ends later is held until then. 0: DefaultFutureTolerance.
	FutureTolerance time.Duration
	Grace           Grace

	// UnsyncedStream acknowledges events before the disk has them. Weaker than
	// the guarantee; printed at start.
	UnsyncedStream bool

	Version string
	Clock   Clock // nil: the machine's, or the one that the environment names
	Logger  *slog.Logger
	Out     io.Writer // where the ready line is printed
}

// Fill fills in the defaults and checks everything that can be checked before
// anything is started; it reports all faults at once, each with its flag.
func (o *Options) fill() error {
	set(&o.Data, "data")
	set(&o.Listen, "127.0.0.1:8080")
	set(&o.NATSListen, "127.0.0.1:0")
	set(&o.Tenant, schema.DefaultTenant)
	if o.Node == "" {
		o.Node, _ = os.Hostname()
	}
	set(&o.SourceName, "agent/"+o.Node)
	setNumber(&o.SampleEvery, 10*time.Second)
	setNumber(&o.EmitEvery, time.Minute)
	setNumber(&o.Threshold, aggregator.DefaultThreshold)
	setNumber(&o.StuckAfter, 15*time.Second)
	setNumber(&o.SimulateSeed, 1)
	if o.Clock == nil {
		o.Clock = SystemClock()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	var faults []error
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		faults = append(faults, fmt.Errorf("--listen %q is not host:port", o.Listen))
	} else if o.Roles.Serve {
		faults = append(faults, o.SignIn.check(o.Listen)...)
	}
	for _, u := range o.ScrapeURLs {
		if p, err := url.Parse(u); err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" {
			faults = append(faults, fmt.Errorf("--scrape %q is not an http or https URL", u))
		}
	}
	if o.SampleEvery < time.Second/100 || o.EmitEvery < o.SampleEvery || o.EmitEvery%o.SampleEvery != 0 {
		faults = append(faults, fmt.Errorf("--emit-every %v is not a multiple of --sample-every %v", o.EmitEvery, o.SampleEvery))
	}
	if o.OwnerHold < 0 || o.OwnerHold > time.Hour {
		faults = append(faults, fmt.Errorf("--owner-hold %v is negative or more than an hour", o.OwnerHold))
	}
	if o.Threshold < 1 || o.Threshold > schema.UtilizationOne {
		faults = append(faults, fmt.Errorf("--threshold %s is not above 0 and at most 1", schema.FormatUtilization(o.Threshold)))
	}
	if o.AuditEvery < 0 || o.GapGrace < 0 || o.SilentAfter < 0 {
		faults = append(faults, errors.New("--audit-every, --gap-grace and --silent-after may not be negative"))
	}
	if o.Simulate < 0 || o.SimulateHistory < 0 {
		faults = append(faults, errors.New("--simulate and --simulate-history may not be negative"))
	}
	if o.FutureTolerance < 0 {
		faults = append(faults, fmt.Errorf("--future-tolerance %v is negative", o.FutureTolerance))
	}
	if err := o.Grace.check(); err != nil {
		faults = append(faults, err)
	}
	if err := os.MkdirAll(o.Data, 0o755); err != nil {
		faults = append(faults, fmt.Errorf("--data: %w", err))
	}
	return errors.Join(faults...)
}

func (o *Options) priceFiles() []string {
	if o.Prices == "" {
		return o.PriceFiles
	}
	return append([]string{o.Prices}, o.PriceFiles...)
}

func set(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func setNumber[T time.Duration | int64 | uint64](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

func (o *Options) path(parts ...string) string {
	return filepath.Join(append([]string{o.Data}, parts...)...)
}
