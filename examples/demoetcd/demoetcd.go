// Package demoetcd gives the examples and claimctl-dev an etcd to run on: one that
// listens, or else one in their own process.
package demoetcd

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Logger returns a logger for etcdclaims.Config that writes warnings and errors to
// standard error.
func Logger() *zap.Logger {
	cfg := zap.NewDevelopmentConfig()
	cfg.Development = false
	cfg.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	cfg.DisableCaller, cfg.DisableStacktrace = true, true
	return zap.Must(cfg.Build())
}

// Dial returns a client of the etcd at the endpoints. It logs errors only: the
// client warns of each request that ends with its context.
func Dial(endpoints []string) (*clientv3.Client, error) {
	logger := Logger().WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: logger})
}

// Main runs an example that prints to standard output, on the etcd of its flag -endpoints or
// else on one of its own. All keys of the example are below the prefix, which no other run uses.
// Main exits with 0 only if f returns nil.
func Main(name string, f func(ctx context.Context, etcd *clientv3.Client, prefix string, out io.Writer) error) {
	endpoints := flag.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Use(ctx, name, *endpoints, func(etcd *clientv3.Client, _ []string, prefix string) error {
		return f(ctx, etcd, prefix, os.Stdout)
	})
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Use opens an etcd as Open does, and calls f with a client, the endpoints, and a
// prefix that no other run uses. Then it deletes all keys below the prefix, also if
// ctx has ended. The leases of processes that were killed end by themselves.
func Use(ctx context.Context, name, endpoints string, f func(etcd *clientv3.Client, endpoints []string, prefix string) error) error {
	at, stop, err := Open(endpoints)
	if err != nil {
		return err
	}
	defer stop()
	etcd, err := Dial(at)
	if err != nil {
		return err
	}
	prefix := "/" + name + "/" + strings.ToLower(rand.Text()) + "/"
	err = f(etcd, at, prefix)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, derr := etcd.Delete(last, prefix, clientv3.WithPrefix())
	return errors.Join(err, derr, etcd.Close())
}

// patience is how long etcd may take to start. Less than two seconds will do,
// unless the machine is busy.
const patience = 30 * time.Second

// Open returns where to find etcd: the endpoints given, separated by commas, or
// if there are none those of a single member that it starts in this process,
// with its data in a temporary directory.
//
// Call stop at the end, after closing all clients: a member waits some seconds
// for open requests, such as watches. It does nothing to an etcd that was not
// started here.
func Open(endpoints string) (eps []string, stop func(), err error) {
	if endpoints != "" {
		for ep := range strings.SplitSeq(endpoints, ",") {
			if ep = strings.TrimSpace(ep); ep == "" {
				return nil, nil, fmt.Errorf("demoetcd: an endpoint in %q is empty", endpoints)
			}
			eps = append(eps, ep)
		}
		return eps, func() {}, nil
	}
	endpoint, stop, err := Start("127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("demoetcd: starting etcd: %w", err)
	}
	return []string{endpoint}, stop, nil
}

// Start starts a single member in this process, with its data in a temporary
// directory, and returns its endpoint. It listens at the address; port 0 takes a free
// port. Call stop as that of Open.
func Start(listen string) (endpoint string, stop func(), err error) {
	at, err := url.Parse("http://" + listen)
	if err != nil {
		return "", nil, err
	}
	cfg := embed.NewConfig()
	if cfg.Dir, err = os.MkdirTemp("", "demoetcd-*"); err != nil {
		return "", nil, err
	}
	cfg.LogLevel = "fatal" // an example's own lines are what its user wants to read
	// With port 0 the system picks one as etcd opens it: a port that was looked
	// up before could be gone by then. Nobody needs to find the member by what
	// it advertises, since it stays alone.
	clients, peers := []url.URL{*at}, []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true      // its data goes with it
	cfg.EnableGRPCGateway = false // nobody speaks JSON to it

	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(cfg.Dir))
	}
	stop = func() {
		member.Close()
		_ = os.RemoveAll(cfg.Dir) // what is left over is for the system to tidy up
	}
	select {
	case <-member.Server.ReadyNotify():
		return "http://" + member.Clients[0].Addr().String(), stop, nil
	case err = <-member.Err():
	case <-time.After(patience):
		err = fmt.Errorf("not ready after %v", patience)
	}
	stop()
	return "", nil, err
}
