package txn

import "sync/atomic"

const (
	// LeastOps is less than any sensible limit of etcd for the operations of a
	// transaction.
	LeastOps = 8
	// leastBytes is less than one request may take.
	leastBytes = 16 << 10
)

// limits are what a server accepts in one request, as far as known. They are lowered
// when the server refuses a request for its size.
type limits struct{ ops, bytes atomic.Int64 }

// MaxOps returns the server's limit for the operations of a transaction, as far as
// known.
func (l *limits) MaxOps() int { return int(l.ops.Load()) }

// FewerOps lowers the limit after the server refused a transaction of n operations.
func (l *limits) FewerOps(n int) { lower(&l.ops, n, LeastOps) }

func (l *limits) fewerBytes(n int) { lower(&l.bytes, n, leastBytes) }

// lower halves a limit until it is below the size that was refused. Several
// refusals of one size, at the same time, lower it once.
func lower(limit *atomic.Int64, refused, least int) {
	for {
		have := limit.Load()
		now := have
		for now >= int64(refused) && now > int64(least) {
			now = max(now/2, int64(least))
		}
		if now == have || limit.CompareAndSwap(have, now) {
			return
		}
	}
}
