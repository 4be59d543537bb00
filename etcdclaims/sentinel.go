package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// pulse is how often a client compares its clocks: monotonic time stops while a machine
// sleeps, and timers with it.
const pulse = time.Second

// taking is why a claim was taken from its holder.
type taking struct {
	reason Reason
	err    error
}

func takingOf(e protocol.Eviction) taking {
	if e.Suspected {
		return taking{ReasonSuperseded, fmt.Errorf("%w by %s: %w", ErrSuspected, e.By, errors.New(e.Reason))}
	}
	return taking{ReasonDeleted, fmt.Errorf("release forced by %s: %w", e.By, errors.New(e.Reason))}
}

// watchSessions follows the one prefix of all notices for this client, from the
// revision of its first sentinel on, until the client closes.
// It is a hint: what it misses, the next renewal finds.
func (c *Client) watchSessions(rev int64) {
	prefix := c.store.Layout.Session(c.store.Layout.Instance)
	turned := c.store.Generation.Next()
	for try := 0; ; {
		seen := c.followSessions(prefix, rev, turned)
		if c.io.Err() != nil {
			return
		}
		if seen > rev {
			rev, try = seen, 0
		}
		// The watch ended: compacted, without leader, or refused; or etcd was
		// restored, and it waits for a revision that is far away. Read what it may have
		// missed, and continue from there.
		turned = c.store.Generation.Next() // those before are seen by reading
		c.doubts.Add(1)
		for {
			read, err := c.readSessions(prefix)
			if err == nil {
				rev = read
				break
			}
			c.log.Debug("news of sessions cannot be read", zap.Error(err))
			if !retry.Pause(c.io, try) {
				return
			}
			try++
		}
		c.removeGhosts()
		if !retry.Pause(c.io, try) {
			return
		}
		try++
	}
}

// followSessions returns the last revision it dealt with when the watch ends.
func (c *Client) followSessions(prefix string, rev int64, turned <-chan struct{}) int64 {
	news, stop, _ := c.beginWatch(c.io, prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	defer stop()
	for {
		var resp clientv3.WatchResponse
		var ok bool
		select {
		case resp, ok = <-news:
		case <-turned:
		}
		if !ok || resp.Err() != nil {
			return rev
		}
		for _, ev := range resp.Events {
			name := strings.TrimPrefix(string(ev.Kv.Key), prefix)
			if n, ok := strings.CutPrefix(name, "live/"); ok && ev.Type == mvccpb.Event_DELETE {
				c.sentinelGone(n)
			} else if strings.HasPrefix(name, "evict/") && ev.Type == mvccpb.Event_PUT {
				c.evicted(ev.Kv)
			} else if strings.HasPrefix(name, "ask/") {
				c.peers.Heard(ev)
			} else if id, ok := strings.CutPrefix(name, "won/"); ok && ev.Type == mvccpb.Event_PUT {
				c.deliver(ev.Kv)
			} else if ok {
				c.withdrawn(id)
			}
		}
		rev = max(rev, resp.Header.Revision)
	}
}

// keepPulse looks at the clocks regularly, since a timer does not.
func (c *Client) keepPulse() {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	last := c.clock.Now()
	for {
		select {
		case <-c.io.Done():
			return
		case <-ticker.C:
			now := c.clock.Now()
			passed, _ := now.Since(last)
			slept := passed-last.Awake() > pulse/10
			last = now
			for _, s := range c.liveSessions() {
				if slept {
					s.afterSleep()
				}
				s.enforce()
			}
		}
	}
}

// readSessions does by reading what following does by events. It returns the revision from which
// on these are to be followed.
func (c *Client) readSessions(prefix string) (rev int64, err error) {
	sessions := c.liveSessions() // before the read: younger ones are not judged by it
	there := make(map[string]bool)
	for page, err := range retry.Pages(clientv3.OpGet(prefix, clientv3.WithPrefix()), 256, 1024, c.readPage) {
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = page.Rev // another page can be of a later one
		}
		for _, kv := range page.Kvs {
			there[string(kv.Key)] = true
			if strings.HasPrefix(string(kv.Key), prefix+"evict/") {
				c.evicted(kv)
			} else if strings.HasPrefix(string(kv.Key), prefix+"ask/") {
				c.peers.Answer(kv)
			} else if _, ok := c.store.Layout.Noticed(string(kv.Key)); ok {
				c.deliver(kv)
			}
		}
	}
	c.waiters.doubtAll()
	for _, s := range sessions {
		if s.born <= rev && !there[c.store.Layout.Sentinel(s.n)] {
			s.die(ReasonRevoked, nil)
		}
	}
	return rev, nil
}

// readPage reads a page of this client's notices, in one attempt.
func (c *Client) readPage(op clientv3.Op) (*clientv3.GetResponse, error) {
	resp, err := store.RoundTrip(c.io, c.store, store.RequestRange, func(ctx context.Context) (clientv3.OpResponse, error) { return c.etcd.Do(ctx, op) })
	return resp.Get(), err
}

func (c *Client) sentinelGone(n string) {
	number, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return
	}
	for _, s := range c.liveSessions() {
		if s.n == number {
			s.die(ReasonRevoked, nil)
		}
	}
}

// evicted ends the claim that a notice speaks of, and removes the notice. It returns the
// term if that was still held.
func (c *Client) evicted(kv *mvccpb.KeyValue) (lost *term) {
	var e protocol.Eviction
	if err := json.Unmarshal(kv.Value, &e); err != nil || e.Version > protocol.Version {
		// What it is about, the next verification finds: that is now.
		c.log.Warn("a notice of eviction cannot be read", zap.ByteString("notice", kv.Key), zap.Int("version", e.Version), zap.Error(err))
		for _, s := range c.liveSessions() {
			if int64(s.id) == kv.Lease {
				s.renewSoon()
			}
		}
		return nil
	}
	why := takingOf(e)
	c.keys.SetTaken(e.Claim, e.Key, why) // before looking: it may be about to hold the key
	if t := c.keys.Term(e.Key); t != nil && t.ID == e.Claim && t.lose(why.reason, why.err) {
		lost = t
	}
	for _, s := range c.liveSessions() {
		if int64(s.id) == kv.Lease {
			c.cleanUp(s, "removing a notice of eviction", func(ctx context.Context) error {
				// A newer one may be about another key that was claimed together with this one.
				same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)}
				_, err := c.store.Do(ctx, txn.Request{In: txn.Of(same, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil)})
				return err
			})
		}
	}
	return lost
}
