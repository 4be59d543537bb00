package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// put is a request that puts a lock on a lease of its own. Where its reply is
// lost it may be carried out later, even after the lock was released. So it is made
// void, as an acquisition is, by a key on its lease, which it cannot outlive.
type put struct {
	key, owner string
	lease      clientv3.LeaseID
	id         string // names the lock, and the key that makes it void
	value      string
}

// puts are those of a client of which it is not known whether they were carried
// out, nor whether they will be.
type puts struct {
	mu      sync.Mutex
	unknown map[*put]struct{}
	working bool // whether a goroutine settles them
}

// putsName is the name by which a client keeps its puts.
type putsName struct{}

func putsOf(c core.Client) *puts {
	return c.Kept(putsName{}, func() any { return new(puts) }).(*puts)
}

func (l *puts) add(p *put) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unknown == nil {
		l.unknown = make(map[*put]struct{})
	}
	l.unknown[p] = struct{}{}
}

func (l *puts) remove(p *put) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unknown, p)
}

// of returns those of an owner: on a key, or with "" on all.
func (l *puts) of(key, owner string) (puts []*put) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.unknown {
		if p.owner == owner && (key == "" || p.key == key) {
			puts = append(puts, p)
		}
	}
	return puts
}

// begin reports whether no goroutine settles them yet: from now on the caller's does.
func (l *puts) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := !l.working
	l.working = true
	return idle
}

// next returns those to settle. If there are none, or it is over, no goroutine settles them any
// more.
func (l *puts) next(over bool) []*put {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over || len(l.unknown) == 0 {
		l.working = false
		return nil
	}
	return slices.Collect(maps.Keys(l.unknown))
}

// haveAny reports whether any of them is not settled.
func (l *puts) haveAny(some []*put) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(some, func(p *put) bool { _, yet := l.unknown[p]; return yet })
}

// put puts the lock on a lease of its own under the conditions. An unknown outcome is
// left to settle.
func (k Locks) put(
	ctx context.Context, key, owner string, ttl time.Duration, e *txn.Epoch, cmps ...clientv3.Cmp,
) (fence int64, ok bool, err error) {
	c := k.core
	lease, err := k.grant(ctx, ttl)
	if err != nil {
		return 0, false, fmt.Errorf("granting a lease: %w", err)
	}
	l := c.Layout()
	id := fmt.Sprintf("%x", int64(lease))
	p := &put{
		key: key, owner: owner, lease: lease, id: id,
		value: protocol.Holder{
			Claim: id,
			Owner: owner,
			Since: keyspace.TimeText(c.Now()),
			Kind:  protocol.KindLock,
			Epoch: e.Value,
			TTL:   int64(ttl / time.Second),
		}.Encode(),
	}
	resp, err := c.Store().Do(ctx, txn.Request{
		In: txn.Of(
			append(cmps, core.EpochIs(l, e), clientv3.Compare(clientv3.CreateRevision(l.Void(id)), "=", 0)),
			[]clientv3.Op{
				clientv3.OpPut(l.Own(key), p.value, clientv3.WithLease(lease)),
				clientv3.OpPut(k.index(owner)+key, txn.VoidValue, clientv3.WithLease(lease)),
			},
			[]clientv3.Op{clientv3.OpGet(l.Epoch())},
		),
	})
	switch {
	case errors.Is(err, etcdclaims.ErrUnknown):
		// The lease is left alone: a revocation that comes late would end a lock that
		// was reported as held.
		k.puts.add(p)
		return 0, false, err
	case err != nil:
		k.revoke(ctx, lease)
		return 0, false, err
	case !resp.Succeeded:
		k.revoke(ctx, lease)
		return 0, false, c.Store().LearnEpoch(txn.Kvs(resp, 0), resp.Header.Revision)
	}
	return e.Fence(resp.Header.Revision), true, nil
}

// grant grants the lease of a lock.
func (k Locks) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	lease, err := k.core.Leases().Grant(ctx, ttl)
	if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) { // with that, a lease that was granted lapses
		return 0, txn.Outcome(ctx, err)
	}
	return lease, err
}

// revoke ends a lease that came to nothing; if it fails the lease expires. The caller's
// answer does not depend on it: an answer of etcd that does not come soon is not waited for.
func (k Locks) revoke(ctx context.Context, lease clientv3.LeaseID) {
	done := make(chan struct{})
	open := k.core.Go(func(ctx context.Context) {
		defer close(done)
		_ = k.core.Leases().Revoke(ctx, lease)
	})
	if !open {
		return
	}
	late := time.NewTimer(txn.Hanging)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// settle finds out what became of an owner's puts, on a key or on all: afterwards each
// is a lock that every client can read, or never will be one.
func (k Locks) settle(ctx context.Context, key, owner string) error {
	for _, p := range k.puts.of(key, owner) {
		for try := 0; ; try++ {
			err := k.settleOnce(ctx, p)
			if err == nil {
				break
			}
			if !retry.PauseUnless(ctx, k.core.Closing(), try) {
				return txn.Unknown(k.core.Ended(txn.WithCause(ctx, txn.Failed(err))))
			}
		}
	}
	return nil
}

func (k Locks) settleOnce(ctx context.Context, p *put) error {
	l := k.core.Layout()
	own := l.Own(p.key)
	resp, err := k.core.Store().Do(ctx, txn.Request{
		In: txn.Of(
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.Value(own), "=", p.value),
				clientv3.Compare(clientv3.LeaseValue(own), "=", int64(p.lease)),
			},
			[]clientv3.Op{clientv3.OpGet(own, clientv3.WithKeysOnly())},
			[]clientv3.Op{clientv3.OpPut(l.Void(p.id), txn.VoidValue, clientv3.WithLease(p.lease))},
		),
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		// What arrives late needs the lease.
	case err != nil:
		return err
	case !resp.Succeeded:
		k.revoke(ctx, p.lease) // nothing is on it but what makes the put void
	}
	k.puts.remove(p)
	return nil
}

// settleLater settles in the background what a caller did not wait for.
func (k Locks) settleLater(key, owner string) {
	if len(k.puts.of(key, owner)) > 0 && k.puts.begin() && !k.core.Go(k.settleAll) {
		k.puts.next(true) // the client is closed
	}
}

func (k Locks) settleAll(ctx context.Context) {
	for try := 0; ; try++ {
		unknown := k.puts.next(ctx.Err() != nil)
		if len(unknown) == 0 {
			return
		}
		core.EachOf(unknown, func(p *put) {
			ctx, cancel := context.WithTimeout(ctx, k.core.Store().Timeout())
			defer cancel()
			_ = k.settleOnce(ctx, p) // else it is among them yet
		})
		if !k.puts.haveAny(unknown) {
			try = 0
			continue
		}
		retry.Pause(ctx, try)
	}
}
