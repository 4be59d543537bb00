package etcdclaims

import (
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// AcquireOption changes one acquiring call. Each option names the calls that
// refuse it.
//
// A refused option returns an error before any request is sent.
type AcquireOption interface{ apply(*acquireOptions) }

type acquireOptions struct {
	ttl        time.Duration
	manual     bool
	reentrant  bool
	supersede  bool
	barge      bool
	atMostOnce bool
	again      []State
	maxHold    time.Duration
	minHold    time.Duration
	cmps       []clientv3.Cmp
	ops        []clientv3.Op
	note       []byte // nil: none

	// Of the call, which its caller has no say in:

	until  time.Time // when it ends, whatever its context allows; zero: never
	shares bool      // the answer to another call on the key may be its own
	ask    *ask      // what it has asked for itself and others, or nil

	observer Observer  // what follows the call, or nil
	inLine   time.Time // since when it stands in line; zero: it does not
}

type acquireOption func(*acquireOptions)

func (f acquireOption) apply(o *acquireOptions) { f(o) }

// workOption is an option that only calls that begin work accept.
type workOption struct{ acquireOption }

// WorkOnly tells code that does not know claims, such as middleware/jobs, to leave
// the option out of calls that only claim a key.
func (workOption) WorkOnly() bool { return true }

// TTL sets the lease time of the claim. Zero means Config.TTL. The bounds are
// those of Config.TTL.
//
// Claims with the same TTL share leases. A lease that has carried nothing for
// two TTLs is revoked.
func TTL(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.ttl = d })
}

// Manual gives the claim a lease of its own, which only [Claim.Renew] renews.
// Such a heartbeat proves that the work makes progress, not only that the
// process lives.
//
// Manual costs two more requests, and one lease per claim: etcd ends at most
// 1,000 leases a second. The claim begins with its full lease. A claim that
// was waited for is therefore renewed first, which takes two more round trips.
//
// TryAcquireAll and TryAcquireEach refuse Manual.
func Manual() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.manual = true })
}

// Reentrant shares the claim if this client already holds the key. Both claims
// then have the same term and fence, and the key is released with the last of
// them. The other options of the later call are ignored in that case.
//
// Without Reentrant two goroutines of one client exclude each other. Calls
// that begin work, TryAcquireAll and TryAcquireEach refuse it.
func Reentrant() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.reentrant = true })
}

// Supersede begins a new term if this client already holds the key. The new
// claim has a greater fence. The old claim is lost at once with
// ReasonSuperseded, and its writes are refused.
//
// Superseded work is begun as the next attempt. Previous then returns the
// record of the superseded attempt, in StateClaimed. Work that is AtMostOnce
// is not superseded: the call returns ErrHeld.
//
// TryAcquireAll and TryAcquireEach refuse Supersede.
func Supersede() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.supersede = true })
}

// Barge takes a free key even if other callers wait in line for it.
func Barge() AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.barge = true })
}

// MaxHold ends the claim when it is d old, even if it is renewed. The claim's
// context ends one drain (Config.Drain) earlier. Use it for handlers that can
// hang.
//
// Zero means no limit. Otherwise d must be longer than the drain.
func MaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.maxHold = d })
}

// MinHold keeps the key held after an early release, until the claim would be
// d old. It stops a peer whose clock is behind from repeating work that was
// just done. The time is rounded up to full seconds. Zero means that a release
// frees the key.
//
// The release moves the key to a lease of its own. That lease lapses when d is
// over, and no process needs to renew it. [Client.ReleaseAll] and
// [Client.Close] do the same. If the releasing context has ended, the move
// happens in the background, while the client renews the session's lease. Keys
// that are released together share leases, and may stay held for up to a
// sixteenth of the time longer.
//
// MinHold is not guaranteed if the process dies, or cannot reach etcd, before
// the key is moved. The key is then free when the session's lease lapses.
//
// Calls that begin work refuse MinHold.
func MinHold(d time.Duration) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.minHold = d })
}

// If adds conditions to the acquiring transaction. If one of them does not
// hold, the call returns ErrRefused and changes nothing.
//
// TryAcquireEach refuses If. A passthrough client returns ErrPassthrough.
func If(cmps ...clientv3.Cmp) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.cmps = append(o.cmps, cmps...) })
}

// Then adds operations to the acquiring transaction. They are carried out if
// and only if that transaction acquires the key. They are not undone if the
// caller gives up before the reply arrives, although the claim itself is.
//
// Operations must not change keys under the client's prefix, except in the
// subtrees sched/ and queue/. TryAcquireEach refuses Then. A passthrough client
// returns ErrPassthrough.
func Then(ops ...clientv3.Op) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.ops = append(o.ops, ops...) })
}

// Note sets the claim's note in the acquiring transaction, as Claim.Note does
// later. A note is at most MaxNoteBytes long; for a longer one the call
// returns ErrTooLarge.
//
// A call that begins work also stores the note in the record. It stays there
// until an attempt is begun with another note, so it also describes an orphan.
func Note(note []byte) AcquireOption {
	return acquireOption(func(o *acquireOptions) { o.note = append([]byte{}, note...) })
}

// AtMostOnce keeps work from being run again after its owner has died during
// an attempt: the work is dead instead. It holds as long as the record is
// kept; see Config.DeadRetention. Again and Client.Retry override it.
//
// Only calls that begin work accept AtMostOnce.
func AtMostOnce() AcquireOption {
	return workOption{func(o *acquireOptions) { o.atMostOnce = true }}
}

// Again begins work even if its record is in one of the states. The states are
// StateDone, StateDead, and StateFailed, whose NotBefore is then ignored. No
// states means all three.
//
// Attempt keeps rising. Config.MaxAttempts counts from here if the work was
// done or dead. Previous returns the earlier record with its result. The new
// attempt replaces that record: if the attempt fails or is given back, the
// work is no longer done.
//
// Only calls that begin work accept Again.
func Again(states ...State) AcquireOption {
	if len(states) == 0 {
		states = []State{StateDone, StateDead, StateFailed}
	}
	return workOption{func(o *acquireOptions) { o.again = append(o.again, states...) }}
}

func (o *acquireOptions) beginsAgain(s State) bool { return slices.Contains(o.again, s) }

// options puts the options together and checks them, without any request.
func (c *Client) options(opts []AcquireOption) (acquireOptions, error) {
	var o acquireOptions
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	for _, s := range o.again {
		if s != StateDone && s != StateDead && s != StateFailed {
			return o, fmt.Errorf("Again: work in state %q is begun without it, or not at all: the states are done, dead and failed", s)
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
	case o.maxHold > 0 && o.maxHold <= c.cfg.drain(o.ttl):
		return o, fmt.Errorf("etcdclaims: MaxHold %v is not longer than the drain of %v (Config.Drain) in which its handler is to stop", o.maxHold, c.cfg.drain(o.ttl))
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

// forClaim refuses what only makes sense with a record of work.
func (o *acquireOptions) forClaim() error {
	if o.atMostOnce {
		return errors.New("etcdclaims: AtMostOnce is for work, of which etcd keeps a record: use Begin or TryBegin")
	}
	if len(o.again) > 0 {
		return errors.New("etcdclaims: Again is for work, of which etcd keeps a record: use Begin or TryBegin")
	}
	return nil
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
	limit := max(c.store.MaxOps()-opsReserved, 0)
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
