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
// # Flags
//
//	-for      how long faults are made (2m); healing and judging come on top
//	-seed     of what the nemesis and the workers choose (random, printed)
//	-workers  how many workers (6)
//	-keys     how many keys they share, beside those of suspicion and the set (8)
//	-ttl      lease time of the claims (5s), at least 2s
//	-dir      where journals, logs and data go (a temporary directory, which is
//	          kept if the run fails); a directory that is given is always kept
//
// A seed fixes what is chosen, not when processes run: two runs of one seed make
// similar faults, not the same history.
//
// # Exit codes
//
//	0  everything held
//	1  something did not: a stale effect was accepted, an effect, element or item
//	   was lost or doubled, a refused effect was carried out, a pick-up took longer
//	   than its bound, a key stayed stuck, or a worker ended by itself or would not
//	2  the run could not be made, or not be judged
//
// (The go command makes 1 of all that is not 0.)
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
	"path/filepath"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

const (
	exitViolated = 1
	exitNotRun   = 2
)

// workerCommand is the hidden argument with which the program runs itself as a
// worker.
const workerCommand = "campaign-worker"

// options are those of the command line.
type options struct {
	length  time.Duration
	seed    uint64
	workers int
	keys    int
	ttl     time.Duration
	dir     string
}

// errViolated says that the run was made, and that something did not hold. What
// that was has been printed.
var errViolated = errors.New("something did not hold")

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
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "campaign: %v\n", err)
	if errors.Is(err, errViolated) {
		os.Exit(exitViolated)
	}
	os.Exit(exitNotRun)
}

// parse has flags of its own: package testing, which testetcd links, puts its
// own among the command line's.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.DurationVar(&o.length, "for", 2*time.Minute, "how long faults are made")
	flags.Uint64Var(&o.seed, "seed", 0, "of what nemesis and workers choose (default random)")
	flags.IntVar(&o.workers, "workers", 6, "how many workers")
	flags.IntVar(&o.keys, "keys", 8, "how many keys they share")
	flags.DurationVar(&o.ttl, "ttl", 5*time.Second, "lease time of the claims, in full seconds")
	flags.StringVar(&o.dir, "dir", "", "where journals, logs and data go (default a temporary directory, kept on failure)")
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
	case o.workers < 2 || o.workers > 64:
		return o, fmt.Errorf("-workers %d: it takes 2 to 64", o.workers)
	case o.keys < 1 || o.keys > 1000:
		return o, fmt.Errorf("-keys %d: it takes 1 to 1000", o.keys)
	case o.ttl < 2*time.Second || o.ttl%time.Second != 0:
		return o, fmt.Errorf("-ttl %v: etcd takes full seconds, at least 2", o.ttl)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
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
	given := o.dir != ""
	if given {
		// Members run with another working directory.
		if o.dir, err = filepath.Abs(o.dir); err == nil {
			err = os.MkdirAll(o.dir, 0o700)
		}
	} else {
		o.dir, err = os.MkdirTemp("", "campaign-*")
	}
	if err != nil {
		return err
	}
	defer func() {
		if given || err != nil {
			fmt.Fprintf(out, "journals and logs are in %s\n", o.dir)
			return
		}
		err = os.RemoveAll(o.dir)
	}()
	if entries, err := os.ReadDir(o.dir); err != nil {
		return err
	} else if len(entries) > 0 {
		return fmt.Errorf("-dir %s is not empty: journals of another run would be judged with this one's", o.dir)
	}
	return newCampaign(o, out).run(ctx)
}
