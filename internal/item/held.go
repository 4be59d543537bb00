package item

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Held is an item that a worker has.
type Held struct {
	Keys
	Session string
	State   State
	Rev     int64 // ModRevision of its key
	Epoch   int64 // of its fence
	// By names a lease that was adopted, among all that know the item by one handle. It is "" for the
	// lease that gave the handle. It is written with each verb, so that a lost reply is not taken for
	// another's.
	By string
	// Elsewhere means that the session is of another process, so that the guard of this process says
	// nothing of it: the request requires that the session lives.
	Elsewhere bool
}

// Key returns the key of the item.
func (h Held) Key() string { return h.TakenBy(h.Session) + h.State.ID }

// Fence returns the number that rises with each hold of the item.
func (h Held) Fence() int64 { return keyspace.Fence(h.Epoch, h.Rev) }

// guard is the condition that the worker has the item. Each request of it has that.
func (h Held) guard() []*pb.Compare {
	guard := []*pb.Compare{unmoved(h.Key(), h.Rev)}
	if h.Elsewhere {
		guard = append(guard, exists(h.Own(h.Session)))
	}
	return guard
}

// ends is the request that ends the hold, and carries out operations with it. If it is refused it reads
// the key.
func (h Held) ends(ops ...*pb.RequestOp) *pb.TxnRequest {
	in := &pb.TxnRequest{
		Compare: h.guard(),
		Success: append([]*pb.RequestOp{remove(h.Key())}, ops...),
		Failure: []*pb.RequestOp{get(h.Key())},
	}
	if h.State.Slot > 0 {
		in.Success = append(in.Success, remove(h.slot(h.State.Slot)))
	}
	return in
}

// place is what a verb of the worker notes with the item's place.
func (h Held) place(verb string) Place { return Place{Verb: verb, Fence: h.Fence(), By: h.By} }

// Standing is what is left of a hold whose request was refused.
type Standing int

// What is left.
const (
	Gone   Standing = iota // nothing
	Stands                 // the item is there: the session is not
	Anew                   // the item was moved here again, or was overwritten: then no worker has it
)

// Judge judges the key as it was read.
func (h Held) Judge(key []*mvccpb.KeyValue) Standing {
	switch revision(key) {
	case 0:
		return Gone
	case h.Rev:
		return Stands
	}
	return Anew
}

// Refused judges the reply to a verb that was refused.
func (h Held) Refused(resp *pb.TxnResponse) Standing { return h.Judge(kvs(resp, 0)) }

// Move moves a held item to another session, under whose guard it is sent. The fence rises.
type Move struct {
	Held
	To    string // the session
	Owner string
	Nonce string // by which the caller knows its own request
}

func (s Move) target() string { return s.TakenBy(s.To) + s.State.ID }

// Moved returns the hold once the item was moved at a revision.
func (s Move) Moved(rev int64) Held {
	to := s.Held
	to.Session, to.Rev, to.State.Owner, to.State.Nonce = s.To, rev, s.Owner, s.Nonce
	to.Elsewhere = false
	return to
}

// Build returns the request. It is to require the generation of the session: this keeps it from coming late,
// when items of which no worker knows have been given back, or the session is closed.
func (s Move) Build() *pb.TxnRequest {
	from, st := s.Held, s.Moved(0).State
	from.Elsewhere = true // than the session whose guard the request carries
	ops := []*pb.RequestOp{put(s.target(), Encode(st))}
	if s.target() != s.Key() { // else it was adopted by the process that had it
		ops = append(ops, remove(s.Key()))
	}
	if st.Slot > 0 {
		ops = append(ops, put(s.slot(st.Slot), slotOwner(s.To, st.ID)))
	}
	return &pb.TxnRequest{Compare: from.guard(), Success: ops, Failure: []*pb.RequestOp{get(s.Key()), get(s.target())}}
}

// Earlier returns the revision at which an earlier try of the request has moved the item, as the reply to
// one that was refused shows; 0 if none has.
func (s Move) Earlier(resp *pb.TxnResponse) int64 {
	if to := kvs(resp, 1); len(to) > 0 && string(to[0].Value) == Encode(s.Moved(0).State) {
		return to[0].ModRevision
	}
	return 0
}
