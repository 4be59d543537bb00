package etcdclaims

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stampAfter is how long a follower waits to be stamped by the reply to somebody
// else's request before it asks itself.
const stampAfter = 2 * time.Millisecond

// stampFollowers stamps those that follow now, unless there is somebody of
// another client in line already: then they join it, behind.
func (c *Client) stampFollowers(ctx context.Context, f *follower) {
	t := c.held(f.a.key)
	if t == nil {
		return
	}
	c.followMu.Lock()
	if t.stamping {
		c.followMu.Unlock()
		return
	}
	t.stamping = true
	there := slices.Clone(t.followers)
	c.followMu.Unlock()
	defer func() {
		c.followMu.Lock()
		t.stamping = false
		c.followMu.Unlock()
	}()
	line := c.store.layout.waiting(f.a.key)
	resp, err := c.store.Do(ctx, txn.Request{In: txn.Then(clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly()))})
	if err != nil {
		return // without a stamp it gives way
	}
	foreign := func(kv *mvccpb.KeyValue) bool { return c.waiter(path.Base(string(kv.Key))) == nil }
	if !slices.ContainsFunc(resp.Responses[0].GetResponseRange().Kvs, foreign) {
		c.stamp(there, resp.Header.Revision)
		return
	}
	c.followMu.Lock()
	defer c.followMu.Unlock()
	var late []*follower
	t.followers = slices.DeleteFunc(t.followers, func(o *follower) bool {
		if o.stamp > 0 || !slices.Contains(there, o) {
			return false
		}
		o.last = true
		late = append(late, o)
		return true
	})
	c.scatterLocked(late)
}

// followersOf returns who follows a term now, and stamp notes that they did
// before a revision.
func (c *Client) followersOf(t *term) []*follower {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	if len(t.followers) == 0 {
		return nil
	}
	return slices.Clone(t.followers)
}

func (c *Client) stamp(fs []*follower, rev int64) {
	if len(fs) == 0 {
		return
	}
	c.followMu.Lock()
	defer c.followMu.Unlock()
	for _, f := range fs {
		if f.stamp == 0 {
			f.stamp = rev
		}
	}
}

func (c *Client) stamped(f *follower) bool {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	return f.stamp > 0
}

// cameFirst reports whether a follower is known to have come before a place in
// line.
func (c *Client) cameFirst(f *follower, p place) bool {
	c.followMu.Lock()
	defer c.followMu.Unlock()
	return f.stamp > 0 && f.stamp < p.Rev
}
