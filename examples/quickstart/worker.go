package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
)

const (
	lanes     = 4                      // files that a worker has in hand at a time
	roundSize = 256                    // files per round
	tries     = 3                      // before an error that may pass ends the worker
	pause     = 200 * time.Millisecond // before looking again at what others hold
)

// A worker counts files until each has a result, whoever it is from.
type worker struct {
	job
	files  []string
	etcd   *clientv3.Client
	client *etcdclaims.Client
	tell   func(event)
	pace   <-chan time.Time // nil for as fast as it goes
}

// runWorker is the whole of a worker process.
func runWorker(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	orders := json.NewDecoder(in)
	w := &worker{tell: teller(out)}
	if err := orders.Decode(&w.job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	if w.files, err = listFiles(w.Root); err != nil {
		return err
	}
	w.etcd, err = clientv3.New(clientv3.Config{
		Endpoints: w.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.etcd.Close()) }()
	w.client, err = etcdclaims.New(w.etcd, etcdclaims.Config{
		Prefix:    w.claims(),
		Owner:     w.Name, // for people: that two workers exclude each other does not depend on it
		TTL:       ttl,
		Retention: 10 * time.Minute, // a run is long over by then
	})
	if err != nil {
		return err
	}
	// Closing releases what is still claimed, so that nobody waits for leases.
	// It must not be cut short by what ended the work.
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl)
		defer cancel()
		err = errors.Join(err, w.client.Close(closing))
	}()

	return w.run(ctx, orders)
}

func (w *worker) run(ctx context.Context, orders *json.Decoder) error {
	ctx, fail := context.WithCancelCause(ctx)
	var held sync.WaitGroup
	defer held.Wait()
	defer fail(nil)
	if w.Hold {
		write, err := w.hold(ctx)
		if err != nil {
			return err
		}
		held.Go(func() {
			if err := write(); err != nil {
				fail(err)
			}
		})
	}
	w.tell(event{Kind: isReady})
	if err := orders.Decode(new(start)); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	go func() {
		// The parent says no more, so this ends with the parent.
		_ = orders.Decode(new(start))
		fail(errors.New("the parent is gone"))
	}()
	if w.Pace > 0 {
		ticker := time.NewTicker(time.Second / time.Duration(w.Pace))
		defer ticker.Stop()
		w.pace = ticker.C
	}
	if err := w.countAll(ctx); err != nil {
		return err
	}
	held.Wait()
	return context.Cause(ctx)
}

// countAll returns when each file has a result.
func (w *worker) countAll(ctx context.Context) error {
	failed := 0
	for {
		todo, err := w.todo(ctx)
		if err != nil && ctx.Err() == nil {
			if failed++; failed < tries {
				continue
			}
		}
		if err != nil || len(todo) == 0 {
			return err
		}
		failed = 0
		done, err := w.round(ctx, todo)
		if err != nil {
			return err
		}
		if done > 0 {
			continue
		}
		// What is left is in the hands of others. They finish it, or die and
		// leave it to us.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// todo returns files without a result, for one round: first those whose owner is
// gone, then some from this worker's share of the rest. Workers meet seldom that
// way. Where they do, the claims tell them apart: all of this may be out of date
// when it is used.
func (w *worker) todo(ctx context.Context) ([]string, error) {
	var todo []string
	orphans, err := w.client.Orphans(ctx, roundSize)
	if err != nil {
		return nil, err
	}
	for _, r := range orphans {
		todo = append(todo, r.Key)
	}
	resp, err := w.etcd.Get(ctx, w.results(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("listing the results: %w", err)
	}
	done := make(map[string]bool, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		done[string(kv.Key[len(w.results()):])] = true
	}
	var left []string
	for _, file := range w.files {
		if !done[file] {
			left = append(left, file)
		}
	}
	for i := range min(len(left), roundSize) {
		todo = append(todo, left[(i+len(left)*w.Rank/w.Of)%len(left)])
	}
	return todo, nil
}

// round tries to count the files, several at a time, and returns how many it
// has.
func (w *worker) round(ctx context.Context, files []string) (int64, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next, done atomic.Int64
	var running sync.WaitGroup
	for range lanes {
		running.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(files)) {
					return
				}
				ok, err := w.count(ctx, files[i])
				if err != nil {
					fail(err)
				}
				if ok {
					done.Add(1)
				}
			}
		})
	}
	running.Wait()
	return done.Load(), context.Cause(ctx)
}

// teller returns a function that writes events, from any goroutine.
func teller(out io.Writer) func(event) {
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(e) // without a parent there is nobody to tell, and the end comes soon
	}
}
