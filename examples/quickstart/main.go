// Quickstart counts the lines, words and bytes of a tree of Go files. Three worker
// processes share the files through claims; one is killed, and one is frozen for
// longer than its claims last.
//
//	go run ./examples/quickstart                        # starts an etcd in this process
//	go run ./examples/quickstart -endpoints http://localhost:2379
//
// Each file is one piece of work. A worker runs it with work.Runner.Run, and ends it
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
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log.SetFlags(log.Ltime)
	log.SetOutput(os.Stdout)
	var j job
	worker, err := demoproc.Job(&j)
	switch {
	case err != nil:
	case worker:
		err = runWorker(ctx, j)
	default:
		err = parse(ctx, j)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// parse runs the parent as the flags say.
func parse(ctx context.Context, j job) error {
	flag.StringVar(&j.Root, "root", "", "directory whose .go files are counted (default: the Go distribution's)")
	flag.IntVar(&j.Pace, "pace", 500, "files per second and worker, 0 for no limit")
	endpoints := flag.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	timeout := flag.Duration("timeout", 90*time.Second, "when to give up")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case j.Pace < 0:
		return fmt.Errorf("-pace %d is negative", j.Pace)
	}
	if j.Root == "" {
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("find the Go distribution: %w", err)
		}
		j.Root = filepath.Join(strings.TrimSpace(string(root)), "src")
	}
	late := fmt.Errorf("not done after %v", *timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, late)
	defer cancel()
	err := demonstrate(ctx, j, *endpoints)
	if err != nil && errors.Is(context.Cause(ctx), late) && !errors.Is(err, late) {
		return fmt.Errorf("%w: %w", late, err) // of a request that was waited for
	}
	return err
}
