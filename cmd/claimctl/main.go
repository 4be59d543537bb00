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

	"github.com/etcdclaims/claims/cmd/claimctl/serve"
	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
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
