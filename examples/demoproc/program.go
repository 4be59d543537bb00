package demoproc

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// command is the argument that makes the program a worker.
const command = "worker"

// Program is an example. Its parent process starts the program again for each worker,
// which gets its job, a J, as an argument.
type Program[J any] struct {
	Name string
	// Flags defines the flags of the parent besides -endpoints and -timeout. They may
	// set fields of the job that is the model for all workers.
	Flags func(flags *flag.FlagSet, j *J)
	// Timeout is the default of -timeout. Zero means that there is no such flag.
	Timeout time.Duration

	Parent func(ctx context.Context, j J, endpoints string) error
	Worker func(ctx context.Context, j J) error
}

// Main runs the program until it ends or is interrupted. It exits with 0 only if
// Parent or Worker returned nil.
func (p Program[J]) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log.SetFlags(log.Ltime)
	log.SetOutput(os.Stdout) // the examples print what happens with log.Printf
	err := p.run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		os.Exit(1)
	}
}

func (p Program[J]) run(ctx context.Context, args []string) error {
	var j J
	if len(args) == 2 && args[0] == command {
		if err := json.Unmarshal([]byte(args[1]), &j); err != nil {
			return err
		}
		return p.Worker(ctx, j)
	}
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	p.Flags(flags, &j)
	endpoints := flags.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	if p.Timeout > 0 {
		flags.DurationVar(&p.Timeout, "timeout", p.Timeout, "when to give up")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if p.Timeout <= 0 {
		return p.Parent(ctx, j, *endpoints)
	}
	late := fmt.Errorf("not done after %v", p.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, late)
	defer cancel()
	err := p.Parent(ctx, j, *endpoints)
	if err != nil && errors.Is(context.Cause(ctx), late) && !errors.Is(err, late) {
		return fmt.Errorf("%w: %w", late, err) // of a request that was waited for
	}
	return err
}
