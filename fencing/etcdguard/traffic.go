package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// traffic lets writes that are made at the same time share a request: what a
// guarded write costs etcd is mostly the transaction and its conditions, and
// those are the same for all writes of a holder. The first two go at once, each by
// itself. Those that come while two are under way wait for one to return, and ride
// together then, each a transaction within that of the guard. Nothing waits for a
// timer.
type traffic struct {
	guard *guard
	kv    plainKV

	mu      sync.Mutex
	waiting []*rider
	flying  int
	most    int // riders of one request
}

const (
	mostFlying = 2
	// mostRiders leaves half of etcd's default limit of operations to what stands
	// within a rider.
	mostRiders = 64
	// mostBytes of keys and values go into one request: a third of etcd's default
	// limit.
	mostBytes = 512 << 10
)

// rider is one write that waits for others.
type rider struct {
	load
	ctx   context.Context
	ops   []clientv3.Op
	with  *flight       // nil while it waits
	ended chan struct{} // closed when the others are set
	alone bool          // it has to be sent by itself
	resp  *clientv3.TxnResponse
	err   error
}

// flight is a request of several riders. It goes on until the last of them has
// left.
type flight struct {
	riders []*rider
	aboard int // who has not left
	ctx    context.Context
	cancel context.CancelFunc
}

// send carries out ops under the guard, with others if there are such. The reply
// is that of a transaction of just these.
func (t *traffic) send(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	load := loadOf(ops)
	t.mu.Lock()
	if load.unwieldy || t.flying < mostFlying {
		t.flying++
		t.mu.Unlock()
		defer t.landed()
		return t.guard.commit(ctx, t.kv, ops)
	}
	r := &rider{load: load, ctx: ctx, ops: ops, ended: make(chan struct{})}
	t.waiting = append(t.waiting, r)
	t.mu.Unlock()
	timeout := time.NewTimer(t.guard.timeout())
	defer timeout.Stop()
	late := errors.New("its context ended")
	select {
	case <-r.ended:
	case <-ctx.Done():
	case <-timeout.C:
		late = wire.ErrNoAnswer
	}
	switch sent, ended := t.leave(r); {
	case ended && r.alone:
		return t.guard.commit(ctx, t.kv, ops)
	case ended:
		return r.resp, r.err
	case sent:
		return nil, t.guard.failed(ctx, fmt.Errorf("%w: %w", fencing.ErrUnknown, late))
	}
	return nil, t.guard.failed(ctx, fmt.Errorf("nothing was sent yet: %w", late))
}

// leave takes leave of a rider, which waits for nothing any more. It says whether
// its write was sent, and whether that has ended.
func (t *traffic) leave(r *rider) (sent, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.with == nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(o *rider) bool { return o == r })
		return false, false
	}
	if r.with.aboard--; r.with.aboard == 0 {
		r.with.cancel()
	}
	select {
	case <-r.ended:
		return true, true
	default:
		return true, false
	}
}

// landed lets those that wait go on.
func (t *traffic) landed() {
	// Those whose request has just returned may have another one to make, which
	// would miss the next by a hair.
	runtime.Gosched()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flying--
	for t.flying < mostFlying && len(t.waiting) > 0 {
		t.flying++
		go t.fly(t.board())
	}
}

// board takes those that can ride together, first come first served. etcd wants
// no key to be written twice in one transaction.
func (t *traffic) board() *flight {
	if t.most == 0 {
		t.most = mostRiders
	}
	written := make(map[string]struct{})
	bytes := 0
	twice := func(key string) bool { _, there := written[key]; return there }
	var aboard, left []*rider
	for _, r := range t.waiting {
		if len(aboard) == t.most || len(aboard) > 0 && bytes+r.bytes > mostBytes || slices.ContainsFunc(r.keys, twice) {
			left = append(left, r)
			continue
		}
		aboard = append(aboard, r)
		bytes += r.bytes
		for _, key := range r.keys {
			written[key] = struct{}{}
		}
	}
	t.waiting = left
	f := &flight{riders: aboard, aboard: len(aboard)}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(aboard[0].ctx))
	for _, r := range aboard {
		r.with = f
	}
	return f
}

// fly carries out what the riders want, in one request.
func (t *traffic) fly(f *flight) {
	defer t.landed()
	defer f.cancel()
	riders := f.riders
	if len(riders) == 1 {
		r := riders[0]
		r.resp, r.err = t.guard.commit(f.ctx, t.kv, r.ops)
		close(r.ended)
		return
	}
	all := make([]clientv3.Op, len(riders))
	for i, r := range riders {
		all[i] = clientv3.OpTxn(nil, r.ops, nil)
	}
	resp, err := t.guard.commit(f.ctx, t.kv, all)
	// One that etcd does not want keeps it from all: they go by themselves.
	var refused refusedError
	alone := errors.As(err, &refused)
	if alone && wire.IsTooManyOps(err) {
		t.mu.Lock()
		t.most = max(min(t.most, len(riders)/2), 1)
		t.mu.Unlock()
	}
	for i, r := range riders {
		switch {
		case alone:
			r.alone = true
		case err != nil:
			r.err = err
		default:
			inner := resp.Responses[i].GetResponseTxn()
			r.resp = &clientv3.TxnResponse{Header: resp.Header, Succeeded: true, Responses: inner.Responses}
		}
		close(r.ended)
	}
}

// load is what a write puts on a request.
type load struct {
	keys     []string // written, whichever way its conditions turn out
	bytes    int
	unwieldy bool // it had better go by itself
}

func loadOf(ops []clientv3.Op) load {
	var l load
	l.add(ops)
	l.unwieldy = l.unwieldy || len(l.keys) > mostRiders/2 || l.bytes > mostBytes/2
	return l
}

func (l *load) add(ops []clientv3.Op) {
	l.unwieldy = l.unwieldy || len(ops) > mostRiders/2
	for _, op := range ops {
		if op.IsTxn() {
			cmps, then, els := op.Txn()
			for _, cmp := range cmps {
				l.bytes += len(cmp.KeyBytes()) + len(cmp.ValueBytes())
			}
			l.unwieldy = l.unwieldy || len(cmps) > mostRiders/2
			l.add(then)
			l.add(els)
			continue
		}
		l.bytes += len(op.KeyBytes()) + len(op.ValueBytes())
		if op.IsPut() || op.IsDelete() {
			l.keys = append(l.keys, string(op.KeyBytes()))
			l.unwieldy = l.unwieldy || len(op.RangeBytes()) > 0 // over who knows whose keys
		}
	}
}
