package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
)

// count counts one file, if it is free. It reports whether this worker did.
func (w *worker) count(ctx context.Context, file string) (bool, error) {
	work, err := w.begin(ctx, file)
	if work == nil || err != nil {
		return false, err
	}
	c, err := w.compute(ctx, work)
	if err != nil {
		// Nobody else could read it either: without Permanent it would be tried
		// again, here or elsewhere.
		return false, errors.Join(err, work.Fail(ctx, etcdclaims.Permanent(err)))
	}
	return w.complete(ctx, work, c)
}

// compute is the work itself. Counting alone would be over too soon to watch, so
// it lasts for as long as the pace says, or until the claim is about to end: Bind
// gives a context that ends with it.
func (w *worker) compute(ctx context.Context, work *etcdclaims.Work) (counts, error) {
	c, err := countFile(w.Root, work.Key())
	if err != nil || w.pace == nil {
		return c, err
	}
	ctx, cancel := work.Bind(ctx)
	defer cancel()
	select {
	case <-w.pace:
	case <-ctx.Done():
	}
	return c, nil
}

// begin returns nil if the file is not free.
func (w *worker) begin(ctx context.Context, file string) (*etcdclaims.Work, error) {
	work, err := w.tryBegin(ctx, file)
	switch {
	case err == nil:
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, etcdclaims.ErrDone):
		return nil, nil // another was faster
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, etcdclaims.ErrUnknown):
		return nil, nil // undone in the background: a later round finds the file again
	default:
		return nil, err
	}
	if p, ok := work.Previous(); ok && p.State == etcdclaims.StateOrphaned {
		w.tell(event{
			Kind: tookOver, File: file, Fence: work.Fence(), Attempt: work.Attempt(),
			Previous: &previous{Owner: p.Owner, Fence: p.Fence},
		})
	}
	return work, nil
}

// tryBegin tries again after errors that say nothing of the file: etcd may be out
// of reach for a moment, and the client's session be over if this process was
// frozen in the midst of the call. The next call opens another.
func (w *worker) tryBegin(ctx context.Context, file string) (work *etcdclaims.Work, err error) {
	final := []error{
		etcdclaims.ErrHeld, etcdclaims.ErrUnknown, etcdclaims.ErrInvalidKey,
		etcdclaims.ErrDone, etcdclaims.ErrDead, // dead: it could not be read
	}
	for range tries {
		work, err = w.client.TryBegin(ctx, file)
		if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			return work, err
		}
	}
	return nil, err
}

// complete stores the result and records the work as done in one transaction.
// It reports whether this worker did; if it did not, a later round or another
// worker does.
func (w *worker) complete(ctx context.Context, work *etcdclaims.Work, c counts) (bool, error) {
	var err error
	for range tries {
		err = work.Complete(ctx, w.put(work, c))
		var lost *etcdclaims.LostError
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, etcdclaims.ErrUnknown):
			// It may have been carried out, and the record knows: it names the
			// claim that completed the work. If it does not say so yet, or cannot
			// be read, the outcome is settled in the background, and later rounds
			// see it.
			r, ok, err := w.client.Record(ctx, work.Key())
			return err == nil && ok && r.State == etcdclaims.StateDone && r.Claim == work.ID(), nil
		case errors.As(err, &lost):
			// Nothing was written. The file is another's now, or will be.
			w.tell(event{Kind: lostClaim, File: work.Key(), Fence: work.Fence(), Reason: lost.Reason.String()})
			return false, nil
		}
		// Nothing was written, and the work is still ours.
	}
	return false, errors.Join(err, work.Release(ctx))
}

// put stores a result. By itself it is not protected from anything: it must go
// into a transaction that is.
func (w *worker) put(work *etcdclaims.Work, c counts) clientv3.Op {
	value, err := json.Marshal(result{counts: c, Worker: w.Name, Fence: work.Fence()})
	if err != nil {
		panic(err) // a struct of strings and numbers can always be marshalled
	}
	return clientv3.OpPut(w.results()+work.Key(), string(value))
}
