package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queues looks at the first queues, some at a time.
func (e *Examination) queues(ctx context.Context) {
	const most, atOnce = 100, 8
	names, more, err := explain.First(queue.Names(ctx, e.Claims), most)
	unread := ""
	if len(names) > 0 && ctx.Err() != nil {
		more, err = true, nil
	}
	if more {
		unread = others
	}
	var checks []check
	for _, name := range names {
		checks = append(checks, func(e *Examination, ctx context.Context) {
			stats, by, err := e.readQueue(ctx, name)
			if !e.failed(Warning, "queues", "cannot be read", err) {
				e.queue(name, stats, by, clock.Clock{}.Time())
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
		e.judge("queues", unread, "%d, without dead letters and long pauses", len(names))
	}
}

// workers are the processes that work on a queue: sessions that have items or wait for some. Processes
// that only enqueue have sessions, too.
type workers struct {
	alive int
	last  []string // owners of those that ended, if none is alive
}

// readQueue counts the items and the workers of a queue.
func (e *Examination) readQueue(ctx context.Context, name string) (stats queue.Stats, by workers, err error) {
	q, err := queue.Open(ctx, e.Claims, name)
	if err != nil {
		return stats, by, err
	}
	defer func() { _ = q.Close(ctx) }() // it has no items
	if stats, err = q.Stats(ctx); err != nil || stats.Ready == 0 {
		return stats, by, err
	}
	keys := item.NewKeys(e.Claims.Prefix(), item.Spec{Name: name})
	roots := []string{keys.Own(""), keys.Taken(), keys.Idles()}
	var ops []clientv3.Op
	for _, root := range roots {
		ops = append(ops, clientv3.OpGet(root, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(e.Limit))))
	}
	resp, err := retry.Read(ctx, e.etcd(), e.Patience, ops...)
	if err != nil {
		return stats, by, err
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
	if by.alive = len(works); by.alive == 0 && e.Thorough {
		by.last = e.lastWorkers(ctx, keys, resp.Header.Revision)
	}
	return stats, by, nil
}

// lastWorkers returns the owners of sessions that worked on a queue in etcd's latest revisions, as far
// as they can be read.
func (e *Examination) lastWorkers(ctx context.Context, keys item.Keys, now int64) (owners []string) {
	from, of := max(1, now-int64(mostRevisions*e.Limit)), map[string]string{}
	each := func(root string, f func(session string, value []byte)) {
		_, _ = e.eachChange(ctx, root, from, now, func(ev *clientv3.Event) {
			session, _, _ := strings.Cut(strings.TrimPrefix(string(ev.Kv.Key), root), "/")
			f(session, ev.Kv.Value)
		}, clientv3.WithFilterDelete())
	}
	each(keys.Own(""), func(session string, value []byte) {
		if h, err := protocol.DecodeHolder(value); err == nil {
			of[session] = h.Owner
		}
	})
	for _, root := range []string{keys.Taken(), keys.Idles()} {
		each(root, func(session string, _ []byte) {
			if owner := of[session]; owner != "" && !slices.Contains(owners, owner) {
				owners = append(owners, owner)
			}
		})
	}
	return owners
}

// How old the oldest item may be that waits: without workers, which may be restarting for abandoned, and with.
const (
	idle      = 15 * time.Second
	abandoned = time.Minute
	backlog   = 10 * time.Minute
)

// queue judges a queue, whose items are those of stats.
func (e *Examination) queue(name string, stats queue.Stats, by workers, now time.Time) {
	if stats.Dead > 0 {
		e.Add(Warning, "queues", "mend the cause, and put them back",
			"%q has %s", name, errtext.Count(stats.Dead, "dead letter", "dead letters")).
			run(e.claimctl("queue dead ls", name), e.claimctl("queue dead redrive-all", name))
	}
	waiting, age := errtext.Count(stats.Ready, "item waits", "items wait"), now.Sub(stats.OldestReady).Truncate(time.Second)
	p := stats.Paused
	switch {
	case endsSoon(p.Until): // its backlog follows from that
	case !p.At.IsZero():
		e.Add(pauseLevel(p.At), "queues", "resume it, unless it is paused on purpose", "%q is paused %s; %s",
			name, pausing.Text(p.By, p.At, p.Until, p.Why), waiting).run(e.claimctl("queue resume", name))
	case stats.Ready == 0 || stats.OldestReady.IsZero():
	case by.alive == 0 && age > idle:
		level := Note
		if age > abandoned {
			level = Warning
		}
		whose := ""
		if len(by.last) > 0 {
			whose = ": the last ones were " + several(by.last)
		}
		e.Add(level, "queues", "start a process that calls Queue.Work on it, and look why the last ones ended",
			"%q: %s, the oldest for %s, and no worker lives%s", name, waiting, age, whose)
	case age > backlog:
		e.Add(Note, "queues", "see whether the workers make progress, or start more", "%q: %s, the oldest for %s; %s, and %s taken",
			name, waiting, age, errtext.Count(by.alive, "worker lives", "workers live"), errtext.Count(stats.Taken, "item is", "items are"),
		).run(e.claimctl("queue taken", name))
	}
}
