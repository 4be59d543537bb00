package queue

import (
	"slices"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// itemsPerRequest is how many items share a transaction at most, below etcd's
	// default limit of 128 operations with room for what they need beside.
	itemsPerRequest = 64
	// bytesPerRequest bounds a transaction below etcd's default limit of 1.5 MiB.
	bytesPerRequest = 1400 << 10
	// defaultOps is etcd's default for --max-txn-ops.
	defaultOps = 128

	// How many operations the nested transaction of an item has, which etcd counts
	// together with the outer ones. What an operator does has one more outside, its record.
	opsToEnqueue = 2
	opsToClaim   = 5
	opsToMove    = 5
	opsToPurge   = 3 + 1
	opsToRedrive = 4 + 1

	// opsOfGuard are the conditions of the session's claim, and of the generation.
	opsOfGuard = 4
)

// requestSize is what the server accepts in one transaction, as far as known. A server
// with a lower --max-txn-ops refuses a request that is too large as a whole; then the
// limit is lowered, and the request made again with fewer items.
type requestSize struct{ *txn.Limits }

func newRequestSize() requestSize {
	return requestSize{txn.NewLimits(defaultOps, bytesPerRequest, txn.LeastOps, 1)}
}

// items returns how many items fit into one transaction, each with so many operations
// in a nested one, beside two more operations.
func (r requestSize) items(nested int) int {
	return max(1, min(itemsPerRequest, r.MaxOps()-nested-2))
}

// refusedItems is refused for a transaction of so many items, each with so many operations in a
// nested one.
func (r requestSize) refusedItems(err error, items, nested int) bool {
	return r.refused(err, items+nested+2)
}

// refused lowers the limit if the error is that a transaction has too many operations,
// n with the widest nested one. It reports whether a smaller one makes sense.
func (r requestSize) refused(err error, n int) bool {
	if !txn.IsTooManyOps(err) || n <= txn.LeastOps {
		return false
	}
	r.FewerOps(n)
	return true
}

// fitting returns the first items that one request can move: their histories may be long.
func fitting[T any](items []T, size func(T) int) []T {
	sum := 0
	for i, it := range items {
		if sum += size(it); i > 0 && sum > bytesPerRequest {
			return items[:i]
		}
	}
	return items
}

// movable is how many items are moved with one request.
func (r requestSize) movable() int { return min(itemsPerRequest/2, r.items(opsToMove)) }

// movedSize bounds what a request needs to move an item.
func movedSize(kv *mvccpb.KeyValue) int { return len(kv.Value) + 8*item.MaxErrorBytes }

// distinct returns the items without those whose id an earlier one has. etcd puts no key
// twice in one transaction.
func distinct[T any](items []T, id func(T) string) []T {
	ids := make(map[string]bool, len(items))
	return slices.DeleteFunc(slices.Clone(items), func(it T) bool {
		again := ids[id(it)]
		ids[id(it)] = true
		return again
	})
}
