package item

import (
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

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
