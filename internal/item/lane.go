package item

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Each partition key has as many lanes as Spec.KeyLimit. An item gets one by which it moves from behind/ to
// ready/, and has it until it is completed, cancelled or dead. So an item of a key that is visible has a lane,
// claims need no condition about keys, and what ends an attempt need not change lanes.

// Behind is the prefix of items that have vested, and wait for a lane of their key.
func (k Keys) Behind() string { return k.at.behind }

func (k Keys) behind(digest string) string { return k.Behind() + digest + "/" }

// BehindAfter is behind the items that wait for lanes of the keys up to the one with the digest.
func (k Keys) BehindAfter(digest string) string { return keyspace.RangeEnd(k.behind(digest)) }

// BehindAt is the key of an item that waits for a lane of its key.
func (k Keys) BehindAt(key, rank string, vesting time.Time, seq string) string {
	return k.behind(keyspace.Digest(key)) + order(rank, vesting, seq)
}

// Lanes is the prefix of the lanes of all keys.
func (k Keys) Lanes() string { return k.at.lane }

func (k Keys) lanes(digest string) string { return k.Lanes() + digest + "/" }

func (k Keys) lane(digest string, n int) string { return fmt.Sprintf("%s%05d", k.lanes(digest), n) }

// LaneDigest returns the digest of the partition key that a key below behind/ or lane/ is of, or "".
func (k Keys) LaneDigest(key string) string {
	for _, prefix := range []string{k.Behind(), k.Lanes()} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			digest, _, _ := strings.Cut(rest, "/")
			return digest
		}
	}
	return ""
}

// LaneLimit is how many lanes each key has.
func (s Spec) LaneLimit() int { return max(1, s.KeyLimit) }

// laneOwner is the value of a lane: the item that has it.
func laneOwner(seq, id string) string { return seq + "/" + id }

// Lacks reports whether the item has a partition key and no lane, so it must not be claimed.
func (st State) Lacks() bool { return st.Key != "" && st.Lane == 0 }

// leave is the operation that frees the item's lane, if it has one. It may have another item by now: then its own
// content was deleted by hand, or its state could not be read.
func (k Keys) leave(st State) []*pb.RequestOp {
	if st.Lane == 0 {
		return nil
	}
	lane := k.lane(keyspace.Digest(st.Key), st.Lane)
	return []*pb.RequestOp{inner([]*pb.Compare{txn.ValueIs([]byte(lane), laneOwner(st.Seq, st.ID))}, remove(lane))}
}

// mostTurns is how many items of one key get lanes by one request.
const mostTurns = 16

// Turns finds the items that are to get the free lanes of some partition keys: the first that wait.
type Turns struct {
	Keys
	Looks []Look
	Now   time.Time
}

// Look is how a partition key is looked at.
type Look struct {
	Digest string // of the partition key
	From   string // no item that can be read is before it; "": not known
	End    string // up to which key to read, for etcd counts all that it could read; "": all
	Again  bool   // others may get lanes, too, once the items that were found have theirs
}

// few is how many items a look reads. One without an end finds it.
func (s Turns) few(l Look) int {
	if l.End == "" {
		return mostTurns
	}
	return min(mostTurns, s.spec.LaneLimit())
}

// Build returns the operations.
func (s Turns) Build() (ops []*pb.RequestOp) {
	for _, l := range s.Looks {
		all := s.behind(l.Digest)
		items := first(s.few(l), cmp.Or(l.From, all), cmp.Or(l.End, keyspace.RangeEnd(all)))
		ops = append(ops, keysOnly(txn.Range(s.lanes(l.Digest))), items)
	}
	return append(ops, count(first(0, s.Later(), s.LaterBy(s.Now))))
}

// Turn is an item that waits, and the lane that it is to get.
type Turn struct {
	*Entry
	Digest string // of its partition key
	after  string // no item is between this key and the item
	lane   int
}

// Queued is what Turns has found.
type Queued struct {
	Turns      []Turn
	Next       []Look // of each key
	Late       bool   // items have vested that are still among the later ones: some may come before the others
	Unreadable []error
}

// Judge takes the reply apart.
func (s Turns) Judge(resp *pb.TxnResponse) (q Queued) {
	q.Late = counted(resp, 2*len(s.Looks)) > 0
	for i, l := range s.Looks {
		used, page := map[string]bool{}, kvs(resp, 2*i+1)
		for _, kv := range kvs(resp, 2*i) {
			used[string(kv.Key)] = true
		}
		free := s.spec.LaneLimit() - len(used) // less than 0 with lanes of a higher limit
		after, lane := cmp.Or(l.From, s.behind(l.Digest)), 0
		l.From = after
		for _, kv := range page {
			e, err := s.Entry(kv)
			if err == nil && (keyspace.Digest(e.State.Key) != l.Digest || !e.State.Lacks()) {
				err = fmt.Errorf("%s has the state of an item of another partition key", kv.Key)
			}
			switch at := after; {
			case err != nil:
				q.Unreadable = append(q.Unreadable, err)
				if after = string(kv.Key) + "\x00"; lane == 0 {
					l.From = after
				}
			case free > 0:
				for lane++; used[s.lane(l.Digest, lane)]; lane++ {
				}
				q.Turns = append(q.Turns, Turn{Entry: e, Digest: l.Digest, after: at, lane: lane})
				after, free = string(kv.Key)+"\x00", free-1
			}
		}
		full := len(page) == s.few(l)
		l.Again = free > 0 && (full || l.End != "")
		switch {
		case l.End == "" && full && !l.Again:
			l.End = string(page[len(page)-1].Key) + "\x00"
		case !full && l.Again, counted(resp, 2*i+1) > 4*mostTurns:
			l.End = ""
		}
		q.Next = append(q.Next, l)
	}
	return q
}

// Advance makes items visible whose turn has come. It can be repeated, and come late: an item is moved only from
// where it was read, into a lane that is free, and before no other.
type Advance struct {
	Keys
	Turns []Turn
}

// Build returns the request.
func (s Advance) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for _, t := range s.Turns {
		st, to, lane := t.State, s.Ready()+t.At, s.lane(t.Digest, t.lane)
		st.Lane = t.lane
		then := []*pb.RequestOp{remove(t.Key()), put(to, Encode(st)), put(lane, laneOwner(st.Seq, st.ID))}
		if st.Moved {
			then = append(then, put(s.Place(st.ID), Encode(Place{Version: Version, Key: to[len(s.root):], Verb: verbTurn})))
		}
		in.Success = append(in.Success, inner([]*pb.Compare{as(t.KV), absent(lane), txn.NoneIn(t.after, t.Key())}, then...))
	}
	return in
}

// verbTurn is by what an item was made visible whose turn has come, as places name it.
const verbTurn = "turn"

// Judge reports of each item whether it was moved.
func (s Advance) Judge(resp *pb.TxnResponse) []bool { return succeeded(resp.Responses) }

// FreeLane frees a lane that no item has, as keys deleted by hand leave, and a state that could not be read.
type FreeLane struct {
	Keys
	Lane *mvccpb.KeyValue
}

// owner returns the item that has the lane.
func (s FreeLane) owner() (seq, id string) {
	seq, id, _ = strings.Cut(string(s.Lane.Value), "/")
	return seq, id
}

// Reads shows what became of the item.
func (s FreeLane) Reads() []*pb.RequestOp {
	_, id := s.owner()
	return []*pb.RequestOp{get(s.Content(id)), get(s.Place(id))}
}

// Judge returns the request that frees the lane, or nil if the item may be in the queue.
func (s FreeLane) Judge(resp *pb.TxnResponse) *pb.TxnRequest {
	seq, id := s.owner()
	contents, places := kvs(resp, 0), kvs(resp, 1)
	gone := len(contents) == 0
	if !gone {
		c, err := Decode[Content](contents[0].Key, contents[0].Value)
		gone = err == nil && (c.Done != nil || c.Seq != seq)
	}
	if !gone && s.Known(places) != HadBuried {
		return nil
	}
	return &pb.TxnRequest{
		Compare: []*pb.Compare{
			as(s.Lane), unmoved(s.Content(id), revision(contents)), unmoved(s.Place(id), revision(places)),
		},
		Success: []*pb.RequestOp{txn.Delete(s.Lane.Key)},
	}
}

// LaneOf reads the lanes of a partition key.
func (k Keys) LaneOf(key string) []*pb.RequestOp {
	return []*pb.RequestOp{txn.Range(k.lanes(keyspace.Digest(key)))}
}

// JudgeLane returns the lane that an item has; 0 if it has none.
func (k Keys) JudgeLane(resp *pb.TxnResponse, seq, id string) (n int) {
	for _, kv := range kvs(resp, 0) {
		if string(kv.Value) == laneOwner(seq, id) {
			_, after, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), k.Lanes()), "/")
			n, _ = strconv.Atoi(after)
		}
	}
	return n
}
