// Claimctl-dev starts an etcd with samples of claims, waiters, work, queues and
// schedules on this machine, to try claimctl and the packages without an etcd:
//
//	go run github.com/etcdclaims/claims/cmd/claimctl-dev@latest
//
// Its data is gone when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/etcdclaims/claims/examples/demoetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "claimctl-dev:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("claimctl-dev", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:2379", "address of etcd; port 0 takes a free one")
	page := flags.String("page", "127.0.0.1:2381", "address of the live page, on which every visitor may do everything; empty: none")
	empty := flags.Bool("empty", false, "without samples, for programs of your own")
	if err := flags.Parse(args); err != nil {
		return err
	}
	endpoint, stop, err := demoetcd.Start(*listen)
	if err != nil {
		return fmt.Errorf("start etcd at %s: %w", *listen, err)
	}
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // the server goes too
	p, err := servePage(etcd, *page)
	if err != nil {
		return err
	}
	defer p.close()
	if *empty {
		return serve(ctx, out, endpoint, p.url(), "")
	}
	s := &sample{etcd: etcd}
	err = s.make(ctx)
	if err == nil {
		err = serve(ctx, out, endpoint, p.url(), tryText)
	}
	return errors.Join(err, s.close())
}

const tryText = `
In a clone, claimctl is "go run ./cmd/claimctl".

  claimctl ls                                  # who holds what
  claimctl explain orders/1                    # who waits for it
  claimctl history orders/1                    # its terms, and how each ended
  claimctl doctor                              # finds what is staged here
  claimctl work ls --state dead,orphaned
  claimctl queue dead ls thumbnails
  claimctl sched jobs -g billing
  claimctl run nightly -- sh -c 'echo $CLAIM_FENCE'

The samples use the group billing and the queue thumbnails. A program that uses them too meets the samples:
give it other names, or begin with -empty.
`

func serve(ctx context.Context, out io.Writer, endpoint, page, try string) error {
	if page != "" {
		page = "The live page is at " + page + ". "
	}
	_, err := fmt.Fprintf(out, "etcd listens. %sIn another shell:\n\n"+
		"  export ETCDCTL_ENDPOINTS=%s\n%s\nInterrupt to end it.\n", page, endpoint, try)
	if err == nil {
		<-ctx.Done()
	}
	return err
}
