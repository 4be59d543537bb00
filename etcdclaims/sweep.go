package etcdclaims

import (
	"context"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A restore from a snapshot brings back claims and places in line that their
// clients have given up since, on leases that those clients go on renewing: such
// a key would be held by nobody for as long as that. No client can tell that
// etcd was restored, but each can tell what on its leases is not its own. It
// looks whenever there may have been a restore: when its watch was compacted,
// and when the epoch is another.

// sweep removes what is on the client's leases and is of no claim or attempt of
// its own.
func (c *Client) sweep() {
	for _, s := range c.liveSessions() {
		if err := c.sweepSession(s); err != nil {
			// What is missed here is held until the session ends, and with it
			// the lease: no claim is wrong by that.
			c.log.Debug("what is on a lease cannot be read", s.fields(zap.Error(err))...)
		}
	}
}

func (c *Client) sweepSession(s *session) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(c.io), c.store.timeout)
	defer cancel()
	c.store.requests.Add(1)
	lease, err := c.lease.TimeToLive(ctx, s.id, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	var suspects []string
	for _, key := range lease.Keys {
		if name := string(key); strings.HasPrefix(name, c.store.layout.own("")) || strings.HasPrefix(name, c.store.layout.lines()) {
			suspects = append(suspects, name)
		}
	}
	for len(suspects) > 0 {
		n := min(len(suspects), int(c.store.opLimit.Load()))
		ops := make([]clientv3.Op, n)
		for i, name := range suspects[:n] {
			ops[i] = clientv3.OpGet(name)
		}
		resp, err := c.store.do(ctx, request{then: ops})
		if isTooManyOps(err) && n > leastOps {
			c.store.fewerOps()
			continue
		}
		if err != nil {
			return err
		}
		// After they were read: whoever put one before has registered it, and
		// either still has or has given it up.
		known := c.claimIDs()
		for i := range n {
			if kv := firstKV(resp, i); kv != nil && kv.Lease == int64(s.id) && !known[claimOf(kv, c.store.layout)] {
				c.removeGhost(s, kv)
			}
		}
		suspects = suspects[n:]
	}
	return nil
}

// claimOf returns the id of the claim that a key is of: the last part of a place
// in line, or what the value says.
func claimOf(kv *mvccpb.KeyValue, l layout) string {
	if strings.HasPrefix(string(kv.Key), l.lines()) {
		return path.Base(string(kv.Key))
	}
	h, err := decodeHolder(kv.Value)
	if err != nil {
		return ""
	}
	return h.Claim
}

// claimIDs are the ids of all claims that the client has, is about to have, or
// is about to give up.
func (c *Client) claimIDs() map[string]bool {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	ids := make(map[string]bool, len(c.keys)+len(c.attempts))
	for _, t := range c.keys {
		ids[t.id] = true
	}
	for id := range c.attempts {
		ids[id] = true
	}
	return ids
}

// removeGhost deletes a key as it was read, and what else there is of its claim.
func (c *Client) removeGhost(s *session, kv *mvccpb.KeyValue) {
	name := string(kv.Key)
	c.log.Info("a claim that was given up is back, probably by a restore of etcd: it is removed", s.fields(zap.String("key", name))...)
	then := []clientv3.Op{clientv3.OpDelete(name)}
	if key, own := strings.CutPrefix(name, c.store.layout.own("")); own {
		then = append(then, clientv3.OpDelete(c.store.layout.note(key)))
	}
	r := request{
		cmps: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(name), "=", kv.ModRevision),
			clientv3.Compare(clientv3.LeaseValue(name), "=", kv.Lease),
		},
		then: then,
	}
	c.chore(s, "removing a claim that a restore brought back", func(ctx context.Context) error {
		_, err := c.store.do(ctx, r)
		return err
	})
}

// begun registers an attempt: what it puts is not a ghost.
func (c *Client) begun(a *attempt) {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	if c.attempts == nil {
		c.attempts = make(map[string]bool)
	}
	c.attempts[a.id] = true
}

// over ends what begun began, when the attempt has become a term, has failed, or
// is being undone.
func (c *Client) over(a *attempt) {
	c.keysMu.Lock()
	defer c.keysMu.Unlock()
	delete(c.attempts, a.id)
}
