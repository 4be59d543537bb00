// Package durable is about what outlives the processes that use it: queues, dead letters, jobs, pauses. It
// counts them, so that it shows if somebody has deleted them by hand.
package durable

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	readTime = 5 * time.Second // for each request
	// mostSubtrees is how many queues, and how many groups, are counted: each takes three reads.
	mostSubtrees = 200
)

// ErrTooMany is returned if there is more to count than is sensible.
var ErrTooMany = errors.New("more than 200 queues or groups")

// Kind is what is counted.
type Kind string

// The kinds.
const (
	Queues      Kind = "queues"
	QueuePauses Kind = "queue pauses"
	DeadLetters Kind = "dead letters"
	Jobs        Kind = "jobs"
	Definitions Kind = "job definitions"
	JobPauses   Kind = "job pauses"
	TickRecords Kind = "tick records"
	Groups      Kind = "groups"
)

// Kinds is all of them, in the order in which they are shown.
var Kinds = []Kind{Queues, QueuePauses, DeadLetters, Jobs, Definitions, JobPauses, TickRecords, Groups}

// Counts is how many there are.
type Counts struct {
	Of      map[Kind]int64
	Trimmed int64 // revision of the newest trim of dead letters
}

// atOnce is how many requests of one count are under way.
const atOnce = 8

// Count counts what is below a prefix. It reads three times for each queue and each group, and no values.
func Count(ctx context.Context, etcd clientv3.KV, prefix string) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all, room := &counting{Counts: Counts{Of: map[Kind]int64{}}}, make(chan struct{}, atOnce)
	var parts sync.WaitGroup
	for _, of := range []struct {
		subtree string
		count   func(ctx context.Context, etcd clientv3.KV, root string) error
	}{{"queue/", all.queue}, {"sched/", all.jobs}, {"group/", all.group}} {
		n := 0
		for root, err := range roots(ctx, etcd, prefix+of.subtree) {
			if n++; n > mostSubtrees {
				err = ErrTooMany
			}
			if err != nil {
				cancel(err)
				break
			}
			room <- struct{}{}
			parts.Go(func() {
				if err := of.count(ctx, etcd, root); err != nil {
					cancel(err) // of all errors the first counts
				}
				<-room
			})
		}
	}
	parts.Wait()
	return all.Counts, context.Cause(ctx)
}

// counting is a count that is not over.
type counting struct {
	mu sync.Mutex
	Counts
}

// roots yields the subtrees one level below a directory.
func roots(ctx context.Context, etcd clientv3.KV, dir string) func(yield func(string, error) bool) {
	first := func(subtree string) clientv3.Op {
		return clientv3.OpGet(subtree, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	}
	return func(yield func(string, error) bool) {
		for kv, err := range retry.Subtrees(ctx, etcd, readTime, dir, first) {
			if err != nil {
				yield("", err)
				return
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), dir), "/")
			if !yield(dir+name+"/", nil) {
				return
			}
		}
	}
}

// add counts ranges, by one request. trimmed is the key whose revision is the last trim of dead letters, or empty.
func (c *counting) add(ctx context.Context, etcd clientv3.KV, trimmed string, of map[Kind]clientv3.Op) error {
	var ops txn.Ops
	in := map[Kind]txn.Op{}
	for kind, op := range of {
		in[kind] = ops.Add(op)
	}
	var trim txn.Op
	if trimmed != "" {
		trim = ops.Add(clientv3.OpGet(trimmed, clientv3.WithKeysOnly()))
	}
	resp, err := retry.Read(ctx, etcd, readTime, ops...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, op := range in {
		c.Of[kind] += txn.ReplyIn(resp).Count(op)
	}
	if kv := txn.ReplyIn(resp).First(trim); trimmed != "" && kv != nil {
		c.Trimmed = max(c.Trimmed, kv.ModRevision)
	}
	return nil
}

func one(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithCountOnly()) }
func below(dir string) clientv3.Op {
	return clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithCountOnly())
}

func (c *counting) queue(ctx context.Context, etcd clientv3.KV, root string) error {
	k := item.KeysBelow(root)
	return c.add(ctx, etcd, k.Trimmed(), map[Kind]clientv3.Op{Queues: one(k.Spec()), QueuePauses: one(k.Paused()), DeadLetters: below(k.Dead())})
}

func (c *counting) jobs(ctx context.Context, etcd clientv3.KV, root string) error {
	k := tick.KeysUnder(root)
	return c.add(ctx, etcd, "", map[Kind]clientv3.Op{
		Jobs: below(k.Specs()), Definitions: below(k.Definitions()), JobPauses: below(k.AllPaused()), TickRecords: below(k.AllRecords()),
	})
}

func (c *counting) group(ctx context.Context, etcd clientv3.KV, root string) error {
	return c.add(ctx, etcd, "", map[Kind]clientv3.Op{Groups: one(root + "spec")})
}
