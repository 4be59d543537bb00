package admin

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// LineInfo describes the callers that wait for one key.
type LineInfo struct {
	Key     string
	Waiting int    // callers in line; see [Line] for who is not counted
	Next    Waiter // the first in line; it waits longest
}

// Lines yields the line of each given key that callers wait for, in the order of
// the given keys. [Line] returns all callers in one line.
//
// Lines reads all lines first, and yields after that. For fewer than 64 keys it reads their
// lines by one request. For more keys it reads the places of all waiting callers, page by
// page, or the lines of the keys if there are too many places. So it sends at most one
// request for each 32 keys, and one more, however many callers wait for other keys. The
// requests read at different revisions. An error ends the iteration.
func Lines(ctx context.Context, claims *etcdclaims.Client, keys []string) iter.Seq2[LineInfo, error] {
	c := of(claims)
	return func(yield func(LineInfo, error) bool) {
		if err := c.Refusal(); err != nil {
			yield(LineInfo{}, err)
			return
		}
		if c.claims.Passthrough() || len(keys) == 0 {
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

// addPlaces adds places, the number of which is count.
func (c client) addPlaces(all allLines, digest string, count int64, kv *mvccpb.KeyValue) {
	l := all[digest]
	if l == nil {
		l = &firstInLine{}
		all[digest] = l
	}
	if l.Waiting += int(count); l.created == 0 || kv.CreateRevision < l.created {
		l.created, l.Next = kv.CreateRevision, c.waiterOf(kv)
	}
}

// readLines reads at least the lines of the keys.
func (c client) readLines(ctx context.Context, keys []string) (allLines, error) {
	lines := make(allLines)
	// As many pages as the keys take requests: where few wait, one page has all lines.
	if pages := len(keys) / (c.Store().MaxOps() / 2); pages > 0 {
		root := c.Layout().Lines()
		for p, err := range c.Pages(ctx, root, 512) {
			if err != nil {
				return nil, err
			}
			for _, kv := range p.Kvs {
				digest, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
				c.addPlaces(lines, digest, 1, kv)
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
		n := min(len(keys), c.Store().MaxOps()/2)
		var names []string
		var ops txn.Ops
		var firsts []txn.Op
		for _, key := range keys[:n] {
			for _, name := range []string{key, keyspace.SlotFamily(key)} {
				names = append(names, name)
				firsts = append(firsts, ops.Add(clientv3.OpGet(c.Layout().Waiting(name), clientv3.WithPrefix(),
					clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1))))
			}
		}
		resp, err := c.Read(ctx, ops...)
		if txn.IsTooManyOps(err) && n > txn.LeastOps {
			c.Store().FewerOps(len(ops))
			continue
		}
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			if r := txn.ReplyIn(resp).Range(firsts[i]); len(r.Kvs) > 0 {
				c.addPlaces(lines, keyspace.Digest(name), r.Count, r.Kvs[0])
			}
		}
		keys = keys[n:]
	}
	return lines, nil
}

// Waiter is a caller in line for a key.
type Waiter struct {
	Claim    string    // ID of the claim that the caller will have
	Owner    string    // label of the waiting client, for people
	Instance string    // client that waits; see etcdclaims.Client.Instance
	Since    time.Time // when the waiting began, by the wall clock of that client
	// Lease is the lease of the place in line. Zero, or a lease that etcd does not
	// have, means that no caller waits there any more.
	Lease clientv3.LeaseID
	// Preference is that of [etcdclaims.Prefer], and 0 without it.
	Preference int
}

// Line returns the callers that wait for the key, in the order in which they
// came. They get it in this order, except that a claim with [etcdclaims.Prefer] goes to the
// greatest Preference first. Callers within the client that holds the key have no place in etcd and are not listed. Of the callers of
// one client that wait for the same work one is listed (see work.Runner.Begin). The line
// may have changed when it is read.
//
// Callers that wait for a slot of the key are listed first, and then those that wait for
// the key as a whole. There is no order between the two kinds: either can get it next.
func Line(ctx context.Context, claims *etcdclaims.Client, key string) ([]Waiter, error) {
	c := of(claims)
	if err := c.CheckKey(key); err != nil {
		return nil, err
	}
	if c.claims.Passthrough() {
		return nil, nil
	}
	resp, err := c.Read(ctx, clientv3.OpGet(c.Layout().Waiting(key), clientv3.WithPrefix()),
		clientv3.OpGet(c.Layout().Waiting(keyspace.SlotFamily(key)), clientv3.WithPrefix()))
	if err != nil {
		return nil, errtext.Call("list the line of", key, err)
	}
	var line []Waiter
	for _, i := range []int{1, 0} {
		kvs := txn.Kvs(resp, i)
		slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
		for _, kv := range kvs {
			line = append(line, c.waiterOf(kv))
		}
	}
	return line, nil
}

// waiterOf returns the caller whose place in line the key is.
func (c client) waiterOf(kv *mvccpb.KeyValue) Waiter {
	w := Waiter{Claim: protocol.Placed(kv), Owner: "unknown", Lease: clientv3.LeaseID(kv.Lease)}
	if h, err := protocol.DecodeHolder(kv.Value); err == nil {
		w.Owner, w.Instance, w.Since, w.Preference = h.Owner, h.Instance, keyspace.Time(h.Since), h.Preference
	}
	return w
}
