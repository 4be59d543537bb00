// Observe is a small fleet whose metrics a Prometheus can scrape: three clients
// share orders, a scheduler, and a queue. From time to time something goes wrong.
//
//	go run .                                    # in examples/observe; an etcd of its own
//	go run . -endpoints http://localhost:2379 -listen :9464
//
// What a program needs is in metrics.go. docs/grafana has boards and alert rules for
// what is exported.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/examples/demoetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	listen := flag.String("listen", "127.0.0.1:0", "where to serve /metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := demoetcd.Use(ctx, "observe", *endpoints, func(etcd *clientv3.Client, _ []string, prefix string) error {
		return observe(ctx, etcd, prefix, *listen)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// observe runs the fleet and serves its metrics until ctx ends.
func observe(ctx context.Context, etcd *clientv3.Client, prefix, listen string) error {
	tel, metrics, err := newTelemetry()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("metrics at http://%s/metrics\n", listener.Addr())
	err = runFleet(ctx, etcd, prefix, tel)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return errors.Join(err, tel.Close())
}
