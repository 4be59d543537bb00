// Compare measures claims against their peers, all on this machine and in one
// run, and prints what came of it as tables.
//
//	go run ./internal/compare -quick
//
// etcd runs as a process of its own, with fsync; its clients run in this one.
// Redis and Postgres are started too where they are installed, and driven by
// clients in a process of their own (see peers), so that the SDK's module does
// not require them.
//
// Rates differ from machine to machine and from minute to minute. So what is
// measured is measured in rounds, in each of them every row once, in random
// order; and what is compared are ratios to the reference, a Mutex of
// go.etcd.io/etcd/client/v3/concurrency, in the same round. Every number is a
// median over the rounds.
//
// # Flags
//
//	-quick     fewer rounds, shorter ones, fewer sizes, fewer claims held: about three
//	           minutes
//	-rounds    how often each row is measured (5; 3 with -quick)
//	-only      a regular expression: only what matches it is measured, of names
//	           such as "cycles/64 goroutines/etcdclaims"; references are measured with it
//	-svg       write a chart of it to that file too
//	-json      keep the run in that file, as JSON
//	-against   a file that -json wrote: say at the end which rows of this SDK have fallen by
//	           more than 5 % since then, by their ratios if they have any
//	-dir       where servers keep their data: on the disk that is of interest
//	           (the directory for temporary files)
//
// # Columns
//
// A cycle is an acquisition and a release, as p50 and p99 are of both together.
// Requests are messages sent to etcd, and µs the CPU time of this process and of
// etcd, all of them for each cycle or hand-over: what is left to explain a rate
// when the disk is not to blame. Servers other than etcd are not asked for that.
// Memory is heap and stacks. "limit" is etcd itself, claiming as many keys in
// each transaction as it allows, with nothing around it.
//
// The exit code is 1 if something could not be measured although all it needs is
// installed.
//
// An interrupt ends the comparison: what has been printed until then is complete.
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
	"syscall"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// options are those of the command line, and what follows from them.
type options struct {
	quick  bool
	rounds int
	only   *regexp.Regexp
	svg    string
	json   string
	before string // -against
	dir    string

	warmUp time.Duration // before each measurement
	window time.Duration // of each measurement
	held   heldOptions
	group  groupOptions
	// lineRounds is how often hand-overs are measured, if not as often as all
	// else: long lines take long.
	lineRounds int
	deaths     int // of holders, in one measurement of waking up
}

// heldOptions are those of holding many claims.
type heldOptions struct {
	claims   []int // by one client
	sessions int   // of the peer that has one for each lock, at most
	waiters  []int
	items    []int // in a queue
	settle   time.Duration
	hold     time.Duration
}

func main() {
	// All that would end the program without cleaning up: SIGPIPE is of a pager
	// that was left.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // the second one kills
	if order := os.Getenv(holdVariable); order != "" {
		if err := hold(ctx, order, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "compare: %v\n", err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		os.Exit(1)
	}
}

// parse has flags of its own: package testing, which testetcd links, puts its
// own among the command line's.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.quick, "quick", false, "fewer rounds, shorter, with fewer claims held: about two minutes")
	flags.IntVar(&o.rounds, "rounds", 0, "how often each row is measured (default 5, with -quick 3)")
	flags.StringVar(&only, "only", "", "measure only what matches the regular `expression`: names such as cycles/64 goroutines/etcdclaims")
	flags.StringVar(&o.svg, "svg", "", "write a chart to the `file` too")
	flags.StringVar(&o.json, "json", "", "keep the run in the `file`, as JSON")
	flags.StringVar(&o.before, "against", "", "say what has fallen by more than 5 % since the run that -json kept in the `file`")
	flags.StringVar(&o.dir, "dir", "", "where servers keep their data (default the directory for temporary files)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	if o.rounds < 0 {
		return o, fmt.Errorf("-rounds %d: it must be positive", o.rounds)
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	o.size()
	return o, nil
}

// size says how much is measured.
func (o *options) size() {
	rounds := 5
	o.warmUp, o.window, o.deaths = 200*time.Millisecond, time.Second, 16
	// Both hold claims for whole periods of renewal and verification: TTL/3.
	o.held = heldOptions{claims: []int{1000, 10_000, 100_000}, sessions: 10_000, waiters: []int{1000, 10_000, 30_000}, items: []int{1000, 10_000, 100_000, 300_000}, settle: 10 * time.Second, hold: 30 * time.Second}
	o.group = groupOptions{members: 32, partitions: 1024, settle: 10 * time.Second, hold: 30 * time.Second}
	if o.quick {
		rounds = 3
		o.warmUp, o.window, o.deaths = 50*time.Millisecond, 200*time.Millisecond, 8
		o.held = heldOptions{claims: []int{10_000}, sessions: 2_000, waiters: []int{1000}, items: []int{1000, 10_000}, settle: time.Second, hold: 10 * time.Second}
		o.group = groupOptions{members: 8, partitions: 256, settle: time.Second, hold: 10 * time.Second}
	}
	if o.rounds == 0 {
		o.rounds = rounds
		if o.quick {
			o.lineRounds = 2
		}
	}
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
	return compare(ctx, o, workloads(o), stdout, stderr)
}

// workloads are all there are, in the order in which they are measured.
func workloads(o options) []workload {
	return []workload{cycles(o), batches(o), spread(o), handOvers(o), slots(o), readers(o), holding(o), waiting(o), depths(o), groups(o), wakeUps(), failOvers(o), queues(o), pickUps(o)}
}

// compare measures the workloads, as far as they are asked for, and prints each
// when it is complete.
func compare(ctx context.Context, o options, all []workload, stdout, stderr io.Writer) (err error) {
	all = chosen(all, o.only)
	if len(all) == 0 {
		return errors.New("nothing matches -only")
	}
	var before kept
	if o.before != "" {
		if before, err = readKept(o.before); err != nil {
			return err
		}
	}
	st, err := newStage(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	m, err := st.machine(ctx)
	if err != nil {
		return err
	}
	if err := m.print(stdout, o); err != nil {
		return err
	}
	var results []result
	for _, w := range all {
		r, err := st.measure(ctx, w)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(stdout, r.table()); err != nil {
			return err
		}
		results = append(results, r)
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, chart(results, m), 0o644); err != nil {
			return err
		}
	}
	if o.json != "" {
		if err := keep(o, m, results).write(o.json); err != nil {
			return err
		}
	}
	if o.before != "" {
		if err := printFallen(stdout, o.before, before, o, m, results); err != nil {
			return err
		}
	}
	return failures(results)
}
