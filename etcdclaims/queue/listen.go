package queue

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// listen reports to the claimer what is put into the index and removed from it, and
// which slots are taken and freed, and to the keeper which items are to vest. A watch is
// a hint: both read without it, too.
func (q *Queue) listen() {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(q.ctx))
	defer cancel()
	for try := 0; ctx.Err() == nil; try++ {
		if q.listenOnce(ctx) {
			try = 0
		}
		if !pause(ctx, try) {
			return
		}
	}
}

// listenOnce watches until the watch ends, and reports whether anything came of it.
func (q *Queue) listenOnce(ctx context.Context) (heard bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.idles(), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return false
	}
	var waiting []string
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		waiting = append(waiting, strings.TrimPrefix(string(kv.Key), q.keys.idles()))
	}
	from := clientv3.WithRev(resp.Header.Revision + 1)
	index := q.openWatch(ctx, end, q.keys.index(), clientv3.WithPrefix(), from)
	var slots clientv3.WatchChan
	if q.cfg.MaxTaken > 0 {
		slots = q.openWatch(ctx, end, q.keys.slots(), clientv3.WithPrefix(), from)
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

// toVest reports whether an item was put among those that have not vested.
func (q *Queue) toVest(events []*clientv3.Event) bool {
	for _, ev := range events {
		if ev.IsCreate() && strings.HasPrefix(string(ev.Kv.Key), q.keys.later()) {
			return true
		}
	}
	return false
}
