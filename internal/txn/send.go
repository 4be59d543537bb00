package txn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Send carries out one request at once, in a round trip of its own. Its error is that
// of Do.
func (b *Batcher) Send(ctx context.Context, r Request) (*clientv3.TxnResponse, error) {
	in := b.cfg.Message(r)
	if also := b.cfg.Also; len(also) > 0 {
		in = &pb.TxnRequest{Compare: in.Compare, Success: append(slices.Clip(in.Success), also...), Failure: in.Failure}
	}
	resp, err := b.cfg.Send(ctx, in, b.timeoutOf(r))
	if errors.Is(err, rpctypes.ErrNoSpace) && b.untouched(ctx, r)[0] {
		return nil, Failed(err)
	}
	return resp, err
}

// Message returns the transaction of a request that is sent without others.
func (c *Config) Message(r Request) *pb.TxnRequest {
	in := r.In
	var tickets []string
	if r.Ticket != nil {
		tickets = []string{*r.Ticket}
	}
	shared := c.shared(tickets, r.Epoch)
	switch {
	case r.Nested:
		return &pb.TxnRequest{Compare: shared, Success: []*pb.RequestOp{Nest(in)}, Failure: []*pb.RequestOp{Get(c.EpochKey)}}
	case len(shared) > 0:
		return &pb.TxnRequest{Compare: append(shared, in.Compare...), Success: in.Success, Failure: in.Failure}
	case r.Void != nil:
		void := c.putVoid(r.Void)
		return &pb.TxnRequest{Compare: in.Compare, Success: append(slices.Clip(in.Success), void), Failure: append(slices.Clip(in.Failure), void)}
	}
	return in
}

// timeoutOf returns how long a request may take from now on.
func (b *Batcher) timeoutOf(r Request) time.Duration {
	if r.Until.IsZero() {
		return b.cfg.Timeout
	}
	return min(b.cfg.Timeout, time.Until(r.Until))
}

// commit carries out calls in one round trip, or in more if etcd refuses that one.
func (b *Batcher) commit(calls []*call) {
	if len(calls) == 1 {
		b.sendAlone(calls[0])
		return
	}
	m := b.pack(calls)
	ctx := calls[0].meta.Context(b.cfg.IO)
	if b.cfg.Flat {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		b.accompany(calls, cancel)
	}
	resp, err := b.cfg.Send(ctx, m.in, b.cfg.Timeout)
	switch {
	case err == nil && resp.Succeeded:
		b.settle(m.groups, resp)
	case err == nil:
		b.sharedFailed(calls, resp)
	case errors.Is(err, rpctypes.ErrNoSpace):
		b.outOfSpace(ctx, calls, err)
	case errors.Is(err, ErrUnknown):
		fail(calls, err)
	case b.tooLarge(err, m.in, calls):
		b.requeue(calls)
	case b.cfg.OfAll(err):
		fail(calls, err) // their callers try again after a pause
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		b.byLease(calls, err)
	default:
		b.sendEach(calls)
	}
}

// settle gives each call its part of the reply. Those of a group that was refused as a whole are
// sent again.
func (b *Batcher) settle(groups []group, resp *clientv3.TxnResponse) {
	var again []*call
	for i, g := range groups {
		refused := g.settle(resp.Responses[i], resp.Header)
		if g.kind == joint && len(g.calls) > 1 {
			b.doubts[g.calls[0].urgency()].Learn(refused)
		}
		if refused {
			again = append(again, g.calls...)
		}
	}
	for _, c := range again {
		c.joint = false
	}
	if len(again) > 0 {
		b.requeue(again)
	}
}

// sharedFailed handles a round trip whose shared conditions did not hold. Either the
// epoch is another, which concerns the calls that asked for one. Or a caller that
// gave up voided the ticket of all.
func (b *Batcher) sharedFailed(calls []*call, resp *clientv3.TxnResponse) {
	rev := int64(0)
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		rev = kvs[0].ModRevision
	}
	var again, outdated []*call
	for _, c := range calls {
		if c.Epoch != nil && c.Epoch.Rev != rev {
			outdated = append(outdated, c)
		} else {
			again = append(again, c)
		}
	}
	b.requeue(again)
	b.sendEach(outdated)
}

// requeue puts calls back to the front of the queues.
func (b *Batcher) requeue(calls []*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var urgent, others []*call
	for _, c := range calls {
		c.sent = false
		if c.Urgent {
			urgent = append(urgent, c)
		} else {
			others = append(others, c)
		}
	}
	b.urgent, b.queue = append(urgent, b.urgent...), append(others, b.queue...)
}

// byLease handles the refusal of a round trip because the lease of one or more of its
// calls does not exist. Calls on one lease have the same result.
func (b *Batcher) byLease(calls []*call, err error) {
	groups := make(map[int64][]*call)
	for _, c := range calls {
		groups[c.lease] = append(groups[c.lease], c)
	}
	if len(groups) == 1 && calls[0].lease != severalLeases {
		fail(calls, err)
		return
	}
	var wg sync.WaitGroup
	for lease, group := range groups {
		wg.Go(func() {
			if lease == severalLeases {
				b.sendEach(group)
			} else {
				b.commit(group)
			}
		})
	}
	wg.Wait()
}

// sendEach sends each call by itself, all at once. It follows a refusal that may
// concern only one of them, so that only that call gets the error.
func (b *Batcher) sendEach(calls []*call) {
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() { b.sendAlone(c) })
	}
	wg.Wait()
}

func (b *Batcher) sendAlone(c *call) {
	b.mu.Lock()
	gone := c.gone
	if !gone && c.Ticket != nil {
		*c.Ticket = c.own
	}
	b.mu.Unlock()
	if gone {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(b.cfg.IO, cancel)() // the batcher ends while the call is under way
	c.resp, c.err = b.Send(ctx, c.Request)
	close(c.settled)
}

// outOfSpace sends the calls again that were certainly not carried out: one that
// needs no space may succeed by itself.
func (b *Batcher) outOfSpace(ctx context.Context, calls []*call, err error) {
	requests := make([]Request, len(calls))
	for i, c := range calls {
		requests[i] = c.Request
	}
	var again, unsure []*call
	for i, untouched := range b.untouched(ctx, requests...) {
		if untouched {
			again = append(again, calls[i])
		} else {
			unsure = append(unsure, calls[i])
		}
	}
	fail(unsure, err)
	b.sendEach(again)
}

// tooLarge lowers the limits after a round trip was refused for its size. It returns
// false if that is not the reason, or if the limits cannot be lowered.
func (b *Batcher) tooLarge(err error, in *pb.TxnRequest, calls []*call) bool {
	switch {
	case IsTooManyOps(err):
		n := width(in)
		b.FewerOps(n)
		return n > b.lowestOps
	case isTooLarge(err):
		n := 0 // counted as in take: otherwise the same calls might be taken again
		for _, c := range calls {
			n += c.size
		}
		b.fewerBytes(n)
		return n > b.lowestByte
	}
	return false
}
