package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
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
	table                     string // its columns, if it prints one
	flags                     func(*pflag.FlagSet)
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
	if s.table != "" {
		a.tableFlags(cmd.Flags(), s.table)
		complete(cmd, "sort-by", strings.Split(strings.ToLower(s.table), ",")...)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if s.check != nil {
			if err := s.check(args); err != nil {
				return err
			}
		}
		if err := a.checkTable(s.table); err != nil {
			return err
		}
		once := func() error {
			return a.with(cmd, func(ctx context.Context, claims *etcdclaims.Client) error {
				return s.run(admin.As(ctx, a.person(), a.reason), claims, args)
			})
		}
		if a.every > 0 {
			return a.again(cmd, once)
		}
		return once()
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

// tableFlags adds the flags of a command that prints a table.
func (a *app) tableFlags(flags *pflag.FlagSet, columns string) {
	flags.StringVar(&a.sortBy, "sort-by", "", "sort by a column, with a leading minus in falling order: "+strings.ToLower(columns))
	flags.DurationVar(&a.every, "watch", 0, "print again whenever it has changed, until a signal comes; --watch=5s looks every 5s")
	flags.Lookup("watch").NoOptDefVal = "2s"
}

// checkTable refuses other columns than those of a table.
func (a *app) checkTable(columns string) error {
	name := strings.ToUpper(strings.TrimPrefix(a.sortBy, "-"))
	if name != "" && !slices.Contains(strings.Split(columns, ","), name) {
		return usageError("--sort-by %q is not one of %s", a.sortBy, strings.ToLower(columns))
	}
	return usageIf(a.every < 0, "--watch=%s is negative", a.every)
}

// confirm applies the rule to the commands below cmd.
func (a *app) confirm(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if is, ok := changes[commandName(c)]; ok {
			a.confirmed(c, is)
		}
		a.confirm(c)
	}
}

// confirmed applies it to one command.
func (a *app) confirmed(cmd *cobra.Command, is change) {
	var yes bool
	flags, run := cmd.Flags(), cmd.RunE
	flags.StringVar(&a.reason, "reason", "", cmp.Or(is.reason, forRecord))
	flags.StringVar(&a.reason, "why", "", "the same as --reason")
	_ = flags.MarkHidden("why") // it fails for unknown flags only
	if is.finds {
		flags.BoolVar(&a.dry, "dry-run", false, "print what would be changed, and change nothing")
	}
	if is.lost != "" {
		flags.BoolVar(&yes, "yes", false, "do it: "+is.lost)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		only, _ := flags.GetBool(is.only)
		switch loses := is.lost != "" && (is.only == "" || only); {
		case is.needs != "" && strings.TrimSpace(a.reason) == "":
			return usageError("%s: --reason is required: %s", commandName(cmd), is.needs)
		case loses && !yes && !a.dry:
			return usageError("%s: %s; repeat with --yes", commandName(cmd), is.lost)
		}
		return run(cmd, args)
	}
}
