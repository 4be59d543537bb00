// Package queue is a queue of work items on etcd. Each item is leased to one
// worker at a time, and every verb of a worker carries the item's fence: a worker
// that has lost its item cannot complete it.
//
//	q, err := queue.New(claims, queue.Config{Name: "thumbnails"})
//	...
//	_, err = q.Enqueue(ctx, queue.NewItem([]byte("cat.png"), queue.ID("cat.png")))
//	...
//	err = q.Work(ctx, queue.WorkerConfig{Handler: func(ctx context.Context, l *queue.Lease) error {
//		return scale(ctx, l.Payload())
//	}})
//
// # What is not guaranteed
//
// An item is handled at least once, and completed once. Two handlers of one item
// can overlap, if the first one was stopped past the end of its lease: call
// [Lease.Check] before each effect, and pass [Lease.Token] to what the handler
// writes to. A queue is not a stream: etcd holds hundreds of thousands of items, not
// millions, and each item costs it three writes.
//
// # Order
//
// Items are claimed by priority, then by vesting time, then in the order in which
// they were enqueued. One claimer sees exactly this order, as of its last read
// (TryClaim) or as etcd has reported it (Claim and workers, which read ahead). Several claimers that run
// at the same time pick among the first visible items at random, so that they do not
// fight for the same ones. The more often they clash, the more items they pick from, at
// most the first 1,024.
//
// # Death of a worker
//
// A process holds its items by a session: an ordinary claim that package etcdclaims
// renews. When the process dies its session ends within the TTL, and the items
// become visible again, with the attempt counted. No wall clock decides who owns an
// item. The wall clock decides when an item vests, that is, becomes visible.
//
// # Queue leases
//
// To let one process at a time take from a queue, as QuiCK's queue leases do, hold
// a claim of a key of your own around TryClaim, or run the worker in
// middleware.Singleton.
package queue
