package queue

import (
	"strings"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// listener reports to the claimer which items are put into the index and removed from it, and
// which slots are taken and freed. It reports to the keeper that an item vests earlier than it
// knows, and to the sessions which taken items were cancelled. A watch is a hint: both read without it, too.
type listener struct {
	claimer *claimer
	keeper  *keeper
}

func (l listener) listen() { retry.Forever(l.claimer.q.ctx, l.listenOnce) }

// listenOnce watches until the watch ends, and reports whether anything came of it.
func (l listener) listenOnce() (heard bool) {
	q, known := l.claimer.q, &l.claimer.arrivals
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
	known.follow(waiting)
	l.keeper.heed(true)
	l.claimer.stir() // for what came before the watch
	defer l.claimer.stir()
	defer known.forget(true)
	defer l.keeper.heed(false)
	for {
		var resp clientv3.WatchResponse
		open := false
		select {
		case resp, open = <-index:
		case resp, open = <-slots:
		}
		if !open || resp.Err() != nil {
			return heard
		}
		heard = true
		known.see(resp.Events)
		l.claimer.stir()
		l.keeper.see(resp.Events)
		l.claimer.q.sessions.hear(resp.Events)
	}
}
