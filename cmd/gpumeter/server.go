package main

import (
	"log/slog"
	"os"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/internal/engine"
	"github.com/gpumeter/gpumeter/schema"
)

// serverCommands are the commands that run a part of the pipeline.
func serverCommands() []*cobra.Command {
	return []*cobra.Command{
		upCommand(), agentCommand(), consumeCommand(), aggregateCommand(), serveCommand(),
		brokerCommand(), engineCommand(), engineChildCommand(),
		migrateCommand(), rebuildCommand(), simulateCommand(), benchCommand(), auditCommand(),
	}
}

// roleCommand makes a command that runs some roles until it is interrupted.
func roleCommand(use, short, long string, roles app.Roles, flags ...func(*pflag.FlagSet, *app.Options)) *cobra.Command {
	o := app.Options{Roles: roles}
	var verbose bool
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Logger, o.Version = c.OutOrStdout(), logger(c, verbose), programVersion()
			return app.Run(c.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", fromEnv("GPUMETER_DATA", "data"), "directory of everything that is kept")
	f.StringVar(&o.Tenant, "tenant", schema.DefaultTenant, "tenant of this process")
	f.BoolVar(&verbose, "verbose", false, "log what goes well, too")
	for _, add := range flags {
		add(f, &o)
	}
	return cmd
}

func logger(c *cobra.Command, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

func fromEnv(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func natsFlags(f *pflag.FlagSet, o *app.Options) {
	f.StringVar(&o.NATSURL, "nats", "", "URL of a NATS server with JetStream (default: the embedded one)")
}

func clickhouseFlags(f *pflag.FlagSet, o *app.Options) {
	f.StringVar(&o.ClickHouseDSN, "clickhouse", "", "DSN of a ClickHouse, http://... or clickhouse://... (default: the embedded one)")
}

func engineFlags(f *pflag.FlagSet, o *app.Options) {
	f.Int64Var(&o.EngineMemory, "engine-memory", 0, "bytes that the embedded ClickHouse may allocate (default: half of the machine's memory)")
	f.StringVar(&o.EngineLibrary, "engine-library", "", "path of libchdb.so (default: search node_modules)")
}

func enginePortFlag(f *pflag.FlagSet, o *app.Options) {
	f.IntVar(&o.EngineHTTPPort, "engine-http-port", 0, "port of the embedded ClickHouse on 127.0.0.1; 0 takes a free one")
}

func brokerFlags(f *pflag.FlagSet, o *app.Options) {
	f.StringVar(&o.NATSListen, "nats-listen", "127.0.0.1:0", "address of the embedded NATS; port 0 takes a free one")
	f.BoolVar(&o.UnsyncedStream, "unsynced-stream", false, "acknowledge events before they are on disk: faster, and a power failure loses the last seconds")
}

func agentFlags(f *pflag.FlagSet, o *app.Options) {
	f.StringArrayVar(&o.ScrapeURLs, "scrape", nil, "URL of a dcgm-exporter or nvidia_gpu_exporter (repeatable)")
	f.StringVar(&o.SourceName, "source", "", "name of this agent in its events (default agent/<host>)")
	f.StringVar(&o.Node, "node", "", "name of this host (default: the host name)")
	f.StringVar(&o.Instance, "instance", "", "who holds the units that no label says an owner of (default: nobody)")
	f.StringVar(&o.Project, "project", "", "project of that instance")
	f.StringVar(&o.Platform, "platform", "", "platform that the GPUs are rented from")
	f.StringVar(&o.Region, "region", "", "region of the platform")
	f.DurationVar(&o.SampleEvery, "sample-every", 10*time.Second, "time between two readings")
	f.DurationVar(&o.EmitEvery, "emit-every", time.Minute, "length of an event, a multiple of --sample-every")
	f.DurationVar(&o.OwnerHold, "owner-hold", 3*time.Minute, "how long a unit whose owner label is missing may still be that owner's: if he is read again within it, the time is his; so a unit that was given back is reported free up to this much later; 0 = free at once")
	f.Int64Var(&o.SpoolBytes, "spool-bytes", 0, "bound of each source's spool on disk (default 256 MiB)")
	f.IntVar(&o.Simulate, "simulate", 0, "number of simulated nodes")
	f.Uint64Var(&o.SimulateSeed, "simulate-seed", 1, "seed of the simulation")
	f.DurationVar(&o.SimulateHistory, "simulate-history", 0, "past that the simulated nodes report at start, such as 24h")
}

func thresholdFlag(f *pflag.FlagSet, o *app.Options) {
	f.Var(&threshold{&o.Threshold}, "threshold", "utilization from which a unit counts as active, 0 to 1 (default 0.01)")
}

// threshold reads a ratio exactly.
type threshold struct{ millionths *int64 }

func (t *threshold) String() string {
	if t.millionths == nil || *t.millionths == 0 {
		return ""
	}
	return schema.FormatUtilization(*t.millionths)
}

func (t *threshold) Set(s string) error {
	v, ok := schema.ParseFixed(s, 6)
	if !ok || v < 1 || v > schema.UtilizationOne {
		return usagef("%q is not a ratio above 0 and at most 1", s)
	}
	*t.millionths = v
	return nil
}

func (t *threshold) Type() string { return "ratio" }

func consumeFlags(f *pflag.FlagSet, o *app.Options) {
	f.IntVar(&o.BatchRows, "batch-rows", 50_000, "rows at which a batch is stored")
	f.DurationVar(&o.BatchAge, "batch-age", 500*time.Millisecond, "age at which a batch is stored")
	f.DurationVar(&o.AckWait, "ack-wait", 30*time.Second, "time after which the stream delivers an unacknowledged message again")
	toleranceFlag(f, o)
}

func aggregateFlags(f *pflag.FlagSet, o *app.Options) {
	f.DurationVar(&o.DebounceFor, "recompute-every", 500*time.Millisecond, "time between two recomputations of touched minutes")
	f.DurationVar(&o.HourEvery, "hour-every", time.Minute, "time that a touched hour rests before it is summed up; until then reports add up its minutes")
}

func serveFlags(f *pflag.FlagSet, o *app.Options) {
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of HTTP; port 0 takes a free one")
	f.StringArrayVar(&o.PriceFiles, "prices", nil, "`FILE` of a price book, a contract or a platform profile (YAML) to apply at start where it differs from what is in force (repeatable); until a price book was applied everything is unpriced")
	f.StringVar(&o.Budgets, "budgets", "", "`FILE` of budgets (YAML): what may be spent in a month; see deploy/budgets.example.yaml")
	f.DurationVar(&o.StuckAfter, "stuck-after", 15*time.Second, "readiness fails when there is backlog and nothing was acknowledged for so long")
	graceFlags(f, o)
	signInFlags(f, o)
}

func upCommand() *cobra.Command {
	return roleCommand("up", "Run everything in one process",
		"Run everything in one process, with an embedded NATS and an embedded ClickHouse unless others are named.\n"+
			"Prints one line when it is ready and writes the addresses to DATA/endpoints.json.",
		app.AllRoles, serveFlags, natsFlags, clickhouseFlags, engineFlags, brokerFlags, agentFlags, thresholdFlag, consumeFlags, aggregateFlags, auditFlags)
}

func agentCommand() *cobra.Command {
	return roleCommand("agent", "Read the GPUs of a node and publish usage events",
		"Read the GPUs of a node and publish usage events. Events wait in a spool on disk until the stream has them.",
		app.Roles{Agent: true}, natsFlags, agentFlags, thresholdFlag)
}

func consumeCommand() *cobra.Command {
	return roleCommand("consume", "Store events of the stream",
		"Store events of the stream. Any number of consumers may run at once.",
		app.Roles{Consume: true}, natsFlags, clickhouseFlags, consumeFlags)
}

func aggregateCommand() *cobra.Command {
	return roleCommand("aggregate", "Recompute usage per minute and hour",
		"Recompute usage per minute and hour where events came in, and check that nothing is missing. Any number may run at once.",
		app.Roles{Aggregate: true}, natsFlags, clickhouseFlags, thresholdFlag, aggregateFlags, auditFlags)
}

func serveCommand() *cobra.Command {
	return roleCommand("serve", "Answer reports over HTTP",
		"Answer reports over HTTP, and take events for the stream.",
		app.Roles{Serve: true}, serveFlags, natsFlags, clickhouseFlags, thresholdFlag)
}

func brokerCommand() *cobra.Command {
	cmd := roleCommand("broker", "Run the embedded NATS alone",
		"Run the embedded NATS alone, for other gpumeter processes with the same --data.",
		app.Roles{Broker: true}, brokerFlags)
	cmd.Hidden = true
	return cmd
}

func engineCommand() *cobra.Command {
	cmd := roleCommand("engine", "Run the embedded ClickHouse alone",
		"Run the embedded ClickHouse alone, for other gpumeter processes with the same --data.",
		app.Roles{Engine: true}, engineFlags, enginePortFlag)
	cmd.Hidden = true
	return cmd
}

// engineChildCommand is what the engine re-executes this program as.
func engineChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: engine.ChildCommand, Hidden: true, DisableFlagParsing: true,
		Run: func(_ *cobra.Command, list []string) { os.Exit(engine.Main(list)) },
	}
}

func dbFlags(cmd *cobra.Command, o *app.Options) {
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", fromEnv("GPUMETER_DATA", "data"), "directory of everything that is kept")
	clickhouseFlags(f, o)
	engineFlags(f, o)
}

func migrateCommand() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database to the newest schema", Args: args(cobra.NoArgs),
		Long: "Bring the database to the newest schema. Safe to run twice. Uses the running gpumeter's database,\n" +
			"or starts the embedded one of --data when none runs.",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return app.Migrate(c.Context(), o)
		},
	}
	dbFlags(cmd, &o)
	return cmd
}

func rebuildCommand() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Compute all usage anew from the stored events", Args: args(cobra.NoArgs),
		Long: "Compute all usage anew from the stored events. What is derived is emptied, or made anew where it is gone;\n" +
			"events are not touched. When it is interrupted, the next start of an aggregator or the next rebuild goes on.",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Out, o.Logger = c.OutOrStdout(), logger(c, false)
			return app.Rebuild(c.Context(), o, newMeter(c.ErrOrStderr(), "windows"))
		},
	}
	dbFlags(cmd, &o)
	thresholdFlag(cmd.Flags(), &o)
	return cmd
}

func benchCommand() *cobra.Command {
	group := &cobra.Command{Use: "bench", Short: "Measure the pipeline on this machine"}
	asGroup(group)
	var o app.BenchOptions
	var profile string
	ingest := &cobra.Command{
		Use: "ingest", Short: "Compare the whole path with a plain insert", Args: args(cobra.NoArgs),
		Long: "Insert rows with clickhouse-go as the yardstick, then take the same rows the whole way: stream, consumer,\n" +
			"raw rows and dirty marks, acknowledgement, recomputation. Prints both rates, their ratio and the CPU time.",
		RunE: func(c *cobra.Command, _ []string) error {
			o.Progress = newMeter(c.ErrOrStderr(), "rows")
			if profile != "" {
				o.Profile = func() (func(), error) { return cpuProfile(profile) }
			}
			return app.BenchIngest(c.Context(), o, c.OutOrStdout())
		},
	}
	f := ingest.Flags()
	f.IntVar(&o.Rows, "rows", 1_000_000, "events")
	f.IntVar(&o.Units, "units", 10_000, "GPUs that they are of, one event a minute each")
	f.IntVar(&o.PerMessage, "per-message", 500, "events per message on the stream")
	f.IntVar(&o.Rate, "rate", 50_000, "rows per second while freshness is measured; 0 = do not measure it")
	f.DurationVar(&o.For, "for", 20*time.Second, "how long freshness is measured")
	f.StringVar(&o.Library, "engine-library", "", "path of libchdb.so (default: search node_modules)")
	f.BoolVar(&o.Native, "native", false, "native protocol instead of HTTP for the whole path")
	f.StringVar(&profile, "cpu-profile", "", "file for a CPU profile of the full path")
	group.AddCommand(ingest)
	return group
}

func cpuProfile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
