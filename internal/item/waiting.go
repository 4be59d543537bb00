package item

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// DefaultPriority is that of items that say nothing else.
const DefaultPriority = 100

// rank writes the priority of an item so that the order of bytes is the order in which items
// are claimed. If items age, the rank is when an item of priority 0 would have to vest to be as urgent. All
// items age alike: the order of two items does not change while they wait, so no key is written anew.
func (k Keys) rank(priority int, vesting time.Time) string {
	n := int64(priority)
	if k.spec.HigherFirst {
		n = ^n
	}
	if step := int64(k.spec.Aging); step > 0 {
		most := math.MaxInt64 / step
		n = plus(keyspace.Nanos(vesting), min(max(n, -most), most)*step)
	}
	return fmt.Sprintf("%016x", uint64(n)^1<<63)
}

// plus adds within the bounds of an int64.
func plus(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}

// PriorityOf returns the priority that rank wrote for the vesting time. A priority beyond the bounds of
// rank is lost: PriorityOf returns the bound.
func (k Keys) PriorityOf(rank string, vesting time.Time) int {
	bits, err := strconv.ParseUint(rank, 16, 64)
	if err != nil {
		return DefaultPriority
	}
	n := int64(bits ^ 1<<63)
	if k.spec.Aging > 0 {
		n = plus(n, -keyspace.Nanos(vesting)) / int64(k.spec.Aging)
	}
	if k.spec.HigherFirst {
		n = ^n
	}
	return int(n)
}

// VestingOf reads the instant that a key begins with.
func VestingOf(s string) (time.Time, error) {
	if len(s) < 20 {
		return time.Time{}, fmt.Errorf("key %q does not begin with an instant", s)
	}
	n, err := strconv.ParseInt(s[:20], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("key %q does not begin with an instant: %w", s, err)
	}
	return time.Unix(0, n), nil
}

// OrderOf returns the place of an item in the order of the queue, as text.
func (k Keys) OrderOf(st State) string {
	return order(k.rank(st.Priority, st.Vesting), st.Vesting, st.Seq)
}

// index is where the item waits: among those that have vested by now, or not.
func (k Keys) index(st State, now time.Time) string {
	if st.Vesting.After(now) {
		return k.LaterAt(k.rank(st.Priority, st.Vesting), st.Vesting, st.Seq)
	}
	return k.vested(st)
}

// vested is where the item waits once it has vested.
func (k Keys) vested(st State) string {
	if st.Lacks() {
		return k.BehindAt(st.Key, k.rank(st.Priority, st.Vesting), st.Vesting, st.Seq)
	}
	return k.Ready() + k.OrderOf(st)
}

// move is the operations that put the item elsewhere, with its place: all keys but
// the first one of an item are noted, so that it is found by its id. The caller sets
// what p has beside version and key.
func (k Keys) move(st State, key string, p Place) []*pb.RequestOp {
	st.Moved = true
	p.Version, p.Key = Version, key[len(k.root):]
	return []*pb.RequestOp{put(key, Encode(st)), put(k.Place(st.ID), Encode(p))}
}

// requeue is the operations that make an item wait. The note that the queue has
// work stays: it is only removed while nothing is taken.
func (k Keys) requeue(st State, p Place, now time.Time) []*pb.RequestOp {
	st = st.waiting()
	return k.move(st, k.index(st, now), p)
}

// uncover is requeue for an item that is visible at once, in the place that it had: its vesting
// time was past by the clock of who made it visible, and need not be by this one.
func (k Keys) uncover(st State, p Place, now time.Time) []*pb.RequestOp {
	if st.Vesting.After(now) {
		now = st.Vesting
	}
	return k.requeue(st, p, now)
}

// bury is the operations that make an item a dead letter, and free its lane.
func (k Keys) bury(st State, p Place, why string, now time.Time) []*pb.RequestOp {
	st = st.waiting()
	st.Why, st.Died = Cut(why), now.UTC()
	free := k.leave(st)
	st.Lane = 0
	return append(k.move(st, k.deadAt(st.Died, st.Seq), p), free...)
}

// Promote moves later items whose time has come to the ready ones, or behind those that have the lanes of
// their key. It can be repeated, and come late: an item is moved only from where it was read.
type Promote struct {
	Keys
	Items []*Entry
}

// Build returns the request.
func (s Promote) Build() *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for _, e := range s.Items {
		to := s.vested(e.State)
		then := []*pb.RequestOp{remove(e.Key()), put(to, string(e.KV.Value))}
		if e.State.Moved {
			p := Place{Version: Version, Key: to[len(s.root):], Verb: "vest"}
			then = append(then, put(s.Place(e.State.ID), Encode(p)))
		}
		in.Success = append(in.Success, inner([]*pb.Compare{as(e.KV)}, then...))
	}
	return in
}
