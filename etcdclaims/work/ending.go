package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// failed is the outcome of an attempt that has failed.
func (w *Work) failed(cause error) Record {
	now := clock.Clock{}.Time()
	if w.c.host != nil {
		now = w.c.host.Clock().Time()
	}
	return w.record.failed(cause, w.c.cfg, now)
}

// ending is one try to end work, with the lease for its record.
type ending struct {
	request beside.End
	shelf   *shelf // nil: the record is deleted
}

// over is called with the result of the end.
func (e *ending) over(err error) {
	if e != nil {
		e.shelf.leave(err == nil)
	}
}

// end records the attempt's outcome, which it returns as it is stored.
func (w *Work) end(ctx context.Context, r Record, ops []clientv3.Op) (Record, error) {
	r, e, err := w.tryEnd(ctx, r, ops)
	e.over(err)
	return r, err
}

// endForGood is end for work whose handler has returned. No caller could end it after a
// refusal, so its key is given up in any case.
func (w *Work) endForGood(ctx context.Context, r Record) (Record, error) {
	ended, e, err := w.tryEnd(ctx, r, nil)
	if e == nil && err != nil && w.term != nil { // nothing was sent, for want of a lease for the record
		within, cancel := w.term.Within(w.c.host.IO())
		defer cancel()
		for try := 0; e == nil && w.c.host.IsPassing(err) && w.Err() == nil && retry.PauseUnless(within, w.Done(), try); try++ {
			ended, e, err = w.tryEnd(within, r, nil)
		}
	}
	if err != nil && !errors.Is(err, etcdclaims.ErrLost) && w.Err() == nil {
		w.over.Store(true)
		if e == nil {
			err = w.term.Leave(nil, err)
		} else {
			err = w.term.Leave(&e.request, err)
		}
	}
	e.over(err)
	return ended, err
}

// outcome completes the record of how the attempt ends. none means that no record is left.
func (w *Work) outcome(r Record) (out Record, none bool) {
	now := w.c.host.Clock().Time()
	out = w.record
	switch r.State {
	case StateFree:
		return out.givenBack(w.previous, now)
	case StateDone:
		out.State, out.Result, out.Ended, out.Error, out.Stack = StateDone, r.Result, now.UTC(), "", ""
		return out, false
	}
	return r, false
}

// tryEnd is end. It also returns the request, or nil if it failed before that. The caller calls
// over.
func (w *Work) tryEnd(ctx context.Context, how Record, ops []clientv3.Op) (Record, *ending, error) {
	how.Key, how.Attempt = w.Key(), w.record.Attempt
	if w.term == nil {
		if len(ops) > 0 {
			return how, nil, w.fail("end work", fmt.Errorf("%w: operations cannot be carried out", etcdclaims.ErrPassthrough))
		}
		return how, nil, w.Claim.Release(ctx)
	}
	if err := w.term.Check("end work", ops); errors.Is(err, etcdclaims.ErrReleased) {
		return how, nil, w.endedBefore(how.State, len(ops))
	} else if err != nil {
		return how, nil, err
	}
	c := w.c
	r, none := w.outcome(how)
	on := &c.records
	if r.State == StateDone {
		on = &c.done
	}
	e := &ending{request: beside.End{Call: "end work", Own: clientv3.OpDelete(c.recordKey(r.Key)), Ops: ops, Deletes: none, Outcome: string(r.State)}}
	if !none {
		s, err := on.get(ctx, r.lasts())
		if err != nil {
			return r, nil, w.fail("end work", c.host.Explain(err))
		}
		e.shelf = s
		e.request.Own = r.stored().put(c.recordKey(r.Key), s)
	}
	e.request.Unsettled = func() (settled func()) {
		e.shelf.enter()
		return func() { e.shelf.leave(false) }
	}
	err := w.term.End(ctx, e.request)
	if !errors.Is(err, etcdclaims.ErrUnknown) && on.gone(err, e.shelf) {
		e.over(err)
		return w.tryEnd(ctx, how, ops)
	}
	if err == nil || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
		w.over.Store(true)
		c.live.remove(w)
	}
	if err == nil {
		w.ended.Store(&r)
		w.count(r)
	}
	return r, e, err
}

// endedBefore returns the error of an end of work that has ended, or nil.
func (w *Work) endedBefore(state State, ops int) error {
	if state == StateFree && ops == 0 {
		return nil // given up before, as with a claim
	}
	if ended := w.ended.Load(); ended != nil {
		return w.fail("end work", &endedError{*ended})
	}
	return w.fail("end work", etcdclaims.ErrReleased)
}

// count counts an attempt that was ended.
func (w *Work) count(r Record) {
	w.shelf.puts.Add(-1)
	switch stats := &w.c.stats; r.State {
	case StateDone:
		stats.completed.Add(1)
	case StateFailed, StateDead:
		stats.failed.Add(1)
		if r.State == StateDead {
			w.c.logDead(r, errors.New(r.Error))
		}
	}
}

// logDead logs that no caller begins the work again by itself.
func (c *Runner) logDead(r Record, cause error) {
	c.log.Warn("work is dead", zap.String("key", r.Key), zap.Int("attempt", r.Attempt), zap.Int64("fence", r.Fence), zap.Error(cause))
}
