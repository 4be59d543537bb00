package item

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The verbs by which holds end, as places name them. Heartbeat moves the item to another session.
const (
	VerbComplete  = "complete"
	VerbFail      = "fail"
	VerbSnooze    = "snooze"
	VerbRelease   = "release"
	VerbDiscard   = "discard"
	VerbHeartbeat = "heartbeat"
	verbLost      = "lost"
)

// Complete removes the item from the queue, and carries out operations of the caller with that.
type Complete struct {
	Held
	Topic string
	// Keep is the lease of what remains of the item, 0 if nothing does: a tombstone if the item is
	// remembered, or else the note by which an adopted lease knows that it was the one that completed it.
	Keep     int64
	Remember bool
	Result   []byte // for those who wait, if it is remembered
	Then     []*pb.RequestOp
	Now      time.Time
}

// Build returns the request.
func (s Complete) Build() *pb.TxnRequest {
	st, key := s.State, s.Content(s.State.ID)
	ops := []*pb.RequestOp{remove(key)}
	if st.Moved {
		ops = append(ops, remove(s.Place(st.ID)))
	}
	switch {
	case s.Keep != 0 && s.Remember:
		c := Content{Version: Version, Topic: s.Topic, Seq: st.Seq, Given: true, Done: &Tombstone{
			Fence: s.Fence(), Owner: st.Owner, Attempt: st.Attempts, At: s.Now.UTC(), By: s.By, Result: s.Result,
		}}
		ops[0] = txn.Put([]byte(key), Encode(c), s.Keep)
	case s.Keep != 0:
		p := s.place(VerbComplete)
		p.Version = Version
		ops = append(ops[:1], txn.Put([]byte(s.Place(st.ID)), Encode(p), s.Keep))
	}
	return s.ends(slices.Concat(ops, s.leave(st), s.Then)...)
}

// Fail makes the item wait for its back-off, or buries it after its last attempt.
type Fail struct {
	Held
	Cause     string
	Permanent bool // no attempt can succeed
	Priority  *int // nil: as before
	Wait      time.Duration
	Now       time.Time
}

// Last reports whether it buries the item. Then Wait means nothing.
func (s Fail) Last() bool { return s.State.Attempts >= s.State.Max || s.Permanent }

// Until is when the item is visible again, unless it is buried.
func (s Fail) Until() time.Time { return s.Now.Add(max(s.Wait, 0)).UTC() }

// Build returns the request.
func (s Fail) Build() *pb.TxnRequest {
	st := s.State
	st.ended(s.attempt(AttemptFailed, s.Cause, s.Now))
	if s.Priority != nil {
		st.Priority = *s.Priority
	}
	if s.Last() {
		return s.ends(s.bury(st, s.place(VerbFail), "failed: "+s.Cause, s.Now)...)
	}
	st.Vesting = s.Until()
	return s.ends(s.requeue(st, s.place(VerbFail), s.Now)...)
}

// attempt is the present one, once it has ended.
func (h Held) attempt(ending, text string, now time.Time) Attempt {
	st := h.State
	return Attempt{Number: st.Attempts, Owner: st.Owner, Fence: h.Fence(), Ending: ending, Error: text, At: now.UTC()}
}

// Snooze makes the item visible again at an instant. The attempt does not count.
type Snooze struct {
	Held
	Until, Now time.Time
}

// Build returns the request.
func (s Snooze) Build() *pb.TxnRequest {
	st := s.State
	st.Attempts--
	st.Vesting = s.Until
	return s.ends(s.requeue(st, s.place(VerbSnooze), s.Now)...)
}

// Release gives the item back. It is visible at once, in the place that it had, and
// the attempt does not count.
type Release struct {
	Held
	Now time.Time
}

// Build returns the request.
func (s Release) Build() *pb.TxnRequest {
	st := s.State
	st.Attempts--
	return s.ends(s.uncover(st, s.place(VerbRelease), s.Now)...)
}

// Discard buries the item, with the reason.
type Discard struct {
	Held
	Reason string
	// Empty means that the item has no content. One that is marked as missing is put, because items are
	// found by their contents. If one has been enqueued with the id meanwhile, nothing is left of this one.
	Empty bool
	Now   time.Time
}

// Build returns the request.
func (s Discard) Build() *pb.TxnRequest {
	st := s.State
	st.ended(s.attempt(AttemptDiscarded, s.Reason, s.Now))
	free := s.leave(st)
	st.Lane = 0
	ops := s.bury(st, s.place(VerbDiscard), "discarded: "+s.Reason, s.Now)
	if !s.Empty {
		return s.ends(append(ops, free...)...)
	}
	key := s.Content(st.ID)
	c := Content{
		Version: Version, Given: st.Given, Seq: st.Seq, Rank: s.rank(st.Priority, st.Vesting),
		Vesting: st.Vesting, Enqueued: st.Vesting, Missing: true,
	}
	return s.ends(append(free, inner([]*pb.Compare{absent(key)}, append(ops, put(key, Encode(c)))...))...)
}
