package etcdclaims

import (
	"context"
	"strings"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key that has slots, or is shared, has a record in the place of its claim. A call for
// such a key requires the record that it knows. If it knows none, it requires that there is
// none, and puts it. A refused call reads the record, and learns from it what to try next.

// readsRecord reports whether the attempt is one for a slot, or for a shared claim.
func (a *attempt) readsRecord() bool { return a.slots != nil || a.shared != nil }

// recorded is the condition that the record is as it is known.
func (a *attempt) recorded(l layout) *pb.Compare {
	if a.slots != nil {
		return a.slots.recorded(l)
	}
	return a.shared.recorded(l)
}

// putsRecord returns the record that the attempt puts, or "".
func (a *attempt) putsRecord() string {
	switch {
	case a.slots != nil && a.slots.unset:
		return a.slots.record()
	case a.shared != nil && a.shared.rev == 0:
		return a.sharedRecord()
	}
	return ""
}

// token names the claim that the attempt has got, which etcd has with the fence.
func (a *attempt) token(fence int64) fencing.Token {
	if a.shared == nil {
		return tokenOf(a.key, fence)
	}
	if a.shared.rev != 0 {
		fence = a.epoch.Fence(a.shared.rev)
	}
	return tokenOf(a.shared.key, fence)
}

// beside returns which other requests of its key an acquiring one may share a round trip
// with.
func (a *attempt) beside() txn.Beside {
	if a.shared != nil && a.shared.rev > 0 {
		return txn.Joins
	}
	return txn.BesideNone
}

// judgeState judges what readOps read. It makes v.own the attempt's own claim, or the
// key that excludes it. Nil means that the attempt can be made again, as it is now.
func (a *attempt) judgeState(v *snapshot) error {
	if a.slots != nil {
		return a.judgeSlots(v)
	}
	a.judgeShared(v)
	return nil
}

func (a *attempt) numberOfSlots() int {
	if a.slots != nil {
		return a.slots.n
	}
	return 0
}

// heldBy returns the error of an attempt that own excludes; see Client.heldBy.
func (a *attempt) heldBy(ctx context.Context, own *mvccpb.KeyValue) error {
	return a.s.c.heldBy(ctx, own, a.holderOf(own))
}

// lineKey is the key of the attempt's line, and of its requests in round trips.
func (a *attempt) lineKey() string {
	if a.slots != nil {
		return a.slots.family
	}
	return a.asked()
}

// asked is the key that the call is for.
func (a *attempt) asked() string {
	switch {
	case a.slots != nil:
		return a.slots.key
	case a.shared != nil:
		return a.shared.key
	}
	return a.key
}

// alsoKeys are further keys that the attempt's requests concern.
func (a *attempt) alsoKeys() []string {
	switch {
	case a.shared != nil:
		return []string{a.key}
	case a.slots == nil:
		return nil
	case a.slots.unset: // it puts the record, where a claim on the whole key would be
		return []string{a.key, a.slots.key}
	}
	return []string{a.key}
}

// lineKey is the key by which the term's line and its requests go.
func (t *term) lineKey() string {
	switch {
	case t.slots != nil:
		return t.slots.family
	case t.shared != nil:
		return t.shared.key
	}
	return t.key
}

// A keyRecord is the record that a term needs in the place of its claim, as it must be for the
// whole term. Otherwise the key may have had an exclusive owner meanwhile.
type keyRecord struct {
	name []byte // its key in etcd; nil if the term needs no record
	rev  int64
	// unchanged means that rev is the revision of the record. Otherwise it was created at rev or
	// before, and can change, as the number of slots does. A record that was deleted and put
	// again was created after the claim.
	unchanged bool
}

// record returns the record that the term needs.
func (t *term) record() keyRecord {
	l := t.s.c.store.layout
	switch {
	case t.slots != nil:
		return keyRecord{name: []byte(l.own(t.slots.key)), rev: revision(t.fence)}
	case t.shared != nil:
		return keyRecord{name: []byte(l.own(t.shared.key)), rev: t.shared.rev, unchanged: true}
	}
	return keyRecord{}
}

// stands are the conditions that etcd has the record.
func (r keyRecord) stands() []*pb.Compare {
	switch {
	case r.name == nil:
		return nil
	case r.unchanged:
		return []*pb.Compare{txn.ModifiedAt(r.name, r.rev)}
	}
	return []*pb.Compare{txn.CreatedAfter(r.name, 0), txn.CreatedBefore(r.name, r.rev+1)}
}

// is reports whether etcd had the record when it was read, by the same conditions.
func (r keyRecord) is(kvs []*mvccpb.KeyValue) bool {
	if len(kvs) == 0 {
		return false
	}
	if r.unchanged {
		return kvs[0].ModRevision == r.rev
	}
	return kvs[0].CreateRevision <= r.rev
}

// judgeRecord compares the record that was read with the one that the term needs. False means
// that the term is lost.
func (t *term) judgeRecord(kvs []*mvccpb.KeyValue) bool {
	if t.record().is(kvs) {
		return true
	}
	reason := ReasonSuperseded
	if len(kvs) == 0 {
		reason = ReasonDeleted
	}
	if t.slots != nil {
		if t.begin() == nil { // its handler may still run for a while, so the slot is not free at once
			t.s.c.zombie(t, reason, nil)
		}
	} else if t.lose(reason, nil) { // its own key would count as that of a holder
		t.s.c.cleanUp(t.s, "deleting a shared claim without its record", t.delete)
	}
	return false
}

// joined reads from the reply to takeOrQueue the attempt's position in line. It
// leaves the line with an error.
func (a *attempt) joined(p *position, inner *pb.TxnResponse) error {
	v := a.snapshot(&clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: p.rev}, Responses: inner.Responses[1:]})
	if err := a.judgeState(&v); err != nil {
		a.undo()
		return err
	}
	if a.slots != nil {
		a.slots.inLine, a.opts.slots.inLine = true, true
	}
	p.own, p.behind = v.own, v.waiting > 1
	if a.shared != nil { // its own place does not count
		a.shared.first = v.waiting == 0
		p.behind = v.waiting > 0
	}
	p.shared = !p.behind && isShared(p.own)
	return nil
}

// recordRefused returns why a slot or a shared key could not be taken, as failed does for
// a key as a whole.
func (a *attempt) recordRefused(ctx context.Context, v snapshot) (rev int64, err error) {
	c := a.s.c
	if a.shared != nil && a.mine(v.own) == 0 { // first, as it decides which record is of use
		if err := c.store.learnEpoch(v.epoch, v.rev); err != nil {
			return 0, err
		}
	}
	if err := a.judgeState(&v); err != nil {
		return 0, err
	}
	if rev := a.taken(v.own); rev > 0 {
		return rev, nil
	}
	if err := c.store.learnEpoch(v.epoch, v.rev); err != nil {
		return 0, err
	}
	switch {
	case !c.store.epoch.Load().Is(a.epoch):
		return 0, nil
	case v.own != nil:
		return 0, a.heldBy(ctx, v.own)
	case v.waiting > 0:
		return 0, &HeldError{Info: Info{Key: a.asked(), Slots: a.numberOfSlots(), Waiting: v.waiting}}
	case len(a.opts.cmps) > 0 && v.refused:
		return 0, ErrRefused
	}
	return 0, nil
}

// holderOf describes what holds the key that the call is for.
func (a *attempt) holderOf(own *mvccpb.KeyValue) Info {
	i := a.s.c.info(a.asked(), own, nil, 0)
	if a.slots != nil && a.slots.number(own.Key, a.s.c.store.layout) >= 0 {
		i.Slots = a.slots.n
	}
	return i
}

// heard reports whether an event of the watch may let the attempt continue, or has given
// it the key. Between the record and what belongs to it there may be keys of others.
func (a *attempt) heard(ev *clientv3.Event) bool {
	l, name := a.s.c.store.layout, string(ev.Kv.Key)
	switch inLine := strings.HasPrefix(name, l.lines()); {
	case a.readsRecord() && name == l.own(a.asked()):
		return true // the record is another, or what stood in its place has gone
	case a.slots != nil:
		i := a.slots.number(ev.Kv.Key, l)
		if i < 0 && !inLine && !strings.HasPrefix(name, l.sharers(a.asked())) {
			return false
		}
		if i >= 0 && i < a.slots.n && ev.Type == mvccpb.Event_DELETE {
			a.setSlot(i)
		}
	case !inLine && name != l.own(a.asked()) && !strings.HasPrefix(name, l.sharers(a.asked())):
		return false
	}
	if ev.Type == mvccpb.Event_DELETE {
		return true
	}
	if a.granted = a.taken(ev.Kv); a.granted == 0 {
		return false
	}
	a.handed() // its notice has not arrived yet
	return true
}
