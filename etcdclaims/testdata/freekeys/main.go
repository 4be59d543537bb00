// Command freekeys acquires free keys, and writes which code each acquisition has run. It is
// built with -cover -covermode=atomic.
//
//	freekeys endpoint prefix directory...
//
// There is one acquisition for each directory.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func run(endpoint, prefix string, directories []string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	// No renewal falls into the time of the program.
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	// The first claim of a client begins a session.
	first, err := c.TryAcquire(ctx, "first")
	if err != nil {
		return err
	}
	if err := first.Release(ctx); err != nil {
		return err
	}
	for _, dir := range directories {
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		if _, err := c.TryAcquire(ctx, filepath.Base(dir)); err != nil {
			return err
		}
		if err := errors.Join(coverage.WriteCountersDir(dir), coverage.WriteMetaDir(dir)); err != nil {
			return err
		}
	}
	return nil
}
