// Package etcdclaims lets many processes share work by claims on etcd. A claim
// gives one process ownership of a key until it is released or lost. With [Slots] or
// [Shared], several processes can own a key at the same time.
//
//	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	// ...
//	defer etcd.Close()
//	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: logger})
//	// ...
//	defer claims.Close(context.Background())
//
//	err = claims.TryRun(ctx, "nightly-report", func(ctx context.Context) error {
//		return report(ctx) // ctx is cancelled before the claim expires
//	})
//	if errors.Is(err, etcdclaims.ErrHeld) {
//		return nil // another process runs the report
//	}
//
// [Client.TryAcquire] and [Client.TryRun] claim a key. Each has a variant without Try that waits
// in line while the key is held. Nothing remains in etcd when the claim ends, with two exceptions.
// Two small records can remain: that of a key with [Slots], and that of a key whose last [Shared]
// holders died or ended with [MinHold].
//
// Package etcdclaims/work also keeps a durable record of what is done under a claim: its attempts,
// its outcome and its result.
//
// # Where to find what
//
//   - Options of one call, such as [TTL], [MaxHold] or [If]: see [AcquireOption].
//   - Several holders of one key: [Slots]; [Shared] for readers and writers.
//   - Several keys in one call: [Client.TryAcquireAll] and [Client.TryAcquireEach].
//   - The line of callers that wait for a key: [Client.Acquire] explains it.
//   - The present holders of keys: [Client.Lookup], [Client.List] and [Client.Watch].
//   - The state of a client: [Client.Health] and [Client.Stats]. Its events, for
//     metrics, traces and logs: [Hooks].
//   - Development without etcd: [NewPassthrough].
//   - Help for an operator: package etcdclaims/admin has the past of a key, the callers in line,
//     sessions, forced releases, and numbers of slots.
//   - Locks that belong to an owner name instead of a claim: package etcdclaims/locks.
//   - Programs that use etcd's Mutex or Election: package etcdclaims/concurrency.
//   - Work that is done once, with retries and a result: package etcdclaims/work.
//   - A queue of work items: package etcdclaims/queue.
//   - Shards or partitions, spread over the running processes: package etcdclaims/group.
//   - Jobs on schedules, each tick in one process: package sched.
//   - Claims around HTTP and gRPC handlers, functions and jobs: package middleware.
//   - Checks of fences outside etcd: package fencing.
//   - Tests of your own code, with the real etcd in virtual time: package
//     etcdclaims/claimtest.
//   - A page for the person on call: package etcdclaims/webui. Metrics and traces:
//     package etcdclaims/telemetry.
//
// # Do I still own it
//
//   - [Claim.Check], before each effect: no I/O, fails from the local deadline on. In code
//     that has only a context: fencing.Check.
//   - [Claim.Err], after [Claim.Done]: why the claim ended. It is nil until then. Items of
//     queues have the same: queue.Delivery.Check and Err.
//   - [Claim.Owns]: asks etcd, once. The answer can be old when it arrives. [Client.Owns]
//     does the same for a token that another process sent.
//   - [Claim.Txn], or [Claim.Guard] in a transaction of your own: etcd checks in the write
//     itself. No other check is safe against a process that is paused after it.
//
// # Keys
//
// A key is text of 1 to 1,024 bytes, such as "invoice/42". All clients with the same [Config.Prefix]
// share one space of keys, whatever they use the keys for. So two features that choose
// the same key exclude each other: begin keys with the name of the feature.
//
// Calls that claim a key refuse blank keys, keys that begin with sched/, queue/ or group/, and
// keys that contain #slot- or #shared-. Packages sched, queue and group, [Slots] and [Shared]
// claim such keys themselves. Calls for operators, such as [Client.Lookup] and
// admin.ForceRelease, accept them.
//
// # Concurrency
//
// All methods of all types are safe for concurrent use. Two goroutines of one
// client exclude each other on a key, as two processes do. [Reentrant] lifts that.
// Without it, a function that runs under a claim and waits for the same key waits for
// itself, until its context ends.
//
// # What is not guaranteed
//
// No lock service can stop a process that is paused between its last check and its
// write. When the process resumes, another one may own the key, and both write. The
// local deadline of a claim makes such overlaps rare. Only a fence makes them
// harmless.
//
// A fence is a number. Each exclusive term of ownership of a key, or of a slot, has a
// greater fence than every earlier term. Callers that share a key have one fence, between
// those of the exclusive terms before and after. A resource that checks the fence of each
// write refuses the writes of an earlier owner. A resource that does not check fences is
// not protected. Fence every effect:
//
//   - Writes to etcd: use [Claim.Txn], [Claim.ReleaseWith] or [Claim.Guard]. etcd then
//     checks the fence.
//   - Writes to anything else: send [Claim.Token] along and check it there. Package
//     fencing has the check.
//
// The end of a context is a hint, not a protection: it can come late. So can the failure of
// Check: if an operator ends a claim, or another caller takes it from a holder with
// [Suspectable], Check succeeds until the holder's client learns of that, and if it does not
// reach etcd until its deadline.
//
// The fences of a key rise as long as etcd's revisions rise. Revisions can go back when
// a cluster is restored from a snapshot. A client that sees this refuses to claim and
// returns [ErrRewound]; see admin.RaiseEpoch.
//
// # How a claim works
//
// A claim is an etcd key on a lease that the client renews. The key is written once per
// term. The fence is epoch*2^47 + revision, the revision being that of this write. The
// epoch starts at 0. An operator raises it if revisions go back; see admin.RaiseEpoch.
// The client computes by its own clock when a claim ends. That moment lies before the
// one at which the server can give the key away:
//
//	D      = t0 + 0.99*TTL - M   the claim ends: Check and Err fail, Done is closed
//	D_soft = D - Drain           the claim's context ends
//
// Here
//
//   - t0 is read before the renewal is sent. A late reply extends the claim only as
//     far as its own t0 allows.
//   - TTL is the lease time that the server granted. The 1 % covers clocks that run at
//     different rates.
//   - M is max(500 ms, TTL/10).
//   - Drain is Config.Drain, the time that a handler has to return.
//
// This is the rule of Chubby's clients and of section 6.4 of Ongaro's thesis on Raft.
// etcd's concurrency.Session dates its deadline from the reply instead, which can come
// after the end of the lease.
//
// # Contexts
//
// The context given to an acquiring call bounds that call, not the claim. The claim has
// a context of its own, [Claim.Context]. Neither bounds what the client sends by itself:
// renewals, and the undoing of requests whose caller gave up.
package etcdclaims
