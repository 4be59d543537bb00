package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Retry lets work that failed, is dead or is orphaned be begun again
// immediately. It returns the record, which is then in StateFree.
// Config.MaxAttempts counts from here. Work that may already be begun is left
// unchanged. Retry is for operators and begins nothing itself.
//
// Retry never changes work that is held. The error matches:
//
//   - etcdclaims.ErrHeld if the work is held; it is a *etcdclaims.HeldError.
//   - ErrDone if the work is done; it is a *Error. Use Again to repeat
//     such work.
//   - ErrNoRecord if the work has no record.
//   - etcdclaims.ErrUnknown if the record may have been changed.
func (c *Runner) Retry(ctx context.Context, key string) (Record, error) {
	var out Record
	id := uuid.NewString()
	err := c.intervene(ctx, audit.RetryWork, key, "retry", func(r Record) (*record.Value, error) {
		switch r.State {
		case StateDone:
			return nil, &Error{Record: r}
		case StateUnreadable:
			return nil, errors.New(r.Error)
		case StateFree:
			out = r
			return nil, errNothingToDo
		}
		next := record.Record(r).Retried(c.host.Now())
		stored := next.Value()
		out, stored.Retry = Record(next), id
		return &stored, nil
	}, func(kv *mvccpb.KeyValue) bool {
		return kv != nil && record.Read(kv.Value).Retry == id
	})
	if err != nil {
		return Record{}, err
	}
	return out, nil
}

// Forget deletes the record of work. If states are given, it does so only in
// one of these states, and returns etcdclaims.ErrRefused otherwise. It also deletes
// records that cannot be read. Work without a record is not an error.
//
// The work then counts as never begun. It may be begun again, as attempt 1,
// even if it was done or was AtMostOnce. Forget is for operators.
//
// Forget never changes work that is held. The error matches etcdclaims.ErrHeld in that
// case and is a *etcdclaims.HeldError. It matches etcdclaims.ErrUnknown if the record may have been
// deleted.
func (c *Runner) Forget(ctx context.Context, key string, states ...State) error {
	err := c.intervene(ctx, audit.ForgetWork, key, "forget", func(r Record) (*record.Value, error) {
		if len(states) > 0 && !slices.Contains(states, r.State) {
			return nil, fmt.Errorf("%w: the work is %s", etcdclaims.ErrRefused, r.State)
		}
		return nil, nil
	}, func(kv *mvccpb.KeyValue) bool { return kv == nil })
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	return err
}

// errNothingToDo ends an intervention well.
var errNothingToDo = errors.New("nothing to do")

// intervene replaces the record of work that is not held with what change returns for it, nil to
// delete it, if it is still that record and the key is still free. If the reply is lost, the record is
// read again, and done returns whether the change was carried out.
func (c *Runner) intervene(ctx context.Context, verb audit.Verb, key, call string,
	change func(Record) (*record.Value, error), done func(*mvccpb.KeyValue) bool,
) error {
	if err := c.checkKey(key); err != nil {
		return err
	}
	if c.claims.Passthrough() {
		return fmt.Errorf("%w: %s %q", etcdclaims.ErrPassthrough, call, key)
	}
	ctx, cancel := c.host.Bounded(ctx)
	defer cancel()
	act := audit.Begin(ctx, c.claims, verb, audit.Target{Key: key}, "")
	sent := int64(0) // revision of the record in a request of unknown outcome
	fail := func(err error) error {
		if sent > 0 { // which may yet be carried out
			err = txn.Unknown(err)
		}
		return c.host.Fail(call, key, act.End(ctx, err))
	}
	for try := 0; ; try++ {
		r, kv, err := c.readRecord(ctx, key)
		switch {
		case err != nil:
			return fail(err)
		case sent > 0 && done(kv):
			return act.End(ctx, nil)
		case sent > 0 && (kv == nil || kv.ModRevision != sent):
			return fail(errors.New("the record has changed meanwhile"))
		case kv == nil:
			return c.host.Fail(call, key, ErrNoRecord)
		}
		next, err := change(r)
		if errors.Is(err, errNothingToDo) {
			return nil
		}
		op, lease := clientv3.OpDelete(c.recordKey(key)), (*retention.Lease)(nil)
		if err == nil && next != nil {
			if lease, err = c.records.Get(ctx, 0); err == nil {
				op = put(c.recordKey(key), *next, lease)
			}
		}
		if err != nil {
			return fail(err)
		}
		resp, err := audit.Send(act, func(act *audit.Act) (*clientv3.TxnResponse, error) {
			return c.change(ctx, key, kv.ModRevision, append(act.Ops(), op)...)
		})
		lease.Leave(err == nil && resp.Succeeded)
		switch {
		case err == nil && resp.Succeeded:
			return act.End(ctx, nil)
		case err == nil:
			err = errors.New("the record keeps changing")
			if holder := txn.First(resp, 0); holder != nil {
				switch held := c.host.HeldBy(ctx, key, holder, false); {
				case held == nil:
				case sent == 0:
					return c.host.Fail(call, key, held)
				default:
					return fail(held) // the request that was sent may arrive when the key is free
				}
			}
		case errors.Is(err, etcdclaims.ErrUnknown):
			sent = kv.ModRevision
			lease.Doubt()
		case c.records.Gone(err, lease):
		case !c.host.IsPassing(err):
			return fail(err)
		}
		if !retry.PauseUnless(ctx, c.host.Open().Done(), try) {
			return fail(c.host.Ended(txn.WithCause(ctx, err)))
		}
	}
}
