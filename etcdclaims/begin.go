package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// workPlan is what an acquiring call knows of the record of its work: at first
// that there is none, which etcd corrects if it is wrong.
type workPlan struct {
	key  string
	opts *acquireOptions
	prev *Record // the record before, or nil
	raw  string  // as it is stored
	rev  int64   // its ModRevision
	err  error   // why it could not be read
}

// changed takes over a record that differs from what was known of it.
func (w *workPlan) changed(kv *mvccpb.KeyValue) bool {
	rev := int64(0)
	if kv != nil {
		rev = kv.ModRevision
	}
	if rev == w.rev {
		return false
	}
	w.prev, w.raw, w.rev, w.err = nil, "", rev, nil
	if kv != nil {
		r, err := decodeRecord(w.key, kv)
		w.prev, w.raw, w.err = &r, string(kv.Value), err
	}
	return true
}

func (w *workPlan) attempt() int {
	if w.prev == nil {
		return 1
	}
	return w.prev.Attempt + 1
}

// orphan reports whether the work's last owner is gone without a word. It is
// only asked where the key was seen to be free.
func (w *workPlan) orphan() bool { return w.prev != nil && w.prev.State == StateClaimed }

// claimed is the record of the attempt.
func (w *workPlan) claimed(a *attempt) record {
	r := record{
		State: StateClaimed, Attempt: w.attempt(), Epoch: a.epoch.value, Claim: a.id,
		Owner: a.s.c.cfg.Owner, Instance: a.s.c.store.layout.instance, Begun: a.since.Time().UTC(), AtMostOnce: w.opts.atMostOnce,
	}
	if w.prev != nil {
		r.Error = w.prev.Error
	}
	return r
}

// restore puts the record back as it was before the attempt.
func (w *workPlan) restore(key string) clientv3.Op {
	if w.prev == nil {
		return clientv3.OpDelete(key)
	}
	return clientv3.OpPut(key, w.raw)
}

// admitWork says whether work whose key is free may be begun, as far as its
// record is known, and buries what may not run again.
func (c *Client) admitWork(ctx context.Context, key string, w *workPlan) error {
	if w.err != nil {
		return w.err
	}
	if w.prev == nil {
		return nil
	}
	switch w.prev.State {
	case StateDone, StateDead:
		return &WorkError{Record: *w.prev}
	case StateFailed:
		if w.prev.NotBefore.After(c.clock.Now().Time()) {
			return &WorkError{Record: *w.prev}
		}
	case StateClaimed:
		why := ""
		switch limit := c.cfg.MaxAttempts; {
		case w.prev.AtMostOnce:
			why = "its owner is gone, and it may run at most once"
		case limit > 0 && w.prev.Attempt >= limit:
			why = fmt.Sprintf("its owner is gone, in the last of %d attempts", limit)
		default:
			return nil
		}
		return c.bury(ctx, key, w, why)
	}
	return nil
}

// bury marks orphaned work as dead. It returns nil if it was no orphan any
// more, with the plan unchanged, for the attempt itself to find out.
func (c *Client) bury(ctx context.Context, key string, w *workPlan, why string) error {
	dead := *w.prev
	dead.State, dead.Ended, dead.Error = StateDead, c.clock.Now().Time().UTC(), why
	work := c.store.layout.work(key)
	r := request{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(c.store.layout.own(key)), "=", 0),
			clientv3.Compare(clientv3.ModRevision(work), "=", w.rev),
		},
		then: []clientv3.Op{clientv3.OpPut(work, dead.stored().encode())},
		els:  []clientv3.Op{clientv3.OpGet(c.store.layout.own(key)), clientv3.OpGet(work)},
	}
	for try := 0; ; try++ {
		resp, err := c.store.do(ctx, r)
		switch {
		case err == nil && resp.Succeeded:
			return &WorkError{Record: dead}
		case err == nil:
			if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
				return &HeldError{Info: c.info(key, kvs[0], nil, 0)}
			}
			w.changed(firstKV(resp, 1))
			return c.admitWork(ctx, key, w)
		case !errors.Is(err, ErrUnknown) && !isTransient(err):
			return fmt.Errorf("burying orphaned work: %w", err)
		}
		if !backOff(ctx, try, c.closing) {
			return wire.WithCause(ctx, err)
		}
	}
}

// TryBegin claims the key as TryAcquire does, together with a durable record of
// work: how often it was attempted, and how it ended. The key names the work,
// so that it is done once whoever begins it (a dedupe key).
//
// Work whose owner died is begun again, with a greater fence and attempt, and
// Previous tells of that; or it is dead, if it was begun with AtMostOnce, or as
// often as Config.MaxAttempts allows. It costs one round trip if nothing is
// recorded of the key, and two otherwise.
//
// Errors: as TryAcquire, and ErrDone, ErrDead and ErrWaiting, each with the
// Record in a *WorkError.
func (c *Client) TryBegin(ctx context.Context, key string, opts ...AcquireOption) (*Work, error) {
	return c.begin(ctx, key, opts, c.try)
}

// Begin does as TryBegin, but waits in line while the key is held, as Acquire
// does. It does not wait for the next attempt of work that failed: that is
// ErrWaiting.
func (c *Client) Begin(ctx context.Context, key string, opts ...AcquireOption) (*Work, error) {
	return c.begin(ctx, key, opts, c.wait)
}

func (c *Client) begin(ctx context.Context, key string, opts []AcquireOption,
	acquire func(context.Context, string, *acquireOptions, *workPlan) (*term, error),
) (*Work, error) {
	o, err := c.acquiring(key, opts)
	if err != nil {
		return nil, err
	}
	if o.reentrant || o.supersede || o.minHold > 0 {
		return nil, fmt.Errorf("etcdclaims: beginning work %q: Reentrant, Supersede and MinHold do not go with work, whose record keeps it from being done again", key)
	}
	if c.Passthrough() {
		return &Work{Claim: &Claim{key: key}, attempt: 1}, nil
	}
	w := &workPlan{key: key, opts: &o}
	t, err := acquire(ctx, key, &o, w)
	if err != nil {
		return nil, err
	}
	out := &Work{Claim: &Claim{t: t, key: key}, attempt: t.attempt, begun: t.since.Time().UTC(), atMostOnce: o.atMostOnce}
	if w.prev != nil {
		out.previous = *w.prev
		if out.previous.State == StateClaimed {
			out.previous.State = StateOrphaned
		}
	}
	return out, nil
}
