// Package durable is about what outlives the processes that use it: queues, dead letters, jobs, pauses. It
// keeps the names of it, so that it shows if somebody has deleted it by hand, and backs it up.
package durable

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	readTime = 5 * time.Second // for each request
	// mostSubtrees is how many queues, groups of jobs and groups of members are counted: each takes two reads.
	mostSubtrees = 200
	mostNames    = 5000 // 400 kB
)

// ErrTooMany is returned if there is more to count than is sensible.
var ErrTooMany = errors.New("more than 200 queues or groups, or 5,000 jobs")

// Kind is what is counted or saved.
type Kind string

// The kinds.
const (
	Queues      Kind = "queues"
	QueuePauses Kind = "queue pauses"
	DeadLetters Kind = "dead letters"
	Definitions Kind = "job definitions"
	JobPauses   Kind = "job pauses"
	Groups      Kind = "groups"
)

// Kinds is those that are only counted, in the order in which they are shown.
var Kinds = []Kind{QueuePauses, DeadLetters, Definitions, JobPauses}

// Counts is what there is.
type Counts struct {
	// Names are the keys that name things, below the prefix, in their order: the specs of queues, jobs and groups. No
	// program and no retention removes them: nothing removes that of a queue, [sched.Scheduler.Forget] that of a
	// job, [group.Remove] that of a group. Both leave a record of the operator.
	Names []string
	// Of is how many there are of what programs remove, too. It proves nothing.
	Of map[Kind]int64
}

// Count counts what is below a prefix. It reads twice for each queue and each group, and no values.
func Count(ctx context.Context, etcd clientv3.KV, prefix string) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := &counting{etcd: etcd, prefix: prefix, Counts: Counts{Of: map[Kind]int64{}}}
	type part struct {
		root  string
		count func(ctx context.Context, root string) error
	}
	var parts []part
	for _, of := range []part{{"queue/", all.queue}, {"sched/", all.jobs}, {"group/", all.group}} {
		n := 0
		for root, err := range roots(ctx, etcd, prefix+of.root) {
			if n++; n > mostSubtrees {
				err = ErrTooMany
			}
			if err != nil {
				return Counts{}, err
			}
			parts = append(parts, part{root, of.count})
		}
	}
	core.EachOf(parts, func(p part) {
		if err := p.count(ctx, p.root); err != nil {
			cancel(err) // of all errors the first counts
		}
	})
	slices.Sort(all.Names)
	if len(all.Names) > mostNames {
		cancel(ErrTooMany)
	}
	return all.Counts, context.Cause(ctx)
}

// counting is a count that is not over.
type counting struct {
	etcd   clientv3.KV
	prefix string
	mu     sync.Mutex
	Counts
}

// roots yields the subtrees one level below a directory.
func roots(ctx context.Context, etcd clientv3.KV, dir string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for kv, err := range retry.Subtrees(ctx, etcd, readTime, dir, nil) {
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

// add adds the names of a range, and counts others, by one request.
func (c *counting) add(ctx context.Context, names clientv3.Op, of map[Kind]clientv3.Op) error {
	ops := txn.Ops{names}
	in := map[Kind]txn.Op{}
	for kind, op := range of {
		in[kind] = ops.Add(op)
	}
	resp, err := retry.Read(ctx, c.etcd, readTime, ops...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kv := range txn.Kvs(resp, 0) {
		c.Names = append(c.Names, strings.TrimPrefix(string(kv.Key), c.prefix))
	}
	for kind, op := range in {
		c.Of[kind] += txn.ReplyIn(resp).Count(op)
	}
	return nil
}

func one(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithCountOnly()) }
func below(dir string) clientv3.Op {
	return clientv3.OpGet(dir, clientv3.WithPrefix(), clientv3.WithCountOnly())
}

func (c *counting) queue(ctx context.Context, root string) error {
	k := item.KeysBelow(root)
	return c.add(ctx, clientv3.OpGet(k.Spec(), clientv3.WithKeysOnly()),
		map[Kind]clientv3.Op{QueuePauses: one(k.Paused()), DeadLetters: below(k.Dead())})
}

func (c *counting) jobs(ctx context.Context, root string) error {
	k := tick.KeysUnder(root)
	return c.add(ctx, clientv3.OpGet(k.Specs(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		map[Kind]clientv3.Op{Definitions: below(k.Definitions()), JobPauses: below(k.AllPaused())})
}

func (c *counting) group(ctx context.Context, root string) error {
	return c.add(ctx, clientv3.OpGet(groupSpec(root), clientv3.WithKeysOnly()), nil)
}
