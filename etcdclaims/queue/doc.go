// Package queue is a queue of work items on etcd. Each item is leased to one worker at a
// time. Every request of a worker that changes an item carries the item's fence, so a
// worker that has lost its item cannot complete it.
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
// An item is handled at least once, and completed at most once. Two handlers of one item
// can overlap if the first one was stopped past the end of its lease. Call
// [Lease.Check] before each effect, and pass [Lease.Token] to every store that the
// handler writes to. A queue is not a stream: etcd holds hundreds of thousands of
// items, not millions. Each item costs etcd three writes.
//
// # Order
//
// Items are claimed by priority, then by vesting time, then in the order in which they
// were enqueued. A single claimer keeps exactly this order among the items that it knows:
// for TryClaim the items of its last read, for Claim and workers the items that etcd has
// reported. So a later item can overtake one that was just enqueued. If several claimers
// run at the same time, each picks at random among the first visible items, so that they
// do not compete for the same item. The more often two claimers want the same item, the
// more items they pick from, at most the first 1,024.
//
// # Death of a worker
//
// A process holds its items by a session: an ordinary claim that package etcdclaims
// renews. When the process dies, its items become visible again within the
// TTL plus one second, and the attempt counts. If it was the item's last attempt, the item
// becomes a dead letter. No wall clock decides who owns an item. The wall clock decides
// when an item vests, that is, becomes visible.
//
// # Verbs
//
// A worker ends its lease with Complete, Fail, Snooze, Release or Discard. Each of these
// verbs is one transaction under the fence of the lease and the session of the process. A
// verb whose reply is lost is sent again, and etcd carries it out once. If the repeated
// request is refused, etcd's history shows which request ended the lease. The errors are:
//
//   - ErrExpired: the lease ended by its own clock, or the session of its process ended,
//   - ErrSuperseded: the item waits again, another worker has it, or it was ended
//     otherwise,
//   - ErrCompleted: another process with the same lease completed the item (see
//     [Queue.Adopt]),
//   - etcdclaims.ErrReleased: an earlier verb ended this lease,
//   - etcdclaims.ErrUnknown: the outcome was not known when the lease or ctx ended, or
//     etcd had compacted its history.
//
// If a verb returns one of these errors other than ErrUnknown, it has changed nothing.
//
// The same verb of the same Lease is the same request. Called again after ErrUnknown, it
// returns nil if one of the calls was carried out. Only the arguments of that call have
// an effect. Fail and Snooze return the outcome of that call, which they read from etcd's
// history. After a call that returned nil, all verbs return etcdclaims.ErrReleased. If a
// lease and leases adopted from it call the same verb, at most one of the calls returns
// nil.
//
// # Queue leases
//
// To let one process at a time take from a queue, as QuiCK's queue leases do, hold
// a claim of a key of your own around TryClaim. Or run the worker in
// middleware.Singleton.
package queue
