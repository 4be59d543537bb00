package txn

import "sync/atomic"

// Lowest limits that a batcher assumes unless Config.Limits has others.
const (
	// LeastOps is less than any sensible limit of etcd for the operations of a
	// transaction.
	LeastOps = 8
	// leastBytes is less than one request may take.
	leastBytes = 16 << 10
)

// Limits are what a server accepts in one request, as far as known. They are lowered
// when the server refuses a request for its size, but not below the lowest.
type Limits struct {
	ops, bytes            atomic.Int64
	lowestOps, lowestByte int
}

// NewLimits returns limits that are ops and bytes at first, and never lower than the
// least ones.
func NewLimits(ops, bytes, leastOps, leastBytes int) *Limits {
	l := &Limits{lowestOps: leastOps, lowestByte: leastBytes}
	l.ops.Store(int64(ops))
	l.bytes.Store(int64(bytes))
	return l
}

// MaxOps returns the server's limit for the operations of a transaction, as far as
// known.
func (l *Limits) MaxOps() int { return int(l.ops.Load()) }

// MaxBytes returns the server's limit for the bytes of a request, as far as known.
func (l *Limits) MaxBytes() int { return int(l.bytes.Load()) }

// FewerOps lowers the limit after the server refused a transaction of n operations.
func (l *Limits) FewerOps(n int) { lower(&l.ops, n, l.lowestOps) }

func (l *Limits) fewerBytes(n int) { lower(&l.bytes, n, l.lowestByte) }

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
