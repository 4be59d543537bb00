// Package fencing defines the fencing token that travels with a request. It also
// defines the gate, which refuses a request once a newer owner of its key has been
// seen. A token is a key and its fence, a number that rises with each exclusive owner
// of the key. Owners that share a key have the same fence.
//
// The package depends on nothing outside the standard library and this module. A resource
// that checks tokens links neither etcd nor gRPC.
//
//	token, err := fencing.Parse(r.Header.Get(fencing.Header))
//	if err != nil {
//		return err
//	}
//	if err := gate.Admit(ctx, token); err != nil {
//		return err // fencing.ErrStale: a newer owner has been admitted
//	}
//
// # The rule of gates
//
// For each key, a gate remembers the greatest fence that it has admitted. It
// refuses a lower fence. It admits an equal fence, because an owner may repeat
// itself. It admits and remembers a greater fence. It must not forget, not even
// when it restarts. [Memory] forgets when its process ends, and is therefore only an early
// reject.
//
// A gate on the etcd of the claims, as etcdguard is, remembers nothing. It reads the claim,
// and admits only the token of the present owner.
//
// # What is not guaranteed
//
// A token protects a write only if the resource compares its fence (Kleppmann, "How
// to do distributed locking", 2016). A token is not a secret: it puts honest owners in
// order, and does not authenticate them.
//
// A gate protects a write fully only if the check is part of the same step as the write:
// of one transaction (sqlguard, etcdguard) or one conditional write (objectguard). A gate
// that is not part of that step is only an early reject. A request can pass it, be
// delayed, and reach the data after a newer request.
//
// Fences can be compared only if they come from one etcd and one prefix of keys. Give
// each etcd and each prefix tables, objects or keys of its own for the fences that
// gates remember.
package fencing
