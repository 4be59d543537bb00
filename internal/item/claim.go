package item

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Claim gives visible items to a session: each item by itself, if it is where it was, the queue is not
// paused, and its slot is free.
//
// A key of an item that this session has already is a second one, as a restore of some keys
// leaves. It is removed, so that the item is not taken twice. If another session has the item,
// no condition can refuse the second key: what says so stands below that session. A key for
// each taken item would, and would cost each claim and each ending a write.
type Claim struct {
	Keys
	Session string
	Items   []*Entry // with the slots that they are to have
	Owner   string
	Epoch   int64
	Now     time.Time
	Nonce   string // by which the items of this request are known
}

// taken returns the state of an item once it is taken.
func (s Claim) taken(e *Entry) State {
	st := e.State
	st.Attempts++
	st.Owner, st.Since, st.Epoch, st.Nonce = s.Owner, s.Now, s.Epoch, s.Nonce
	return st
}

// Build returns the request. It is to require the session's generation, too.
func (s Claim) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{Compare: []*pb.Compare{absent(s.Paused())}}
	for _, e := range s.Items {
		st := s.taken(e)
		taken := s.TakenBy(s.Session) + st.ID
		one := &pb.TxnRequest{
			Compare: []*pb.Compare{as(e.KV), absent(taken)},
			Success: []*pb.RequestOp{get(s.Content(st.ID)), remove(e.Key()), put(taken, Encode(st))},
			Failure: []*pb.RequestOp{inner([]*pb.Compare{exists(taken)}, remove(e.Key()))},
		}
		if st.Slot > 0 {
			one.Compare = append(one.Compare, absent(s.slot(st.Slot)))
			one.Success = append(one.Success, put(s.slot(st.Slot), slotOwner(s.Session, st.ID)))
		}
		in.Success = append(in.Success, txn.Nest(one))
	}
	return in
}

// Taken is an item that a claim has taken.
type Taken struct {
	State   State
	Rev     int64            // of its key: the fence
	Content *mvccpb.KeyValue // nil if there is none, or it was not read
}

// Judge takes the reply apart, unless the request as a whole was refused: what was taken. second is how
// many second keys were removed. The first key of such an item may be one that its process does not know.
func (s Claim) Judge(resp *pb.TxnResponse) (got []Taken, second int) {
	for i, e := range s.Items {
		switch one := resp.Responses[i].GetResponseTxn(); {
		case one.Succeeded:
			t := Taken{State: s.taken(e), Rev: resp.Header.GetRevision()}
			if item := kvs(one, 0); len(item) > 0 {
				t.Content = item[0]
			}
			got = append(got, t)
		case one.Responses[0].GetResponseTxn().Succeeded:
			second++
		}
	}
	return got, second
}

// Reads are the operations that show what a request of unknown outcome has taken, once it is void.
// Contents are not read with them: they may be too large together.
func (s Claim) Reads() (ops []*pb.RequestOp) {
	for _, e := range s.Items {
		ops = append(ops, get(s.TakenBy(s.Session)+e.State.ID))
	}
	return ops
}

// JudgeReads takes the reply apart. The errors are of keys that cannot be read.
func (s Claim) JudgeReads(resp *pb.TxnResponse) (got []Taken, unreadable []error) {
	for i := range s.Items {
		for _, kv := range kvs(resp, i) {
			st, err := DecodeState(kv)
			switch {
			case err != nil:
				unreadable = append(unreadable, err)
			case st.Nonce == s.Nonce:
				got = append(got, Taken{State: st, Rev: kv.ModRevision})
			}
		}
	}
	return got, unreadable
}

// Gone reports whether the content is of a later item with the id: the taken one was cancelled.
func (t Taken) Gone() bool {
	c, err := t.Decode()
	return err == nil && c.Seq != t.State.Seq
}

// Decode returns the content of a taken item. An item without content becomes a dead letter: no worker
// can handle it.
func (t Taken) Decode() (c Content, err error) {
	if t.Content != nil {
		c, err = Decode[Content](t.Content.Key, t.Content.Value)
	}
	if t.Content == nil || c.Missing {
		err = fmt.Errorf("item %q has no content", t.State.ID)
	}
	return c, err
}
