package etcdclaims

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/option"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// AcquireOption is an option of the calls that claim one key: [Client.Acquire],
// [Client.TryAcquire], [Client.Run] and [Client.TryRun].
//
// An option is accepted by the calls that its type names, and does not compile
// with any other. A call whose options are invalid, or exclude each other, returns
// an error before it sends any request. Slots cannot be combined with Shared, Reentrant
// or Supersede. Shared cannot be combined with Slots, Reentrant or Supersede. Reentrant
// cannot be combined with Supersede. MinHold must not be longer than MaxHold. Suspectable
// cannot be combined with Slots, Shared, Manual, MinHold, If or Then. Prefer
// cannot be combined with Slots, Shared, If, Then or Note. LazyRelease cannot be combined
// with Slots, Shared, Manual, MinHold or Prefer.
//
// If an option is given twice, the last one counts. Those of If and Then add up. A nil option changes nothing.
type AcquireOption = option.AcquireOption

// AllOption is an option of [Client.TryAcquireAll].
type AllOption = option.AllOption

// ManyOption is an option of [Client.TryAcquireEach] and [Client.TryAcquireAll].
type ManyOption = option.ManyOption

// Option is an option of every acquiring call.
type Option interface {
	AcquireOption
	option.WorkOption
	ManyOption
}

// KeyOption is an option of the calls that acquire one key, in this package and in package work.
type KeyOption interface {
	AcquireOption
	option.WorkOption
}

// TxnOption is an option of every call that makes claims in one transaction: of all
// but [Client.TryAcquireEach].
type TxnOption interface {
	AcquireOption
	option.WorkOption
	AllOption
}

// ClaimOption is an option of every call of this package that makes a claim.
type ClaimOption interface {
	AcquireOption
	ManyOption
}

// The types of options have one mark for each call that accepts them, and no other:
// a type assertion cannot make a wrong pair either.
type (
	anyOption struct {
		setter
		option.ForAcquire
		option.ForWork
		option.ForMany
	}
	keyOption struct {
		setter
		option.ForAcquire
		option.ForWork
	}
	txnOption struct {
		setter
		option.ForAcquire
		option.ForWork
		option.ForAll
	}
	claimOption struct {
		setter
		option.ForAcquire
		option.ForMany
	}
	acquireOption struct {
		setter
		option.ForAcquire
	}
)

// setter sets what the option is about.
type setter func(*acquireOptions)

func (f setter) set(o *acquireOptions) { f(o) }

// acquireOptions is what an acquiring call wants, and what of that was given as options.
type acquireOptions struct {
	acquire.Call
	kind   kind      // alone, unless an option of its own was given
	ownKey bool      // the caller is a package of this module, and the key is kept for it
	given  optionSet // which options of optionNames
	clash  kind      // that was given beside kind, or nil
}

// TTL sets the lease time of the claim. Zero means Config.TTL. The bounds are
// those of Config.TTL.
//
// Claims with the same TTL share leases. The TTL of a claim or of work never changes: etcd
// cannot change that of a lease, and another lease needs another fence, which ends the
// term. The client renews the claim for as long as it is held. For heartbeats with durations
// of the caller's choice use package etcdclaims/locks or the queue, which raise the fence.
func TTL(d time.Duration) Option {
	return anyOption{setter: func(o *acquireOptions) { o.TTL = d; o.give(optionTTL, d != 0) }}
}

// Manual gives the claim a lease of its own, which only [Claim.Renew] renews.
// Such a heartbeat proves that the work makes progress, not only that the
// process lives.
//
// Manual costs two more requests, and one lease per claim. etcd ends at most
// 1,000 leases a second, so the keys of more Manual claims whose processes die
// at once are freed late. After a wait the claim is renewed first, so that it
// begins with its full lease. That takes two more round trips.
func Manual() KeyOption {
	return keyOption{setter: func(o *acquireOptions) { o.Manual = true; o.give(optionManual, true) }}
}

// Reentrant shares the claim if this client already holds the key. Both handles
// then have the same term and fence, and the key is released when the last is
// released. The other options of the later call are ignored in that case. A call
// that waits for the key shares the claim as soon as another call of this client
// has acquired it.
//
// Without Reentrant two goroutines of one client exclude each other. Reentrant
// together with Supersede is an error.
func Reentrant() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.Reentrant = true; o.give(optionReentrant, true) }}
}

// Supersede begins a new term if this client already holds the key. The new
// claim has a greater fence. The old claim is lost at once with
// ReasonSuperseded, and its writes are refused. If the client is still releasing
// an earlier claim on the key, the call waits for that until its own time limit.
//
// For work, the new claim is the next attempt. Work.Previous then returns the record of the
// superseded attempt. Work that is AtMostOnce is not superseded: the call returns ErrHeld.
func Supersede() KeyOption {
	return keyOption{setter: func(o *acquireOptions) { o.Supersede = true; o.give(optionSupersede, true) }}
}

// MaxHold ends the claim when it is d old, even if it is renewed. The claim's context
// ends one drain (Config.Drain) earlier. Use it for handlers that can hang. Time in which
// the machine is suspended counts.
//
// Zero means no limit. Otherwise d must be longer than the drain.
func MaxHold(d time.Duration) Option {
	return anyOption{setter: func(o *acquireOptions) { o.MaxHold = d; o.give(optionMaxHold, d != 0) }}
}

// Progress ends the claim of a handler that makes no progress: one that hangs loses its key although its
// process lives, and renews. The handler calls [Claim.Beat] whenever it has done a step. The
// claim's context ends when it has not done so for longer than within, counted from the grant
// of the claim. One drain (Config.Drain) later the claim is lost, with ReasonNoProgress, unless it was released
// before. Its key stays held by nobody for one TTL more, because the handler may still run.
//
// Time in which the machine is suspended counts. Zero means that no beats are expected. within
// must not be longer than 365 days. [Client.Run] and [Client.TryRun] do not give their function the claim: use
// [Client.Acquire] and [Claim.Run].
func Progress(within time.Duration) Option {
	return anyOption{setter: func(o *acquireOptions) { o.Progress = within; o.give(optionProgress, within != 0) }}
}

// MinHold keeps the key held after an early release, until d after the claim began. It
// keeps a peer whose clock is behind from repeating work that was just done. The time is
// rounded up to full seconds. Zero means that a release frees the key. d must not be
// longer than 365 days, nor than MaxHold if that is set.
//
// The release moves the key to a lease of its own. That lease lapses when d is over, and
// no process needs to renew it. [Client.ReleaseAll] and [Client.Close] do the same. If
// the context given to Release has ended, or etcd has no space for the move, the move
// happens in the background. The client renews the session's lease until then. Keys that
// are released together share leases, and may stay held for up to a sixteenth of the time
// longer.
//
// MinHold is not guaranteed if the process dies, or cannot reach etcd, before the key is
// moved. The key is then free when the session's lease lapses.
func MinHold(d time.Duration) ClaimOption {
	return claimOption{setter: func(o *acquireOptions) { o.MinHold = d; o.give(optionMinHold, d != 0) }}
}

// If adds conditions to the acquiring transaction. If one of them does not
// hold, the call returns ErrRefused and changes nothing.
//
// A passthrough client returns ErrPassthrough.
func If(cmps ...clientv3.Cmp) TxnOption {
	return txnOption{setter: func(o *acquireOptions) { o.If = append(o.If, cmps...); o.give(optionIf, len(o.If) > 0) }}
}

// Then adds operations to the acquiring transaction. They are carried out if
// and only if that transaction acquires the key. They are not undone if the
// caller gives up before the reply arrives, although the claim itself is.
//
// Operations must not change keys under the client's prefix, except in the
// subtrees sched/ and queue/. A passthrough client returns ErrPassthrough.
func Then(ops ...clientv3.Op) TxnOption {
	return txnOption{setter: func(o *acquireOptions) { o.Then = append(o.Then, ops...); o.give(optionThen, len(o.Then) > 0) }}
}

// Note sets the claim's note in the acquiring transaction, as Claim.Note does later. A
// note is at most MaxNoteBytes long; for a longer one the call returns ErrTooLarge.
//
// A call of package work also stores the note in the record. The note stays there until
// an attempt is begun with another note, so the record of an orphan has it too.
func Note(note []byte) Option {
	return anyOption{setter: func(o *acquireOptions) { o.Note = append([]byte{}, note...); o.give(optionNote, true) }}
}

// optionsOf puts the options of a call of the client together and checks them,
// without any request. A nil option changes nothing.
func optionsOf[O any](c *Client, opts []O) (*acquireOptions, error) {
	o := &acquireOptions{kind: alone{}}
	if err := c.refusal(); err != nil {
		return o, err
	}
	for _, opt := range opts {
		switch s := any(opt).(type) {
		case interface{ set(o *acquireOptions) }:
			s.set(o)
		case option.OwnKey:
			o.ownKey = true
		case option.Concern:
			o.Concern = s.Names
		case option.Labels:
			o.Labels = s.Labels
		case beside.Option:
			o.Beside = s.Companion
		case nil:
		default: // a type that embeds one of the interfaces
			return o, fmt.Errorf("etcdclaims: %T is not an option of this package", opt)
		}
	}
	o.Kind = o.kind
	return o, c.checkOptions(o)
}

// checkKey returns why the key is invalid or not for the caller to claim, or nil.
func (o *acquireOptions) checkKey(key string) error {
	if err := validKey(key); err != nil || o.ownKey {
		return err
	}
	return foreignKey(key)
}

// checkOptions checks options, and sets the defaults of those that were not given.
func (c *Client) checkOptions(o *acquireOptions) error {
	if o.Preference < 0 {
		return fmt.Errorf("etcdclaims: Prefer %d is negative", o.Preference)
	}
	if err := o.checkTogether(); err != nil {
		return err
	}
	if c.Passthrough() {
		if len(o.If)+len(o.Then) > 0 {
			return fmt.Errorf("%w: conditions and operations cannot be carried out", ErrPassthrough)
		}
		return nil
	}
	if o.TTL == 0 {
		o.TTL = c.cfg.TTL
	} else if err := c.cfg.checkTTL(o.TTL); err != nil {
		return fmt.Errorf("etcdclaims: %w", err)
	}
	switch {
	case o.MaxHold < 0:
		return fmt.Errorf("etcdclaims: MaxHold %v is negative", o.MaxHold)
	case o.MinHold < 0:
		return fmt.Errorf("etcdclaims: MinHold %v is negative", o.MinHold)
	case o.Progress < 0:
		return fmt.Errorf("etcdclaims: Progress %v is negative", o.Progress)
	case o.MaxHold > 0 && o.MaxHold <= c.cfg.drain(o.TTL):
		return fmt.Errorf("etcdclaims: MaxHold %v is not longer than the drain of %v (Config.Drain) in which its handler is to stop", o.MaxHold, c.cfg.drain(o.TTL))
	case o.MaxHold > 0 && o.MinHold > o.MaxHold:
		return fmt.Errorf("etcdclaims: MinHold %v is greater than MaxHold %v", o.MinHold, o.MaxHold)
	case o.MinHold > longestTTL:
		return fmt.Errorf("etcdclaims: MinHold %v is over the limit of %v", o.MinHold, longestTTL)
	case o.Progress > longestTTL:
		return fmt.Errorf("etcdclaims: Progress %v is over the limit of %v", o.Progress, longestTTL)
	}
	if len(o.Note) > MaxNoteBytes {
		return noteTooLarge(o.Note)
	}
	if !o.HasOps() {
		return nil
	}
	return c.checkOps(o.If, o.Then)
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
	if (op.IsPut() || op.IsDelete()) && c.store.Layout.Reserved(key, end) {
		return 0, fmt.Errorf("etcdclaims: an operation would change %q, which is under the prefix %q of the claims themselves", key, c.cfg.Prefix)
	}
	return len(key) + len(end) + len(op.ValueBytes()), nil
}
