package item

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

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
