package queue

import (
	"strings"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// listen reports to the claimer which items are put into the index and removed from it, and which
// slots are taken and freed. It reports to the keeper that an item vests earlier than it knows. A
// watch is a hint: both read without it, too.
func (q *Queue) listen() {
	retry.Forever(q.ctx, q.listenOnce)
}

// listenOnce watches until the watch ends, and reports whether anything came of it.
func (q *Queue) listenOnce() (heard bool) {
	resp, err := q.read(q.ctx, clientv3.OpGet(q.keys.Idles(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return false
	}
	var waiting []string
	for _, kv := range txn.Kvs(resp, 0) {
		waiting = append(waiting, strings.TrimPrefix(string(kv.Key), q.keys.Idles()))
	}
	from := clientv3.WithRev(resp.Header.Revision + 1)
	index, stop := q.openWatch(q.ctx, q.keys.Index(), clientv3.WithPrefix(), from)
	defer stop()
	var slots clientv3.WatchChan
	if q.cfg.MaxTaken > 0 {
		slots, stop = q.openWatch(q.ctx, q.keys.Slots(), clientv3.WithPrefix(), from)
		defer stop()
	}
	q.claimer.arrivals.follow(waiting)
	q.claimer.stir() // for what came before the watch
	defer q.claimer.stir()
	defer q.claimer.arrivals.unfollow()
	for open := true; open; {
		var resp clientv3.WatchResponse
		select {
		case resp, open = <-index:
		case resp, open = <-slots:
		}
		if !open || resp.Err() != nil {
			break
		}
		heard = true
		q.claimer.arrivals.see(q, resp.Events)
		q.claimer.stir()
		if q.toVest(resp.Events) {
			select {
			case q.vesting <- struct{}{}:
			default:
			}
		}
	}
	return heard
}

// toVest reports whether an item was put that vests before the keeper moves items next.
func (q *Queue) toVest(events []*clientv3.Event) bool {
	for _, ev := range events {
		key, later := strings.CutPrefix(string(ev.Kv.Key), q.keys.Later())
		if !later || !ev.IsCreate() {
			continue
		}
		if at, err := item.VestingOf(key); err == nil && at.UnixNano() < q.vests.Load() {
			return true
		}
	}
	return false
}
