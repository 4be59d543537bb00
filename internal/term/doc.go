// Package term is one ownership of one key, from the request that made the claim to its end: who shares it, the context of
// the work under it, its note, its verification, and how it is given up, handed over, moved or lost.
// It knows sessions by package lease, and those that wait for a key only by the interfaces [Next] and [Waiters].
//
// # Locks
//
// A goroutine that holds the mutex of a term takes only those of its session, of the registry and of the local line.
package term
