package main

import (
	"io"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one invocation: its flags and its streams.
type app struct {
	connection
	format    string
	prefix    string
	owner     string
	as        string         // who makes the calls
	reason    string         // why
	group     string         // of jobs
	flags     *pflag.FlagSet // of the command
	allGroups bool
	dry       bool          // change nothing
	sortBy    string        // of a table
	every     time.Duration // of --watch, 0 without
	width     int           // of a line
	started   bool          // flags and arguments were accepted

	completing bool // for a shell, so that no person can be asked

	in       io.Reader
	out, err io.Writer
}

// arguments refuses another number of arguments, with an error that names those that the
// command takes.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return usageIf(len(args) < least || len(args) > most, "%s: got %s; usage: %s",
			commandName(cmd), errtext.Count(len(args), "argument", "arguments"), cmd.UseLine())
	}
}

// commandName is how errors name a command.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "claimctl ")
}

// Groups of commands in the help.
const (
	groupSee    = "see"
	groupRun    = "run"
	groupRepair = "repair"
)

// complete lists the values of a flag to shells. It fails for unknown flags only.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		list, last := "", typed
		if i := strings.LastIndex(typed, ","); i >= 0 {
			list, last = typed[:i+1], typed[i+1:]
		}
		var fit []string
		for _, v := range values {
			if strings.HasPrefix(v, last) {
				fit = append(fit, list+v)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	})
}

// unknownCommand names the commands that could be meant.
func unknownCommand(above *cobra.Command, name string) error {
	path := above.CommandPath()
	for above.SuggestionsMinimumDistance = 1; above.SuggestionsMinimumDistance <= 2; above.SuggestionsMinimumDistance++ {
		if near := above.SuggestionsFor(name); len(near) > 0 {
			return usageError("unknown command %q for %q; the nearest is %q", name, path, path+" "+near[0])
		}
	}
	return usageError("unknown command %q for %q; %s --help lists the commands", name, path, path)
}
