package main

import "github.com/spf13/cobra"

// serverCommands are the commands that run a part of the pipeline.
func serverCommands() []*cobra.Command { return nil }
