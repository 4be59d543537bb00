// Queue makes thumbnails of the pictures of the Go distribution with eight worker
// processes that share a queue. Two workers are killed and one is frozen for longer
// than its leases last; and one picture kills every worker that opens it.
//
//	go run ./examples/queue                        # starts an etcd in this process
//	go run ./examples/queue -dir ~/Pictures -out ~
//	go run ./examples/queue -endpoints http://localhost:2379
//
// worker.go has all that a program with real items needs. The parent, in parent.go,
// enqueues the pictures, kills and freezes workers, checks the results and writes
// them to a contact sheet, index.html.
//
// It exits with 0 only if every picture was enqueued once, and has either one
// thumbnail or a dead letter with its errors; if the items of killed workers were
// handled by others; if the frozen worker could not publish its thumbnail; and if
// the picture that kills workers is a dead letter that names them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/etcdclaims/claims/examples/internal/demoproc"
)

func main() { demoproc.Main("queue", run) }

func run(ctx context.Context, args []string) error {
	var j job // the parent starts this program again for each worker
	if worker, err := demoproc.Job(args, &j); err != nil {
		return err
	} else if worker {
		return runWorker(ctx, j)
	}

	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory with PNG and JPEG files (default: the Go distribution)")
	endpoints := flags.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	timeout := flags.Duration("timeout", 2*time.Minute, "when to give up")
	out := flags.String("out", "", "directory in which a new directory is made for the thumbnails (default: the temporary one)")
	switch err := flags.Parse(args); {
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if *dir == "" {
		if *dir, err = demoproc.GoRoot(ctx); err != nil {
			return err
		}
	}
	if j.Out, err = os.MkdirTemp(*out, "thumbnails-*"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v", *timeout))
	defer cancel()
	return demonstrate(ctx, j, *dir, *endpoints)
}
