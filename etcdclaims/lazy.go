package etcdclaims

// LazyRelease makes [Claim.Release] return without waiting for etcd. The client sends the request that deletes the key
// together with its next acquisition or release, or after 20 ms if it makes no other call. A cycle of acquiring and
// releasing then takes one round trip instead of two. Use it for short claims on keys that few callers compete for.
//
// Release ends the claim locally and returns nil: [Claim.Check] returns ErrReleased, the claim's context ends, and TermEnded
// of [Hooks] is called. The claim is not lost. Calls of this client that acquire the key find it free. If TryAcquire or
// Acquire asks for the key before it is deleted, one request ends the old term and begins the new one. Callers in line come
// first.
//
// In two cases a call of this client can return a [HeldError] that names the released claim. A call with If or Then,
// TryAcquireAll and TryAcquireEach can do so while a request that begins the new term is under way. Any call can if the first
// deletion has not freed the key: its reply was lost, or callers are in line.
//
// A [Claim.Txn] that is under way when Release returns can still be carried out until the key is deleted. The key has no
// other owner until then.
//
// Other clients, and [Client.Lookup], find the key held for up to 20 ms longer. Until then TryAcquire of another client
// returns ErrHeld. A client that polls with TryAcquire may never find the key free while this client acquires it again each
// time. A caller of another client that joins the line is not passed, and gets the key when it is deleted. Release does not delay
// the request if the client knows a waiter: a caller of its own, or the next caller in a line from which it got the key.
// The same holds if the client had to wait when it last acquired the key, and if the context of Release has gRPC metadata.
//
// The client renews the lease until the key is deleted. If the process dies before that, the key stays held until the lease
// expires. If the session is lost before that, the key is free by then. A request that fails is repeated until the key is
// free. It is logged, and ReleaseFailed of [Hooks] is called.
//
// [Client.Close] and [Client.ReleaseAll] send delayed requests at once, and Close waits for them. At most 256 are delayed at
// a time. [Client.Run], and middleware that is given the option, release in the same way. [Claim.ReleaseWith] always waits
// for etcd. With [Reentrant] the option of the call that began the term counts, when the last handle is released.
//
// LazyRelease excludes Slots, Shared, Manual, MinHold and Prefer. A passthrough client ignores the option.
func LazyRelease() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.Lazy = true; o.give(optionLazy, true) }}
}
