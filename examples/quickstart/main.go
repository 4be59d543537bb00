// Quickstart counts the lines, words and bytes of a tree of Go files. Three worker
// processes share the files through claims; one is killed, and one is frozen for
// longer than its claims last.
//
//	go run ./examples/quickstart                        # starts an etcd in this process
//	go run ./examples/quickstart -endpoints http://localhost:2379
//
// Each file is one piece of work. A worker runs it with Client.RunWork, and ends it
// with Work.Complete, which stores the result in the same transaction. So each file
// has one result, whatever happens to the workers. worker.go has all that a program
// needs. The parent, in parent.go, kills and freezes workers, and checks the results.
//
// It exits with 0 only if the totals equal those of a plain count, every file has
// one result, work of a dead worker was taken over, and a late write of the frozen
// worker was refused.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/etcdclaims/claims/examples/internal/demoproc"
)

func main() { demoproc.Main("quickstart", run) }

func run(ctx context.Context, args []string) error {
	var j job // the parent starts this program again for each worker
	if worker, err := demoproc.Job(args, &j); err != nil {
		return err
	} else if worker {
		return runWorker(ctx, j)
	}

	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&j.Root, "root", "", "directory whose .go files are counted (default: the Go distribution's)")
	flags.IntVar(&j.Pace, "pace", 500, "files per second and worker, 0 for no limit")
	endpoints := flags.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	timeout := flags.Duration("timeout", 90*time.Second, "when to give up")
	switch err := flags.Parse(args); {
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case j.Pace < 0:
		return fmt.Errorf("-pace %d is negative", j.Pace)
	}
	if j.Root == "" {
		root, err := demoproc.GoRoot(ctx)
		if err != nil {
			return err
		}
		j.Root = filepath.Join(root, "src")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v", *timeout))
	defer cancel()
	return demonstrate(ctx, j, *endpoints)
}
