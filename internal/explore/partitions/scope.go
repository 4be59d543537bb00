package partitions

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/protocol"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scope is what a search covers.
type Scope struct {
	Members    int // each may join once, and once more after each restart
	Partitions int
	Faults     Faults
	Grain      Grain

	// Recorded has etcd begin as a real one, and remember what is done to it.
	Recorded bool
	Wrong    Wrong
}

// Wrong is a deliberate fault. Zero means no fault.
type Wrong struct {
	Request func(step string, in *pb.TxnRequest) *pb.TxnRequest // sent in place of a step's
	Plan    func(member string, a group.Assignment) group.Plan  // that a member makes
	Guard   func(h *protocol.Held) []*pb.Compare                // of a claim
	Rev     func(rev int64) int64                               // at which an attempt has won
	Overrun bool                                                // the deadline of a member is too late
}

// Grain is what counts as one event.
type Grain int

// The grains.
const (
	Fine   Grain = iota // a request arrives, and its answer does
	AtOnce              // both together: no answer is under way while others act
	Coarse              // and requests are on no way at all; what is seen of the group is seen at once
)

var grainNames = map[Grain]string{Fine: "fine", AtOnce: "answered at once", Coarse: "coarse"}

// String names the scope without its faults.
func (s *Scope) String() string {
	return fmt.Sprintf("%d members, %d partitions, %s", s.Members, s.Partitions, grainNames[s.Grain])
}

// Describe lists the faults.
func (s *Scope) Describe() string {
	var all []string
	for f, n := range s.Faults {
		if n > 0 {
			all = append(all, fmt.Sprint(n, " ", Fault(f)))
		}
	}
	return strings.Join(all, ", ")
}

// Fault is a kind of fault, or of what else comes from outside.
type Fault int

// The faults.
const (
	LostRequest Fault = iota // no answer comes; the request arrives later, or never
	LostReply                // no answer comes; the request was carried out
	Crash                    // a process dies
	Restart                  // and another takes its name
	Silence                  // the deadline of a member passes, and its lease ends only later
	Revocation               // a lease ends before the deadline
	Leave                    // a member leaves in order
	Cut                      // a member waits no longer for a partition while a request for it is under way
	Suspicion                // a member is taken for dead: see Member.outlive of group
	Impatience               // a member that leaves stops waiting for the members that take over its partitions
	faults      = iota
)

var faultNames = [faults]string{
	"request lost or late", "reply lost", "crash", "restart", "deadline passed early", "lease revoked early",
	"member left", "wait cut short", "live member suspected", "left without waiting",
}

// String returns the name of the fault.
func (f Fault) String() string { return faultNames[f] }

// Faults is how often each fault may happen.
type Faults [faults]int8

// One returns faults that may happen once each.
func One(all ...Fault) (f Faults) {
	for _, fault := range all {
		f[fault]++
	}
	return f
}

// Scopes returns all scopes.
func Scopes() (all []Scope) {
	add := func(members, partitions int, g Grain, faults ...Fault) {
		all = append(all, Scope{Members: members, Partitions: partitions, Grain: g, Faults: One(faults...)})
	}
	add(2, 1, Fine)
	add(2, 1, Fine, LostRequest)
	add(2, 1, Fine, LostReply)
	add(2, 1, Fine, Cut)
	add(2, 1, Fine, Leave, Impatience)
	add(2, 1, Fine, Crash, Restart)
	add(2, 1, Fine, Revocation)
	add(2, 1, Coarse, Silence)
	add(2, 1, Fine, Suspicion)
	add(2, 2, Coarse, Suspicion)
	add(2, 2, AtOnce)
	add(2, 2, AtOnce, LostRequest)
	add(2, 2, AtOnce, LostReply)
	add(2, 2, Coarse, Leave, Impatience)
	add(2, 2, Coarse, Crash, Restart)
	add(3, 1, Coarse, Leave)
	add(3, 2, Coarse)
	return all
}

// IsQuick reports whether a scope is searched within a second or two.
func (s *Scope) IsQuick() bool {
	lost := s.Faults[LostRequest]+s.Faults[LostReply] > 0
	return s.Faults == Faults{} && s.Members == 2 || lost && s.Partitions == 1
}
