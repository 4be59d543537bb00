package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// hold begins a file and computes its result, but does not write it. It returns
// what writes it, as late as the parent likes.
//
// This is the one thing that no lock and no deadline can prevent: a process that
// has looked whether it may write, and stands still before it does. Here it waits
// at that point for the parent to freeze (or to kill) it; a garbage collector, a
// hypervisor or a swapping kernel find the point just as well.
func (w *worker) hold(ctx context.Context) (write func() error, err error) {
	thawed := notifyThawed()
	file := w.files[len(w.files)*w.Rank/w.Of]
	work, err := w.begin(ctx, file)
	if err != nil {
		return nil, err
	}
	if work == nil {
		return nil, fmt.Errorf("%s is not free before the start", file)
	}
	c, err := countFile(w.Root, file)
	if err != nil {
		return nil, err
	}
	if err := work.Check(); err != nil {
		return nil, err
	}
	held, put := work.Held(), w.put(work, c)
	w.tell(event{Kind: isHolding, File: file, Fence: work.Fence()})

	return func() error {
		select {
		case <-thawed: // as far as we know, Check was just now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// Complete looks at the clock first, as Check does, and would now stop
		// here without asking etcd. That would hide what protects us if the
		// process is frozen after that look. So the write is sent as it would
		// be on its way by then: straight to etcd, under the conditions that
		// were true when it was made.
		written, err := w.writeLate(ctx, held, put)
		if err != nil {
			return fmt.Errorf("late write of %s: %w", file, err)
		}
		kind := wasRefused
		if written {
			kind = wasWritten
		}
		w.tell(event{Kind: kind, File: file, Fence: work.Fence()})

		// And this is what happens to a worker that does as it should.
		done, err := w.complete(ctx, work, c)
		if done {
			err = errors.Join(err, fmt.Errorf("%s was completed under a claim that is over", file))
		}
		return err
	}, nil
}

// writeLate sends a write under the conditions and reports whether it was
// carried out. Connections may have been closed meanwhile, so it tries more than
// once: conditions that name a fence are never met again once they are not.
func (w *worker) writeLate(ctx context.Context, held []clientv3.Cmp, put clientv3.Op) (bool, error) {
	var err error
	for range 5 {
		try, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 2*time.Second)
		var resp *clientv3.TxnResponse
		resp, err = w.etcd.Txn(try).If(held...).Then(put).Commit()
		cancel()
		if err == nil {
			return resp.Succeeded, nil
		}
	}
	return false, err
}
