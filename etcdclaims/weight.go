package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A claim with Weight has several slots of its key. Each is a term of its own, with a fence,
// a guard and a verification of its own, so that every rule for claims holds for each slot.
// One transaction takes all slots, and one gives them up. If one slot is lost, so are all.

// MaxWeight is the largest number of slots that one claim can have.
const MaxWeight = 64

// Weight makes a claim with [Slots] take k slots in one transaction: all of them or none.
// [Claim.Slots] returns their numbers. The default is 1.
//
// The caller has one place in line. It is first come, first served: once the caller is the
// first in line, no other caller takes a slot until k slots are free at the same time. So a
// caller with a large weight can wait for long, but not for ever. The callers behind it
// wait with it although slots are free. Only callers with Barge get ahead.
//
// [Claim.Key], [Claim.Token], [Claim.Fence] and [Claim.Owns] are about one of the slots, the
// one with the lowest number. Fence effects with that token. If one of the
// slots is lost, as by [Client.ForceRelease], the whole claim is lost, as soon as the client
// notices. The other slots then stay held for a TTL, since a handler may still use them. A
// release frees all slots in one transaction: the first of them is handed over, and the callers
// in line take the others one after the other. [Stats.Held] and other numbers of held claims count
// each slot.
//
// k must be between 1 and the number of slots, and not greater than MaxWeight. A waiting call
// returns ErrSlots if Resize makes the key smaller than its weight. Weight requires Slots.
func Weight(k int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.weight, o.weighted = k, true }}
}

// checkSlots checks Slots and Weight beside other options.
func (o *acquireOptions) checkSlots(c *Client) error {
	s := o.slots
	switch {
	case s == nil && o.weighted:
		return errors.New("etcdclaims: Weight requires Slots")
	case s == nil:
		return nil
	case o.reentrant || o.supersede:
		return errors.New("etcdclaims: Slots excludes Reentrant and Supersede: a client can hold several slots")
	}
	if err := checkSlots(s.n, 1); err != nil {
		return err
	}
	s.weight = 1
	if !o.weighted {
		return nil
	}
	if s.weight = o.weight; s.weight < 1 || s.weight > min(s.n, MaxWeight) {
		return fmt.Errorf("etcdclaims: weight %d: want 1 to %d", s.weight, min(s.n, MaxWeight))
	}
	if c.Passthrough() {
		return nil
	}
	more := max(len(o.cmps), len(o.ops))
	if limit := c.store.MaxOps() - opsReserved; s.weight+more > limit {
		return fmt.Errorf("%w: weight %d and %d conditions or operations, the limit is %d in all", ErrTooLarge, s.weight, more, limit)
	}
	return nil
}

// places returns how many claims the call takes.
func (o *acquireOptions) places() int {
	if o.slots == nil {
		return 1
	}
	return o.slots.weight
}

// Slots returns the numbers of the slots that the claim has, in ascending order: one, or as
// many as its Weight. It returns nil for a claim without Slots. The claim of a passthrough
// client has the slots from 0 on.
func (cl *Claim) Slots() []int {
	if cl.t == nil {
		var all []int
		for i := range cl.weight {
			all = append(all, int(i))
		}
		return all
	}
	if cl.t.slots == nil {
		return nil
	}
	return append([]int{cl.t.slots.i}, cl.t.slots.also...)
}

// choose makes slots the ones that are tried, or were taken.
func (s *slots) choose(of []int) {
	of = slices.Sorted(slices.Values(of))
	s.i, s.also = of[0], of[1:]
}

// chooseFree makes some of the free slots, as many as the weight, the ones that are tried next.
func (s *slots) chooseFree(free []int) {
	if s.weight == 1 {
		s.i = free[rand.N(len(free))]
		return
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	s.choose(free[:s.weight])
}

// alsoFree are the conditions that the further slots of an attempt are free.
func (a *attempt) alsoFree() []*pb.Compare {
	if a.slots == nil {
		return nil
	}
	cmps := make([]*pb.Compare, len(a.slots.also))
	for n, key := range a.alsoHeld() {
		cmps[n] = txn.CreatedAt([]byte(a.s.c.store.layout.own(key)), 0)
	}
	return cmps
}

// alsoHeld returns the keys of the further slots.
func (a *attempt) alsoHeld() []string {
	keys := make([]string, len(a.slots.also))
	for n, i := range a.slots.also {
		keys[n] = SlotKey(a.slots.key, i)
	}
	return keys
}

// takesAlso claims the further slots.
func (a *attempt) takesAlso() (ops []*pb.RequestOp) {
	if a.slots == nil {
		return nil
	}
	for _, key := range a.alsoHeld() {
		ops = append(ops, txn.Put([]byte(a.s.c.store.layout.own(key)), a.value, a.s.id))
	}
	return ops
}

// foundSlots makes the slots that the attempt was found to have, by claims that were read, its
// own. It returns the claim on the first.
func (a *attempt) foundSlots(kvs []*mvccpb.KeyValue) (first *mvccpb.KeyValue) {
	var has []int
	for _, kv := range kvs {
		if i := a.slots.number(kv.Key, a.s.c.store.layout); i >= 0 && a.mine(kv) > 0 {
			has = append(has, i)
			if i == slices.Min(has) {
				first = kv
			}
		}
	}
	if len(has) > 0 {
		a.slots.choose(has)
		a.key = a.slots.held()
	}
	return first
}

// bundle has the terms of one claim with Weight. The first is that of the claim.
type bundle struct {
	terms []*term // guarded by the mutex of their session
}

// newBundle makes the term of a granted attempt, and with Weight those of its further slots.
// It returns nil if the session died meanwhile, or the client is being closed.
func (a *attempt) newBundle(fence int64) *term {
	if a.slots == nil || a.slots.weight == 1 {
		return a.s.newTerm(a, a.key, fence)
	}
	a.bundle = new(bundle)
	t := a.s.newTerm(a, a.key, fence)
	if t != nil && a.newOthers(fence) {
		return t
	}
	made := a.s.bundled(a.bundle)
	for _, o := range made {
		o.finish(ErrReleased)
	}
	a.s.again(len(made)) // for the caller, which gives them back
	return nil
}

// newOthers makes the terms of the further slots. It reports false where newBundle returns nil.
func (a *attempt) newOthers(fence int64) bool {
	bare := *a.opts
	bare.maxHold, bare.note = 0, nil
	for n, key := range a.alsoHeld() {
		switch before := a.s.c.keys.term(key); {
		case before == nil:
		case before.fence > fence: // the slot was taken away, and this client has claimed it anew
			continue
		default: // taken away without this client noticing yet
			before.lose(ReasonSuperseded, nil)
		}
		one := a.copied()
		one.key, one.opts, one.slots.i, one.slots.also, one.observer = key, &bare, a.slots.also[n], nil, nil
		if a.s.newTerm(one, key, fence) == nil {
			return false
		}
	}
	return true
}

func (s *session) bundled(b *bundle) []*term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(b.terms)
}

// others returns the other terms of the same claim.
func (t *term) others() []*term {
	if t.bundle == nil {
		return nil
	}
	return slices.DeleteFunc(t.s.bundled(t.bundle), func(o *term) bool { return o == t })
}

// places returns how many places in its session the claim has taken.
func (t *term) places() int { return 1 + len(t.others()) }

// loseTaken ends a claim if a slot of it is missing already, or if a notice that it, or one of
// its slots, was taken away has overtaken the reply. No caller has worked under it: the undo of
// the attempt frees the rest.
func (t *term) loseTaken(a *attempt) {
	others := t.others()
	why, lost := t.s.c.keys.taken(t.id, t.key)
	for _, o := range others {
		if more, ok := t.s.c.keys.taken(o.id, o.key); ok && !lost {
			why, lost = more, ok
		}
	}
	if t.bundle != nil && 1+len(others) < a.slots.weight && !lost {
		why, lost = taking{reason: ReasonDeleted}, true
	}
	if lost {
		t.finishOthers()
		t.lose(why.reason, why.err)
	}
}

// silent reports whether the term is of a further slot: hooks and logs report only the
// claim's first.
func (t *term) silent() bool {
	if t.bundle == nil {
		return false
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.silentLocked()
}

func (t *term) silentLocked() bool { return t.bundle != nil && t.bundle.terms[0] != t }

// loseOthers ends the other terms of a claim of which one was lost. A handler may still use
// their slots, so they stay held for a TTL, as those of a zombie. Terms that are being released
// already are left to that release.
func (t *term) loseOthers(reason Reason, cause error) {
	c := t.s.c
	for _, o := range t.others() {
		c.keys.register(o.id) // no ghost, though the term has ended
		if o.lose(reason, cause) {
			c.rehome(o)
		}
		c.keys.unregister(o.id)
	}
}

// beginOthers is beginForGood for the other terms of the claim. It returns those that are not
// being given up already.
func (t *term) beginOthers() (begun []*term) {
	for _, o := range t.others() {
		if o.beginForGood() == nil {
			begun = append(begun, o)
		}
	}
	return begun
}

// finishOthers ends the other terms of a claim that its caller never got, and whose slots are
// freed with it.
func (t *term) finishOthers() {
	for _, o := range t.beginOthers() {
		o.finish(ErrReleased)
	}
}

// leavingWhole is leaving for all slots of the claim that the term is the first of.
func (t *term) leavingWhole() *pb.TxnRequest {
	in := t.leaving()
	in.Success = append(in.Success, t.freesOthers()...)
	return in
}

// freesOthers frees the further slots with the first.
func (t *term) freesOthers() (ops []*pb.RequestOp) {
	for _, o := range t.others() {
		own := []byte(t.s.c.store.layout.own(o.key))
		ops = append(ops, txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ModifiedAt(own, revision(o.fence)), txn.OnLease(own, t.s.id)},
			Success: []*pb.RequestOp{txn.Delete(own)},
		}))
	}
	return ops
}

// restTogether is rest for all terms of the claim.
func (t *term) restTogether(ctx context.Context) error {
	var all sync.WaitGroup
	for _, o := range t.beginOthers() {
		all.Go(func() { _ = o.rest(ctx) }) // the rest of the claim's first term returns the error
	}
	err := t.rest(ctx)
	all.Wait()
	return err
}
