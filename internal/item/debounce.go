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
	Topic       string
	Enqueued    time.Time // first
	Payload     []byte
	Quiet, Most time.Duration // the item vests Quiet from now, but not later than Most after Enqueued
	Now         time.Time
}

// Build returns the request. It is to require the generation of its session.
func (s Debounce) Build() *pb.TxnRequest {
	st := s.State
	st.Vesting = s.Now.Add(s.Quiet).UTC()
	if last := s.Enqueued.Add(s.Most).UTC(); last.Before(st.Vesting) {
		st.Vesting = last
	}
	c := Content{
		Version: Version, Topic: s.Topic, Payload: s.Payload, Given: st.Given, Seq: st.Seq,
		Rank: s.rank(st.Priority), Vesting: st.Vesting, Enqueued: s.Enqueued.UTC(),
	}
	to := s.index(st, s.Now)
	in := s.changes(append(s.move(st, to, Place{Verb: VerbDebounce}), put(s.Content(st.ID), Encode(c)))...)
	if to == s.Entry.Key() {
		in.Success = in.Success[1:] // the key is put where it was, and not removed
	}
	return in
}
