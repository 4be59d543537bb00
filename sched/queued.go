package sched

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// queued is a waiting tick that begins.
type queued struct {
	*starter
	waiter
	ahead []*waiter // the ticks whose runs were recorded before
	slots []tick.Slot
	step  tick.Begin
}

// request lets the tick begin unless an earlier one of those ahead waits.
func (q *queued) request(r run, value string) *pb.TxnRequest {
	q.step = tick.Begin{Keys: q.keys, Tick: q.Waiting, Run: r, Value: value, Slots: q.slots}
	for _, a := range q.ahead {
		if lanes.ByTurn(a, &q.waiter) < 0 {
			q.step.Ahead = append(q.step.Ahead, a.Key)
		}
	}
	return q.step.Build()
}

func (q *queued) begun(_ *run, _ string, rev int64) { q.view.Remove(q.Key, rev) }

func (q *queued) failed(ctx context.Context, err error) (again bool) {
	claim := zap.String("key", q.step.Run.Claim)
	switch {
	case errors.Is(err, etcdclaims.ErrRefused) && q.stillWaits(ctx, q.step):
	case errors.Is(err, etcdclaims.ErrRefused):
		q.view.Forget(q.Key, q.Rev) // another process has begun it, or it was withdrawn
		return false
	case errors.Is(err, etcdclaims.ErrHeld):
	case q.outage.Judge(starting, err, claim, zap.String("job", q.Job), zap.String("tick", q.ID)):
		q.deny(err)
	}
	return true
}

// excluding returns the ticks of the recorded runs that exclude a run of the tick.
func (b *starter) excluding(r ready) (ticks []*waiter) {
	dirs := b.keys.Excluding(r)
	if !slices.ContainsFunc(dirs, func(dir string) bool { return b.view.CountIn(b.view.Dir(dir)) > 0 }) {
		return nil
	}
	for key, is := range b.view.Runs() {
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(key, dir) }) {
			ticks = append(ticks, &waiter{Waiting: tick.Waiting{Ready: is.Run.Ready, Key: b.keys.Ready(r.Job, is.Run.ID)}})
		}
	}
	return ticks
}

// stillWaits reports whether a tick that was refused may begin later: another run of its
// job is recorded, or was until a moment ago, or another run has taken a slot. A tick that cannot be
// read may begin later.
func (q *queued) stillWaits(ctx context.Context, st tick.Begin) bool {
	if !st.Waits() {
		return false
	}
	if len(q.excluding(st.Tick.Ready)) > 0 {
		return true
	}
	resp, err := retry.Get(ctx, core.Of(q.claims).KV(), readTime, clientv3.OpGet(st.Tick.Key, clientv3.WithKeysOnly()))
	return err != nil || st.MayFollow(resp.Kvs)
}
