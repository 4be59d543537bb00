// Package serve is "claimctl serve": programs in any language hold claims, guard their
// writes and take items of queues by HTTP and JSON, on a unix socket or a loopback port.
//
// What a program holds is a lease: a claim, or an item of a queue. It ends when the
// program ends it, when the program has sent no heartbeat for the lease's ttl, when it is
// lost in etcd, and when a watch with hold is closed. So a program that died loses its
// leases within their ttl. A program that was stopped meanwhile is refused afterwards.
//
// The time for which a lease remains is computed for each answer, after the heartbeat was
// noted. A program counts it from before it sent its request, by a clock that runs on while the
// machine sleeps. So its deadline is never later than that of the server, which in turn is
// that of the claim in etcd at most.
//
// The id of a lease names it. Its fencing token proves that a program holds it: a request with
// the token of another lease is refused, and one that writes must have a token.
//
// openapi.yaml describes the API.
package serve
