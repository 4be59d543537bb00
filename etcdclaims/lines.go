package etcdclaims

import (
	"context"
	"iter"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
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
// Lines reads the places of all waiting callers of all keys, page by page, and
// yields after that. Each page is read at the same revision unless etcd compacts
// it meanwhile. An error ends the iteration.
func (c *Client) Lines(ctx context.Context, keys []string) iter.Seq2[LineInfo, error] {
	return func(yield func(LineInfo, error) bool) {
		if c.Passthrough() || len(keys) == 0 {
			return
		}
		type first struct {
			LineInfo
			created int64
		}
		lines := make(map[string]*first) // by the digest of the key
		root := c.store.layout.lines()
		for p, err := range c.pages(ctx, root, "") {
			if err != nil {
				yield(LineInfo{}, &calledError{call: "list the lines", err: err})
				return
			}
			for _, kv := range p.kvs {
				digest, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
				l := lines[digest]
				if l == nil {
					l = &first{}
					lines[digest] = l
				}
				if l.Waiting++; l.created == 0 || kv.CreateRevision < l.created {
					l.created, l.Next = kv.CreateRevision, waiterOf(kv)
				}
			}
		}
		for _, key := range keys {
			if len(lines) == 0 {
				return
			}
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
