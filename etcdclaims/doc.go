// Package etcdclaims lets many processes share work by claims on etcd. A claim
// gives one process exclusive ownership of a key until it is released or lost.
//
//	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	// ...
//	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
//	// ...
//	defer claims.Close(ctx)
//
//	err = claims.TryRun(ctx, "nightly-report", func(ctx context.Context) error {
//		return report(ctx) // ctx is cancelled before the claim expires
//	})
//	if errors.Is(err, etcdclaims.ErrHeld) {
//		return nil // another process runs the report
//	}
//
// There are two kinds of calls:
//
//   - [Client.TryAcquire] and [Client.TryRun] claim a key. Nothing is left in etcd
//     when the claim ends.
//   - [Client.TryBegin], [Client.TryRunWork] and [Client.TryRunOnce] also keep a
//     durable record of the work: its attempts, its outcome and its result.
//
// Each has a variant without Try that waits in line while the key is held.
//
// # Concurrency
//
// All methods of all types are safe for concurrent use. Two goroutines of one
// client exclude each other on a key, as two processes do. [Reentrant] lifts that.
//
// # What is not guaranteed
//
// No lock service can stop a process that is paused between its last check and its
// write. A claim and its local deadline make such overlaps rare. Only the fence makes
// them harmless.
//
// Each term of ownership of a key has a greater fence than every earlier term.
// A write that carries the fence is refused once the key has a newer owner. Fence
// every effect:
//
//   - Writes to etcd: use [Claim.Txn], [Claim.Held] or [Work.Complete].
//   - Writes to anything else: send [Claim.Token] along and check it there.
//
// The end of a context is a hint, not a protection: it can come late.
//
// The fences of a key rise as long as etcd's revisions rise. Revisions can go back when
// a cluster is restored from a snapshot. A client that sees this refuses to claim and
// returns [ErrRewound]; see [RaiseEpoch].
//
// # How a claim works
//
// A claim is an etcd key on a lease that the client renews. The key is written once
// per term, so its mod revision is the fence. The client dates the end of a claim by
// its own clock, before the server can give the key away:
//
//	D      = t0 + TTL*(1-rho) - M   the claim ends: Check and Err fail, Done is closed
//	D_soft = D - drain              the claim's context ends
//
// Here t0 is read before the renewal is sent, and TTL is what the server granted. The
// assumed error of clock rates, rho, is 1 %, and M is max(500 ms, TTL/10). A late reply
// extends the claim only as far as its own t0 allows.
//
// This is the rule of Chubby's clients and of section 6.4 of Ongaro's thesis on Raft.
// etcd's concurrency.Session dates the deadline from the reply instead, and was measured
// up to 9 s late.
//
// # Contexts
//
// The context given to an acquiring call bounds that call, not the claim. The claim has
// a context of its own, [Claim.Context]. Requests that the client sends on its own
// account have a third: renewals, and the undoing of requests whose caller gave up.
package etcdclaims
