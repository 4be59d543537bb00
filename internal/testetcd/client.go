package testetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	dialTimeout = 5 * time.Second

	// patience is how long a server may take to do what it is told. It is
	// generous because a slow machine is no reason for a test to fail.
	patience = 60 * time.Second
)

// NewClient returns a client that is closed when the test ends.
func NewClient(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	cfg.Logger = logger
	cfg.DialTimeout = dialTimeout
	c, err := clientv3.New(cfg)
	if err != nil {
		tb.Fatalf("testetcd: new client: %v", err)
	}
	tb.Cleanup(func() {
		// Closing twice is fine: many tests close a client to see what happens.
		if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
			tb.Errorf("testetcd: close client: %v", err)
		}
	})
	return c
}

// awaitServing returns when the server at the address answers a linearizable
// read, or with an error once ctx is done.
func awaitServing(ctx context.Context, addr string) error {
	// A gRPC connection that is refused waits for a second before it tries
	// again, so it is only made when it will be accepted.
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = conn.Close()
			break
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%s does not listen: %w", addr, err)
		}
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Get(try, "/", clientv3.WithCountOnly())
		cancel()
		if serves(err) {
			return nil
		}
		if perr := pause(ctx, 10*time.Millisecond); perr != nil {
			return fmt.Errorf("%s does not serve: %w", addr, err)
		}
	}
}

// serves tells from the outcome of a request whether the server serves. That it
// refuses the request, say for lack of credentials, is an answer as well.
func serves(err error) bool {
	if err == nil {
		return true
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	code := status.Code(err)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = e.Code()
	}
	return code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled
}

// pause waits between two looks at something that cannot be waited for.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
