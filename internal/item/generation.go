package item

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Generation is the ModRevision of a session's entry below worker/. Each request of the session that
// is not guarded by an item's fence requires it. So one of unknown outcome can be looked up: after
// Void, keys that are not there never will be.
type Generation struct {
	Keys
	Session string
	Rev     int64
}

// Require adds the condition to a request. If a condition does not hold, the reply ends with the entry.
func (s Generation) Require(in *pb.TxnRequest) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: append(slices.Clip(in.Compare), unmoved(s.Worker(s.Session), s.Rev)),
		Success: in.Success,
		Failure: append(slices.Clip(in.Failure), keysOnly(get(s.Worker(s.Session)))),
	}
}

// Judge returns the generation that a refused request found; 0 if the entry is gone.
func (s Generation) Judge(resp *pb.TxnResponse) int64 {
	return revision(kvs(resp, len(resp.Responses)-1))
}

// Void reads, and makes all requests of earlier generations void. The revision of the reply is the
// new generation. value is that of the entry.
func (s Generation) Void(value string, reads ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{Success: append(slices.Clip(reads), put(s.Worker(s.Session), value))}
}

// Leave removes the entry of a session whose process ends it, unless it has items: then those who
// recover them need it.
func (s Generation) Leave() *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{txn.NoneUnder(s.TakenBy(s.Session))}, Success: s.unregister(s.Session)}
}

func (k Keys) unregister(session string) []*pb.RequestOp {
	return []*pb.RequestOp{remove(k.Worker(session)), remove(k.Idle(session))}
}

// Activate notes that the queue has work, if that is not noted. The note has the spec, of which etcd has
// no other key yet if no process but an outbox has used the queue.
func (k Keys) Activate() *pb.RequestOp {
	return inner([]*pb.Compare{absent(k.Active())}, put(k.Active(), Encode(k.spec)))
}

// Deactivate removes the note that the queue has work. It is removed only if the queue is empty at that
// instant. So an enqueue that comes at the same time finds it, or makes it anew.
func (k Keys) Deactivate() *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{
			txn.NoneUnder(k.Ready()), txn.NoneUnder(k.Later()), txn.NoneUnder(k.Behind()),
			txn.NoneUnder(k.Taken()),
		},
		Success: []*pb.RequestOp{remove(k.Active())},
	}
}

// Pausing is the value of the key paused.
type Pausing struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Why     string    `json:"why"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until,omitzero"` // when it ends by itself; zero for never
}

// Over reports whether the pause has ended by itself: what remains is that a claimer removes its key.
func (p Pausing) Over(now time.Time) bool { return pausing.Over(p.Until, now) }

// Pause stops all claiming. It replaces the pause of the revision, 0 for none: then claimers that wait look
// when the new one ends. If the queue is paused otherwise, the reply begins with that pause.
func (k Keys) Pause(p Pausing, replaces int64) *pb.TxnRequest {
	in := &pb.TxnRequest{
		Compare: []*pb.Compare{unmoved(k.Paused(), replaces)},
		Success: []*pb.RequestOp{put(k.Paused(), Encode(p.bounded()))},
		Failure: []*pb.RequestOp{get(k.Paused())},
	}
	if replaces != 0 {
		in.Success = append(in.Success, put(k.Bell(), bare()))
	}
	return in
}

// bounded returns the pause as it is stored.
func (p Pausing) bounded() Pausing {
	p.Version, p.Why = Version, Cut(p.Why)
	return p
}

// JudgePause returns the pause that refused another, and its revision. Same reports whether that other one
// was carried out after all, by an earlier request.
func (k Keys) JudgePause(p Pausing, resp *pb.TxnResponse) (is Pausing, rev int64, same bool, err error) {
	for _, kv := range kvs(resp, 0) {
		is, err = Decode[Pausing](kv.Key, kv.Value)
		return is, kv.ModRevision, string(kv.Value) == Encode(p.bounded()), err
	}
	return is, 0, false, nil
}

// EndPause removes the pause of the revision, which is over, and wakes all claimers that wait.
func (k Keys) EndPause(rev int64) *pb.TxnRequest {
	in := k.Resume()
	in.Compare = []*pb.Compare{unmoved(k.Paused(), rev)}
	return in
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
