package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
)

// callTimeout bounds a worker's own requests, such as the effects. It is not
// bound to the claim: whether an effect comes too late is for the fence to say.
const callTimeout = 2 * time.Second

// A job is what the parent tells a worker, as JSON on its standard input. When
// that ends, the worker does.
type job struct {
	Name      string
	Endpoints []string
	TTL       time.Duration
	Dir       string
	Seed      uint64
}

type worker struct {
	job
	etcd    *clientv3.Client
	claims  *etcdclaims.Client
	queue   *queue.Queue
	journal *journal
}

// runWorker is the whole of a worker process. What it logs goes to the standard
// error, which the parent has made a file.
func runWorker(in io.Reader) (err error) {
	orders := json.NewDecoder(in)
	w := &worker{}
	if err := orders.Decode(&w.job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	if w.journal, err = openJournal(w.Dir, w.Name); err != nil {
		return err
	}
	if w.etcd, err = clientv3.New(clientv3.Config{Endpoints: w.Endpoints, DialTimeout: callTimeout, Logger: zap.NewNop()}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.etcd.Close()) }()
	w.claims, err = etcdclaims.New(w.etcd, etcdclaims.Config{
		Owner:         w.Name,
		TTL:           w.TTL,
		AllowShortTTL: true,
		Logger:        log,
		Hooks: etcdclaims.Hooks{Suspected: func(_ string, claims int, wrong bool) {
			e := entry{Op: opSuspected, Want: claims}
			if wrong {
				e.Note = wronglySuspected
			}
			w.journal.write(e)
		}},
	})
	if err != nil {
		return err
	}
	if w.queue, err = queue.New(w.claims, queue.Config{Name: queueName, TTL: w.TTL, Logger: log}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent closes it, or is gone
		stop()
	}()
	w.work(ctx)

	closing, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	if err := errors.Join(w.queue.Close(closing), w.claims.Close(closing)); err != nil {
		log.Warn("closing", zap.Error(err)) // what is left ends with the leases
	}
	return nil
}

// work is how a worker spends its time, in lanes. It returns when all lanes have.
func (w *worker) work(ctx context.Context) {
	var lanes sync.WaitGroup
	seed := uint64(0)
	lane := func(turn func(context.Context, *rand.Rand) error) {
		seed++
		r := rand.New(rand.NewPCG(w.Seed, seed))
		lanes.Go(func() {
			for ctx.Err() == nil {
				w.note(turn(ctx, r))
				retry.Sleep(ctx, between(r, 5*time.Millisecond, 100*time.Millisecond))
			}
		})
	}
	for range 6 {
		lane(w.takeTurn)
	}
	for range 3 {
		lane(w.takeSuspectable)
	}
	for range 2 {
		lane(w.consume)
	}
	lane(w.produce)
	lane(w.addElement)
	lanes.Wait()
}

// note records an error that the faults of this program do not account for.
func (w *worker) note(err error) {
	if err == nil {
		return
	}
	for _, known := range []error{
		etcdclaims.ErrHeld, etcdclaims.ErrLost, etcdclaims.ErrReleased, etcdclaims.ErrUnknown, etcdclaims.ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return
		}
	}
	switch txn.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return
	}
	w.journal.write(entry{Op: opOdd, Note: err.Error()})
}

// between returns a random time from low up to high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
