package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/schema"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Prove that nothing is missing, and see what is",
		Long: "Prove that nothing is missing between the stream and what is kept, and see what is. A running aggregator\ndoes the same all the time.",
	}
	asGroup(cmd)
	cmd.AddCommand(auditRunCommand(), auditListCommand(), auditCloseCommand())
	return cmd
}

func auditTimeFlags(f *pflag.FlagSet, o *app.Options) {
	f.DurationVar(&o.GapGrace, "gap-grace", 10*time.Minute, "how long a number of a source may be missing before it is an incident")
	f.DurationVar(&o.SilentAfter, "silent-after", 3*time.Minute, "how long a source may be quiet; it may be quiet for two of its intervals")
}

func auditFlags(f *pflag.FlagSet, o *app.Options) {
	o.AuditEvery = 30 * time.Second
	f.DurationVar(&o.AuditEvery, "audit-every", 30*time.Second, "time between two checks of completeness; 0 = none")
	auditTimeFlags(f, o)
}

func auditRunCommand() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "run", Short: "Check everything that the stream still has, now", Args: args(cobra.NoArgs),
		Long: "Check everything that the stream still has, now, and print what is open. Exit code 1 when anything is.",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return silentExit(app.AuditRun(c.Context(), o))
		},
	}
	dbFlags(cmd, &o)
	natsFlags(cmd.Flags(), &o)
	thresholdFlag(cmd.Flags(), &o)
	auditTimeFlags(cmd.Flags(), &o)
	return cmd
}

func auditListCommand() *cobra.Command {
	var o app.Options
	var past bool
	cmd := &cobra.Command{
		Use: "list", Short: "List open incidents of all tenants", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return app.AuditList(c.Context(), o, past)
		},
	}
	dbFlags(cmd, &o)
	cmd.Flags().BoolVar(&past, "past", false, "also those of the last 30 days that have ended")
	return cmd
}

func auditCloseCommand() *cobra.Command {
	var o app.Options
	var by string
	cmd := &cobra.Command{
		Use: "close KIND KEY", Short: "Close an incident by hand", Args: args(cobra.ExactArgs(2)),
		Long: "Close an incident that does not end by itself, such as a source that was taken out of service. It stays in the\n" +
			"log with who closed it, and is not opened again; a source that is heard later and falls silent is.",
		RunE: func(c *cobra.Command, list []string) error {
			if by = strings.TrimSpace(by); by == "" {
				return usagef("--by says who closes it, and why")
			}
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return app.AuditClose(c.Context(), o, list[0], list[1], by)
		},
	}
	dbFlags(cmd, &o)
	cmd.Flags().StringVar(&o.Tenant, "tenant", schema.DefaultTenant, "tenant of the incident")
	cmd.Flags().StringVar(&by, "by", "", "who closes it, and why")
	return cmd
}

// silentExit fails a command that has already printed what is wrong.
func silentExit(err error) error {
	if errors.Is(err, app.ErrIncidents) {
		return errReported
	}
	return err
}
