package item

import (
	"slices"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
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
	Noted     bool // there may be a note of the worker
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
		Success: slices.Concat([]*pb.RequestOp{remove(h.Key())}, ops, h.unnote()),
		Failure: []*pb.RequestOp{get(h.Key())},
	}
	if h.State.Slot > 0 {
		in.Success = append(in.Success, remove(h.slot(h.State.Slot)))
	}
	return in
}

// unnote removes the worker's note.
func (h Held) unnote() []*pb.RequestOp {
	if !h.Noted {
		return nil
	}
	return []*pb.RequestOp{remove(h.Keys.Note(h.State.ID))}
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

// Note is the value of note/<id>. It is on the lease of the worker's session, so that
// nothing is left of it with a dead worker.
type Note struct {
	Version int    `json:"v"`
	Nonce   string `json:"nonce"` // of the item as it was taken: whose note it is
	Text    []byte `json:"text"`
}

// note puts a note of the item on a lease.
func (k Keys) note(st State, text []byte, lease int64) *pb.RequestOp {
	return txn.Put([]byte(k.Note(st.ID)), Encode(Note{Version: Version, Nonce: st.Nonce, Text: text}), lease)
}

// NoteOf returns the note of a taken item, if it is of the worker that has it.
func NoteOf(st State, kvs []*mvccpb.KeyValue) []byte {
	if len(kvs) == 0 {
		return nil
	}
	n, err := Decode[Note](kvs[0].Key, kvs[0].Value)
	if err != nil || n.Nonce != st.Nonce {
		return nil
	}
	return n.Text
}

// WriteNote stores a note. It requires the revision of the one before, which keeps a late copy of the
// request from replacing a later note.
type WriteNote struct {
	Held
	Text   []byte
	Lease  int64 // of the session under whose guard it is sent
	Before int64 // ModRevision of the note; 0: there is none
}

// Build returns the request.
func (s WriteNote) Build() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: append(s.guard(), unmoved(s.Keys.Note(s.State.ID), s.Before)),
		Success: []*pb.RequestOp{s.note(s.State, s.Text, s.Lease)},
		Failure: []*pb.RequestOp{get(s.Key()), get(s.Keys.Note(s.State.ID))},
	}
}

// Found judges the reply to a note that was refused: what is left of the hold, the revision of the note that
// is there, and whether it may be this one.
func (s WriteNote) Found(resp *pb.TxnResponse) (hold Standing, rev int64, same bool) {
	there := kvs(resp, 1)
	same = len(there) > 0 && string(there[0].Value) == string(s.note(s.State, s.Text, s.Lease).GetRequestPut().Value)
	return s.Judge(kvs(resp, 0)), revision(there), same
}
