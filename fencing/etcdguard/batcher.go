package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// batcher shares requests by group commit (internal/txn): puts and deletes of single
// keys that are made at the same time share a request, because most of the cost of a
// guarded write is the transaction and its conditions. The first two are sent at once,
// each by itself. Calls that come while two requests are under way wait until one
// returns, and share the next. There is no timer.
//
// The caller's own transactions share nothing. etcd evaluates the conditions of
// all transactions in one request before it carries any out, so two transactions
// that exclude each other would both succeed.
//
// A request has one set of credentials, and a context can carry a caller's own as
// outgoing metadata. So each set of metadata has a lane of its own, and calls of two
// lanes do not wait for each other.
type batcher struct {
	guard  *guard
	kv     *txn.Sender
	limits *txn.Limits

	mu    sync.Mutex
	lanes map[string]*lane // by metadata; a lane with no call is removed
}

// lane is the group commit of the calls whose contexts carry the same metadata.
type lane struct {
	*txn.Batcher
	calls int
}

const (
	// maxSending is the most requests of one lane under way at once.
	maxSending = 2
	maxOps     = 64 // half of etcd's default limit of operations
	// maxBytes is a third of etcd's default limit for a request.
	maxBytes = 512 << 10
	// opBytes is an upper bound of what one write adds to its key and value in a
	// request, or to the previous values in a reply.
	opBytes = 64
	// replyBytes is an upper bound of a reply besides the responses of its writes.
	replyBytes = 256
)

func newBatcher(g *guard, kv *txn.Sender) *batcher {
	fixed := proto.Size(&pb.TxnRequest{Compare: g.cmps}) + opBytes // of a request, besides its writes
	return &batcher{
		guard: g, kv: kv, lanes: make(map[string]*lane),
		limits: txn.NewLimits(min(maxOps, (kv.Limits.Receive-replyBytes)/opBytes), min(maxBytes, kv.Limits.Send-fixed), 1, 1),
	}
}

// send carries out ops under the guard, in one request with other calls if
// possible. The response is that of a transaction of these ops alone.
func (b *batcher) send(ctx context.Context, ops []*pb.RequestOp) (resp *clientv3.TxnResponse, err error) {
	end := time.Now().Add(b.guard.timeout())
	if b.shares(ops) {
		resp, err = b.share(ctx, ops, end)
	} else {
		resp, err = b.guard.commit(ctx, b.kv, ops, callTimeout)
	}
	if errors.Is(err, errNotHeld) {
		return nil, b.guard.stale(ctx, b.kv, end)
	}
	return resp, err
}

// share carries out ops, which share a request with other calls.
func (b *batcher) share(ctx context.Context, ops []*pb.RequestOp, end time.Time) (*clientv3.TxnResponse, error) {
	name := txn.MetadataOf(ctx).Name
	l := b.enter(name)
	defer b.leave(name, l)
	resp, err := l.Do(ctx, txn.Request{Key: keyOf(ops[0]), In: &pb.TxnRequest{Success: ops}, Until: end})
	var answered answerError
	switch {
	case err == nil:
		return resp, nil
	case errors.As(err, &answered):
		return nil, answered.error
	case errors.Is(err, fencing.ErrUnknown):
		return nil, b.guard.failed(ctx, fmt.Errorf("%w: %w", fencing.ErrUnknown, txn.Failed(err)))
	}
	return nil, b.guard.failed(ctx, fmt.Errorf("nothing was sent yet: %w", err))
}

// answerError is the error of a request, as its callers get it.
type answerError struct{ error }

func (e answerError) Unwrap() error { return e.error }

// exchange sends what a lane has put together.
func (b *batcher) exchange(ctx context.Context, in *pb.TxnRequest, timeout time.Duration) (*clientv3.TxnResponse, error) {
	resp, err := b.guard.commit(ctx, b.kv, in.Success, timeout)
	if err != nil {
		return nil, answerError{err}
	}
	return resp, nil
}

func (b *batcher) enter(name string) *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lanes[name]
	if l == nil {
		l = &lane{Batcher: txn.NewBatcher(txn.Config{
			IO: context.Background(), Send: b.exchange, Timeout: callTimeout, Limits: b.limits,
			Flat: true, Trips: maxSending, OfAll: func(err error) bool { return !oneMaySpoilAll(err) },
		})}
		b.lanes[name] = l
	}
	l.calls++
	return l
}

func (b *batcher) leave(name string, l *lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.calls--; l.calls == 0 {
		delete(b.lanes, name)
	}
}

// oneMaySpoilAll reports whether etcd may have refused a batch because of one of
// its calls, or because it is a batch. Then each call is sent by itself. A
// refusal that concerns all calls, such as a missing leader, is the result of
// all.
func oneMaySpoilAll(err error) bool {
	var refused refusedError
	return errors.As(err, &refused) && txn.Judge(err) == txn.Final
}

// shares reports whether ops may share a request with other calls: one put or
// delete of one key, sent by clientv3 itself. A KV that wraps the client may look
// at the context, for example to choose a tenant. If the client limits the size
// of replies, no reply may carry the previous values of several writes.
func (b *batcher) shares(ops []*pb.RequestOp) bool {
	if !b.kv.Direct || len(ops) != 1 {
		return false
	}
	put, del := ops[0].GetRequestPut(), ops[0].GetRequestDeleteRange()
	if put == nil && (del == nil || len(del.RangeEnd) > 0) {
		return false
	}
	if size := len(put.GetKey()) + len(put.GetValue()) + len(del.GetKey()) + opBytes; b.limits.MaxOps() < 2 || size > b.limits.MaxBytes()/2 {
		return false
	}
	return b.kv.Limits.Receive == math.MaxInt32 || !put.GetPrevKv() && !del.GetPrevKv()
}

// keyOf returns the key of a put or a delete.
func keyOf(op *pb.RequestOp) string {
	if put := op.GetRequestPut(); put != nil {
		return string(put.Key)
	}
	return string(op.GetRequestDeleteRange().Key)
}
