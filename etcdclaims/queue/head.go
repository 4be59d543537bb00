package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// view is what a claimer reads before it claims.
type view struct {
	ready  []*picked
	vested []*picked // later items whose time has come
	next   time.Time
	paused bool
	taken  int
	free   []int // slots
}

// look reads the head of the queue, in one request.
func (q *Queue) look(ctx context.Context, n int) (v view, err error) {
	now := time.Now()
	ops := []clientv3.Op{
		clientv3.OpGet(q.keys.ready(), clientv3.WithPrefix(), clientv3.WithLimit(int64(n))),
		clientv3.OpGet(q.keys.later(), clientv3.WithPrefix(), clientv3.WithLimit(itemsPerRequest)),
		clientv3.OpGet(q.keys.paused(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.taken(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
	}
	if q.cfg.MaxTaken > 0 {
		ops = append(ops, clientv3.OpGet(q.keys.slots(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	}
	resp, err := q.read(ctx, ops...)
	if err != nil {
		return v, err
	}
	if v.ready, err = q.readable(ctx, q.keys.ready(), n, resp.Responses[0].GetResponseRange()); err != nil {
		return v, err
	}
	later, err := q.readable(ctx, q.keys.later(), itemsPerRequest, resp.Responses[1].GetResponseRange())
	if err != nil {
		return v, err
	}
	for _, p := range later {
		vesting, err := vestingOf(strings.TrimPrefix(string(p.kv.Key), q.keys.later()))
		switch {
		case err != nil:
			q.skip(err)
		case vesting.After(now):
			if v.next.IsZero() {
				v.next = vesting
			}
		default:
			v.vested = append(v.vested, p)
		}
	}
	v.paused = resp.Responses[2].GetResponseRange().Count > 0
	v.taken = int(resp.Responses[3].GetResponseRange().Count)
	if q.cfg.MaxTaken > 0 {
		v.free = q.freeSlots(resp.Responses[4].GetResponseRange().Kvs)
	}
	return v, nil
}

// readable returns the first n items below a prefix that this program can read, given
// the first n there are. Those that it cannot read hide no others, however many they
// are: it reads on.
func (q *Queue) readable(ctx context.Context, prefix string, n int, page *etcdserverpb.RangeResponse) ([]*picked, error) {
	const most = 1000 // with one request
	out := make([]*picked, 0, len(page.Kvs))
	for {
		for _, kv := range page.Kvs {
			st, err := decodeState(kv)
			if err != nil {
				q.skip(err)
				continue
			}
			out = append(out, &picked{kv: kv, st: st})
		}
		if !page.More || len(page.Kvs) == 0 || len(out) >= n {
			return out[:min(len(out), n)], nil
		}
		from := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		resp, err := q.read(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(most)))
		if err != nil {
			return nil, err
		}
		page = resp.Responses[0].GetResponseRange()
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

// freeSlots returns the slots that nobody has.
func (q *Queue) freeSlots(kvs []*mvccpb.KeyValue) []int {
	used := make(map[string]bool, len(kvs))
	for _, kv := range kvs {
		used[string(kv.Key)] = true
	}
	var free []int
	for n := 1; n <= q.cfg.MaxTaken; n++ {
		if !used[q.keys.slot(n)] {
			free = append(free, n)
		}
	}
	return free
}

// claimSome claims up to n items, by a read and a transaction. more says that there
// may be more visible items than those.
func (c *claimer) claimSome(s *session, n int) (b Batch, more bool, err error) {
	q := c.q
	ctx := q.ctx
	if err := q.reconcile(ctx, s); err != nil {
		return b, false, err
	}
	asked := max(n, c.window)
	v, err := q.look(ctx, asked)
	for try := 0; err == nil && !v.paused && len(v.vested) > 0; {
		// The next look sees what came of a request of unknown outcome, and a late one
		// finds the items moved.
		if err = q.promote(ctx, s, v.vested); errors.Is(err, etcdclaims.ErrUnknown) && pause(ctx, try) {
			try, err = try+1, nil
		}
		if err == nil {
			v, err = q.look(ctx, asked)
		}
	}
	if err != nil {
		return b, false, err
	}
	b.Taken, b.Next, b.Paused = v.taken, v.next, v.paused
	if v.paused {
		return b, false, nil
	}
	picked := c.pick(v, n)
	if len(picked) == 0 {
		return b, false, nil
	}
	b.Leases, err = q.takeItems(ctx, s, picked)
	if err != nil {
		for _, l := range b.Leases {
			l.end(ErrExpired) // nobody was told of them: reconcile gives them back
			s.forget(l)
		}
		return Batch{}, false, err
	}
	// Others were faster with the rest: pick from more next time.
	switch missed := len(picked) - len(b.Leases); {
	case missed > 0:
		c.window = min(max(c.window, n)*2, 1024)
	case c.window > 1:
		// Slowly: it settles where about one request in twenty-five misses.
		c.window -= max(1, c.window/24)
	}
	// If all that were looked for were there, there may be others behind them.
	return b, len(b.Leases) < len(picked) || len(v.ready) > len(picked) || len(v.ready) == asked, nil
}

// pick chooses among the first visible items: all in order while nobody else claims,
// and at random from a window once others do.
func (c *claimer) pick(v view, n int) []*picked {
	if c.q.cfg.MaxTaken > 0 {
		n = min(n, len(v.free))
	}
	ready := v.ready
	if len(ready) > n {
		chosen := rand.Perm(len(ready))[:n]
		if c.window <= n {
			ready = ready[:n]
		} else {
			keep := make([]bool, len(ready))
			for _, i := range chosen {
				keep[i] = true
			}
			var some []*picked
			for i, p := range ready {
				if keep[i] {
					some = append(some, p)
				}
			}
			ready = some
		}
	}
	size := 0
	for i, p := range ready {
		if size += len(p.kv.Value) + 8*MaxErrorBytes; i > 0 && size > bytesPerRequest {
			return ready[:i] // their histories may be long
		}
		if c.q.cfg.MaxTaken > 0 {
			i := rand.N(len(v.free))
			p.st.Slot = v.free[i]
			v.free = append(v.free[:i], v.free[i+1:]...)
		}
	}
	return ready
}

// picked is an item to be claimed.
type picked struct {
	kv *mvccpb.KeyValue
	st state // as it is to be
}

// promote moves later items whose time has come to the ready ones.
func (q *Queue) promote(ctx context.Context, s *session, vested []*picked) error {
	var ops []clientv3.Op
	size := 0
	for _, p := range vested {
		if size += len(p.kv.Value) + 1024; len(ops) > 0 && size > bytesPerRequest {
			break
		}
		kv, st := p.kv, p.st
		to := q.keys.readyAt(rank(st.Priority, q.cfg.HigherFirst), st.Vesting, st.Seq)
		then := []clientv3.Op{clientv3.OpDelete(string(kv.Key)), clientv3.OpPut(to, string(kv.Value))}
		if st.Moved {
			then = append(then, clientv3.OpPut(q.keys.place(st.ID), encode(place{Version: valueVersion, Key: to[len(q.keys.root):], Verb: "vest"})))
		}
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)}, then, nil))
	}
	_, err := s.claim.Txn(ctx).Then(ops...).Commit()
	return err
}
