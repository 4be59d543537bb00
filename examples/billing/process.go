package main

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/billing/billingdb"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

const etcdUser = "billing"

// serve is a process of the service.
func serve(ctx context.Context, s setup) (err error) {
	log.SetOutput(os.Stderr) // standard output is for events
	b := &biller{setup: s}
	tell := demoproc.Teller[event]()
	b.tell = func(e event) { e.Process = s.Name; tell(e) }
	if b.pool, err = pgxpool.New(ctx, s.Postgres); err != nil {
		return err
	}
	defer b.pool.Close()
	b.queries = billingdb.New(b.pool)
	if b.guard, err = sqlguard.New(sqlguard.Config{Dialect: sqlguard.Postgres}); err != nil {
		return err
	}
	etcd, err := demoetcd.DialTLS(s.Etcd, demoetcd.Files(s.Certificates, etcdUser))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	b.claims, err = etcdclaims.New(etcd, etcdclaims.Config{Owner: s.Name, TTL: etcdclaims.MinTTL, Logger: demoetcd.Logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.claims.Close(context.WithoutCancel(ctx))) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api := &http.Server{Handler: routes(b.queries), ReadHeaderTimeout: time.Second}
	b.tell(event{Kind: listening, Addr: listener.Addr().String()})

	ctx, _ = demoproc.Orders[string](ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = api.Serve(listener) }) // it ends by Shutdown
	work.Go(func() { b.run(ctx) })
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTime)
	defer cancel()
	closed := api.Shutdown(last)
	work.Wait()
	return errors.Join(err, closed)
}
