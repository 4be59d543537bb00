// Package concurrency has the Session, Mutex and Election of go.etcd.io/etcd/client/v3/concurrency, and the
// RWMutex of etcd's package recipes, as claims. A program changes its import:
//
//	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(15))
//	// ...
//	defer session.Close()
//	mutex := concurrency.NewMutex(session, "/my-lock")
//	if err := mutex.Lock(ctx); err != nil {
//		return err
//	}
//	defer mutex.Unlock(context.WithoutCancel(ctx))
//	err = work(mutex.Context(), mutex.Token()) // ends before the lock can be lost; the fence is checked where work writes
//
// It gains what claims have: contexts that end before etcd can give the key away, renewals that are
// verified, fences, a line in which a release hands the key over, and keys that claimctl shows. Session.Claims
// is the client of package etcdclaims, for new code.
//
// # During the change
//
// The keys in etcd are others than those of etcd's package, so processes with one package and processes with
// the other do not exclude each other. Stop all processes that use etcd's package for a key before one
// uses this package for it. No bridge between the two is safe: a request of etcd's package that gives its lock up
// has no condition, and when it arrives late it deletes the lock that the session has by then.
//
// # What differs from etcd's package
//
//   - The Mutexes of one session exclude each other, as its goroutines must. A session that locks what it has
//     locked waits for itself. With etcd's package both have the lock.
//   - Unlock of a lock that was lost returns an error that matches etcdclaims.ErrLost. etcd's returns nil.
//   - Errors have more text, so errors.Is finds those of etcd's package, and == does not.
//   - A lost session ends its locks here, at a deadline before that of the lease. After Orphan no call has success,
//     while with etcd's package the calls of a session go on until its lease lapses.
//   - WithLease is refused, and ResumeElection works in the session that leads. What a process held
//     before its restart belongs to that process: wait until its lease lapses, or end it with Resign
//     or Close.
//   - WithTTL needs 5 s. With less, a short pause of etcd or of the process loses all locks.
//   - In etcd a lock is the key Config.Prefix + "own/" + pfx. Permissions are those of docs/permissions.md, and
//     no key is found under pfx. Mutex, RWMutex and Election exclude each other on one pfx.
//     The key must be valid for claims; see etcdclaims.ErrInvalidKey.
//   - IsOwner compares the modification revision. The creation revision stays the same when a release
//     hands the key over.
//   - Header has the revision at which the key was acquired, and nothing else.
//   - Leader and Observe return a key-value that is put together: the key of the claim, and the value of
//     its note. Values are 64 KiB long at most. Observe leaves out all but the newest one for a slow receiver, survives an
//     outage of etcd, and ends with the session.
//   - RLock and Lock of an RWMutex end with the session. etcd's wait for ever.
package concurrency
