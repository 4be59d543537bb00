package term

import (
	"encoding/json"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A session with many claims verifies a third of them at each renewal, another one each
// time. That is enough for two events without a notice: an operator or another program
// deletes the key of a single claim. Each renewal shows all other events that can end
// claims:
//
//   - The end of the lease ends its sentinel, which is read.
//   - A restore from a snapshot removes all keys that were put after a revision. If it
//     removes claims, the youngest is one of them, and that is always verified.
//   - A forced release and a suspicion leave a notice, which is read: the watch may be deaf.
//   - A raised epoch is read, and ends all claims of earlier ones.
//
// After a doubtful event all claims are verified. So are they at each renewal that was
// requested.
const (
	// rotateAbove is the greatest number of claims that a session verifies at each
	// renewal.
	rotateAbove = 1024
	// mostNotices is how many notices one renewal reads. Those that were read are removed.
	mostNotices = 128
)

// check is one verification of the terms of a session.
type check struct {
	ts     *Terms
	s      *lease.Session
	terms  []*Term      // that are verified
	all    []*Term      // that the session has, if not all of them are verified
	origin lease.Origin // of the verification before

	doubtful atomic.Bool // a term that is left out may be lost
	mu       sync.Mutex
	latest   lease.Origin // guarded by mu
}

// learn notes where a reply comes from. After an election, and in a cluster that was
// restored, it comes from elsewhere.
func (k *check) learn(h *pb.ResponseHeader) {
	from := lease.Origin{Cluster: h.ClusterId, Term: h.RaftTerm}
	k.mu.Lock()
	k.latest = from
	k.mu.Unlock()
	if from != k.origin {
		k.doubtful.Store(true)
	}
}

// compare deals with what was read for the terms that are left out.
func (k *check) compare(replies []*pb.ResponseOp) {
	sound := k.undisturbed(replies[1:])
	for _, t := range k.all {
		sound = t.Found(t.OfEpoch(replies[0].GetResponseRange().Kvs)) && sound
	}
	if !sound {
		k.doubtful.Store(true)
	}
}

// pick returns the terms that are verified in this turn. A part depends on their keys
// alone, so that each has its turn, however many terms begin and end. The others are the
// youngest term, and those that callers of this client wait for.
func (ts *Terms) pick(terms []*Term, turn uint64) (picked []*Term) {
	youngest := terms[0]
	for _, t := range terms {
		if t.Fence > youngest.Fence {
			youngest = t
		}
	}
	for _, t := range terms {
		if t == youngest || maphash.String(ts.seed, t.Key)%lease.Parts == turn || ts.Local.Awaited(&t.local) {
			picked = append(picked, t)
		}
	}
	return picked
}

// readSession reads the keys that show the loss of claims without a read of each: the
// sentinel, and the notices of claims that were taken away.
func (k *check) readSession() []*pb.RequestOp {
	l := k.ts.Store.Layout
	notices := txn.Range(l.Eviction(l.Instance, ""))
	notices.GetRequestRange().Limit = mostNotices
	return []*pb.RequestOp{txn.Get([]byte(k.s.Sentinel())), notices}
}

// undisturbed handles the reply to readSession. False means that claims may have been
// lost.
func (k *check) undisturbed(replies []*pb.ResponseOp) bool {
	sentinel, notices := replies[0].GetResponseRange().Kvs, replies[1].GetResponseRange()
	sound := len(sentinel) == 1 && k.s.HasSentinel(sentinel[0].ModRevision, sentinel[0].Lease)
	for _, kv := range notices.Kvs { // of other sessions, too: they would stay, and take the place of this one's
		if k.unheard(kv) && kv.Lease == int64(k.s.ID()) {
			sound = false
		}
	}
	return sound && !notices.More
}

// unheard handles a notice. It reports whether the watch had not delivered it, or whether
// the claim that it is about is not known.
func (k *check) unheard(kv *mvccpb.KeyValue) bool {
	var e protocol.Eviction
	if err := json.Unmarshal(kv.Value, &e); err != nil || e.Version > protocol.Version {
		return true
	}
	t := k.ts.evicted(kv)
	if t == nil {
		return false
	}
	t.missedNews()
	return true
}
