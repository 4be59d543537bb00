// Compare measures claims against their peers, all on this machine and in one run, and
// prints a table for each workload. It is a module of its own, so that whoever requires the
// SDK does not require its peers.
//
//	go -C internal/compare run .
//
// etcd runs as a process of its own, with fsync. Redis and Postgres are started too where
// they are installed. All clients run in this process.
//
// Rates differ from minute to minute. So each round measures every row once, in random order.
// Ratios are to the reference in the same round. Every number is a median over the rounds.
//
// It takes several minutes. With -only and a regular expression, only rows that match are
// measured, by names such as "cycles/64 goroutines/etcdclaims", and their references.
//
// Servers keep their data in the directory for temporary files, see TMPDIR. A cycle is an
// acquisition and a release: p50 and p99 are of both together. Memory is heap and stacks.
//
// The exit code is 1 if something could not be measured although all that it needs is
// installed. After an interrupt the tables that were printed are complete.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// options are how much is measured.
type options struct {
	only *regexp.Regexp
	dir  string // where servers keep their data; empty means the one for temporary files

	rounds int
	warmUp time.Duration // before each measurement
	window time.Duration // of each measurement
	deaths int           // of holders, in one measurement

	claims  []int         // that one client holds
	clients []int         // that hold a few
	items   []int         // in a queue
	settle  time.Duration // before what is held is measured
	hold    time.Duration // while it is measured: for whole periods of renewal, TTL/3
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // the second one kills
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

// parse has flags of its own: package testing, which testetcd links, puts its own among the
// command line's.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{
		rounds:  3,
		warmUp:  50 * time.Millisecond,
		window:  200 * time.Millisecond,
		deaths:  8,
		claims:  []int{10_000, 100_000},
		clients: []int{1000},
		items:   []int{1000, 300_000},
		settle:  10 * time.Second,
		hold:    30 * time.Second,
	}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure only what matches the regular `expression`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := testetcd.Signals(); err != nil {
		return err
	}
	return compare(ctx, o, stdout, stderr)
}

// workloads are all there are, in the order in which they are measured.
func workloads(o options) []workload {
	return []workload{
		cycles(), spread(), handOvers(), slots(), readers(),
		holding(o), processes(o), waiting(o), depths(o), failOvers(), queues(), pickUps(),
	}
}

// compare measures the workloads that match -only, and prints each when it is complete.
func compare(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	all := chosen(workloads(o), o.only)
	if len(all) == 0 {
		return errors.New("nothing matches -only")
	}
	st, err := newStage(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	fmt.Fprintf(stdout, "%d cores, %s/%s, %s; etcd %s, with fsync, on the same machine\n"+
		"%d rounds of %v for each row, fewer where one takes long\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), version.Version, st.rounds, st.window)
	var failed error
	for _, w := range all {
		r, err := st.measure(ctx, w)
		if err != nil {
			return err
		}
		if err := r.print(stdout); err != nil {
			return err
		}
		failed = errors.Join(failed, r.failures())
	}
	return failed
}
