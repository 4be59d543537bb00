package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// failed is the outcome of an attempt that has failed.
func (w *Work) failed(cause error) Record {
	now := clock.Clock{}.Time()
	if w.c.host != nil {
		now = w.c.host.Now()
	}
	return Record(w.record.Failed(failure(cause, w.c.cfg), now))
}

// failure is what an error means for the work.
func failure(cause error, cfg Config) record.Failure {
	if cause == nil {
		cause = errors.New("failed without a cause")
	}
	f := record.Failure{Error: errtext.Text(cause), Permanent: etcdclaims.IsPermanent(cause), Limit: cfg.MaxAttempts, After: cfg.Backoff}
	if panicked, ok := errors.AsType[*panicError](cause); ok {
		f.Stack = string(panicked.Stack)
	}
	if after, given := etcdclaims.RetryDelay(cause); given {
		f.After = func(int) time.Duration { return after }
	}
	return f
}

// ending is one try to end work, with the lease for its record. It does not change once its request is
// sent.
type ending struct {
	request beside.End
	lease   *retention.Lease // nil: the record is deleted
}

// over is called with the result of the end.
func (e *ending) over(err error) {
	if e != nil {
		e.lease.Leave(err == nil)
	}
}

// end records the attempt's outcome, which it returns as it is stored.
func (w *Work) end(ctx context.Context, r Record, ops []clientv3.Op) (Record, error) {
	r, e, err := w.tryEnd(ctx, r, ops)
	e.over(err)
	return r, err
}

// endAfter ends work whose handler has returned, by the client's own time: the caller's context may be
// over. No caller could end the work after a refusal, so its key is given up in any case. It returns
// what it has recorded. An unknown outcome is no error: whether it is recorded changes nothing for the
// caller, because the work is not done.
func (w *Work) endAfter(how Record) (ended Record, err error) {
	ctx, cancel := context.WithTimeout(w.c.host.IO(), w.c.host.Store().Timeout())
	defer cancel()
	ended, e, err := w.tryEnd(ctx, how, nil)
	if e == nil && err != nil { // nothing was sent, for want of a lease for the record
		within, cancel := w.term.Within(w.c.host.IO())
		defer cancel()
		for try := 0; e == nil && w.c.host.IsPassing(err) && w.Err() == nil; try++ {
			if !retry.PauseUnless(within, w.Done(), try) {
				break
			}
			ended, e, err = w.tryEnd(within, how, nil)
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
	switch {
	case errors.Is(err, etcdclaims.ErrUnknown):
		return Record{}, nil
	case err != nil:
		return Record{}, err
	}
	return ended, nil
}

// outcome completes the record of how the attempt ends. none means that no record is left.
func (w *Work) outcome(r Record) (out record.Record, none bool) {
	now := w.c.host.Now()
	switch r.State {
	case StateFree:
		return w.record.GivenBack(w.previous, now)
	case StateDone:
		return w.record.Done(r.Result, now), false
	}
	return record.Record(r), false
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
	on := c.records
	if r.State == StateDone {
		on = c.done
	}
	e := new(ending)
	e.request = beside.End{
		Call:    "end work",
		Own:     clientv3.OpDelete(c.recordKey(r.Key)),
		Ops:     ops,
		Deletes: none,
		Outcome: string(r.State),
		Unsettled: func() (settled func()) {
			e.lease.Enter()
			return func() { e.lease.Leave(false) }
		},
	}
	if !none {
		lease, err := on.Get(ctx, r.Lasts())
		if err != nil {
			return Record(r), nil, w.fail("end work", c.host.Explain(err))
		}
		e.lease = lease
		e.request.Own = put(c.recordKey(r.Key), r.Value(), lease)
	}
	err := w.term.End(ctx, e.request)
	if !errors.Is(err, etcdclaims.ErrUnknown) && on.Gone(err, e.lease) {
		e.over(err)
		return w.tryEnd(ctx, how, ops)
	}
	if err == nil || errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
		w.over.Store(true)
		c.records.Disown(w)
	}
	out := Record(r)
	if err == nil {
		w.ended.Store(&out)
		w.count(out)
	}
	return out, e, err
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
	w.lease.Count(-1)
	switch stats := &w.c.stats; r.State {
	case StateDone:
		stats.completed.Add(1)
	case StateFailed, StateDead:
		stats.failed.Add(1)
		if r.State == StateDead {
			w.c.logDead(r)
		}
	}
}
