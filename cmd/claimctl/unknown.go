package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// unknown returns an error if the arguments name a command that does not exist. cobra itself
// prints the help of the command above it and returns no error, so that a script with a
// misspelt command would go on.
func (a *app) unknown(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if slices.Contains(args, cobra.ShellCompRequestCmd) || slices.Contains(args, cobra.ShellCompNoDescRequestCmd) {
		return nil // a shell asks for completions
	}
	cmd, rest, _ := root.Find(args) // its error, for the root alone, has several lines
	if cmd.Runnable() || !cmd.HasSubCommands() {
		return nil
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Flags().NArg() == 0 {
		return nil
	}
	return unknownCommand(cmd, cmd.Flags().Arg(0))
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
