package queue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// view is what a claimer reads before it claims.
type view struct {
	rev    int64
	ready  []*picked // the first visible items
	vested []*picked // later items whose time has come: visible, too
	all    bool      // these are all
	crowd  bool      // there may be more that have vested
	count  int64     // of visible items up to where they were read
	later  string    // the end of the later items that were read; "" if these were few
	next   time.Time
	paused bool
	taken  int
	used   map[int]bool // slots
}

// headItems is how many items the head has that the end of the last read remembers.
const headItems = 64

// reach is up to which key the visible items are read, and the later ones: "" is all. etcd
// counts all keys of a range, also of one that it returns a part of: in a deep queue nearly
// all of its work would be to count. So reads go no further than an earlier one went, while
// that is far enough, and go less far when many items have come in between.
type reach struct {
	ready, later string
	wide         bool // many visible items are before ready by now
}

// lookNear is look up to where an earlier call went, or as far as is needed.
func (q *Queue) lookNear(ctx context.Context, n int, near *reach) (view, error) {
	for {
		most := n
		switch {
		case near.ready == "":
			most = max(n, headItems)
		case near.wide:
			most = n + headItems
		}
		v, err := q.look(ctx, most, *near)
		if err != nil {
			return v, err
		}
		short := *near
		if len(v.ready) < n {
			short.ready, short.wide = "", false
		}
		if !v.crowd && v.next.IsZero() {
			short.later = ""
		}
		if short != *near {
			*near = short
			continue
		}
		near.later = cmp.Or(v.later, near.later)
		v.all = v.all && near.ready == ""
		if ends := near.wide || near.ready == "" && !v.all; ends && len(v.ready) > n {
			near.ready, near.wide = endOf(v.ready), false
		} else {
			near.wide = near.ready != "" && v.count > 4*int64(max(n, headItems))
		}
		if len(v.ready) > n {
			v.ready, v.all = v.ready[:n], false
		}
		return v, nil
	}
}

// endOf is the end of the range that these items end.
func endOf(items []*picked) string { return string(items[len(items)-1].kv.Key) + "\x00" }

// upTo reads the first n keys below a prefix, up to end if that is not "".
func upTo(prefix, end string, n int) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithRange(cmp.Or(end, clientv3.GetPrefixRangeEnd(prefix))), clientv3.WithLimit(int64(n)))
}

// look reads the head of the queue in one request.
func (q *Queue) look(ctx context.Context, n int, near reach) (v view, err error) {
	now := q.now()
	var ops txn.Ops
	var slots txn.Op // of none unless they are limited
	ready, waits := ops.Add(upTo(q.keys.ready(), near.ready, n)), ops.Add(upTo(q.keys.later(), near.later, itemsPerRequest))
	paused := ops.Add(clientv3.OpGet(q.keys.paused(), clientv3.WithCountOnly()))
	taken := ops.Add(clientv3.OpGet(q.keys.taken(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if q.cfg.MaxTaken > 0 {
		slots = ops.Add(clientv3.OpGet(q.keys.slots(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	}
	resp, err := q.read(ctx, ops...)
	if err != nil {
		return v, err
	}
	r := txn.ReplyIn(resp)
	v.rev, v.count = r.Rev, r.Count(ready)
	if v.ready, v.all, err = q.readable(ctx, q.keys.ready(), n, r.Range(ready)); err != nil {
		return v, err
	}
	later, _, err := q.readable(ctx, q.keys.later(), itemsPerRequest, r.Range(waits))
	if err != nil {
		return v, err
	}
	if len(later) == itemsPerRequest {
		v.later = endOf(later)
	}
	v.vested, v.next = q.vested(later, now)
	v.crowd = len(v.vested) == itemsPerRequest
	v.all = v.all && !v.crowd
	v.paused = r.Count(paused) > 0
	v.taken = int(r.Count(taken))
	if q.cfg.MaxTaken > 0 {
		v.used = map[int]bool{}
		for _, kv := range r.Kvs(slots) {
			v.used[q.keys.slotOf(string(kv.Key))] = true
		}
	}
	return v, nil
}

// vested returns those of the first later items that have vested, and when the next one
// does; zero if it is not among them.
func (q *Queue) vested(later []*picked, now time.Time) (vested []*picked, next time.Time) {
	for _, p := range later {
		vesting, err := vestingOf(strings.TrimPrefix(string(p.kv.Key), q.keys.later()))
		switch {
		case err != nil:
			q.skip(err)
		case vesting.After(now):
			return vested, vesting
		default:
			vested = append(vested, p)
		}
	}
	return vested, time.Time{}
}

// nextVesting returns the earliest vesting time that lies ahead, or the zero time if all items have vested.
func (q *Queue) nextVesting(ctx context.Context) (next time.Time, err error) {
	behind := q.keys.later() + keyspace.Instant(q.now()) + "0" // the byte behind the slash
	resp, err := q.read(ctx, clientv3.OpGet(behind, clientv3.WithRange(clientv3.GetPrefixRangeEnd(q.keys.later())), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	if err != nil {
		return next, err
	}
	for _, kv := range txn.Kvs(resp, 0) {
		if next, err = vestingOf(strings.TrimPrefix(string(kv.Key), q.keys.later())); err != nil {
			q.skip(err)
		}
	}
	return next, nil
}

// readable returns the first n items below a prefix that this program can read, given
// the first n there are, and whether these are all. Those that it cannot read hide no
// others, however many they are: it reads on.
func (q *Queue) readable(ctx context.Context, prefix string, n int, page *pb.RangeResponse) (items []*picked, all bool, err error) {
	const most = 1000 // with one request
	items = make([]*picked, 0, len(page.Kvs))
	for {
		for _, kv := range page.Kvs {
			p, err := newPicked(q, kv)
			if err != nil {
				q.skip(err)
				continue
			}
			items = append(items, p)
		}
		if !page.More || len(page.Kvs) == 0 || len(items) >= n {
			return items[:min(len(items), n)], !page.More && len(items) <= n, nil
		}
		from := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		page, err = q.page(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(most)))
		if err != nil {
			return nil, false, err
		}
	}
}

// vestingOf reads the instant that a key begins with.
func vestingOf(s string) (time.Time, error) {
	if len(s) < 20 {
		return time.Time{}, fmt.Errorf("key %q does not begin with an instant", s)
	}
	n, err := strconv.ParseInt(s[:20], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("key %q does not begin with an instant: %w", s, err)
	}
	return time.Unix(0, n), nil
}

// freeSlots returns the slots that no item has.
func (q *Queue) freeSlots(used map[int]bool) []int {
	var free []int
	for n := 1; n <= q.cfg.MaxTaken; n++ {
		if !used[n] {
			free = append(free, n)
		}
	}
	return free
}

// picked is an item to be claimed.
type picked struct {
	kv *mvccpb.KeyValue
	st state  // as it is to be
	at string // its place in the order of the queue
}

func newPicked(q *Queue, kv *mvccpb.KeyValue) (*picked, error) {
	st, err := decodeState(kv)
	if err != nil {
		return nil, err
	}
	return &picked{kv, st, q.orderOf(st)}, nil
}

// choose chooses n of the first visible items: all in order while no other process
// claims, and at random from a window once others do. Of an item with several keys it
// chooses one.
func (c *claimer) choose(visible []*picked, n int) []*picked {
	visible = distinct(visible, func(p *picked) string { return p.st.ID })
	if len(visible) > n && c.window > n {
		visible = slices.Clone(visible[:min(c.window, len(visible))])
		rand.Shuffle(len(visible), func(i, j int) { visible[i], visible[j] = visible[j], visible[i] })
		visible = visible[:min(n, len(visible))]
		slices.SortFunc(visible, inOrder)
	}
	return visible[:min(n, len(visible))]
}

// claimedSize bounds what a request needs to claim an item.
func claimedSize(p *picked) int { return len(p.kv.Value) + 8*maxErrorBytes }

func inOrder(a, b *picked) int { return strings.Compare(a.at, b.at) }

// promote moves later items whose time has come to the ready ones, the first of them
// if they are many.
func (q *Queue) promote(ctx context.Context, s *session, vested []*picked) error {
	fit := q.size.items(opsToMove)
	var ops []clientv3.Op
	for _, p := range fitting(vested[:min(len(vested), fit)], func(p *picked) int { return len(p.kv.Value) + 1024 }) {
		kv, st := p.kv, p.st
		to := q.keys.ready() + p.at
		then := []clientv3.Op{clientv3.OpDelete(string(kv.Key)), clientv3.OpPut(to, string(kv.Value))}
		if st.Moved {
			then = append(then, clientv3.OpPut(q.keys.place(st.ID), encode(place{Version: valueVersion, Key: to[len(q.keys.root):], Verb: "vest"})))
		}
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)}, then, nil))
	}
	_, err := s.claim.Txn(ctx).Then(ops...).Commit()
	if q.size.refused(err, len(ops)+opsToMove) {
		return q.promote(ctx, s, vested)
	}
	return err
}
