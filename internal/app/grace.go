package app

import (
	"fmt"
	"time"

	"github.com/gpumeter/gpumeter/consumer"
)

// DefaultFutureTolerance is the default of Options.FutureTolerance.
const DefaultFutureTolerance = consumer.DefaultFutureTolerance

// Grace says how long after its end an event may reach the stream without being
// late. A late event counts like any other; reports say how many there are.
type Grace struct {
	Default time.Duration            // 0: DefaultGrace
	Tenant  map[string]time.Duration // of those that have their own
}

// DefaultGrace is enough for an agent that emits every minute and was restarted,
// and short enough to show a spool that does not get rid of its events.
const DefaultGrace = 10 * time.Minute

// Of returns the grace of a tenant.
func (g Grace) Of(tenant string) time.Duration {
	if own, ok := g.Tenant[tenant]; ok {
		return own
	}
	if g.Default == 0 {
		return DefaultGrace
	}
	return g.Default
}

func (g Grace) check() error {
	if g.Default < 0 {
		return fmt.Errorf("--grace %v is negative", g.Default)
	}
	for tenant, own := range g.Tenant {
		if own < 0 {
			return fmt.Errorf("--grace-for %s=%v is negative", tenant, own)
		}
	}
	return nil
}
