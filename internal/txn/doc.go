// Package txn carries out transactions on etcd that do not depend on each other,
// many to a round trip. It has four parts:
//
//   - A [Request] is one transaction with what the package must know to let it share
//     a round trip. Its protobuf message is its only representation.
//   - A [Batcher] is group commit. A request that finds nothing under way is sent at
//     once. Requests that arrive meanwhile share the next round trip, in which each
//     succeeds or fails by itself.
//   - The outcome of a request is done, refused or unknown. [Outcome] turns an error
//     of etcd into one that matches [ErrUnknown] if the request may have been carried
//     out. [Judge] is the verdict on each error of etcd, and of the way to it.
//   - A [Sender] sends a transaction to etcd once.
//
// [Ops] gives the operations of a transaction handles, by which its [Reply] is asked. [Asks]
// lets callers share a request.
//
// The package knows nothing of claims.
package txn
