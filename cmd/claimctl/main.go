// Claimctl shows and repairs claims, work, schedules and queues in etcd, and runs
// commands while they hold a key.
//
//	claimctl ls                          # who holds what
//	claimctl explain orders/42           # who holds it, since when, who waits
//	claimctl run nightly -- ./report.sh  # in one process at a time
//	claimctl doctor                      # what is wrong with etcd, and what to do
//
// It takes the flags and the environment of etcdctl for the connection. "claimctl
// help exit-codes" has the contract of its exit codes, docs/operations.md recipes
// for incidents.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/cmd/claimctl/serve"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

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

// execute runs one invocation and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	a := &app{in: in, out: out, err: err}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	if err := a.unknown(root, args); err != nil {
		return a.report(err)
	}
	return a.report(root.ExecuteContext(ctx))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "claimctl",
		Short: "Show and repair claims in etcd, and run commands under them",
		Long: `Show and repair claims in etcd, and run commands under them.

The flags for the connection and their environment are those of etcdctl: each
flag can be set by ETCDCTL_ and its name, such as ETCDCTL_ENDPOINTS. The prefix
of the claims can be set by CLAIMCTL_PREFIX.

ps shows the flags of a command to every user of the machine. --password-file and
ETCDCTL_PASSWORD keep a password out of it; without either a terminal asks for it.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.flags, a.width = cmd.Flags(), lineWidth(a.out)
			if err := a.fromEnvironment(cmd); err != nil {
				return err
			}
			a.started = isFormat(a.format)
			return usageIf(!a.started, "output %q is not one of %s", a.format, strings.Join(formats, ", "))
		},
	}
	flags := root.PersistentFlags()
	a.connection.addFlags(flags)
	flags.StringVar(&a.prefix, "prefix", "", "prefix of the claims in etcd (default \"/etcdclaims/\")")
	flags.StringVar(&a.owner, "owner", "", "label of this process in claims and notices (default user@host-pid)")
	flags.StringVar(&a.as, "as", "", "who does it, for claimctl audit (default user@host); CLAIMCTL_AS sets it")
	flags.StringVarP(&a.format, "output", "o", formatTable,
		"table (the columns that fit in a line), wide (all of them), json, jsonl, yaml or name")
	flags.StringVarP(&a.format, "write-out", "w", formatTable, "the same as --output, as in etcdctl")
	complete(root, "output", formats...)
	complete(root, "write-out", formats...)
	root.AddGroup(&cobra.Group{ID: groupSee, Title: "See:"}, &cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupRepair, Title: "Repair:"})
	root.AddCommand(
		a.listCommand(), a.explainCommand(), a.watchCommand(), a.historyCommand(), a.auditCommand(), a.doctorCommand(),
		a.runCommand(), a.electCommand(), serve.Command(groupRun, a.client, a.logger),
		a.releaseCommand(), a.resizeCommand(), a.epochCommand(), a.backupCommand(), a.restoreCommand(),
		a.workCommand(), a.schedCommand(), a.queueCommand(), a.groupCommand(),
		exitCodesTopic(),
		&cobra.Command{
			Use: "version", GroupID: groupSee, Args: arguments(0, 0), Short: "Show the version of claimctl, its commit, and that of Go",
			RunE: func(*cobra.Command, []string) error { return printOne(a, readVersion(), nil) },
		},
	)
	a.confirm(root)
	return root
}

// arguments refuses another number of arguments, with an error that names those that the
// command takes.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return usageIf(len(args) < least || len(args) > most, "%s: got %s; usage: %s",
			commandName(cmd), explain.Count(len(args), "argument", "arguments"), cmd.UseLine())
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

// versionView is what this program was built of.
type versionView struct {
	Version string `json:"version" col:"VERSION"` // of the module
	Commit  string `json:"commit,omitempty" col:"COMMIT"`
	Changed bool   `json:"changed,omitempty" col:"CHANGED"` // since the commit
	Go      string `json:"go" col:"GO VERSION"`
}

// readVersion returns the version of this program.
func readVersion() (v versionView) {
	is, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version, v.Go = is.Main.Version, is.GoVersion
	for _, s := range is.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Changed = s.Value == "true"
		}
	}
	return v
}
