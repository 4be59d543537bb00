package protocol

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// ErrSlots is matched when a call and a key differ in the number of slots.
var ErrSlots = errors.New("etcdclaims: another number of slots")

// MaxSlots is the largest number of slots that a key can have.
const MaxSlots = 256

// SlotKey returns the key of one slot.
func SlotKey(key string, slot int) string { return key + keyspace.SlotSuffix + strconv.Itoa(slot) }

// Slots is the mode of a key that several callers have, each a slot of its own.
//
// The record of the key has the number of slots. Each slot is an ordinary claim, on a key of
// its own with its own fence. All slots share one line and one place in round trips, under a
// name that no user's key can have.
//
// A request tries one slot, and requires the record to be as the caller knows it. A caller
// that is refused reads the record and all slots, and tries one that is free. A release hands
// its slot to the first in line, if the record still has that slot.
type Slots struct {
	layout Layout
	key    string // that has the slots
	n      int    // how many there are
	i      int    // which one is tried, or held
	unset  bool   // there is no record: the request that takes a slot puts it
	raw    string // the record as it was read, or ""
	inLine bool   // the call has stood in line, and follows changes of the number
	salt   uint32 // of the attempt: so callers that find the same slots free choose different ones
}

// NewSlots returns the mode of a call for one of n slots. It tries the given one first: callers
// should choose any.
func NewSlots(l Layout, key string, n, first int) Slots {
	return Slots{layout: l, key: key, n: n, i: first}
}

// For has each attempt choose by its id among the slots that are free.
func (s Slots) For(id string, _ int64) Mode {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	s.salt = h.Sum32()
	return s
}

// choose returns one of n.
func (s Slots) choose(n int) int { return int(s.salt % uint32(n)) } //nolint:gosec // n is at most MaxSlots

// Keys are those of the slot that is tried or held.
func (s Slots) Keys() Keys {
	return Keys{
		User: s.key, Claim: SlotKey(s.key, s.i), Line: keyspace.SlotFamily(s.key),
		Slot: s.i, Slots: s.n, Record: true,
		First: s.layout.Own(SlotKey(s.key, 0)), End: s.end(),
	}
}

// end is the first etcd key after those of all slots: a colon follows the digits. Before it there may be claims on
// keys that are no slots, such as SlotKey(key, 0) + "x": see number.
func (s Slots) end() string { return s.layout.Own(s.key + keyspace.SlotSuffix + ":") }

// Another returns the mode of a caller that tries after another one of its client has: with
// another slot, if it is one.
func Another(m Mode) Mode {
	s, ok := m.(Slots)
	if !ok {
		return m
	}
	s.i = (s.i + 1) % s.n
	return s
}

// number returns which of the slots an etcd key is the claim of, or -1.
func (s Slots) number(name []byte) int {
	text, found := strings.CutPrefix(string(name), s.layout.Own(s.key+keyspace.SlotSuffix))
	i, err := strconv.Atoi(text)
	if !found || err != nil || i < 0 || i >= MaxSlots || strconv.Itoa(i) != text {
		return -1
	}
	return i
}

// Number returns the number of slots as far as known, and whether etcd has a record of it.
func (s Slots) Number() (n int, recorded bool) { return s.n, !s.unset }

// Encoded is the value of the record: the one that was read, or the one that is put.
func (s Slots) Encoded() string {
	if s.raw != "" {
		return s.raw
	}
	return keyspace.Encode(struct {
		Version int    `json:"v"`
		Kind    string `json:"kind"`
		Slots   int    `json:"slots"`
	}{Version, KindSlots, s.n})
}

// SlotsRecord is the value of the record of so many slots.
func SlotsRecord(n int) string { return Slots{n: n}.Encoded() }

// recorded is the condition that the record is as it is known.
func (s Slots) recorded() *pb.Compare {
	name := []byte(s.layout.Own(s.key))
	if s.unset {
		return txn.CreatedAt(name, 0)
	}
	return txn.ValueIs(name, s.Encoded())
}

// Take requires the record, or puts it.
func (s Slots) Take() ([]*pb.Compare, string) {
	conditions := []*pb.Compare{s.recorded()}
	if s.unset {
		return conditions, s.Encoded()
	}
	return conditions, ""
}

// Recorded takes over the number in the record. False means that it is no record: the key is
// held as a whole.
func (s Slots) Recorded(record *mvccpb.KeyValue) (Slots, bool) {
	if record == nil {
		s.unset, s.raw = true, ""
		return s, true
	}
	h, err := DecodeHolder(record.Value)
	if err != nil || h.Kind != KindSlots || h.Slots < 1 {
		return s, false
	}
	s.n, s.unset, s.raw = h.Slots, false, string(record.Value)
	return s, true
}

// Learn takes over the number of slots, and chooses a free one to be tried next. A caller that
// has been in line continues with the present number.
func (s Slots) Learn(seen Sight) (Mode, Judged, error) {
	before, tried := s, s.layout.Own(SlotKey(s.key, s.i))
	s, isRecord := s.Recorded(seen.Record)
	if seen.Held {
		return s, Judged{}, nil
	}
	s.inLine = s.inLine || seen.Joined
	if !isRecord {
		return s, Judged{Own: seen.Record}, nil
	}
	if s.n != before.n && !before.inLine {
		return before, Judged{}, fmt.Errorf("%w: the key has %d, the call asks for %d; Resize changes the number", ErrSlots, s.n, before.n)
	}
	held := make(map[int]*mvccpb.KeyValue, len(seen.Claims))
	triedFree := true
	for _, kv := range seen.Claims {
		held[s.number(kv.Key)] = kv
		triedFree = triedFree && string(kv.Key) != tried
	}
	judged := Judged{Refused: triedFree && s.unset == before.unset && s.Encoded() == before.Encoded()}
	free := make([]int, 0, s.n)
	for i := range s.n {
		if held[i] == nil {
			free = append(free, i)
		} else if judged.Own == nil {
			judged.Own = held[i]
		}
	}
	if len(free) == 0 {
		s.i = s.choose(s.n) // the one that was tried may be surplus by now
		return s, judged, nil
	}
	s.i, judged.Own = free[s.choose(len(free))], nil
	return s, judged, nil
}

// At makes the slot at the etcd key the one that is tried or held. With a slot there was a record
// with as many. If that is another by now, a hand-over is refused and reads it.
func (s Slots) At(name []byte, rev int64) (Mode, bool) {
	i := s.number(name)
	if i < 0 || rev == 0 && i >= s.n {
		return s, false
	}
	s.i = i
	if rev > 0 {
		if s.unset = false; s.n <= i {
			s.n, s.raw = i+1, ""
		}
	}
	return s, true
}

// Guard needs the record, whatever number it has.
func (s Slots) Guard(fence int64) Record {
	return Record{Name: []byte(s.layout.Own(s.key)), Rev: keyspace.Revision(fence)}
}

// Hand hands the slot over while the record has it.
func (s Slots) Hand() ([]*pb.Compare, bool) {
	if s.unset || s.i >= s.n {
		return nil, false
	}
	return []*pb.Compare{s.recorded()}, true
}

// Leave leaves the record: it stays until the number of slots is set to 0.
func (s Slots) Leave(string, bool) ([]*pb.RequestOp, txn.Beside) { return nil, txn.BesideNone }

// claims are those among some key-values that are claims of slots.
func (s Slots) claims(kvs []*mvccpb.KeyValue) (claims []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if s.number(kv.Key) >= 0 {
			claims = append(claims, kv)
		}
	}
	return claims
}

// Resize changes the number of slots of a key. With 0 it removes that.
type Resize struct {
	Layout
	Key string
	N   int
}

// Reads are the operations that read what the change depends on.
func (s Resize) Reads() []*pb.RequestOp {
	slots := Slots{layout: s.Layout, key: s.Key}
	keys := slots.Keys()
	line := txn.Range(s.Waiting(keys.Line))
	line.GetRequestRange().CountOnly = true
	return []*pb.RequestOp{txn.Get([]byte(s.Own(s.Key))), between(keys.First, keys.End), line}
}

// Sized is what a Resize finds.
type Sized struct {
	Whole   *mvccpb.KeyValue   // the key is held as a whole; then the rest is not set
	N       int                // how many slots the key has
	Done    bool               // nothing is to be done
	Claims  []*mvccpb.KeyValue // slots that are held
	Waiting int64
	Change  txn.Request // changes the number, if what was read has not changed since
}

// Judge takes the reply to Reads apart.
func (s Resize) Judge(resp *pb.TxnResponse) Sized {
	record := first(resp.Responses[0])
	has, isRecord := Slots{layout: s.Layout, key: s.Key}.Recorded(record)
	if !isRecord {
		return Sized{Whole: record}
	}
	v := Sized{
		N: has.n, Claims: has.claims(resp.Responses[1].GetResponseRange().Kvs), Waiting: resp.Responses[2].GetResponseRange().Count,
		Done: has.unset && s.N == 0 || !has.unset && has.n == s.N,
	}
	keys, name, rev := has.Keys(), []byte(s.Own(s.Key)), int64(0)
	if record != nil {
		rev = record.ModRevision
	}
	in := &pb.TxnRequest{Compare: []*pb.Compare{txn.ModifiedAt(name, rev)}}
	if s.N == 0 {
		younger := txn.ModifiedBefore([]byte(keys.First), resp.Header.Revision+1) // no slot was taken since
		younger.RangeEnd = []byte(keys.End)
		in.Compare = append(in.Compare, txn.NoneUnder(s.Waiting(keys.Line)), younger)
		in.Success = []*pb.RequestOp{txn.Delete(name)}
	} else {
		in.Success = []*pb.RequestOp{txn.Put(name, SlotsRecord(s.N), noLease)}
	}
	v.Change = txn.Request{Key: keys.Line, Also: []string{s.Key}, In: in}
	return v
}
