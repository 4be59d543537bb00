// Package fencing has the token that travels with a request, and the gate that
// refuses the request once a newer owner of its key was there.
//
// It imports the standard library only: a resource that checks tokens links
// neither etcd nor gRPC.
//
// # What it does not do
//
// A token proves nothing by itself. It is worth what the resource checks: a
// write that does not compare the fence is not protected by it (Kleppmann, "How
// to do distributed locking", 2016). A token is not a secret either: it orders
// honest owners, one of which may be late, and does not keep out those who lie.
//
// A gate protects a write fully only if the newest fence it remembers changes
// together with the write: in one transaction (sqlguard, etcdguard) or one
// conditional write (objectguard). A gate apart from the write, such as Memory,
// rejects early what is already known to be late, and that is all: a request can
// pass it, be delayed, and reach the data after a newer one.
//
// # The rule of every gate
//
// Per key, remember the greatest fence that was admitted. Refuse a lower one,
// admit an equal one, since an owner may repeat itself, and admit and remember a
// greater one. Never forget, not by a restart either.
package fencing
