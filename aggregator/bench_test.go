package aggregator

import (
	"fmt"
	"testing"

	"github.com/gpumeter/gpumeter/schema"
)

// BenchmarkCompute computes an hour of one unit as an agent reports it.
func BenchmarkCompute(b *testing.B) {
	const base = int64(1_772_359_200_000)
	var events []schema.StoredEvent
	var windows []Window
	for ms := base; ms < base+schema.HourMs; ms += schema.MinuteMs {
		var e schema.StoredEvent
		e.Unit, e.Instance, e.Source = "GPU-5f2c9a80-1234-5678-9abc-def012345678", "i1", "agent/node-7"
		e.StartMs, e.EndMs, e.Utilization = ms, ms+schema.MinuteMs, schema.Some(500_000)
		e.ID = schema.UsageID(e.Unit, ms)
		events, windows = append(events, e), append(windows, Window{ms, ms + schema.MinuteMs})
	}
	facts := (&schema.Facts{Corrections: []schema.StoredCorrection{{Target: schema.Identity{Source: "agent/node-7", ID: "another"}}}}).Settle()
	for name, facts := range map[string]*schema.Settlement{"no facts": nil, "facts of others": facts} {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compute(events, windows, DefaultThreshold, facts)
			}
		})
	}
}
