// Service is a service on one page. Run any number of processes of it.
//
//	go -C examples/service run .    # an etcd of its own; end it with Ctrl-C or SIGTERM
//	go -C examples/service run . -endpoints http://localhost:2379 -db /tmp/service.db
//
// A scheduled job writes invoices into SQL, and enqueues them. Workers send them, with retries and
// dead letters, two at a time over all processes. Each write to SQL checks the fence. This file is
// the service; the others have its database, its metrics, and a provider to play with.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/etcdclaims/zaplog"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Invoice is what the queue carries.
type Invoice struct {
	ID, Customer string
	Cents        int64
}

func main() {
	endpoints := flag.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	file := flag.String("db", "", "file of SQLite, the same for all processes (default: one for this run)")
	listen := flag.String("listen", "127.0.0.1:0", "where to serve /metrics and /healthz")
	every := flag.Duration("every", 10*time.Second, "how often to bill")
	flag.Parse()
	if err := program(*endpoints, *file, *listen, *every, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// program runs the service until SIGTERM or an interrupt.
func program(endpoints, file, listen string, every time.Duration, out io.Writer) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	at, stopEtcd, err := demoetcd.Open(endpoints)
	if err != nil {
		return err
	}
	defer stopEtcd()
	logger := slog.New(slog.NewTextHandler(out, nil))
	quiet := zap.NewNop() // the SDK logs outages
	etcd, err := clientv3.New(clientv3.Config{Endpoints: at, DialTimeout: 5 * time.Second, Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	db, closeDB, err := openDB(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDB()) }()
	s, err := newService(etcd, db, logger, every, demoProvider(logger))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until Close
	defer server.Close()
	logger.Info("serving", "metrics", "http://"+listener.Addr().String()+"/metrics")
	return s.run(ctx)
}

type service struct {
	claims    *etcdclaims.Client
	scheduler *sched.Scheduler
	queue     *queue.Queue
	invoices  queue.Typed[Invoice]
	db        *sql.DB
	guard     *sqlguard.Guard
	tel       *telemetry.Telemetry
	metrics   http.Handler
	send      func(context.Context, Invoice) error // to a provider that takes each ID once
}

func newService(
	etcd *clientv3.Client, db *sql.DB, logger *slog.Logger, every time.Duration, send func(context.Context, Invoice) error,
) (*service, error) {
	log := zaplog.FromSlog(logger)
	tel, metrics, err := newTelemetry()
	if err != nil {
		return nil, err
	}
	s := &service{db: db, send: send, tel: tel, metrics: metrics}
	if s.guard, err = sqlguard.New(sqlguard.Config{Dialect: sqlguard.SQLite}); err != nil {
		return nil, err
	}
	cfg := etcdclaims.Config{Prefix: "/service/", Logger: log}
	tel.Instrument(&cfg)
	if s.claims, err = etcdclaims.New(etcd, cfg); err != nil {
		return nil, err
	}
	if s.queue, err = queue.New(s.claims, queue.Config{Name: "invoices", MaxAttempts: 5, Logger: log}); err != nil {
		return nil, err
	}
	s.invoices = queue.Of[Invoice](s.queue)
	jobs := sched.Config{Group: "billing", Logger: log}
	tel.InstrumentScheduler(&jobs)
	if s.scheduler, err = sched.New(s.claims, jobs); err != nil {
		return nil, err
	}
	// bill can be repeated, so each tick is tried until it succeeds.
	return s, s.scheduler.Add(sched.Job{
		Name:      "bill",
		Schedule:  calendar.Must(calendar.Every(every, 0)),
		Handler:   s.bill,
		Guarantee: sched.AtLeastOnce,
		Retry:     sched.Retry{Max: 5},
	})
}

// bill writes the invoices of a tick, and enqueues those that are not sent.
func (s *service) bill(ctx context.Context, tick sched.Tick) error {
	var open []Invoice
	err := s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO invoices (id, tick, customer, cents)
			SELECT $1 || '/' || name, $1, name, fee FROM customers`, tick.ID())
		if err != nil {
			return err
		}
		const unsent = `SELECT id, customer, cents FROM invoices WHERE tick = $1 AND NOT sent`
		rows, err := tx.QueryContext(ctx, unsent, tick.ID())
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var in Invoice
			if err := rows.Scan(&in.ID, &in.Customer, &in.Cents); err != nil {
				return err
			}
			open = append(open, in)
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	byID := func(in Invoice) []queue.ItemOption { return []queue.ItemOption{queue.ID(in.ID)} }
	_, err = s.invoices.EnqueueAll(ctx, open, byID)
	if dead := new(queue.DeadLetterError); errors.As(err, &dead) {
		return nil // an earlier attempt enqueued it, and it waits for an operator
	}
	return err
}

// deliver sends an invoice. An error makes the item wait for its next attempt. After the last
// one, or an error marked with etcdclaims.Permanent, it is a dead letter.
func (s *service) deliver(ctx context.Context, in Invoice, _ *queue.Delivery) error {
	call := func(ctx context.Context) error { return s.send(ctx, in) }
	err := s.claims.Run(ctx, "provider", call, etcdclaims.Slots(2))
	if err != nil {
		return err
	}
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE invoices SET sent = true WHERE id = $1`, in.ID)
		return err
	})
}

// transact runs f in a transaction, unless a later owner of the tick or the item has had one.
func (s *service) transact(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	token, _ := fencing.FromContext(ctx) // of the tick, or of the item
	if err := s.guard.Admit(ctx, tx, token); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// run works until ctx ends, or a part fails. Then it lets handlers finish, and gives all back.
func (s *service) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer s.tel.WatchQueue("invoices", s.queue, 15*time.Second)()
	var parts sync.WaitGroup
	var scheduled, worked error
	parts.Go(func() { defer stop(); scheduled = s.scheduler.Run(ctx) })
	parts.Go(func() {
		defer stop()
		worked = s.queue.Work(ctx, queue.WorkerConfig{
			Concurrency: 4,
			StopTimeout: 10 * time.Second,
			Middleware:  []queue.Middleware{s.tel.Worker},
			Handler:     s.invoices.Handler(s.deliver),
		})
	})
	parts.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(scheduled, worked, s.queue.Close(last), s.claims.Close(last), s.tel.Close())
}
