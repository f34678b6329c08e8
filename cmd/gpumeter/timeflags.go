package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpumeter/gpumeter/internal/app"
)

func toleranceFlag(f *pflag.FlagSet, o *app.Options) {
	o.FutureTolerance = app.DefaultFutureTolerance
	f.Var(&positive{&o.FutureTolerance}, "future-tolerance", "how much later than the stream stored it an event may end; one that ends later is held until then")
}

func graceFlags(f *pflag.FlagSet, o *app.Options) {
	o.Grace.Default = app.DefaultGrace
	f.Var(&positive{&o.Grace.Default}, "grace", "time after its end within which an event may come without being late; a late one counts like any other")
	f.Var(&perTenant{&o.Grace.Tenant}, "grace-for", "grace of one tenant, as `TENANT=DURATION`; repeatable")
}

// positive reads a duration above zero.
type positive struct{ d *time.Duration }

func (p *positive) String() string {
	if p.d == nil || *p.d == 0 {
		return ""
	}
	return p.d.String()
}

func (p *positive) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return usagef("%q is not a duration above zero, such as 90s, 5m or 72h", s)
	}
	*p.d = d
	return nil
}

func (p *positive) Type() string { return "duration" }

// perTenant reads a positive duration for each of some tenants.
type perTenant struct{ of *map[string]time.Duration }

func (p *perTenant) String() string {
	if p.of == nil {
		return ""
	}
	var parts []string
	for _, tenant := range slices.SortedFunc(maps.Keys(*p.of), cmp.Compare[string]) {
		parts = append(parts, tenant+"="+(*p.of)[tenant].String())
	}
	return strings.Join(parts, ",")
}

func (p *perTenant) Set(s string) error {
	// A tenant may hold "=", a duration never does.
	at := strings.LastIndex(s, "=")
	if at < 1 {
		return usagef("%q is not TENANT=DURATION", s)
	}
	var d time.Duration
	if err := (&positive{&d}).Set(s[at+1:]); err != nil {
		return err
	}
	if earlier, twice := (*p.of)[s[:at]]; twice && earlier != d {
		return usagef("tenant %q cannot have both %v and %v", s[:at], earlier, d)
	}
	if *p.of == nil {
		*p.of = map[string]time.Duration{}
	}
	(*p.of)[s[:at]] = d
	return nil
}

func (p *perTenant) Type() string { return "TENANT=DURATION" }
