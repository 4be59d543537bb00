package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/durable"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// forKeys is how long backup and restore may take.
func forKeys(flags *pflag.FlagSet, timeout *time.Duration) {
	flags.DurationVar(timeout, "timeout", time.Minute, "how long it may take")
}

func (a *app) backupCommand() *cobra.Command {
	var timeout time.Duration
	return a.command(spec{
		use: "backup", group: groupRepair,
		short: "Print what outlives processes, as JSON lines that restore reads",
		long: `Print what outlives the processes that use it, and that they would not make anew: the
specs, pauses and dead letters of queues, the definitions and pauses of jobs, the
numbers of partitions of groups, and the records of operators. Each is one line.

Claims, waiting items, marks and histories of jobs, records of work and the epoch are
not part of it: put back, they would repeat or block what has gone on since. A snapshot
of etcd has them.`,
		example: `  claimctl backup > claims.jsonl`,
		flags:   func(flags *pflag.FlagSet) { forKeys(flags, &timeout) },
		run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			lines := json.NewEncoder(a.out)
			lines.SetEscapeHTML(false)
			for e, err := range durable.Backup(ctx, claims.Etcd(), claims.Prefix()) {
				if err == nil {
					err = lines.Encode(e)
				}
				if err != nil {
					return fmt.Errorf("backup: it is not complete: %w", err)
				}
			}
			return nil
		},
	})
}

// restoredView is what became of a line of a backup.
type restoredView struct {
	Name   string `json:"name" col:"NAME"`
	Kind   string `json:"kind" col:"KIND"`
	Result string `json:"result" col:"RESULT"` // restored, or why it was left out
}

func (a *app) restoreCommand() *cobra.Command {
	var file string
	var timeout time.Duration
	var mayRepeat bool
	var entries []durable.Entry
	return a.command(spec{
		use: "restore -f FILE", group: groupRepair,
		short: "Put back what a backup has and etcd has not",
		long: `Put back what a backup has and etcd has not, each line by one transaction. What exists is
never overwritten, and what an operator has removed since the backup is left out: the
output has why. restore can be run again.

Dead letters come back only with --may-repeat. Those that were redriven, cancelled or
purged since the backup come back, too, and a program may do their work again.
A definition that a program has removed comes back without it.`,
		flags: func(flags *pflag.FlagSet) {
			forKeys(flags, &timeout)
			flags.StringVarP(&file, "file", "f", "", "file of the backup, or - for the standard input (required)")
			flags.BoolVar(&mayRepeat, "may-repeat", false, "also dead letters, whose work may have been done since the backup")
		},
		check: func([]string) (err error) {
			entries, err = a.readBackup(file)
			return usageIf(err != nil, "restore: %v", err)
		},
		run: func(ctx context.Context, claims *etcdclaims.Client, _ []string) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			return a.restore(ctx, claims, entries, mayRepeat)
		},
	})
}

// restore restores the entries, and prints what became of each.
func (a *app) restore(ctx context.Context, claims *etcdclaims.Client, entries []durable.Entry, mayRepeat bool) error {
	act := audit.Begin(ctx, claims, audit.Restore, audit.Target{}, "")
	to := durable.Restore{Etcd: claims.Etcd(), Prefix: claims.Prefix(), Act: act, Dry: a.dry, MayRepeat: mayRepeat}
	restored, failed := 0, 0
	var views []restoredView
	var first error
	for _, is := range to.All(ctx, entries) {
		v := restoredView{Name: is.Name, Kind: string(is.Kind), Result: "restored"}
		switch {
		case is.Err != nil:
			if failed++; first == nil {
				first = fmt.Errorf("%s %q: %w", is.Kind, is.Name, is.Err)
			}
			v.Result = "failed: " + is.Err.Error()
		case is.LeftOut != "":
			v.Result = "left out: " + is.LeftOut
		default:
			restored++
		}
		views = append(views, v)
	}
	if first != nil {
		first = fmt.Errorf("restore: %d of %d lines failed, the first of them %w", failed, len(entries), first)
	}
	act.Outcome(ctx, "lines: %d", restored)
	return act.End(ctx, errors.Join(printList(a, "RESULT,KIND,NAME", sequence(views)), first))
}

// readBackup reads a backup, all of it before anything is sent.
func (a *app) readBackup(file string) (all []durable.Entry, err error) {
	in := a.in
	switch file {
	case "":
		return nil, errors.New("--file is required: the output of claimctl backup")
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	for lines := json.NewDecoder(in); ; {
		var e durable.Entry
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			err = e.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, len(all)+1, err)
		}
		all = append(all, e)
	}
}
