// Package etcdguard makes writes to etcd that are carried out only while their
// token is the newest of its key.
//
// The check is a condition in the write's own transaction, so it costs no round
// trip, and nothing can come between the two. NewKV wraps a clientv3.KV, so that
// code written for one is guarded without a change:
//
//	kv := etcdguard.NewKV(etcd, claim)
//	_, err := kv.Put(ctx, "/orders/42/state", "shipped") // ErrStale once another owns the claim
//
// A process that did not claim the key itself, but was sent a token, guards with
// Bearer.
//
// # What is not guaranteed
//
// Who writes to the same keys past this package is not stopped. A token tells
// that a claim was its bearer's, not that the bearer may write: see fencing.
package etcdguard
