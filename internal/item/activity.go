package item

import (
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Activate notes that the queue has work, if that is not noted. The note has the spec, of which etcd has
// no other key yet if no process but an outbox has used the queue.
func (k Keys) Activate() *pb.RequestOp {
	return inner([]*pb.Compare{absent(k.Active())}, put(k.Active(), Encode(k.spec)))
}

// Deactivate removes the note that the queue has work. It is removed only if the queue is empty at that
// instant. So an enqueue that comes at the same time finds it, or makes it anew.
func (k Keys) Deactivate() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{txn.NoneUnder(k.Ready()), txn.NoneUnder(k.Later()), txn.NoneUnder(k.Taken())},
		Success: []*pb.RequestOp{remove(k.Active())},
	}
}

// Pausing is the value of the key paused.
type Pausing struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Why     string    `json:"why"`
	At      time.Time `json:"at"`
}

// Pause stops all claiming.
func (k Keys) Pause(p Pausing) *pb.TxnRequest {
	p.Version, p.Why = Version, Cut(p.Why)
	return &pb.TxnRequest{
		Compare: []*pb.Compare{absent(k.Paused())},
		Success: []*pb.RequestOp{put(k.Paused(), Encode(p))},
	}
}

// Resume ends a pause, and wakes all claimers that wait.
func (k Keys) Resume() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{exists(k.Paused())},
		Success: []*pb.RequestOp{remove(k.Paused()), put(k.Bell(), bare())},
	}
}

// Register notes that the session's process waits for items.
func (s Generation) Register() *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{put(s.Idle(s.Session), bare())}}
}

// Unregister removes that note.
func (s Generation) Unregister() *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{remove(s.Idle(s.Session))}}
}
