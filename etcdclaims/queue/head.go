package queue

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// view is what a claimer reads before it claims.
type view struct {
	rev    int64
	ready  []*item.Entry // the first visible items
	vested []*item.Entry // later items whose time has come: visible, too
	all    bool          // these are all
	crowd  bool          // there may be more that have vested
	lack   bool          // some of them wait for their turn
	count  int64         // of visible items up to where they were read
	end    string        // where reads of the visible items are to end from now on; "" if it was not looked for, or is not there
	later  string        // the end of the later items that were read; "" if these were few
	next   time.Time
	paused bool
	pause  item.Pausing // zero if it cannot be read
	since  int64        // the revision of the pause
	used   map[int]bool // slots

	firstReady, firstLater string // keys that no other is before, also of items that cannot be read; "" if there are none
}

// headItems is how many items a read goes to at least, without reading all of them.
const headItems = 64

// reach is up to which key the visible items are read, and the later ones: "" is all. etcd
// counts all keys of a range, also of one that it returns a part of: in a deep queue nearly
// all of its work would be to count. So reads go no further than an earlier one went, while
// that is far enough, and go less far when many items have come in between.
type reach struct {
	ready, later string
	wide         bool // many visible items are before ready by now: the next read looks for an end before
}

// floors are from which keys on the visible items and the later ones are read.
type floors struct{ ready, later string }

// far is how many visible items come before the end of the range that reads of n items go to.
func far(n int) int { return max(headItems, 8*n) }

// lookNear is look up to where an earlier call went, or as far as is needed.
func (q *store) lookNear(ctx context.Context, n int, from floors, near *reach) (view, error) {
	if near.ready <= from.ready {
		near.ready = ""
	}
	if near.later <= from.later {
		near.later = ""
	}
	for {
		v, err := q.look(ctx, n, from, *near)
		if err != nil {
			return v, err
		}
		short := *near
		if len(v.ready) < n && near.ready != "" {
			short.ready, short.wide = "", true
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
		many := int64(far(n))
		if near.ready != "" {
			many *= 4
		}
		if near.wide = v.count > many; v.end != "" {
			near.ready, near.wide = v.end, false
		}
		return v, nil
	}
}

// endOf is the end of the range that these items end.
func endOf(items []*item.Entry) string { return items[len(items)-1].Key() + "\x00" }

// upTo reads the first n keys below a prefix, from one on, up to end if that is not "".
func upTo(prefix, from, end string, n int) clientv3.Op {
	return clientv3.OpGet(from, clientv3.WithRange(cmp.Or(end, clientv3.GetPrefixRangeEnd(prefix))), clientv3.WithLimit(int64(n)))
}

// look reads the head of the queue in one request.
func (q *store) look(ctx context.Context, n int, from floors, near reach) (v view, err error) {
	now := q.now()
	step := item.Head{
		Keys:  q.keys,
		Ready: n, ReadyFrom: from.ready, ReadyEnd: near.ready,
		Later: itemsPerRequest, LaterFrom: from.later, LaterEnd: near.later,
		Limited: q.cfg.MaxTaken > 0,
	}
	if near.wide {
		step.Far = far(n)
	}
	resp, err := q.answer(ctx, step.Build())
	if err != nil {
		return v, err
	}
	f := step.Judge(resp)
	v.rev, v.count, v.used = f.Rev, f.Ready.Count, f.Used
	if kv := f.Paused; kv != nil {
		v.paused, v.since = true, kv.ModRevision
		if p, err := item.Decode[item.Pausing](kv.Key, kv.Value); err == nil { // else it lasts until somebody resumes
			v.pause = p
		}
	}
	v.end = f.Far
	v.firstReady, v.firstLater = firstKey(f.Ready, near.ready), firstKey(f.Later, near.later)
	if v.ready, v.all, err = q.readable(ctx, q.keys.Ready(), n, f.Ready); err != nil {
		return v, err
	}
	later, _, err := q.readable(ctx, q.keys.Later(), itemsPerRequest, f.Later)
	if err != nil {
		return v, err
	}
	if len(later) == itemsPerRequest {
		v.later = endOf(later)
	}
	v.vested, v.next = q.vested(later, now)
	v.crowd, v.lack = len(v.vested) == itemsPerRequest, slices.ContainsFunc(v.vested, lacks)
	v.all = v.all && !v.crowd
	return v, nil
}

// lacks reports whether an item must not be claimed, because the turn of its partition key has not come.
func lacks(p *item.Entry) bool { return p.State.Lacks() }

// firstKey is the first key that a read up to end returned, or end if it returned none.
func firstKey(page *pb.RangeResponse, end string) string {
	if len(page.Kvs) == 0 {
		return end
	}
	return string(page.Kvs[0].Key)
}

// vested returns those of the first later items that have vested, and when the next one
// does; zero if it is not among them.
func (q *store) vested(later []*item.Entry, now time.Time) (vested []*item.Entry, next time.Time) {
	for _, p := range later {
		vesting, err := item.VestingOf(strings.TrimPrefix(p.Key(), q.keys.Later()))
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
func (q *store) nextVesting(ctx context.Context) (next time.Time, err error) {
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.LaterBy(q.now()),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(q.keys.Later())), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	if err != nil {
		return next, err
	}
	for _, kv := range txn.Kvs(resp, 0) {
		if next, err = item.VestingOf(strings.TrimPrefix(string(kv.Key), q.keys.Later())); err != nil {
			q.skip(err)
		}
	}
	return next, nil
}

// readable returns the first n items below a prefix that this program can read, given
// the first n there are, and whether these are all. Those that it cannot read hide no
// others, however many they are: it reads on.
func (q *store) readable(ctx context.Context, prefix string, n int, page *pb.RangeResponse) (items []*item.Entry, all bool, err error) {
	const most = 1000 // with one request
	items = make([]*item.Entry, 0, len(page.Kvs))
	for {
		for _, kv := range page.Kvs {
			p, err := q.keys.Entry(kv)
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

// freeSlots returns the slots that no item has.
func (q *store) freeSlots(used map[int]bool) []int {
	var free []int
	for n := 1; n <= q.cfg.MaxTaken; n++ {
		if !used[n] {
			free = append(free, n)
		}
	}
	return free
}

// claimedSize bounds what a request needs to claim an item.
func claimedSize(p *item.Entry) int { return len(p.KV.Value) + 8*item.MaxErrorBytes }

// promoteDue moves all later items whose time has come.
func (q *holder) promoteDue(ctx context.Context) error {
	for {
		now := q.now()
		page, err := q.page(ctx, upTo(q.keys.Later(), q.keys.Later(), q.keys.LaterBy(now), itemsPerRequest))
		if err != nil {
			return err
		}
		later, _, err := q.readable(ctx, q.keys.Later(), itemsPerRequest, page)
		if err != nil {
			return err
		}
		vested, _ := q.vested(later, now)
		if len(vested) == 0 {
			return nil
		}
		s, err := q.sessions.live(ctx)
		if err != nil {
			return err
		}
		if err := q.promote(ctx, s, vested); err != nil {
			return err
		}
	}
}

// promote moves later items whose time has come to the ready ones, the first of them
// if they are many. It moves one key of an item with several.
func (q *holder) promote(ctx context.Context, s *session, vested []*item.Entry) error {
	vested = distinct(vested, func(p *item.Entry) string { return p.State.ID })
	some := fitting(vested[:min(len(vested), q.size.items(opsToMove))], func(p *item.Entry) int { return len(p.KV.Value) + 1024 })
	_, err := s.send(ctx, item.Promote{Keys: q.keys, Items: some}.Build())
	if q.size.refusedItems(err, len(some), opsToMove) {
		return q.promote(ctx, s, vested)
	}
	for _, p := range some {
		if lacks(p) {
			q.lanes.noteKey(p.State.Key)
		}
	}
	return err
}
