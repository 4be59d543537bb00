// Sqlfence has two processes move money in one SQL database, each while it holds
// the claim on the ledger. The first is frozen between reading the balances and
// writing them, for longer than its claim lasts, and writes when it is resumed:
// once without a guard, and money is lost; once with one, and none is.
//
//	go -C examples/sqlfence run .                   # SQLite, and an etcd of its own
//	go -C examples/sqlfence run . -dsn postgres://localhost/test -endpoints http://localhost:2379
//
// bank.go has what a program needs. It exits with 0 only if all that happened.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "sqlfence: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) == 1 && args[0] == workerCommand {
		return work(ctx, os.Stdin, os.Stdout)
	}
	if err := demoproc.Signals(); err != nil {
		return fmt.Errorf("processes cannot be frozen here: %w", err)
	}
	flags := flag.NewFlagSet("sqlfence", flag.ContinueOnError)
	dsn := flags.String("dsn", "", "Postgres to use, as postgres://… (default a file of SQLite)")
	endpoints := flags.String("endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 90*time.Second, errors.New("not done after 90 s"))
	defer cancel()
	if *dsn == "" {
		dir, err := os.MkdirTemp("", "sqlfence")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }() // what is left over is for the system to tidy up
		*dsn = filepath.Join(dir, "bank.db")
	}
	eps, stop, err := demoetcd.Open(*endpoints)
	if err != nil {
		return err
	}
	defer stop()
	b, err := openBank(*dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.removeAll(context.WithoutCancel(ctx)), b.db.Close()) }()

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nguard\tfrozen worker's write\talice\tbob\tcarol\ttotal\t")
	for _, guarded := range []bool{false, true} {
		late, err := frozenTransfer(ctx, b, job{DSN: *dsn, Endpoints: eps, Prefix: "/sqlfence/" + rand.Text() + "/", Guarded: guarded})
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		has, err := b.balances(ctx)
		if err != nil {
			return err
		}
		total := has["alice"] + has["bob"] + has["carol"]
		fmt.Fprintf(table, "%v\t%s\t%d\t%d\t%d\t%d of %d\t\n", guarded, late, has["alice"], has["bob"], has["carol"], total, 3*opening)
		if guarded && (late != refused || total != 3*opening) || !guarded && (late != written || total >= 3*opening) {
			err = fmt.Errorf("guard %v: the late write was %s and the total is %d", guarded, late, total)
			return errors.Join(err, table.Flush())
		}
	}
	return table.Flush()
}

// frozenTransfer has the second worker do its transfer while the first is frozen
// in the middle of its own. It returns what became of that.
func frozenTransfer(ctx context.Context, b *bank, j job) (string, error) {
	if err := b.reset(ctx); err != nil {
		return "", err
	}
	fmt.Printf("guard: %v\n", j.Guarded)
	j.Name, j.From, j.To, j.Amount = "worker-1", "alice", "bob", 30
	first, err := startWorker(ctx, j)
	if err != nil {
		return "", err
	}
	defer first.end()
	if err := first.child.Pause(); err != nil {
		return "", err
	}
	fmt.Println("worker-1 is frozen: it has read the balances, and is about to write")

	j.Name, j.From, j.To, j.Amount = "worker-2", "carol", "bob", 50
	second, err := startWorker(ctx, j) // once the claim of the first has lapsed
	if err != nil {
		return "", err
	}
	defer second.end()
	outcome, err := second.write()
	if err == nil && outcome != written {
		err = fmt.Errorf("the write of worker-2 was %s", outcome)
	}
	if err != nil {
		return "", err
	}
	if err := first.child.Resume(); err != nil {
		return "", err
	}
	fmt.Println("worker-1 is resumed")
	return first.write()
}
