// Package etcdguard guards writes to etcd. A write carries a token, and is carried out only
// while the claim with that token holds the token's key.
//
// NewKV wraps a clientv3.KV, so that code written for a KV is guarded without a
// change:
//
//	kv := etcdguard.NewKV(etcd, claim)
//	_, err := kv.Put(ctx, "/orders/42/state", "shipped") // fencing.ErrStale once the claim is lost
//
// The check is a condition in the write's own transaction. It costs no round
// trip, and no other write can come between the check and the write.
//
// A process that received a token with a request, and did not claim the key
// itself, uses [Bearer] as the holder.
//
// # What is not guaranteed
//
// The package does not stop clients that write to the same keys without it. A
// token shows that its bearer was given a claim, not that the bearer is
// authorized to write: see package fencing.
package etcdguard
