// Command gpumeter meters rented GPUs: it takes usage events, stores them and
// reports spend, idle waste and utilization.
//
// Exit codes: 0 all went well, 1 something failed or was rejected, 2 the command
// line or the question it asks is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the linker in releases.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end, the second one gets what it is
	// used to.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(stderr, "gpumeter:", err)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a mistake in the command line or in the question it asks.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// errReported fails a command that has already said why.
var errReported = errors.New("already reported")

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "gpumeter",
		Short:         "Usage metering for rented GPUs: spend, idle waste and utilization",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	asGroup(cmd)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, c.CommandPath())
	})
	cmd.AddCommand(versionCommand())
	cmd.AddCommand(clientCommands()...)
	cmd.AddCommand(serverCommands()...)
	return cmd
}

// clientCommands are the commands that talk to a running gpumeter or need none.
func clientCommands() []*cobra.Command {
	return []*cobra.Command{reportCommand(), explainCommand(), statementCommand(), ingestCommand(), quarantineCommand(), pricesCommand(), tokenCommand()}
}

// asGroup makes cmd a group of subcommands: alone it shows its help, and a name
// that is none of them is a usage error.
func asGroup(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := ""
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("unknown command %q of %s%s", args[0], c.CommandPath(), hint)
	}
}

// args makes a wrong number of arguments a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, list []string) error {
		if err := check(c, list); err != nil {
			return usagef("%w; see %s --help", err, c.CommandPath())
		}
		return nil
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "gpumeter %s %s %s/%s\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}
