package item

import (
	"slices"

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
