// Cron runs five jobs on schedules in four processes, of which one or the other
// is killed, frozen for longer than its claims last, or has its clock put forward
// or back.
//
//	go run ./examples/cron             # 45 seconds, an etcd of its own
//	go run ./examples/cron -for 10m
//	go run ./examples/cron -endpoints http://localhost:2379
//
// The jobs are in jobs.go, and process.go has all that a program with real jobs
// needs. What parent.go does to the processes is only there to show it.
//
// At the end the program counts, by what the handlers wrote themselves, what
// became of each tick that was due: see ledger.go. It exits with 0 only if none
// was run twice and none is unaccounted for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // for machines that have no rules of time zones

	"github.com/etcdclaims/claims/internal/testetcd"
)

// options are those of the command line.
type options struct {
	length    time.Duration
	work      time.Duration
	endpoints string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "cron: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if err := testetcd.Signals(); err != nil {
		return err
	}
	// The parent starts this program again for each process.
	if len(args) == 1 && args[0] == processCommand {
		return runProcess(ctx, os.Stdin, os.Stdout)
	}
	var o options
	flags := flag.NewFlagSet("cron", flag.ContinueOnError)
	flags.DurationVar(&o.length, "for", 45*time.Second, "how long the jobs are due; what has begun then is waited for")
	flags.DurationVar(&o.work, "work", 30*time.Second, "how long a run of the job that is due each minute takes")
	flags.StringVar(&o.endpoints, "endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.length < 10*time.Second || o.work <= 0:
		return fmt.Errorf("-for %v, -work %v: want 10s at least, and some work", o.length, o.work)
	}
	return demonstrate(ctx, o)
}
