// Package fencing defines the fencing token that travels with a request, and the
// gate that refuses a request once a newer owner of its key has been seen.
//
// The package imports only the standard library. A resource that checks tokens
// links neither etcd nor gRPC.
//
//	token, err := fencing.Parse(r.Header.Get(fencing.Header))
//	if err != nil {
//		return err
//	}
//	if err := gate.Admit(ctx, token); err != nil {
//		return err // fencing.ErrStale: a newer owner has been admitted
//	}
//
// # The rule of every gate
//
// For each key, a gate remembers the greatest fence that it has admitted. It
// refuses a lower fence. It admits an equal fence, because an owner may repeat
// itself. It admits and remembers a greater fence. It never forgets, not even
// when it restarts.
//
// # What is not guaranteed
//
// A token protects only what the resource checks. A write that does not compare
// the fence is not protected (Kleppmann, "How to do distributed locking", 2016).
// A token is not a secret: it puts honest owners in order, and does not
// authenticate anybody.
//
// A gate protects a write fully only if the newest fence changes together with
// the write. That takes one transaction (sqlguard, etcdguard) or one conditional
// write (objectguard). A gate apart from the write, such as [Memory], is only an
// early reject. A request can pass it, be delayed, and reach the data after a
// newer request.
package fencing
