package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// work counts in etcd, up to the limit, while this process leads.
func work(ctx context.Context, endpoints []string, root, name string, out io.Writer) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: root + "claims/", Owner: name, TTL: 5 * time.Second, Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		return err
	}
	defer claims.Close(context.WithoutCancel(ctx))

	return middleware.Singleton(ctx, claims, "counter", func(ctx context.Context) error {
		for {
			n, err := countOn(ctx, etcd, root+"counter")
			if err != nil || n > limit {
				return err
			}
			token, _ := fencing.FromContext(ctx)
			_, _ = fmt.Fprintf(out, "%s counts %d under fence %d\n", name, n, token.Fence)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}, middleware.SingletonConfig{})
}

// countOn adds one to the counter, whose value says under which fence it was
// written: a leader that is late, however it came to that, finds a greater one, or
// that the value is not what it read.
func countOn(ctx context.Context, etcd *clientv3.Client, counter string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, _ := fencing.FromContext(ctx)
	read, err := etcd.Get(ctx, counter)
	if err != nil {
		return 0, err
	}
	var fence, rev int64
	if len(read.Kvs) > 0 {
		rev = read.Kvs[0].ModRevision
		if _, err := fmt.Sscanf(string(read.Kvs[0].Value), "%d under %d", &n, &fence); err != nil {
			return 0, err
		}
	}
	if fence > token.Fence {
		return 0, &fencing.StaleError{Token: token, Newest: fence}
	}
	if err := fencing.Check(ctx); err != nil { // by the clock, right before the effect
		return 0, err
	}
	n++
	resp, err := etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(counter), "=", rev)).
		Then(clientv3.OpPut(counter, fmt.Sprintf("%d under %d", n, token.Fence))).Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("another has counted meanwhile")
	}
	return n, err
}

// tidy removes what the example has stored.
func tidy(endpoints []string, root string) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = etcd.Delete(ctx, root, clientv3.WithPrefix())
}
