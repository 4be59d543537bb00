// Package item is the protocol of the items of a queue. It has no I/O: a step builds a request from
// what is known, and judges the reply. Package queue sends the requests.
//
// An item is at one place at each revision of etcd: it waits below ready/ or later/, a worker's
// session has it below taken/, or it is a dead letter. Each step moves items from one place to
// another by one transaction, under the condition that the key of the first place is unchanged.
//
//   - [Enqueue] and [EnqueueAll] put items in, [Claim] gives them to a session.
//   - A worker ends its hold by [Complete], [Fail], [Snooze], [Release] or [Discard], and changes its
//     session by [Move]. All of them require the ModRevision of the item's key: the fence.
//   - [Recover] takes the items of a session that is over, [GiveBack] those of a living one of which
//     its process knows nothing.
//   - [Promote] moves items whose time has come, [Redrive] and [RedriveAll] dead letters. [Cancel],
//     [Reprioritize] and [Replace] change an item that no worker has, and [Purge] removes dead letters.
//
// A request that carries no fence requires the [Generation] of its session, so that it can be made void.
//
// The package imports neither context nor sync, no logger, no network and no client of etcd. Instants
// are values that callers read from a clock.
package item
