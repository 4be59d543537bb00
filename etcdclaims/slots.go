package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key with slots has a record in the place of its claim, with their number. Each
// slot is an ordinary claim, on a key of its own with its own fence. All slots share
// one line and one place in round trips, under a name that no user's key can have.
//
// A request tries one slot, and requires the record to be as the caller knows it. A
// caller that is refused reads the record and all slots, and tries one that is free. A
// release hands its slot to the first in line, as every release does, if the record
// still has that slot. The first in line watches the record and all slots, and asks at
// each renewal of its session in case the watch is deaf.

// MaxSlots is the largest number of slots that a key can have.
const MaxSlots = 256

const (
	kindSlots  = "slots" // of the record
	slotSuffix = keyspace.SlotSuffix
)

// SlotKey returns the key of one slot, as Claim.Key, Info.Key and tokens name it.
// Slots are numbered from 0. Use it to look up or to force the release of one slot.
// The keys of all slots begin with SlotKey(key, 0) without its last character.
func SlotKey(key string, slot int) string { return key + slotSuffix + strconv.Itoa(slot) }

// slots are the slots of a key, as a call or a term knows them.
type slots struct {
	key    string // that has the slots
	family string // names their line and their place in round trips
	n      int    // how many there are
	i      int    // which one is tried, or held
	unset  bool   // there is no record: the request that takes a slot puts it
	raw    string // the record as it was read, or ""
	inLine bool   // the call has stood in line, and follows Resize
}

// Slots lets up to n callers hold the key at the same time. Each holds one slot, which
// [Claim.Slot] numbers from 0 to n-1. [Claim.Key] and [Claim.Token] name the slot
// (see [SlotKey]), and its fence rises with each of its holders. So a gate refuses
// the former holder of a slot, and admits the holders of the others.
//
// All slots have one line, first come first served. A release hands its slot to the
// first caller in it.
//
// The first call stores n in etcd, in a small record that stays until
// admin.Resize with 0 removes it. So callers with ever new keys, such as one per
// request, let etcd grow. A call with another n returns ErrSlots; Resize changes
// the number.
//
// A call without Slots for the same key finds the key held, and the other way
// round. There is no order between callers of the two kinds that wait. While the
// record is there, those without Slots wait, although no slot is held.
//
// If the record is deleted otherwise than by Resize, all claims on slots are lost
// within a third of the TTL and a second. Their slots stay held for a TTL.
//
// n must be between 1 and MaxSlots. The key of a slot must not be longer than
// MaxKeyBytes. Slots excludes Reentrant and Supersede. Each caller of a
// passthrough client has slot 0.
//
// A holder that dies frees its slot as it frees a key: see [Client.Acquire]. When
// several slots become free at once without a release, the callers in line take them
// one after the other, each within about one round trip and one event.
func Slots(n int) AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.slots = &slots{n: n} }}
}

// checkSlots checks Slots beside other options.
func (o *acquireOptions) checkSlots() error {
	switch {
	case o.slots == nil:
		return nil
	case o.reentrant || o.supersede:
		return errors.New("etcdclaims: Slots excludes Reentrant and Supersede: a client can hold several slots")
	}
	return checkSlots(o.slots.n, 1)
}

func checkSlots(n, least int) error {
	if n < least || n > MaxSlots {
		return fmt.Errorf("etcdclaims: %d slots: want %d to %d", n, least, MaxSlots)
	}
	return nil
}

// passthroughClaim is what a client without etcd grants.
func passthroughClaim(key string, o *acquireOptions) *Claim {
	if o.slots != nil {
		key = SlotKey(key, 0)
	}
	return &Claim{key: key}
}

// of makes the slots those of the key, and chooses the one to try first.
func (s *slots) of(key string) error {
	s.key, s.family, s.i = key, keyspace.SlotFamily(key), rand.N(s.n)
	return validKey(SlotKey(key, s.n-1))
}

func (s *slots) held() string { return SlotKey(s.key, s.i) }

// record is the value of the record: the one that was read, or the one that is put.
func (s *slots) record() string {
	if s.raw != "" {
		return s.raw
	}
	return encode(struct {
		Version int    `json:"v"`
		Kind    string `json:"kind"`
		Slots   int    `json:"slots"`
	}{valueVersion, kindSlots, s.n})
}

// recorded is the condition that the record is as it is known.
func (s *slots) recorded(l layout) *pb.Compare {
	if s.unset {
		return txn.CreatedAt([]byte(l.own(s.key)), 0)
	}
	return txn.ValueIs([]byte(l.own(s.key)), s.record())
}

func (s *slots) readRecord(l layout) clientv3.Op { return clientv3.OpGet(l.own(s.key)) }

func (s *slots) readAll(l layout) clientv3.Op {
	return clientv3.OpGet(l.own(SlotKey(s.key, 0)), clientv3.WithRange(s.end(l)))
}

// end is the first etcd key after those of all slots: a colon follows the digits. Before it there may be claims on
// keys that are no slots, such as SlotKey(key, 0) + "x": see number.
func (s *slots) end(l layout) string { return l.own(s.key + slotSuffix + ":") }

// number returns which of the slots an etcd key is the claim of, or -1.
func (s *slots) number(name []byte, l layout) int {
	text, found := strings.CutPrefix(string(name), l.own(s.key+slotSuffix))
	i, err := strconv.Atoi(text)
	if !found || err != nil || i < 0 || i >= MaxSlots || strconv.Itoa(i) != text {
		return -1
	}
	return i
}

// learn takes over the number in the record. False means that it is no record: the key
// is held as a whole.
func (s *slots) learn(record *mvccpb.KeyValue) bool {
	if record == nil {
		s.unset, s.raw = true, ""
		return true
	}
	h, err := decodeHolder(record.Value)
	if err != nil || h.Kind != kindSlots || h.Slots < 1 {
		return false
	}
	s.n, s.unset, s.raw = h.Slots, false, string(record.Value)
	return true
}

// setSlot makes a slot the one that is tried, or was taken.
func (a *attempt) setSlot(i int) { a.slots.i, a.key = i, SlotKey(a.slots.key, i) }

// findSlot returns the claim by which the attempt itself has one of the slots, or nil.
func (a *attempt) findSlot(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	for _, kv := range kvs {
		if a.mine(kv) > 0 && a.slots.number(kv.Key, a.s.c.store.layout) >= 0 {
			return kv
		}
	}
	return nil
}

// taken is mine, and makes the slot of that claim the one that the attempt has.
func (a *attempt) taken(kv *mvccpb.KeyValue) int64 {
	rev := a.mine(kv)
	if rev > 0 && a.slots != nil {
		a.setSlot(a.slots.number(kv.Key, a.s.c.store.layout))
	}
	return rev
}

// judgeSlots judges what readOps read. It makes v.own the claim that excludes the
// attempt, or the attempt's own; or nil if a slot is free, which it chooses to be tried
// next. A caller that has been in line continues with the present number of slots.
func (a *attempt) judgeSlots(v *snapshot) error {
	s, before, triedFree := a.slots, *a.slots, v.own == nil
	if v.own = a.findSlot(v.slots); v.own != nil {
		return nil
	}
	if !s.learn(v.record) {
		v.own = v.record
		return nil
	}
	if s.n != before.n && !s.inLine {
		return fmt.Errorf("%w: the key has %d, the call asks for %d; Resize changes the number", ErrSlots, s.n, before.n)
	}
	held := make(map[int]*mvccpb.KeyValue, len(v.slots))
	for _, kv := range v.slots {
		held[s.number(kv.Key, a.s.c.store.layout)] = kv
	}
	v.refused = triedFree && s.unset == before.unset && s.record() == before.record()
	free := make([]int, 0, s.n)
	for i := range s.n {
		if held[i] == nil {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		v.own = held[0]
		a.setSlot(s.i % s.n) // the one tried may be surplus by now
	} else {
		a.setSlot(free[rand.N(len(free))])
	}
	*a.opts.slots = *s // for the call's next attempt
	return nil
}

// dropSlots gives up the slots among the claims that the attempt was handed, except the
// one that it tried or has.
func (a *attempt) dropSlots(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	st := a.s.c.store
	var drop []clientv3.Op
	for _, kv := range kvs {
		i, name := a.slots.number(kv.Key, st.layout), string(kv.Key)
		if i < 0 || a.mine(kv) == 0 || name == st.layout.own(a.key) {
			continue
		}
		drop = append(drop, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(name), "=", kv.ModRevision), clientv3.Compare(clientv3.LeaseValue(name), "=", kv.Lease)},
			[]clientv3.Op{clientv3.OpDelete(name), clientv3.OpDelete(st.layout.note(SlotKey(a.slots.key, i)))}, nil,
		))
	}
	if len(drop) == 0 {
		return nil
	}
	_, err := st.Do(ctx, txn.Request{Key: a.lineKey(), Urgent: true, In: txn.Then(drop...)})
	return err
}

// surplus reports whether the key does not have the term's slot any more, as far as
// known. Then the slot is not handed over.
func (t *term) surplus() bool { return t.slots != nil && (t.slots.unset || t.slots.i >= t.slots.n) }
