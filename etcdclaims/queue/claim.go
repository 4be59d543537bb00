package queue

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// ClaimOption shapes one claiming call.
type ClaimOption interface{ apply(*claimOptions) }

type claimOptions struct{ ttl time.Duration }

// TTL sets the lease duration of the claimed items, between etcdclaims.MinTTL (2 s if
// the client allows short ones) and a year. Items claimed with one duration share a
// session. Zero means Config.TTL, which is the default.
func TTL(d time.Duration) ClaimOption {
	return setting[claimOptions](func(o *claimOptions) { o.ttl = d })
}

// TryClaim claims up to n visible items for this worker, and does not wait. A Batch
// without deliveries and no error means that no item is visible. If items are taken then,
// TryClaim first recovers those of dead workers. It reads the whole queue, for which etcd also
// visits the items that were completed since it last compacted: workers that are always there
// call Claim or Work. ctx bounds only the claiming; the
// deliveries have contexts of their own.
//
// Errors: ErrConfig, etcdclaims.ErrLost if the leases of this process are revoked again
// and again, and those of etcdclaims.Client.TryAcquire. After any error nothing stays
// claimed: items that were claimed by a request whose reply was lost are given back.
func (q *Queue) TryClaim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, false, opts)
	return b, q.fail("claim", err)
}

// Claim is TryClaim, but waits until at least one item is visible. It does not poll: it
// wakes when an item is enqueued, is given back or vests. In case an event was lost, it
// also reads again after a third of the TTL, at most 10 s. If that read takes long, as in a queue
// in which many items were completed since etcd last compacted, it is made less often, about
// each minute at least.
//
// If ctx ends first the error matches its cause.
func (q *Queue) Claim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, true, opts)
	return b, q.fail("claim", err)
}

func (q *Queue) claim(ctx context.Context, n int, wait bool, opts []ClaimOption) (Batch, error) {
	if n <= 0 {
		return Batch{}, fmt.Errorf("number of items %d is not positive", n)
	}
	if wait {
		defer q.await()()
	}
	return q.ask(ctx, &want{n: n, wait: wait, ttl: cmp.Or(chosen(claimOptions{}, opts).ttl, q.cfg.TTL)})
}

// ask has the claimer answer.
func (q *Queue) ask(ctx context.Context, w *want) (Batch, error) {
	w.n = min(w.n, itemsPerRequest) // nobody gets more at once, and the claimer adds these numbers
	w.reply = make(chan reply, 1)
	if err := q.claimer.ask(w); err != nil {
		return Batch{}, err
	}
	select {
	case r := <-w.reply:
		return r.batch, r.err
	case <-ctx.Done():
		if q.claimer.leave(w) {
			return Batch{}, context.Cause(ctx)
		}
		r := <-w.reply // it was answered just now
		return r.batch, r.err
	}
}
