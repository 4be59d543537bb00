package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// batcher is group commit for the calls of one session. There is one for verbs and one
// for enqueues. A call that finds no round trip under way is sent at once. Those that
// come meanwhile are sent together, each as a nested transaction with its own
// conditions, so that each is carried out or refused by itself. No call waits for a
// timer, unless a round trip hangs.
type batcher struct {
	s        *session
	also     []clientv3.Op // of each round trip, behind those of the calls
	mu       sync.Mutex
	underWay int // round trips under way
	waiting  []*request
	keys     map[string]bool // of those that wait
}

// request is a call that waits for a round trip.
type request struct {
	key       string // etcd takes no two puts of a key in one transaction; "": it puts none that others put
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
	size      int
	sent      bool // under the batcher's mutex
	done      chan struct{}
	resp      *clientv3.TxnResponse
	err       error
}

const (
	// A second round trip begins beside the first if so many wait.
	enoughCalls = 16
	// A round trip that takes longer delays nobody else.
	hangs        = 250 * time.Millisecond
	mostUnderWay = 8
	// These bound the operations and conditions of a call that shares a round trip: etcd's
	// limit holds for both levels together.
	mostCallOps  = 16
	mostCallCmps = 2
)

// commit carries out a transaction under the session's guard. Its conditions must not
// depend on keys that calls with other keys write, nor its operations on their order.
func (b *batcher) commit(ctx context.Context, key string, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	c := &request{key: key, cmps: cmps, then: then, els: els, done: make(chan struct{})}
	if !c.shares(ctx) {
		return b.alone(ctx, c)
	}
	b.mu.Lock()
	if b.underWay == 0 {
		b.underWay++
		b.mu.Unlock()
		defer b.returned()
		return b.alone(ctx, c)
	}
	if b.keys[c.key] {
		b.mu.Unlock()
		return b.alone(ctx, c)
	}
	b.wait(c)
	if b.underWay == 1 && len(b.waiting) >= enoughCalls {
		b.sendWaiting()
	}
	b.mu.Unlock()
	t := time.NewTimer(hangs)
	defer t.Stop()
	for {
		select {
		case <-c.done:
			return c.resp, c.err
		case <-t.C:
			b.mu.Lock()
			if !c.sent && b.underWay < mostUnderWay {
				b.sendWaiting()
			}
			b.mu.Unlock()
			t.Reset(hangs)
			continue
		case <-ctx.Done():
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if !c.sent {
			b.waiting = slices.DeleteFunc(b.waiting, func(other *request) bool { return other == c })
			delete(b.keys, c.key)
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", etcdclaims.ErrUnknown, context.Cause(ctx))
	}
}

// wait adds a call to those that wait. The caller holds the mutex.
func (b *batcher) wait(c *request) {
	b.waiting = append(b.waiting, c)
	if c.key != "" {
		if b.keys == nil {
			b.keys = map[string]bool{}
		}
		b.keys[c.key] = true
	}
}

// shares reports whether the call may share a round trip: its operations are plain ones,
// few and small, and its context has no metadata of its own.
func (c *request) shares(ctx context.Context) bool {
	for _, op := range slices.Concat(c.then, c.els) {
		if op.IsTxn() {
			return false // etcd evaluates all conditions of a request first
		}
		c.size += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes()) + 64
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(c.cmps) <= mostCallCmps && len(c.then) <= mostCallOps && c.size <= bytesPerRequest/4 && len(md) == 0
}

func (b *batcher) alone(ctx context.Context, c *request) (*clientv3.TxnResponse, error) {
	return b.s.claim.Txn(ctx).If(c.cmps...).Then(append(slices.Clip(c.then), b.also...)...).Else(c.els...).Commit()
}

// sendWaiting sends some of those that wait. The caller holds the mutex.
func (b *batcher) sendWaiting() {
	n, size, widest := 0, 0, 0
	for _, c := range b.waiting[:min(len(b.waiting), itemsPerRequest)] {
		widest = max(widest, len(c.then), len(c.cmps))
		if size += c.size; n > 0 && (size > bytesPerRequest || n >= b.s.q.size.items(widest)) {
			break
		}
		c.sent = true
		delete(b.keys, c.key)
		n++
	}
	calls := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	b.underWay++
	if !b.s.q.spawn(func() { b.send(calls) }) {
		b.underWay--
		for _, c := range calls {
			c.end(nil, errClosed)
		}
	}
}

// returned ends a round trip, and begins another one if calls wait.
func (b *batcher) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay--; len(b.waiting) > 0 {
		b.sendWaiting()
	}
}

// send carries out calls in one round trip. If etcd refuses them as a whole each is sent
// by itself, so that the error is that of its cause alone.
func (b *batcher) send(calls []*request) {
	defer b.returned()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	if len(calls) == 1 {
		calls[0].end(b.alone(ctx, calls[0]))
		return
	}
	var ops []clientv3.Op
	widest := 0
	for _, c := range calls {
		ops = append(ops, clientv3.OpTxn(c.cmps, c.then, c.els))
		widest = max(widest, len(c.then))
	}
	resp, err := b.s.claim.Txn(ctx).Then(append(ops, b.also...)...).Commit()
	b.s.q.size.refused(err, len(calls)+widest)
	switch {
	case err == nil:
		for i, c := range calls {
			inner := (*clientv3.TxnResponse)(resp.Responses[i].GetResponseTxn())
			inner.Header = resp.Header
			c.end(inner, nil)
		}
	case errors.Is(err, etcdclaims.ErrUnknown), errors.Is(err, etcdclaims.ErrLost), passing(err):
		for _, c := range calls {
			c.end(nil, err)
		}
	default:
		var wg sync.WaitGroup
		for _, c := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
				defer cancel()
				c.end(b.alone(ctx, c))
			})
		}
		wg.Wait()
	}
}

func (c *request) end(resp *clientv3.TxnResponse, err error) {
	c.resp, c.err = resp, err
	close(c.done)
}
