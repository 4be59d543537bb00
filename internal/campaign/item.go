package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/retry"
)

const itemStart = "item-" // of the key that is claimed for an item

var errOnPurpose = errors.New("this attempt fails on purpose")

// takeItem begins one of the open items, whichever, and ends it in one of the
// ways there are. Workers meet at items often: that each is done once is for its
// record to see to.
func (w *worker) takeItem(ctx context.Context, r *rand.Rand) error {
	listing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := w.etcd.Get(listing, openPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(16))
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 {
		retry.Sleep(ctx, between(r, 50*time.Millisecond, 200*time.Millisecond))
		return nil
	}
	item := strings.TrimPrefix(string(resp.Kvs[r.IntN(len(resp.Kvs))].Key), openPrefix)
	beginning, cancel := context.WithTimeout(ctx, between(r, time.Second, w.TTL))
	defer cancel()
	begin := w.works.TryBegin
	if r.IntN(5) == 0 {
		begin = w.works.Begin
	}
	job, err := begin(beginning, itemStart+item)
	if err != nil {
		retry.Sleep(ctx, between(r, 20*time.Millisecond, 200*time.Millisecond))
		return err
	}
	if previous, ok := job.Previous(); ok && previous.State == work.StateOrphaned {
		w.journal.write(entry{Op: opTookOver, Key: job.Key(), Fence: job.Fence(), Note: previous.Owner})
	}
	retry.Sleep(job.Context(), between(r, 20*time.Millisecond, 300*time.Millisecond))
	if r.IntN(20) > 0 {
		fail := r.IntN(10) == 0
		for range 3 {
			if w.endItem(ctx, job, item, fail) {
				return nil
			}
			retry.Sleep(ctx, between(r, 20*time.Millisecond, 200*time.Millisecond))
		}
	}
	return w.giveBack(ctx, r, job)
}

// endItem completes the work, or fails it, together with its effect. It returns
// whether the work is off the worker's hands.
func (w *worker) endItem(ctx context.Context, job *work.Work, item string, fail bool) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var e entry
	var err error
	if fail {
		e = w.intend(kindFail, job.Token())
		_, err = job.Fail(ctx, etcdclaims.RetryAfter(errOnPurpose, 300*time.Millisecond), w.putEffect(e.ID, kindFail, job.Token()))
	} else {
		e = w.intend(kindComplete, job.Token())
		err = job.Complete(ctx, w.putEffect(e.ID, kindComplete, job.Token()),
			clientv3.OpPut(donePrefix+item, w.Name), clientv3.OpDelete(openPrefix+item))
	}
	w.conclude(e, 0, err)
	return err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrReleased) || errors.Is(err, etcdclaims.ErrUnknown)
}

// giveBack releases the work. It tries until that is off the worker's hands:
// the session would keep it for as long as the worker lives.
func (w *worker) giveBack(ctx context.Context, r *rand.Rand, job *work.Work) error {
	for {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := job.Release(giving)
		cancel()
		if err == nil || job.Err() != nil || ctx.Err() != nil {
			return err
		}
		retry.Sleep(ctx, between(r, 20*time.Millisecond, 200*time.Millisecond))
	}
}
