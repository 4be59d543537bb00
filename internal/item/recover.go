package item

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Recover makes items of a session that is over wait again, or buries those that have had all their
// attempts. Any number of processes may do it at once: each item is moved under the condition that it
// is where it was, and that its session's claim is gone. After that nothing can be taken under that
// session.
type Recover struct {
	Keys
	Session string
	Taken   []*mvccpb.KeyValue // some of what the session has
	Slots   map[string]string  // keys of all slots by their values, if an item cannot be read
	Now     time.Time
}

// Build returns the request. The errors are of items that cannot be read.
func (s Recover) Build() (in *pb.TxnRequest, unreadable []error) {
	in = &pb.TxnRequest{Compare: []*pb.Compare{absent(s.Own(s.Session))}}
	in.Success, unreadable = s.from(s.Taken, s.Slots, s.Now, func(h Held) []*pb.RequestOp {
		st, p := h.State, h.place(verbLost)
		st.ended(h.attempt(AttemptLost, "the worker's process died or lost its session", s.Now))
		if st.Attempts >= st.Max {
			return s.bury(st, p, "lost with its worker in its last attempt", s.Now)
		}
		return s.uncover(st, p, s.Now)
	})
	return in, unreadable
}

// Judge returns how many items were moved, unless the session is alive.
func (s Recover) Judge(resp *pb.TxnResponse) (moved int) { return trues(succeeded(resp.Responses)) }

// Settle removes the entry of a session that is over, once it has no items.
func (s Recover) Settle() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{absent(s.Own(s.Session)), txn.NoneUnder(s.TakenBy(s.Session))},
		Success: s.unregister(s.Session),
	}
}

// GiveBack makes items wait again that are taken under a session of this process of which no worker
// knows. Their attempt does not count. It is sent under the guard of that session.
type GiveBack struct {
	Keys
	Taken []*mvccpb.KeyValue
	Slots map[string]string // see Recover
	Now   time.Time
}

// Build returns the request. The errors are of items that cannot be read.
func (s GiveBack) Build() (in *pb.TxnRequest, unreadable []error) {
	in = &pb.TxnRequest{}
	in.Success, unreadable = s.from(s.Taken, s.Slots, s.Now, func(h Held) []*pb.RequestOp {
		st := h.State
		st.Attempts--
		return s.uncover(st, h.place(VerbRelease), s.Now)
	})
	return in, unreadable
}

// from is the operations that move items away from a session, each if it is as it was. An item whose state
// cannot be read is buried.
func (k Keys) from(
	taken []*mvccpb.KeyValue, slots map[string]string, now time.Time, to func(Held) []*pb.RequestOp,
) (ops []*pb.RequestOp, unreadable []error) {
	for _, kv := range taken {
		st, err := k.TakenState(kv)
		var then []*pb.RequestOp
		if err != nil {
			unreadable = append(unreadable, err)
			then = k.buryBare(kv, slots, now)
		} else {
			then = []*pb.RequestOp{remove(string(kv.Key))}
			if st.Slot > 0 {
				then = append(then, remove(k.slot(st.Slot)))
			}
			then = append(then, to(Held{Keys: k, State: st, Rev: kv.ModRevision, Epoch: st.Epoch})...)
		}
		ops = append(ops, inner([]*pb.Compare{as(kv)}, then...))
	}
	return ops, unreadable
}

// TakenState decodes the state of a taken item. The state of another item, copied here
// by an operator, cannot be read: its worker may be alive.
func (k Keys) TakenState(kv *mvccpb.KeyValue) (State, error) {
	st, err := DecodeState(kv)
	if err != nil {
		return State{}, err
	}
	if _, id := k.taker(kv); id != st.ID {
		return State{}, fmt.Errorf("%s has the state of item %q", kv.Key, st.ID)
	}
	return st, nil
}

// taker returns the session and the id that the key of a taken item has, as slotOwner joins them, and the id.
func (k Keys) taker(kv *mvccpb.KeyValue) (owner, id string) {
	owner = strings.TrimPrefix(string(kv.Key), k.Taken())
	_, id, _ = strings.Cut(owner, "/")
	return owner, id
}

// buryBare is the operations that put an item whose state cannot be read among the dead
// letters, unchanged. People and newer versions of this program can read it there. Left
// where it is it would keep its slot and its session for ever.
func (k Keys) buryBare(kv *mvccpb.KeyValue, slots map[string]string, now time.Time) []*pb.RequestOp {
	owner, id := k.taker(kv)
	to := k.bareAt(now, id)
	ops := []*pb.RequestOp{
		remove(string(kv.Key)), put(to, string(kv.Value)),
		put(k.Place(id), Encode(Place{Version: Version, Key: to[len(k.root):], Verb: verbLost})),
	}
	if slot := slots[owner]; slot != "" {
		ops = append(ops, remove(slot))
	}
	return ops
}

// FenceOf returns the fence of a taken item as it was read.
func FenceOf(st State, kv *mvccpb.KeyValue) int64 { return keyspace.Fence(st.Epoch, kv.ModRevision) }

func trues(all []bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

// Behind reads the first n items that a session has, from a key on.
func Behind(from, prefix string, n int) *pb.RequestOp {
	return first(n, from, keyspace.RangeEnd(prefix))
}
