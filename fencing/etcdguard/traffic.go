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
	"google.golang.org/grpc/codes"
)

// traffic lets puts and deletes of single keys that are made at the same time
// share a request: what a guarded write costs etcd is mostly the transaction and
// its conditions, and those are the same for all writes of a holder. The first two
// go at once, each by itself. Those that come while two are under way wait for one
// to return, and ride together then. Nothing waits for a timer.
//
// Transactions of the caller's do not ride: etcd judges the conditions of all that
// stand in one request before it carries any out, so two that exclude each other
// would both succeed.
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
	mostRiders = 64 // half of etcd's default limit of operations
	// mostBytes of keys and values go into one request: a third of etcd's default
	// limit.
	mostBytes = 512 << 10
)

// rider is one write that waits for others.
type rider struct {
	ctx   context.Context
	op    clientv3.Op
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
	if !rides(ops) {
		return t.guard.commit(ctx, t.kv, ops)
	}
	t.mu.Lock()
	if t.flying < mostFlying {
		t.flying++
		t.mu.Unlock()
		defer t.landed()
		return t.guard.commit(ctx, t.kv, ops)
	}
	r := &rider{ctx: ctx, op: ops[0], ended: make(chan struct{})}
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
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) > 0 {
		// Those whose request has just returned may have another one to make,
		// which would miss the next by a hair.
		t.mu.Unlock()
		runtime.Gosched()
		t.mu.Lock()
	}
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
	var aboard, left []*rider
	for _, r := range t.waiting {
		key := string(r.op.KeyBytes())
		_, twice := written[key]
		if twice || len(aboard) == t.most || len(aboard) > 0 && bytes+sizeOf(r.op) > mostBytes {
			left = append(left, r)
			continue
		}
		aboard = append(aboard, r)
		bytes += sizeOf(r.op)
		written[key] = struct{}{}
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
		r.resp, r.err = t.guard.commit(f.ctx, t.kv, []clientv3.Op{r.op})
		close(r.ended)
		return
	}
	all := make([]clientv3.Op, len(riders))
	for i, r := range riders {
		all[i] = r.op
	}
	resp, err := t.guard.commit(f.ctx, t.kv, all)
	// One that etcd does not want keeps it from all: they go by themselves. What
	// concerns everybody, such as a missing leader, is the answer to all.
	alone := false
	var refused refusedError
	if errors.As(err, &refused) {
		switch wire.Code(err) {
		case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.OutOfRange:
			alone = true
		}
	}
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
			r.resp = &clientv3.TxnResponse{Header: resp.Header, Succeeded: true, Responses: resp.Responses[i : i+1]}
		}
		close(r.ended)
	}
}

// rides reports whether ops can share a request: a put or a delete of one key,
// which is not too large.
func rides(ops []clientv3.Op) bool {
	return len(ops) == 1 && (ops[0].IsPut() || ops[0].IsDelete() && len(ops[0].RangeBytes()) == 0) && sizeOf(ops[0]) <= mostBytes/2
}

func sizeOf(op clientv3.Op) int { return len(op.KeyBytes()) + len(op.ValueBytes()) }
