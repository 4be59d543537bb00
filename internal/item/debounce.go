package item

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// VerbDebounce is what moves an item that is enqueued again before it has vested, as places name it.
const VerbDebounce = "debounce"

// Debounce gives an item that has not vested another payload, and moves its vesting time.
type Debounce struct {
	Keys
	*Entry
	Before      Content
	Payload     []byte
	Quiet, Most time.Duration // the item vests Quiet from now, but not later than Most after it was enqueued first
	Now         time.Time
}

// Build returns the request. It is to require the generation of its session.
func (s Debounce) Build() *pb.TxnRequest {
	st := s.State
	st.Vesting = s.Now.Add(s.Quiet).UTC()
	if last := s.Before.Enqueued.Add(s.Most).UTC(); last.Before(st.Vesting) {
		st.Vesting = last
	}
	c := s.Before
	c.Payload, c.Rank, c.Vesting = s.Payload, s.rank(st.Priority), st.Vesting
	to := s.index(st, s.Now)
	in := s.changes(append(s.move(st, to, Place{Verb: VerbDebounce}), put(s.Content(st.ID), Encode(c)))...)
	if to == s.Entry.Key() {
		in.Success = in.Success[1:] // the key is put where it was, and not removed
	}
	return in
}
