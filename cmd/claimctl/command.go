package main

import (
	"context"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A spec is a command that asks etcd once, and prints the answer.
type spec struct {
	use, short, long, example string
	group                     string // in the help; empty for a command below another
	alias                     string
	least, most               int // arguments
	names                     completion
	flags                     func(*pflag.FlagSet)
	confirm                   string                    // what is lost: the command wants --yes. Empty: nothing
	check                     func(args []string) error // before anything is sent
	run                       func(ctx context.Context, claims *etcdclaims.Client, args []string) error
}

// completion completes an argument.
type completion = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// command makes the command of a spec.
func (a *app) command(s spec) *cobra.Command {
	cmd := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: s.example, GroupID: s.group,
		Args: arguments(s.least, s.most), ValidArgsFunction: s.names,
	}
	if s.alias != "" {
		cmd.Aliases = []string{s.alias}
	}
	if s.flags != nil {
		s.flags(cmd.Flags())
	}
	var yes bool
	if s.confirm != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do it: "+s.confirm)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if s.confirm != "" && !yes {
			return usageError("%s: %s; repeat with --yes", commandName(cmd), s.confirm)
		}
		if s.check != nil {
			if err := s.check(args); err != nil {
				return err
			}
		}
		return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error { return s.run(ctx, claims, args) })
	}
	return cmd
}

// on is a spec without its run, and what it does with what open returns.
func on[T any](s spec, open func(context.Context, *etcdclaims.Client, []string) (T, error),
	f func(ctx context.Context, is T, args []string) error,
) spec {
	s.run = func(ctx context.Context, claims *etcdclaims.Client, args []string) error {
		is, err := open(ctx, claims, args)
		if err != nil {
			return err
		}
		return f(ctx, is, args)
	}
	return s
}

// addReason adds --reason, and --why, which is the same and not in the help.
func addReason(flags *pflag.FlagSet, reason *string, usage string) {
	flags.StringVar(reason, "reason", "", usage)
	flags.StringVar(reason, "why", "", "the same as --reason")
	_ = flags.MarkHidden("why") // it fails for unknown flags only
}
