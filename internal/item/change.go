package item

import (
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// changes is the request that carries out operations on an item that no worker has, if it is where it was
// found. It is to require the generation of its session.
func (e *Entry) changes(ops ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{as(e.KV)}, Success: append([]*pb.RequestOp{remove(e.Key())}, ops...)}
}

// Reads shows, once a change of unknown outcome is void, whether it was carried out.
func (e *Entry) Reads() []*pb.RequestOp { return []*pb.RequestOp{keysOnly(get(e.Key()))} }

// Stands takes the reply apart: it reports whether the item is where it was, so the change was not.
func (e *Entry) Stands(resp *pb.TxnResponse) bool { return revision(kvs(resp, 0)) == e.KV.ModRevision }

// Cancel removes an item that no worker has, or a dead letter.
type Cancel struct {
	Keys
	*Entry
}

// Build returns the request.
func (s Cancel) Build() *pb.TxnRequest {
	return s.changes(append(s.leave(s.State), remove(s.Content(s.State.ID)), remove(s.Place(s.State.ID)))...)
}

// Reprioritize changes the priority of an item that waits.
type Reprioritize struct {
	Keys
	*Entry
	Priority int
	Now      time.Time
}

// Build returns the request.
func (s Reprioritize) Build() *pb.TxnRequest {
	st, now := s.State, s.Now
	if later := strings.HasPrefix(s.Entry.Key(), s.Later()); !later && st.Vesting.After(now) {
		now = st.Vesting // by another clock
	}
	st.Priority = s.Priority
	return s.changes(s.move(st, s.index(st, now), Place{Verb: "priority"})...)
}

// Replace puts an item in the place of its dead letter.
type Replace struct {
	Keys
	*Entry
	New New
	Now time.Time
}

// Build returns the request.
func (s Replace) Build() *pb.TxnRequest {
	c, st := s.begun(s.New, s.Now)
	ops := []*pb.RequestOp{s.Activate(), put(s.Content(s.New.ID), Encode(c))}
	return s.changes(append(ops, s.move(st, s.index(st, s.Now), Place{Verb: VerbReplace})...)...)
}

// The verbs by which dead letters are moved, as places name them.
const (
	VerbReplace = "replace"
	VerbRedrive = "redrive"
)

// Redrive makes a dead letter visible again, as if it had not been begun. Its
// history stays.
type Redrive struct {
	Keys
	*Entry
	Now time.Time
}

// Build returns the request.
func (s Redrive) Build() *pb.TxnRequest {
	in := s.changes(s.redriven(s.State, s.Now)...)
	in.Success = append(in.Success, s.Activate())
	return in
}

// redriven is the operations that put a dead letter among the visible items.
func (k Keys) redriven(st State, now time.Time) []*pb.RequestOp {
	free := k.leave(st) // of one that this program could not read as it died
	st.Attempts, st.Vesting, st.Lane = 0, now.UTC(), 0
	return append(k.requeue(st, Place{Verb: VerbRedrive}, now), free...)
}

// RedriveAll is Redrive for several dead letters, each visible from its State.Vesting on. Those that it
// refuses were moved, or have no content.
type RedriveAll struct {
	Keys
	Letters []*Entry
}

// Build returns the request. It is to require the generation of its session.
func (s RedriveAll) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{Success: []*pb.RequestOp{s.Activate()}}
	for _, e := range s.Letters {
		key, rev := []byte(s.Content(e.State.ID)), e.KV.ModRevision
		one := e.changes(s.redriven(e.State, e.State.Vesting)...)
		// A content that marks a missing one was put with the dead letter. A place that was not
		// may be of a later version, which nobody overwrites.
		one.Compare = append(one.Compare, unmoved(s.Place(e.State.ID), rev))
		one.Compare = append(one.Compare, txn.CreatedAfter(key, 0), txn.ModifiedBefore(key, rev))
		in.Success = append(in.Success, txn.Nest(one))
	}
	return in
}

// Judge reports of each dead letter whether it was moved.
func (s RedriveAll) Judge(resp *pb.TxnResponse) []bool { return succeeded(resp.Responses[1:]) }

// Purge removes dead letters. It can be repeated, and come late.
type Purge struct {
	Keys
	Letters []*mvccpb.KeyValue
}

// Build returns the request.
func (s Purge) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for _, kv := range s.Letters {
		then := []*pb.RequestOp{txn.Delete(kv.Key)}
		id := s.BareID(string(kv.Key))
		if st, err := DecodeState(kv); err == nil {
			id = st.ID
		}
		if id != "" {
			then = append(then, remove(s.Content(id)), remove(s.Place(id)))
		}
		in.Success = append(in.Success, inner([]*pb.Compare{as(kv)}, then...))
	}
	return in
}

// Judge returns how many were removed.
func (s Purge) Judge(resp *pb.TxnResponse) int { return trues(succeeded(resp.Responses)) }

// VerbCancel is how the hold of an item ends that is cancelled.
const VerbCancel = "cancel"

// Notice is who cancelled an item that a worker had, for the process of that worker. It is put by the
// transaction that removes the item, so the history of etcd has it when the key is gone.
type Notice struct {
	Version int       `json:"v"`
	Rev     int64     `json:"rev,string"` // of the key of the taken item: it is of this hold
	By      string    `json:"by"`
	Why     string    `json:"why,omitempty"`
	At      time.Time `json:"at"`
}

// CancelTaken removes an item that a worker has.
type CancelTaken struct {
	Keys
	*Entry
	Notice Notice
	Lease  int64 // of the notice
}

// Build returns the request. It is to require the generation of its session.
func (s CancelTaken) Build() *pb.TxnRequest {
	h := Held{Keys: s.Keys, State: s.State, Rev: s.KV.ModRevision}
	owner, id := s.taker(s.KV)
	h.Session = owner[:len(owner)-len(id)-1]
	n := s.Notice
	n.Version, n.Rev, n.Why = Version, h.Rev, Cut(n.Why)
	ops := append(s.leave(s.State),
		remove(s.Content(id)), remove(s.Place(id)), txn.Put([]byte(s.notice(h.Key())), Encode(n), s.Lease))
	return h.ends(ops...)
}

// VerbDebounce is what moves an item that is enqueued again before it has vested, as places name it.
const VerbDebounce = "debounce"

// Debounce gives an item that has not vested another payload, and moves its vesting time.
type Debounce struct {
	Keys
	*Entry
	Before      Content
	Payload     []byte
	Quiet, Most time.Duration // the item vests Quiet from now, but not later than Most after it was enqueued first
	Now         time.Time
}

// Build returns the request. It is to require the generation of its session.
func (s Debounce) Build() *pb.TxnRequest {
	st := s.State
	st.Vesting = s.Now.Add(s.Quiet).UTC()
	if last := s.Before.Enqueued.Add(s.Most).UTC(); last.Before(st.Vesting) {
		st.Vesting = last
	}
	c := s.Before
	c.Payload, c.Rank, c.Vesting = s.Payload, s.rank(st.Priority, st.Vesting), st.Vesting
	to := s.index(st, s.Now)
	in := s.changes(append(s.move(st, to, Place{Verb: VerbDebounce}), put(s.Content(st.ID), Encode(c)))...)
	if to == s.Entry.Key() {
		in.Success = in.Success[1:] // the key is put where it was, and not removed
	}
	return in
}
