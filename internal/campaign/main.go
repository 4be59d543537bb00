// Campaign proves the claim protocol with real processes: workers that share
// keys, the items of a queue and a set, on a cluster of three etcd members, all of them
// processes, while a nemesis kills, stops and cuts them off.
//
//	go run ./internal/campaign -for 2m
//
// Each worker reaches each member through a proxy of its own, so that any link
// can be cut. What workers intend and what they are told is in their journals,
// what was carried out is in etcd, and who owned what is seen by watches that no
// fault touches but those of the members. At the end all of it is healed, and
// the three are compared: see verdict.go for what must hold, and pickup.go for
// how fast the keys of a dead worker must be picked up.
//
// A seed fixes what is chosen, not when processes run: two runs of one seed make
// similar faults, not the same history.
//
// The exit code is 1 if something did not hold, or if the run could not be made or judged. Then
// its journals, logs and data are kept in a temporary directory.
//
// An interrupt ends the faults early; what happened until then is judged. A
// second one ends the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// workerCommand is the hidden argument with which the program runs itself as a
// worker.
const workerCommand = "campaign-worker"

// options are those of the command line.
type options struct {
	length time.Duration
	seed   uint64
	ttl    time.Duration
	dir    string // where journals, logs and data go
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second one kills
	var err error
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		err = runWorker(os.Stdin)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "campaign: %v\n", err)
		os.Exit(1)
	}
}

// parse has flags of its own: package testing, which testetcd links, puts its
// own among the command line's.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.DurationVar(&o.length, "for", 2*time.Minute, "how long faults are made; healing and judging come on top")
	flags.Uint64Var(&o.seed, "seed", 0, "of what nemesis and workers choose (default random)")
	flags.DurationVar(&o.ttl, "ttl", 5*time.Second, "lease time of the claims, in full seconds")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for o.seed == 0 {
		o.seed = rand.Uint64()
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	case o.length <= 0:
		return o, fmt.Errorf("-for %v: it must be positive", o.length)
	case o.ttl < 2*time.Second || o.ttl%time.Second != 0:
		return o, fmt.Errorf("-ttl %v: etcd takes full seconds, at least 2", o.ttl)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := testetcd.Signals(); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("", "campaign-*"); err != nil {
		return err
	}
	if err := (&campaign{o: o, out: out, began: time.Now()}).run(ctx); err != nil {
		fmt.Fprintf(out, "journals and logs are in %s\n", o.dir)
		return err
	}
	return os.RemoveAll(o.dir)
}
