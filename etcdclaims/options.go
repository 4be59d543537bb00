package etcdclaims

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// AcquireOption shapes one acquiring call.
type AcquireOption interface{ apply(*acquireOptions) }

type acquireOptions struct {
	ttl        time.Duration
	manual     bool
	reentrant  bool
	supersede  bool
	barge      bool
	atMostOnce bool
	maxHold    time.Duration
	minHold    time.Duration
	cmps       []clientv3.Cmp
	ops        []clientv3.Op
	note       []byte // nil: none
}

type acquireOption func(*acquireOptions)

func (f acquireOption) apply(o *acquireOptions) { f(o) }

// TTL asks for another lease time than Config.TTL. Claims of one TTL share
// leases.
func TTL(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.ttl = d })
}

// Manual gives the claim a lease of its own that nobody renews but
// [Claim.Renew]: a heartbeat that proves progress rather than that the process
// lives. It costs two requests more and, on etcd's side, a lease per claim:
// etcd ends at most 1,000 leases a second.
func Manual() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.manual = true })
}

// Reentrant shares the claim if this client holds the key already: same term,
// same fence, given up with its last handle. Options of the later call are
// ignored then. Without it two goroutines of one client exclude each other.
func Reentrant() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.reentrant = true })
}

// Supersede begins a new term if this client holds the key already: the new
// claim has a greater fence, the old one is lost as Superseded at once, and its
// writes are refused.
func Supersede() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.supersede = true })
}

// Barge takes a free key even if others wait in line for it.
func Barge() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.barge = true })
}

// MaxHold ends the claim, however well it is renewed, when it is d old: its
// context ends a drain before that. For handlers that can hang.
func MaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.maxHold = d })
}

// MinHold keeps the key held by nobody, after an early release, until the claim
// would be d old, in full seconds: so that a peer whose clock is behind does
// not do again what was just done. It bounds nothing if the process dies.
func MinHold(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.minHold = d })
}

// If adds conditions to the acquiring transaction. Where they do not hold, the
// call ends with ErrRefused.
func If(cmps ...clientv3.Cmp) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.cmps = append(o.cmps, cmps...) })
}

// Then adds operations to the acquiring transaction: they are carried out if
// and only if the key is acquired by it. They are not undone with a claim that
// its caller gave up before it knew of it.
func Then(ops ...clientv3.Op) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.ops = append(o.ops, ops...) })
}

// Note sets the claim's note as Claim.Note does, in the acquiring transaction.
func Note(note []byte) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.note = append([]byte{}, note...) })
}

// AtMostOnce makes work, at Begin and TryBegin, that is never run again when
// its owner dies in the midst of it: it is dead then.
func AtMostOnce() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.atMostOnce = true })
}

// options puts the options together and checks them, without any request.
func (c *Client) options(opts []AcquireOption) (acquireOptions, error) {
	var o acquireOptions
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	if c.Passthrough() {
		if len(o.cmps)+len(o.ops) > 0 {
			return o, fmt.Errorf("%w: conditions and operations cannot be carried out", ErrPassthrough)
		}
		return o, nil
	}
	if o.ttl == 0 {
		o.ttl = c.cfg.TTL
	}
	if err := c.cfg.checkTTL(o.ttl); err != nil {
		return o, fmt.Errorf("etcdclaims: %w", err)
	}
	switch {
	case o.maxHold < 0 || o.minHold < 0:
		return o, fmt.Errorf("etcdclaims: MaxHold %v and MinHold %v must not be negative", o.maxHold, o.minHold)
	case o.maxHold > 0 && o.minHold > o.maxHold:
		return o, fmt.Errorf("etcdclaims: MinHold %v is greater than MaxHold %v", o.minHold, o.maxHold)
	case o.minHold > longestTTL:
		return o, fmt.Errorf("etcdclaims: MinHold %v is over the limit of %v", o.minHold, longestTTL)
	case o.reentrant && o.supersede:
		return o, fmt.Errorf("etcdclaims: Reentrant and Supersede exclude each other")
	}
	if err := checkNote(o.note); err != nil {
		return o, err
	}
	return o, c.checkOps(o.cmps, o.ops)
}

func checkNote(note []byte) error {
	if len(note) > MaxNoteBytes {
		return fmt.Errorf("%w: a note of %d bytes, the limit is %d: store it elsewhere and note where", ErrTooLarge, len(note), MaxNoteBytes)
	}
	return nil
}

// checkOps refuses what etcd would refuse, and what would change the package's
// own keys.
func (c *Client) checkOps(cmps []clientv3.Cmp, lists ...[]clientv3.Op) error {
	limit := max(int(c.store.opLimit.Load())-opsReserved, 0)
	if len(cmps) > limit {
		return fmt.Errorf("%w: %d conditions, the limit is %d", ErrTooLarge, len(cmps), limit)
	}
	size := 0
	for _, cmp := range cmps {
		size += len(cmp.KeyBytes()) + len(cmp.ValueBytes())
	}
	for _, ops := range lists {
		if len(ops) > limit {
			return fmt.Errorf("%w: %d operations, the limit is %d", ErrTooLarge, len(ops), limit)
		}
		for _, op := range ops {
			n, err := c.checkOp(op)
			if err != nil {
				return err
			}
			size += n
		}
	}
	if size > maxRequestBytes-bytesReserved {
		return fmt.Errorf("%w: %d bytes in keys and values, the limit is %d", ErrTooLarge, size, maxRequestBytes-bytesReserved)
	}
	return nil
}

// opsReserved is how many of the operations that etcd allows in a transaction
// the package may need for itself.
const opsReserved = 12

func (c *Client) checkOp(op clientv3.Op) (int, error) {
	if op.IsTxn() {
		_, then, els := op.Txn()
		size := 0
		for _, o := range append(then[:len(then):len(then)], els...) {
			n, err := c.checkOp(o)
			if err != nil {
				return 0, err
			}
			size += n
		}
		return size, nil
	}
	key, end := string(op.KeyBytes()), string(op.RangeBytes())
	if key == "" {
		return 0, fmt.Errorf("etcdclaims: an operation has an empty key")
	}
	if (op.IsPut() || op.IsDelete()) && c.store.layout.reserved(key, end) {
		return 0, fmt.Errorf("etcdclaims: an operation would change %q, which is under the prefix %q of the claims themselves", key, c.cfg.Prefix)
	}
	return len(key) + len(end) + len(op.ValueBytes()), nil
}
