// Package queue is a queue of work items on etcd. Each item is leased to one worker at a
// time. Every request of a worker that changes an item carries the item's fence, so a
// worker that has lost its item cannot complete it.
//
//	q, err := queue.New(claims, queue.Config{Name: "thumbnails"})
//	...
//	defer q.Close(context.Background()) // gives back what is under way
//	_, err = q.Enqueue(ctx, queue.NewItem([]byte("cat.png"), queue.ID("cat.png")))
//	...
//	err = q.Work(ctx, queue.WorkerConfig{Handler: func(ctx context.Context, d *queue.Delivery) error {
//		return scale(ctx, d.Payload())
//	}})
//
// Payloads are bytes. [Of] makes them values of a type.
//
// # Words
//
// A [Delivery] is an item in a worker's hand. Its lease is the time for which the worker
// has it: [WorkerConfig].TTL or Config.TTL, from the last renewal. A lease of etcd is named
// as such. [Delivery.Key] is no key of etcd: it is the item's place in the order of the queue.
//
// An item vests when its time comes ([At], [Delay]): from then on it is visible, and can be
// claimed. That instant is its vesting time.
//
// # What is not guaranteed
//
// An item is handled at least once, and completed at most once. Two handlers of one item
// can overlap if the first one was stopped past the end of its lease. Call
// [Delivery.Check] before each effect, and pass [Delivery.Token] to every store that the
// handler writes to. A queue is not a stream: etcd holds hundreds of thousands of
// items, not millions. Each item costs etcd three writes.
//
// # Order
//
// Items are claimed by priority, then by vesting time, then in the order in which they
// were enqueued. With Config.Aging, an item that waits rises: see there.
// With one claimer the order is exact for the items that it has read: for
// TryClaim those of its last read, for Claim and workers those that etcd has reported. So a
// later item can overtake one that was just enqueued. With several claimers, each picks at
// random among the first visible items. The range grows with conflicts, up to 1,024 items.
//
// Items of one [PartitionKey] keep the order with any number of claimers, if Config.KeyLimit is 1:
// the next one is visible once the one before has ended.
//
// # Death of a worker
//
// A process holds its items by a session: an ordinary claim that package etcdclaims
// renews. When the process dies, its items become visible again within the
// TTL plus one second, and the attempt counts. If it was the item's last attempt, the item
// becomes a dead letter. No wall clock decides who owns an item. The wall clock decides
// when an item vests.
//
// # Verbs
//
// A worker ends its lease with Complete, Fail, Snooze, Release or Discard. Each of these
// verbs is one transaction under the fence of the delivery and the session of the process. A
// verb whose reply is lost is sent again, and etcd carries it out once. If the repeated
// request is refused, etcd's history shows which request ended the lease. The errors are:
//
//   - ErrExpired: the lease ended by the local clock of this process, or the session of
//     its process ended. The error also matches etcdclaims.ErrClosed if it ended because this
//     process closed the Queue,
//   - ErrSuperseded: the item waits again, another worker has it, or it is a dead letter.
//     It was recovered after a death, another process with the same delivery (see
//     [Queue.Adopt]) ended or moved it, the epoch was raised, or its keys were deleted by
//     hand,
//   - ErrCompleted: another process with the same delivery completed the item (see
//     [Queue.Adopt]),
//   - ErrCancelled: Queue.Cancel has removed the item, with AlsoTaken,
//   - etcdclaims.ErrReleased: an earlier verb ended this lease,
//   - etcdclaims.ErrUnknown: the outcome was not known when the lease or ctx ended, or
//     etcd had compacted its history.
//
// If a verb returns one of these errors other than ErrUnknown, it has changed nothing.
//
// After ErrUnknown, calling the same verb of the same Delivery again retries the first call.
// It returns nil if any of the calls took effect. The arguments of the call that took effect
// count; those of the other calls are ignored. Fail and Snooze return the outcome of the
// call that took effect, which they read from etcd's history. After a call that returned
// nil, all verbs return etcdclaims.ErrReleased. If a delivery and those adopted from it call
// the same verb, at most one of the calls returns nil.
//
// # When etcd has no space
//
// When etcd is nearly full, enqueues return ErrFull, and all other calls work; see
// Config.SpaceReserve. Beyond its quota etcd refuses every request that puts a key. Queue.Work
// then waits until there is space. Errors of calls match rpctypes.ErrNoSpace of etcd's API:
//
//   - Complete, Cancel, Purge, Sweep, Heartbeat with the same duration, and all reads are
//     still carried out.
//   - Fail, Snooze, Release, Discard, Heartbeat with another duration, Complete of an adopted
//     delivery or with a result, Cancel of a taken item, and any call for which the process first
//     needs a session are refused. They have changed nothing.
//   - Errors of Enqueue, TryClaim, SetPriority, Redrive, RedriveAll, Pause, Resume and Close
//     also match etcdclaims.ErrUnknown.
//
// # Queue leases
//
// QuiCK's queue leases let one process at a time take from a queue. For that, hold a
// claim of a key of your own around TryClaim. Or run the worker in
// middleware.Singleton.
package queue
