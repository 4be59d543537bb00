package lease

import "time"

const (
	// Parts is the number of renewals in which each claim of a session with many is verified
	// once. They come at each third of the TTL.
	Parts = 3
	// mostLate is how late a renewal can be that verifies only a part.
	mostLate = 300 * time.Millisecond
)

// Turn is which claims a renewal verifies.
type Turn struct {
	All    bool   // every claim
	Part   uint64 // of Parts, if there are many and not all are verified
	Origin Origin // of the verification before, zero if there was none
}

// Verified is what a verification found out beside what it was for.
type Verified struct {
	Rev    int64 // a revision as of which the claims were verified
	Origin Origin
}

// Origin identifies the cluster and the leader's term that answered a request. The
// member is not part of it, since connections to several take turns.
type Origin struct{ Cluster, Term uint64 }

// rotation is how far a session has verified its claims. Only the attempt to renew that is
// under way uses it.
type rotation struct {
	part   uint64 // that the next renewal verifies
	sound  bool   // the last attempt to renew succeeded
	doubts int64  // the client's, before it
}

// begin notes that an attempt to renew begins, and returns whether it has to verify all claims.
func (r *rotation) begin(all bool, doubts int64) bool {
	all = all || !r.sound || r.doubts != doubts
	r.sound, r.doubts = false, doubts
	return all
}

// succeeded notes that the attempt has verified its part.
func (r *rotation) succeeded() {
	r.sound = true
	r.part = (r.part + 1) % Parts
}
