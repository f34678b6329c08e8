package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/schema"
)

func simulateCommand() *cobra.Command {
	var o app.Options
	var s app.SimulateOptions
	var until string
	cmd := &cobra.Command{
		Use: "simulate", Short: "Fill a data directory with the past of an invented fleet", Args: args(cobra.NoArgs),
		Long: "Fills an empty data directory with the past of an invented fleet: leases, a usage event for every GPU and hour in which\n" +
			"its instance ran, and the usage computed from them. Then gpumeter up runs on it. The same flags make the same past.\n\n" +
			"Usage per minute is kept for the end of the span only, since 30 days of 10,000 instances would be 432 million rows.\n" +
			"Earlier hours that a question cuts are computed from their events, which takes longer and is as exact; rebuild\n" +
			"computes all minutes.",
		Example: "  gpumeter simulate --data demo --instances 200 --history 960h --prices deploy/prices.example.yaml\n  gpumeter up --data demo",
		RunE: func(c *cobra.Command, _ []string) error {
			if until != "" {
				at, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return usagef("--until %q is not an RFC 3339 time such as 2026-12-01T00:00:00Z", until)
				}
				s.Until = at
			}
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return app.Simulate(c.Context(), o, s, newMeter(c.ErrOrStderr(), "hours"))
		},
	}
	dbFlags(cmd, &o)
	f := cmd.Flags()
	thresholdFlag(f, &o)
	f.StringVar(&o.Tenant, "tenant", schema.DefaultTenant, "tenant of the fleet")
	f.IntVar(&s.Instances, "instances", 200, "instances of the fleet")
	f.IntVar(&s.Gpus, "gpus", 1, "GPUs of each instance")
	f.DurationVar(&s.History, "history", 720*time.Hour, "length of the past, in whole hours")
	f.StringVar(&until, "until", "", "end of the past, an RFC 3339 `TIME` that is cut down to an hour (default: the last hour that is over)")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of the fleet; another seed makes another fleet")
	f.DurationVar(&s.Minutes, "minutes", 48*time.Hour, "how much of the end has usage per minute as well, in whole hours")
	f.StringArrayVar(&o.PriceFiles, "prices", nil, "`FILE` of a price book, a contract or a platform profile (YAML) to apply (repeatable)")
	return cmd
}
