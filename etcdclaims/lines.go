package etcdclaims

import (
	"context"
	"iter"
	"strings"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// LineInfo describes the callers that wait for one key.
type LineInfo struct {
	Key     string
	Waiting int    // callers in line; see [Client.Line] for who is not counted
	Next    Waiter // the first in line; it waits longest
}

// Lines yields the line of each given key that callers wait for, in the order of
// the given keys. [Client.Line] returns all callers in one line.
//
// Lines reads all lines first, and yields after that. For fewer than 64 keys it reads their
// lines by one request. For more keys it reads the places of all waiting callers, page by
// page, or the lines of the keys if there are too many places. So it sends at most one
// request for each 32 keys, and one more, however many callers wait for other keys. The
// requests read at different revisions. An error ends the iteration.
func (c *Client) Lines(ctx context.Context, keys []string) iter.Seq2[LineInfo, error] {
	return func(yield func(LineInfo, error) bool) {
		if err := c.refusal(); err != nil {
			yield(LineInfo{}, err)
			return
		}
		if c.Passthrough() || len(keys) == 0 {
			return
		}
		lines, err := c.readLines(ctx, keys)
		if err != nil {
			yield(LineInfo{}, errtext.CallOfAll("list the lines", err))
			return
		}
		for _, key := range keys {
			digest := keyspace.Digest(key)
			if of := keyspace.Digest(keyspace.SlotFamily(key)); lines[of] != nil {
				digest = of // those that wait for the key as a whole are not counted
			}
			l := lines[digest]
			if l == nil {
				continue
			}
			delete(lines, digest)
			l.Key = key
			if !yield(l.LineInfo, nil) {
				return
			}
		}
	}
}

// firstInLine is a line and when its first caller came, as far as it has been read.
type firstInLine struct {
	LineInfo
	created int64
}

// allLines are lines by the digests of their keys.
type allLines map[string]*firstInLine

// add adds places, the number of which is count.
func (all allLines) add(digest string, count int64, kv *mvccpb.KeyValue) {
	l := all[digest]
	if l == nil {
		l = &firstInLine{}
		all[digest] = l
	}
	if l.Waiting += int(count); l.created == 0 || kv.CreateRevision < l.created {
		l.created, l.Next = kv.CreateRevision, waiterOf(kv)
	}
}

// readLines reads at least the lines of the keys.
func (c *Client) readLines(ctx context.Context, keys []string) (allLines, error) {
	lines := make(allLines)
	// As many pages as the keys take requests: where few wait, one page has all lines.
	if pages := len(keys) / (c.store.MaxOps() / 2); pages > 0 {
		root := c.store.layout.lines()
		for p, err := range c.pages(ctx, root, "") {
			if err != nil {
				return nil, err
			}
			for _, kv := range p.Kvs {
				digest, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
				lines.add(digest, 1, kv)
			}
			if !p.More {
				return lines, nil
			}
			if pages--; pages == 0 {
				break
			}
		}
		clear(lines)
	}
	for len(keys) > 0 {
		n := min(len(keys), c.store.MaxOps()/2)
		var names []string
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			for _, name := range []string{key, keyspace.SlotFamily(key)} {
				names = append(names, name)
				ops = append(ops, clientv3.OpGet(c.store.layout.waiting(name), clientv3.WithPrefix(),
					clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1)))
			}
		}
		resp, err := c.read(ctx, ops...)
		if wire.IsTooManyOps(err) && n > txn.LeastOps {
			c.store.FewerOps(len(ops))
			continue
		}
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			if r := resp.Responses[i].GetResponseRange(); len(r.Kvs) > 0 {
				lines.add(keyspace.Digest(name), r.Count, r.Kvs[0])
			}
		}
		keys = keys[n:]
	}
	return lines, nil
}
