package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// batcher is group commit: puts and deletes of single keys that are made at the
// same time share a request, because most of the cost of a guarded write is the
// transaction and its conditions. The first two are sent at once, each by itself.
// Calls that come while two requests are under way wait until one returns, and
// share the next. There is no timer.
//
// The caller's own transactions share nothing. etcd evaluates the conditions of
// all transactions in one request before it carries any out, so two transactions
// that exclude each other would both succeed.
//
// A request has one set of credentials, and a context can carry a caller's own as
// outgoing metadata. So each set of metadata has a lane of its own.
type batcher struct {
	guard *guard
	kv    plainKV
	fixed int // bytes of a request besides its writes

	mu    sync.Mutex
	lanes map[string]*lane // by laneOf; a lane with no call is removed
	ops   int              // most writes in one batch
	bytes int              // most bytes in one batch
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

func newBatcher(g *guard, kv plainKV) *batcher {
	b := &batcher{guard: g, kv: kv, lanes: make(map[string]*lane)}
	b.fixed = proto.Size(&pb.TxnRequest{Compare: g.built}) + opBytes
	b.bytes = min(maxBytes, kv.limits.Send-b.fixed)
	b.ops = min(maxOps, (kv.limits.Receive-replyBytes)/opBytes)
	return b
}

// lane is the calls whose contexts carry the same outgoing metadata. Calls of two
// lanes do not wait for each other.
type lane struct {
	name    string
	md      metadata.MD
	waiting []*call
	sending int // requests under way
}

// call is one write that waits to share a request.
type call struct {
	ctx   context.Context
	op    clientv3.Op
	batch *batch        // nil while the call waits
	ended chan struct{} // closed once the fields below are set
	alone bool          // the call must be sent by itself
	resp  *clientv3.TxnResponse
	err   error
}

// batch is one request of several calls. It is cancelled once every caller has
// given up.
type batch struct {
	calls   []*call
	callers int // callers that have not given up
	ctx     context.Context
	cancel  context.CancelFunc
}

// laneOf returns the lane name of the metadata. Equal metadata have equal names;
// keys and values are quoted, so that different metadata have different names.
func laneOf(md metadata.MD) string {
	if len(md) == 0 {
		return ""
	}
	var name strings.Builder
	for _, key := range slices.Sorted(maps.Keys(md)) {
		name.WriteString(strconv.Quote(key))
		for _, value := range md[key] {
			name.WriteByte('=')
			name.WriteString(strconv.Quote(value))
		}
	}
	return name.String()
}

// send carries out ops under the guard, in one request with other calls if
// possible. The response is that of a transaction of these ops alone.
func (b *batcher) send(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	if !b.shares(ops) {
		return b.guard.commit(ctx, b.kv, ops)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	name := laneOf(md)
	b.mu.Lock()
	if b.ops < 2 || sizeOf(ops[0]) > b.bytes/2 {
		b.mu.Unlock()
		return b.guard.commit(ctx, b.kv, ops)
	}
	l := b.lanes[name]
	if l == nil {
		l = &lane{name: name, md: md}
		b.lanes[name] = l
	}
	if l.sending < maxSending {
		l.sending++
		b.mu.Unlock()
		defer b.returned(l)
		return b.guard.commit(ctx, b.kv, ops)
	}
	c := &call{ctx: ctx, op: ops[0], ended: make(chan struct{})}
	l.waiting = append(l.waiting, c)
	b.mu.Unlock()
	return b.wait(l, c)
}

// wait returns the outcome of the call.
func (b *batcher) wait(l *lane, c *call) (*clientv3.TxnResponse, error) {
	timeout := time.NewTimer(b.guard.timeout())
	defer timeout.Stop()
	late := errors.New("the caller's context ended")
	select {
	case <-c.ended:
	case <-c.ctx.Done():
	case <-timeout.C:
		late = wire.ErrNoAnswer
	}
	switch sent, ended := b.giveUp(l, c); {
	case ended && c.alone:
		return b.guard.commit(c.ctx, b.kv, []clientv3.Op{c.op})
	case ended:
		return c.resp, c.err
	case sent:
		return nil, b.guard.failed(c.ctx, fmt.Errorf("%w: %w", fencing.ErrUnknown, late))
	}
	return nil, b.guard.failed(c.ctx, fmt.Errorf("nothing was sent yet: %w", late))
}

// giveUp ends the caller's wait. It reports whether the write was sent, and
// whether it has ended.
func (b *batcher) giveUp(l *lane, c *call) (sent, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.batch == nil {
		l.waiting = slices.DeleteFunc(l.waiting, func(o *call) bool { return o == c })
		return false, false
	}
	if c.batch.callers--; c.batch.callers == 0 {
		c.batch.cancel()
	}
	select {
	case <-c.ended:
		return true, true
	default:
		return true, false
	}
}

// returned starts the waiting calls of the lane after one of its requests
// returned.
func (b *batcher) returned(l *lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.waiting) > 0 {
		// Callers whose request has just returned may make another call. Yield, so
		// that it joins the next batch.
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
	}
	l.sending--
	for l.sending < maxSending && len(l.waiting) > 0 {
		l.sending++
		go b.commit(l, b.take(l))
	}
	if l.sending == 0 {
		delete(b.lanes, l.name)
	}
}

// take returns a batch of the calls that can share a request, in order of
// arrival. etcd refuses a transaction that writes one key twice.
func (b *batcher) take(l *lane) *batch {
	written := make(map[string]struct{})
	bytes := 0
	var calls, left []*call
	for _, c := range l.waiting {
		key := string(c.op.KeyBytes())
		_, twice := written[key]
		if twice || len(calls) == b.ops || len(calls) > 0 && bytes+sizeOf(c.op) > b.bytes {
			left = append(left, c)
			continue
		}
		calls = append(calls, c)
		bytes += sizeOf(c.op)
		written[key] = struct{}{}
	}
	l.waiting = left
	// No other value of a caller's context may reach the request: an interceptor
	// could take credentials from it that belong to one caller only.
	ctx := context.Background()
	if len(l.md) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, l.md)
	}
	if len(calls) == 1 {
		ctx = context.WithoutCancel(calls[0].ctx)
	}
	t := &batch{calls: calls, callers: len(calls)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	for _, c := range calls {
		c.batch = t
	}
	return t
}

// commit carries out the calls of a batch in one request.
func (b *batcher) commit(l *lane, t *batch) {
	defer b.returned(l)
	defer t.cancel()
	all := make([]clientv3.Op, len(t.calls))
	for i, c := range t.calls {
		all[i] = c.op
	}
	resp, err := b.guard.commit(t.ctx, b.kv, all)
	alone := len(all) > 1 && oneMaySpoilAll(err)
	if alone {
		b.learn(all, err)
	}
	for i, c := range t.calls {
		switch {
		case alone:
			c.alone = true
		case err != nil:
			c.err = err
		default:
			c.resp = &clientv3.TxnResponse{Header: resp.Header, Succeeded: true, Responses: resp.Responses[i : i+1]}
		}
		close(c.ended)
	}
}

// oneMaySpoilAll reports whether etcd may have refused a batch because of one of
// its calls, or because it is a batch. Then each call is sent by itself. A
// refusal that concerns all calls, such as a missing leader, is the result of
// all.
func oneMaySpoilAll(err error) bool {
	var refused refusedError
	if !errors.As(err, &refused) {
		return false
	}
	if wire.IsTooLargeToSend(err) {
		return true
	}
	switch wire.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.OutOfRange, codes.Unauthenticated:
		return true
	}
	return false
}

// learn makes later batches smaller after this one was refused for its size.
func (b *batcher) learn(ops []clientv3.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wire.IsTooManyOps(err) {
		b.ops = max(min(b.ops, len(ops)/2), 1)
	}
	if wire.IsTooLargeToSend(err) || errors.Is(err, rpctypes.ErrRequestTooLarge) {
		bytes := 0
		for _, op := range ops {
			bytes += sizeOf(op)
		}
		b.bytes = min(b.bytes, bytes/2)
	}
}

// shares reports whether ops may share a request with other calls: one put or
// delete of one key, sent by clientv3 itself. A KV that wraps the client may look
// at the context, for example to choose a tenant. If the client limits the size
// of replies, no reply may carry the previous values of several writes.
func (b *batcher) shares(ops []clientv3.Op) bool {
	if !b.kv.direct || len(ops) != 1 {
		return false
	}
	op := ops[0]
	if !op.IsPut() && (!op.IsDelete() || len(op.RangeBytes()) > 0) {
		return false
	}
	return b.kv.limits.Receive == math.MaxInt32 || !wire.WantsPrevious(op)
}

func sizeOf(op clientv3.Op) int { return len(op.KeyBytes()) + len(op.ValueBytes()) + opBytes }
