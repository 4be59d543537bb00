package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queues looks at the first queues, some at a time.
func (e *Examination) queues(ctx context.Context) {
	const most, atOnce = 100, 8
	names, more, err := explain.First(queue.Names(ctx, e.Claims), most)
	unread := ""
	switch {
	case more:
		unread = others
	case len(names) > 0 && ctx.Err() != nil:
		err, unread = nil, hurried
	}
	var checks []check
	for _, name := range names {
		checks = append(checks, func(e *Examination, ctx context.Context) {
			stats, workers, err := e.readQueue(ctx, name)
			if !e.failed(Warning, "queues", "cannot be read", err) {
				e.queue(name, stats, workers, clock.Clock{}.Time())
			}
		})
	}
	e.beside(ctx, atOnce, checks)
	e.failed(Warning, "queues", "cannot be listed", err)
	told := map[trouble]bool{}
	e.Findings = slices.DeleteFunc(e.Findings, func(f Finding) bool {
		again := f.trouble != untroubled && told[f.trouble] // one shows what is wrong
		told[f.trouble] = true
		return again
	})
	if len(e.Findings) == 0 {
		e.judge("queues", unread, "%d, without dead items and pauses", len(names))
	}
}

// readQueue counts the items of a queue, and the processes that work on it: sessions that live, and
// have items or wait for some. Processes that only enqueue have sessions, too.
func (e *Examination) readQueue(ctx context.Context, name string) (stats queue.Stats, workers int, err error) {
	q, err := queue.Open(ctx, e.Claims, name)
	if err != nil {
		return stats, 0, err
	}
	defer func() { _ = q.Close(ctx) }() // it has no items
	if stats, err = q.Stats(ctx); err != nil || stats.Ready == 0 {
		return stats, 0, err
	}
	keys := item.NewKeys(e.Claims.Prefix(), item.Spec{Name: name})
	roots := []string{keys.Own(""), keys.Taken(), keys.Idles()}
	var ops []clientv3.Op
	for _, root := range roots {
		ops = append(ops, clientv3.OpGet(root, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(e.Limit))))
	}
	resp, err := retry.Read(ctx, e.etcd(), e.Patience, ops...)
	if err != nil {
		return stats, 0, err
	}
	alive, works := map[string]bool{}, map[string]bool{}
	for i, root := range roots {
		for _, kv := range txn.Kvs(resp, i) {
			session, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
			if i == 0 {
				alive[session] = true
			} else if alive[session] {
				works[session] = true
			}
		}
	}
	return stats, len(works), nil
}

// How old the oldest item may be that waits: without workers, which may be restarting for abandoned, and with.
const (
	idle      = 15 * time.Second
	abandoned = time.Minute
	backlog   = 10 * time.Minute
)

// queue judges a queue, whose items are those of stats.
func (e *Examination) queue(name string, stats queue.Stats, workers int, now time.Time) {
	arguments := explain.Arguments(name)
	if stats.Dead > 0 {
		f := e.Add(Warning, "queues", "mend the cause, and put them back", "%q has %s", name, count(stats.Dead, "dead item", "dead items"))
		f.Commands = append(e.claimctl(" queue dead ls%s", arguments), e.claimctl(" queue dead redrive-all%s", arguments)...)
	}
	waiting, age := count(stats.Ready, "item waits", "items wait"), now.Sub(stats.OldestReady).Truncate(time.Second)
	if p := stats.Paused; !p.At.IsZero() {
		e.Add(pauseLevel(p.At), "queues", "resume it, unless it is paused on purpose", "%q is paused %s; %s",
			name, explain.Paused(p.By, p.At, p.Why), waiting).Commands = e.claimctl(" queue resume%s", arguments)
		return // its backlog follows from that
	}
	switch {
	case stats.Ready == 0 || stats.OldestReady.IsZero():
	case workers == 0 && age > idle:
		level := Note
		if age > abandoned {
			level = Warning
		}
		f := e.Add(level, "queues", "start a process that works on it", "%q: %s, the oldest for %s, and no worker lives", name, waiting, age)
		f.Commands = e.claimctl(" queue stats%s", arguments)
	case age > backlog:
		e.Add(Note, "queues", "see whether the workers make progress, or start more", "%q: %s, the oldest for %s; %s, and %s taken",
			name, waiting, age, count(workers, "worker lives", "workers live"), count(stats.Taken, "item is", "items are"),
		).Commands = e.claimctl(" queue taken%s", arguments)
	}
}
