package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
)

const (
	ttl   = 5 * time.Second // the shortest allowed: work of a dead worker is free within 6 s
	lanes = 8               // files that a worker counts at a time
)

// job is what a worker is to do.
type job struct {
	Name      string
	Rank, Of  int // 0 to Of-1
	Endpoints []string
	Prefix    string // of all keys of this run
	Root      string
	Pace      int  // files per second, 0 for no limit
	Hold      bool // keep one file, and write its result when the claim is lost
}

// The claims and our results have prefixes of their own, neither within the other.
func (j job) claimsPrefix() string         { return j.Prefix + "claims/" }
func (j job) resultKey(file string) string { return j.Prefix + "result/" + file }

// result is what is stored for a counted file.
type result struct {
	Counts counts
	Worker string
	Fence  int64
}

// event is what a worker tells its parent. Workers tell each other nothing.
type event struct {
	Kind, Worker, File, Text string
	Fence                    int64
}

const (
	isReady    = "ready"     // holding File, if its job says so
	tookOver   = "took over" // File, from a worker that is gone
	wasRefused = "refused"   // the late write of File
)

type worker struct {
	job
	files  []string
	etcd   *clientv3.Client
	claims *etcdclaims.Client
	works  *work.Runner
	send   func(event)
}

func (w *worker) tell(kind string, job *work.Work, format string, args ...any) {
	w.send(event{kind, w.Name, job.Key(), fmt.Sprintf(format, args...), job.Fence()})
}

// runWorker is the whole of a worker process.
func runWorker(ctx context.Context, j job) (err error) {
	w := &worker{job: j, send: demoproc.Teller[event]()}
	if w.files, err = listFiles(w.Root); err != nil {
		return err
	}
	if w.etcd, err = demoetcd.Dial(w.Endpoints); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.etcd.Close()) }()
	w.claims, err = etcdclaims.New(w.etcd, etcdclaims.Config{Prefix: w.claimsPrefix(), Owner: w.Name, TTL: ttl, Logger: demoetcd.Logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.claims.Close(context.WithoutCancel(ctx))) }()

	if w.works, err = work.New(w.claims, work.Config{}); err != nil {
		return err
	}
	ctx, start := demoproc.Orders[string](ctx)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	run := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				fail(err)
			}
		})
	}
	if w.Hold {
		job, err := w.works.Begin(ctx, w.file(0))
		if err != nil {
			return err
		}
		w.tell(isReady, job, "")
		run(func() error { return w.writeLate(ctx, job) })
	} else {
		w.send(event{Kind: isReady, Worker: w.Name})
	}
	select {
	case <-start:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var next atomic.Int64
	for range lanes {
		run(func() error {
			for i := next.Add(1) - 1; i < int64(len(w.files)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := w.count(ctx, w.file(int(i))); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// file returns the worker's i-th file. Workers begin at different places, so they
// seldom want the same file. When they do, claims decide.
func (w *worker) file(i int) string { return w.files[(i+len(w.files)*w.Rank/w.Of)%len(w.files)] }

// count returns nil when the file has a result, whichever worker counted it. While
// another worker has the file, Run waits for the result, or for that worker's
// death: then this worker takes the file over.
func (w *worker) count(ctx context.Context, file string) error {
	for {
		err := w.works.Run(ctx, file, w.countWork)
		switch {
		case err == nil, errors.Is(err, work.ErrDone):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrUnknown):
			// Look again: the file has a result now, or an owner, or neither.
		default:
			return err
		}
	}
}

func (w *worker) countWork(ctx context.Context, job *work.Work) error {
	if p, ok := job.Previous(); ok && p.State == work.StateOrphaned {
		w.tell(tookOver, job, "takes over %s from %s: fence %d after %d", job.Key(), p.Owner, job.Fence(), p.Fence)
	}
	put, err := w.put(job)
	if err != nil {
		return etcdclaims.Permanent(err) // another attempt would fail, too
	}
	if w.Pace > 0 {
		select {
		case <-time.After(lanes * time.Second / time.Duration(w.Pace)):
		case <-ctx.Done(): // the claim is about to end
		}
	}
	return job.Complete(ctx, put) // the result and the end of the work, in one transaction
}

// put counts the file and returns the operation that stores the result. The
// operation alone is not protected: it must go into a transaction that is.
func (w *worker) put(job *work.Work) (clientv3.Op, error) {
	c, err := countFile(w.Root, job.Key())
	if err != nil {
		return clientv3.Op{}, err
	}
	value, err := json.Marshal(result{c, w.Name, job.Fence()})
	return clientv3.OpPut(w.resultKey(job.Key()), string(value)), err
}

// writeLate is a worker that checks its claim and is frozen before it writes. No lock
// prevents that; fences make it harmless. It waits until the claim is lost, and writes
// twice: first past Complete, which checks the local clock before it asks etcd. A
// request that is already on its way has no such check. It has only its token.
func (w *worker) writeLate(ctx context.Context, job *work.Work) error {
	select {
	case <-job.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	put, err := w.put(job)
	if err != nil {
		return err
	}
	kv := etcdguard.NewKV(w.etcd, etcdguard.Bearer(w.claimsPrefix(), job.Token()))
	if _, err = kv.Do(ctx, put); !errors.Is(err, fencing.ErrStale) {
		return errors.Join(fmt.Errorf("late write of %s was not refused", job.Key()), err)
	}
	w.tell(wasRefused, job, "writes %s late: refused by etcd: %v", job.Key(), err)
	if err = job.Complete(ctx, put); !errors.Is(err, etcdclaims.ErrLost) {
		return errors.Join(fmt.Errorf("late completion of %s was not refused", job.Key()), err)
	}
	w.tell("", job, "cannot complete %s: %v", job.Key(), err)
	return nil
}
