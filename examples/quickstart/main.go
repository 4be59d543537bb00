// Quickstart counts the lines, words and bytes of a tree of Go files with three
// worker processes that share the files through claims, while one of them is
// killed and another one is frozen for longer than its claims last.
//
//	go run ./examples/quickstart                        # an etcd of its own
//	go run ./examples/quickstart -endpoints http://localhost:2379
//
// Each file is work that a worker begins (Client.TryBegin), does, and completes
// together with its result in one transaction (Work.Complete), so that there is
// one result per file whatever happens to the workers: see work.go, and worker.go
// for how they choose files. That is all that a program with real work needs;
// what parent.go does to the workers is only there to show it.
//
// It exits with 0 only if the workers' total is that of a plain count, every
// file has one result, work of a dead owner was taken over, and a write of the
// frozen worker that came too late was refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are those of the command line.
type options struct {
	root      string
	endpoints string
	pace      int
	timeout   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "quickstart: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if err := checkPlatform(); err != nil {
		return err
	}
	// The parent starts this program again for each worker.
	if len(args) == 1 && args[0] == workerCommand {
		return runWorker(ctx, os.Stdin, os.Stdout)
	}

	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "", "directory whose .go files are counted (default GOROOT/src)")
	flags.StringVar(&o.endpoints, "endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	flags.IntVar(&o.pace, "pace", 220, "files that a worker counts in a second, 0 for as many as it can")
	flags.DurationVar(&o.timeout, "timeout", 90*time.Second, "when to give up")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.pace < 0 {
		return fmt.Errorf("-pace %d is negative", o.pace)
	}
	if o.root == "" {
		src, err := goSource(ctx)
		if err != nil {
			return err
		}
		o.root = src
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %v", o.timeout))
	defer cancel()
	err := demonstrate(ctx, o)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// goSource returns the source of the standard library, which every Go developer
// has at hand.
func goSource(ctx context.Context) (string, error) {
	goroot := os.Getenv("GOROOT")
	if out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil {
		goroot = strings.TrimSpace(string(out))
	}
	if goroot == "" {
		return "", errors.New("found neither a go command nor GOROOT: say what to count with -root")
	}
	return filepath.Join(goroot, "src"), nil
}
