package item

import (
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// New is an item that is to be enqueued.
type New struct {
	ID       string
	Given    bool   // the caller chose the id
	Seq      string // of when it was enqueued
	Topic    string
	Key      string // the partition key
	Payload  []byte
	Priority int
	Vesting  time.Time
	Max      int // attempts
}

// begun returns the values of an item that is enqueued.
func (k Keys) begun(it New, now time.Time) (Content, State) {
	st := State{
		Version: Version, ID: it.ID, Given: it.Given, Seq: it.Seq,
		Priority: it.Priority, Vesting: it.Vesting.UTC(), Max: it.Max, Key: it.Key,
	}
	return Content{
		Version: Version, Topic: it.Topic, Key: it.Key, Payload: it.Payload, Given: it.Given, Seq: it.Seq,
		Rank: k.rank(it.Priority, st.Vesting), Vesting: st.Vesting, Enqueued: now.UTC(),
	}, st
}

// Enqueue puts an item into the queue, unless its id is there. It does not note that the queue has
// work.
type Enqueue struct {
	Keys
	New
	Now time.Time
}

// Build returns the request. If the id is there, it reads the item's place.
func (s Enqueue) Build() *pb.TxnRequest {
	key := s.Content(s.ID)
	c, st := s.begun(s.New, s.Now)
	return &pb.TxnRequest{
		Compare: []*pb.Compare{absent(key)},
		Success: []*pb.RequestOp{put(key, Encode(c)), put(s.index(st, s.Now), Encode(st))},
		Failure: []*pb.RequestOp{get(s.Place(s.ID))},
	}
}

// Entered is what an enqueue has done.
type Entered int

// What it has done.
const (
	Added     Entered = iota
	Had               // the queue has an item of this id, or remembers one
	HadBuried         // a dead letter has this id
)

// Judge takes the reply apart.
func (s Enqueue) Judge(resp *pb.TxnResponse) Entered {
	if resp.Succeeded {
		return Added
	}
	return s.Known(kvs(resp, 0))
}

// Known judges an id that is there by its place.
func (k Keys) Known(places []*mvccpb.KeyValue) Entered {
	for _, kv := range places {
		if p, err := Decode[Place](kv.Key, kv.Value); err == nil && strings.HasPrefix(k.Placed(p), k.Dead()) {
			return HadBuried
		}
	}
	return Had
}

// Marked reports whether the item was put, as the events of its history tell up to the revision
// at which its mark was put. The item may be completed already, so it is not enough to look for it.
// Another item with its id does not count. known is false if the events do not reach so far.
func (s Enqueue) Marked(events []*mvccpb.Event, end int64) (put, known bool) {
	for _, ev := range events {
		created := ev.Type == mvccpb.Event_PUT && ev.Kv.CreateRevision == ev.Kv.ModRevision
		switch {
		case ev.Kv.ModRevision >= end:
			return false, true
		case string(ev.Kv.Key) == s.Content(s.ID):
			if c, err := Decode[Content](ev.Kv.Key, ev.Kv.Value); created && err == nil && c.Seq == s.Seq {
				return true, true
			}
		}
	}
	return false, false
}

// Mark puts the mark, on a lease. It stands right behind the item's content.
func (s Enqueue) Mark(lease int64) *pb.RequestOp { return txn.Put([]byte(s.mark(s.ID)), "", lease) }

// History is the range of the content and the mark.
func (s Enqueue) History() (from, end string) { return s.Content(s.ID), s.mark(s.ID) + "\x00" }

// EnqueueAll puts several items into the queue, each unless its id is there, and notes that the queue
// has work.
type EnqueueAll struct {
	Keys
	Items []New
	Now   time.Time
	Room  *Room // that the queue must have, nil if it has no bound
}

func (s EnqueueAll) one(i int) Enqueue { return Enqueue{s.Keys, s.Items[i], s.Now} }

// Build returns the request.
func (s EnqueueAll) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{Success: []*pb.RequestOp{s.Activate()}}
	for i := range s.Items {
		in.Success = append(in.Success, txn.Nest(s.one(i).Build()))
	}
	if s.Room != nil {
		in.Compare = []*pb.Compare{unmoved(s.bound(), s.Room.Rev)}
		in.Success = append(in.Success, put(s.bound(), bare()))
	}
	return in
}

// Judge takes the reply apart, unless the room has changed: what has become of each item.
func (s EnqueueAll) Judge(resp *pb.TxnResponse) (each []Entered) {
	for i := range s.Items {
		each = append(each, s.one(i).Judge(resp.Responses[1+i].GetResponseTxn()))
	}
	return each
}

// Room is how many items wait in a queue with MaxWaiting, and the condition under which no more do:
// nothing was enqueued since, but by Op. Items that leave only make room, and
// those that come back from workers and dead letters do so whether or not there is room. A
// condition on the items themselves would make etcd read all of them before the next
// request.
type Room struct {
	Waiting int
	Rev     int64 // of the key that each enqueue writes
}

// ReadRoom reads the room.
func (k Keys) ReadRoom() []*pb.RequestOp {
	return []*pb.RequestOp{
		count(txn.Range(k.Ready())), count(txn.Range(k.Later())), count(txn.Range(k.Behind())), keysOnly(get(k.bound())),
	}
}

// JudgeRoom takes the reply apart.
func (k Keys) JudgeRoom(resp *pb.TxnResponse) Room {
	return Room{Waiting: int(counted(resp, 0) + counted(resp, 1) + counted(resp, 2)), Rev: revision(kvs(resp, 3))}
}
