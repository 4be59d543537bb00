// Package etcdclaims lets many processes share work safely: a claim says that
// this process, and no other, may work on a key now.
//
// # What is not guaranteed
//
// No lock service can stop a process that is paused between its last check and
// its write. A claim and its local deadline make overlaps rare; only the fence
// makes them harmless: each term of ownership has a greater fence than every
// term of that key before it, and a write that carries the fence is refused
// once a newer owner exists. Guard what you write ([Claim.Txn], [Claim.Held],
// [Work.Complete] for etcd, [Claim.Token] for everything else), and treat the
// end of a context as a hint that came early, not as the protection.
//
// Fences of one key rise as long as etcd's revisions do. A cluster restored
// from a snapshot can go back in revisions; a client that sees that happen
// refuses to claim ([ErrRewound]).
//
// # What is a claim
//
// An etcd key on a lease that the client renews. The key is written once per
// term, so that its mod revision is the fence. The client stops believing in a
// claim by its own clock, before the server could give the key to another:
//
//	D      = t0 + TTL*(1-rho) - M   hard: Check, Err and Done turn
//	D_soft = D - drain              soft: the claim's context ends
//
// where t0 is read before the request that renewed the lease was sent, TTL is
// what the server granted, rho = 1 % is the assumed error of clock rates and
// M = max(500 ms, TTL/10). A reply that comes late cannot extend anything
// beyond what its own t0 allows. (The rule is that of Chubby's clients and of
// Ongaro's thesis, section 6.4; etcd's own Session dates the deadline from the
// reply and was measured up to 9 s late.)
//
// # Three contexts
//
// The context given to an acquiring call bounds the acquiring only; the claim
// has a context of its own ([Claim.Context]); what the client sends on its own
// account (renewals, undoing what a caller gave up) has a third.
//
// # Concurrency
//
// All methods of all types are safe for concurrent use. Two goroutines of one
// client exclude each other on a key just as two processes do, unless the
// second asks for [Reentrant].
package etcdclaims
