package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Wait waits until the item is completed, and returns it with its result. The process that calls Wait
// needs no worker. If the item was completed before, Wait returns at once.
//
// An item is remembered for Config.Retention after its completion if it has the option ID or a result. An
// item with neither, and one that was cancelled, is gone without a trace. Wait does not end when an
// attempt fails: it waits for the next one. Bound it by ctx.
//
// Wait learns of the end by a watch, within milliseconds. If etcd does not deliver on the watch, Wait finds
// the end within about a minute. It sends one read, and one more each minute. All calls of a process share
// one stream of watches. While etcd does not answer, Wait tries again.
//
// Errors: ErrDead if the item is a dead letter; Wait then returns the item with Info.Why and
// Info.History. ErrNotFound if the item is gone or was never enqueued. An error is returned before any
// request if the Config.Retention of this Queue is negative. etcdclaims.ErrClosed is returned if the
// Queue is closed, and the cause of ctx when it ends.
func (q *Queue) Wait(ctx context.Context, id string) (Info, error) {
	var info Info
	err := q.closed()
	switch {
	case q.cfg.Retention < 0:
		err = errForgets
	case !validID(id):
		err = errInvalidID(id)
	case err == nil:
		defer q.await()()
		info, err = q.waitFor(ctx, &item.Fate{Keys: q.keys, ID: id})
	}
	return info, q.fail(fmt.Sprintf("wait for %q", id), err)
}

// errOpen means that the item has not ended.
var errOpen = errors.New("item has not ended")

// waitFor follows an item until it has ended.
func (q *Queue) waitFor(ctx context.Context, fate *item.Fate) (Info, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.ctx, func() { cancel(errClosed) })()
	for try := 0; ; try++ {
		info, err := q.waitOnce(ctx, fate)
		again := errors.Is(err, errOpen) || errors.Is(err, errMoving) || passing(err)
		switch {
		case err == nil || errors.Is(err, ErrDead):
			return info, err
		case ctx.Err() != nil:
			return Info{}, context.Cause(ctx)
		case !again:
			return Info{}, err
		}
		retry.Pause(ctx, try)
	}
}

// waitOnce reads an item, and follows it until it has ended, the watches break or it is time to read again.
func (q *Queue) waitOnce(ctx context.Context, fate *item.Fate) (Info, error) {
	resp, err := q.answer(ctx, fate.Build())
	if err != nil {
		return Info{}, err
	}
	fate.Judge(resp)
	info, err := q.endedAs(ctx, fate)
	if !errors.Is(err, errOpen) {
		return info, err
	}
	from := clientv3.WithRev(resp.Header.Revision + 1)
	watching, end := context.WithCancel(q.ctx) // the metadata of a caller would open a stream of its own
	defer end()
	defer context.AfterFunc(ctx, end)()
	contents, stop := q.openWatch(watching, q.keys.Content(fate.ID), from)
	defer stop()
	places, stop := q.openWatch(watching, q.keys.Place(fate.ID), from)
	defer stop()
	reread := time.After(compareEvery - rand.N(compareEvery/4)) // not all waits at once
	for {
		var resp clientv3.WatchResponse
		open := false
		select {
		case resp, open = <-contents:
		case resp, open = <-places:
		case <-reread:
		}
		if !open || resp.Err() != nil {
			return info, err
		}
		for _, ev := range resp.Events {
			fate.Hear((*mvccpb.Event)(ev))
			if info, err = q.endedAs(ctx, fate); !errors.Is(err, errOpen) {
				return info, err
			}
		}
	}
}

// endedAs returns an item that has ended.
func (q *Queue) endedAs(ctx context.Context, fate *item.Fate) (Info, error) {
	switch {
	case fate.Gone:
		return Info{}, ErrNotFound
	case fate.Buried():
		f, err := q.find(ctx, fate.ID)
		switch {
		case err == nil && f.Where == Dead:
			err = fmt.Errorf("%w: %s", ErrDead, f.Why)
		case err == nil:
			err = errOpen // it was redriven meanwhile
		}
		return f.Info, err
	}
	c, err := fate.Read()
	if err == nil && c.Done == nil {
		err = errOpen
	}
	return infoOf(fate.ID, c), err
}
