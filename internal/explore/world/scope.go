package world

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/fault"
	"github.com/etcdclaims/claims/internal/protocol"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scope is what a search covers.
type Scope struct {
	Name    string
	Callers []Caller
	Faults  Faults
	// Most is how many faults there are at most in all, each of those in Faults any number of times. Zero means each of
	// Faults as often as it says.
	Most int
	// Drop is a condition that each request of a step lacks, or nil: a deliberate fault.
	Drop *Condition

	// Recorded has etcd begin as a real one, and remember what is done to it.
	Recorded bool

	renamings []renaming // that make no difference
	saw       steps      // or nil
}

// isSymmetric reports whether all clients do the same.
func (s *Scope) isSymmetric() bool {
	return !slices.ContainsFunc(s.Callers, func(c Caller) bool { return !slices.Equal(c.Calls, s.Callers[0].Calls) })
}

// most is how many faults there are at most.
func (s *Scope) most() (n int8) {
	if s.Most > 0 {
		return int8(s.Most)
	}
	for _, times := range s.Faults {
		n += times
	}
	return n
}

// repeats reports whether a fault may happen again, so that which have happened makes no difference. Records of work
// count what has ended attempts. A second restore before the epoch was raised is an operator's mistake.
func (s *Scope) repeats() bool {
	works := func(c Caller) bool { return c.Calls[0].Work != Unrecorded }
	return s.Most > 0 && s.Faults[Restore] == 0 && !slices.ContainsFunc(s.Callers, works)
}

// Caller is a client, and what it calls, one call after the other.
type Caller struct {
	Calls []Call
}

// Call is a call for the key, and what its holder does then.
type Call struct {
	Waits  bool // in line; else it takes the key or leaves it
	Mode   Kind
	Noted  bool // the claim has a note
	Meets  bool // on the condition that a key does not exist
	Writes bool // the holder writes to a resource, under its guard
	Ops    bool // the claim ends together with an operation of the holder
	Moves  bool // the holder's handler does not stop in time: its claim is moved to a lease that nobody renews
	Frees  bool // the release hands the key to nobody
	Parts  bool // the release is not waited for: the key is deleted later, or taken over by the next call

	Work       Outcome // of work whose record is beside the claim
	AtMostOnce bool    // likewise
}

// Kind is how a call has the key.
type Kind int

// The kinds of calls.
const (
	Exclusive Kind = iota
	Slots2
	Shared
)

// userKey is the key that all calls are for.
const userKey = "k"

func (k Kind) mode(l protocol.Layout) protocol.Mode {
	switch k {
	case Slots2:
		return protocol.NewSlots(l, userKey, 2, 0)
	case Shared:
		return protocol.NewShared(l, userKey)
	}
	return protocol.Exclusive{Layout: l, Key: userKey}
}

// Fault is a kind of fault, or of what else comes from outside.
type Fault int

// The faults.
const (
	LostRequest Fault = iota // no answer comes; the request arrives later, or never
	LostReply                // no answer comes; the request was carried out
	LateReply                // the answer takes its time
	Twice                    // a request is carried out, and may be once more, later
	Crash                    // a client's process dies
	Restart                  // and another takes its place
	Expiry                   // a lease ends, after the deadline of its client
	Revocation               // a lease ends before that
	Silence                  // the deadline of a client passes while its lease goes on
	Deletion                 // an operator deletes a key
	Force                    // an operator releases a claim by force
	EpochRaise               // an operator raises the epoch
	Restore                  // etcd is put back to an earlier state
	GivingUp                 // a caller waits no longer
	Closing                  // a client is closed before it has made its calls
	Deafness                 // no event reaches a client any more
	Resize                   // an operator changes the number of slots
	Unmeeting                // the condition of the callers holds no longer
	faults      = iota
)

var faultNames = [faults]string{
	"request lost or late", "reply lost", "reply late", "request carried out twice",
	"crash", "restart", "lease expired", "lease revoked early",
	"deadline passed early", "key deleted by hand", "released by force", "epoch raised", "restored", "caller gave up", "closed", "deaf watch",
	"number of slots changed", "condition fails",
}

// String returns the name of the fault.
func (f Fault) String() string { return faultNames[f] }

// Faults is how often each fault may happen.
type Faults [faults]int8

// One returns faults that may happen once each.
func One(all ...Fault) (f Faults) {
	for _, fault := range all {
		f[fault] = 1
	}
	return f
}

// Describe names the faults of a scope.
func (s *Scope) Describe() string {
	var names []string
	total := 0
	for f, n := range s.Faults {
		if total += int(n); n > 0 {
			names = append(names, Fault(f).String())
		}
	}
	if s.Most == 0 || s.Most >= total {
		return "each of: " + strings.Join(names, ", ")
	}
	text := fmt.Sprintf("%d of: %s", s.Most, strings.Join(names, ", "))
	if s.Most > 1 && s.repeats() {
		text += "; or one of them again"
	}
	return text
}

// Condition names a condition of a step by what it is on. All those with this name are dropped together.
type Condition struct {
	Step string
	On   string // such as "own/k mod equal"
}

// String names the condition with its step.
func (c Condition) String() string { return c.Step + " without " + c.On }

// nameOfPart is the slot in a key, or the attempt that shares it.
var nameOfPart = regexp.MustCompile(`(#(slot|shared)-).*`)

// conditionOf names a condition of a step of a caller.
func conditionOf(step string, by Kind, c *pb.Compare) Condition {
	on := strings.TrimPrefix(string(c.Key), prefix)
	for _, kind := range []string{layout.Lines(), layout.Sessions(), layout.Void("")} {
		if strings.HasPrefix(prefix+on, kind) { // the rest names an attempt, or a client
			on = strings.TrimPrefix(kind, prefix) + "…"
		}
	}
	on = nameOfPart.ReplaceAllString(on, "$1…")
	if by != Exclusive && prefix+on == layout.Own(userKey) {
		on = "record"
	}
	if len(c.RangeEnd) > 0 {
		on += " range"
	}
	return Condition{step, on + " " + strings.ToLower(c.Target.String()+" "+c.Result.String())}
}

// without returns a request of the step without the condition.
func (c Condition) without(by Kind, in *pb.TxnRequest) *pb.TxnRequest {
	return fault.Without(in, func(one *pb.Compare) bool { return conditionOf(c.Step, by, one) == c })
}

// steps are the conditions of all requests of a search by one worker.
type steps map[Condition]bool

func (s steps) saw(step string, by Kind, in *pb.TxnRequest) {
	fault.Transactions(in, func(one *pb.TxnRequest) {
		for _, c := range one.Compare {
			s[conditionOf(step, by, c)] = true
		}
	})
}
