package etcdclaims

import (
	"encoding/json"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

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
	// turns is the number of renewals in which each claim of a larger session is verified
	// once. They come at each third of the TTL.
	turns = 3
	// mostLate is how late a renewal can be that verifies only a part.
	mostLate = 300 * time.Millisecond
	// mostNotices is how many notices one renewal reads. Those that were read are removed.
	mostNotices = 128
)

// rotation is how far a session has verified its claims. Only the attempt to renew that is
// under way uses it.
type rotation struct {
	turn   uint64 // that the next renewal verifies
	sound  bool   // the last attempt to renew succeeded
	doubts int64  // the client's, before it
	origin origin // of its replies
	seed   maphash.Seed
}

// origin identifies the cluster and the leader's term that answered a request. The
// member is not part of it, since connections to several take turns.
type origin struct{ cluster, term uint64 }

func originOf(h *pb.ResponseHeader) origin { return origin{h.ClusterId, h.RaftTerm} }

// extent is which claims a renewal verifies.
type extent int

const (
	inTurn     extent = iota // a part of them, if there are many
	everything               // all
)

// begin notes that an attempt to renew begins, and returns which claims it has to
// verify.
func (r *rotation) begin(what extent, late bool, doubts int64) extent {
	if !r.sound || late || r.doubts != doubts {
		what = everything
	}
	r.sound, r.doubts = false, doubts
	return what
}

// succeeded notes that the attempt has verified these claims.
func (r *rotation) succeeded() {
	r.sound = true
	r.turn = (r.turn + 1) % turns
}

// check is one verification of terms.
type check struct {
	terms  []*term // that are verified
	all    []*term // that the session has, if not all of them are verified
	origin origin  // of the verification before

	doubtful atomic.Bool // a term that is left out may be lost
	mu       sync.Mutex
	latest   origin
}

// learn notes where a reply comes from. After an election, and in a cluster that was
// restored, it comes from elsewhere.
func (k *check) learn(h *pb.ResponseHeader) {
	from := originOf(h)
	k.mu.Lock()
	k.latest = from
	k.mu.Unlock()
	if from != k.origin {
		k.doubtful.Store(true)
	}
}

// compare deals with what was read for the terms that are left out.
func (k *check) compare(s *session, replies []*pb.ResponseOp) {
	sound := s.undisturbed(replies[1:])
	for _, t := range k.all {
		sound = t.found(t.OfEpoch(replies[0].GetResponseRange().Kvs)) && sound
	}
	if !sound {
		k.doubtful.Store(true)
	}
}

// pick returns the terms that are verified in this turn. A part depends on their keys
// alone, so that each has its turn, however many terms begin and end. The others are the
// youngest term, and those that callers of this client wait for.
func (s *session) pick(terms []*term) (picked []*term) {
	youngest := terms[0]
	for _, t := range terms {
		if t.Fence > youngest.Fence {
			youngest = t
		}
	}
	for _, t := range terms {
		if t == youngest || maphash.String(s.rotation.seed, t.Key)%turns == s.rotation.turn || s.c.local.Awaited(&t.local) {
			picked = append(picked, t)
		}
	}
	return picked
}

// readSession reads the keys that show the loss of claims without a read of each: the
// sentinel, and the notices of claims that were taken away.
func (s *session) readSession() []*pb.RequestOp {
	l := s.c.store.Layout
	notices := txn.Range(l.Eviction(l.Instance, ""))
	notices.GetRequestRange().Limit = mostNotices
	return []*pb.RequestOp{txn.Get([]byte(l.Sentinel(s.n))), notices}
}

// undisturbed handles the reply to readSession. False means that claims may have been
// lost.
func (s *session) undisturbed(replies []*pb.ResponseOp) bool {
	sentinel, notices := replies[0].GetResponseRange().Kvs, replies[1].GetResponseRange()
	sound := len(sentinel) == 1 && sentinel[0].ModRevision == s.born && sentinel[0].Lease == int64(s.id)
	for _, kv := range notices.Kvs { // of other sessions, too: they would stay, and take the place of this one's
		if s.unheard(kv) && kv.Lease == int64(s.id) {
			sound = false
		}
	}
	return sound && !notices.More
}

// unheard handles a notice. It reports whether the watch had not delivered it, or whether
// the claim that it is about is not known.
func (s *session) unheard(kv *mvccpb.KeyValue) bool {
	var e protocol.Eviction
	if err := json.Unmarshal(kv.Value, &e); err != nil || e.Version > protocol.Version {
		return true
	}
	t := s.c.evicted(kv)
	if t == nil {
		return false
	}
	t.missedNews()
	return true
}
