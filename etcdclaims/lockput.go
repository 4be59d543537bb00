package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lockPut is a request that puts a lock on a lease of its own. Where its reply is
// lost it may be carried out later, even after the lock was released. So it is made
// void, as an acquisition is, by a key on its lease, which it cannot outlive.
type lockPut struct {
	key, owner string
	lease      clientv3.LeaseID
	id         string // names the lock, and the key that makes it void
	value      string
}

// lockPuts are those of a client of which it is not known whether they were carried
// out, nor whether they will be.
type lockPuts struct {
	mu      sync.Mutex
	unknown map[*lockPut]struct{}
	working bool // whether a goroutine settles them
}

func (l *lockPuts) add(p *lockPut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unknown == nil {
		l.unknown = make(map[*lockPut]struct{})
	}
	l.unknown[p] = struct{}{}
}

func (l *lockPuts) remove(p *lockPut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unknown, p)
}

// of returns those of an owner: on a key, or with "" on all.
func (l *lockPuts) of(key, owner string) (puts []*lockPut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.unknown {
		if p.owner == owner && (key == "" || p.key == key) {
			puts = append(puts, p)
		}
	}
	return puts
}

// put puts the lock on a lease of its own under the conditions. If the outcome is
// unknown it is for settle to find out.
func (k Locks) put(ctx context.Context, key, owner string, ttl time.Duration, e *txn.Epoch, cmps ...clientv3.Cmp) (fence int64, ok bool, err error) {
	c := k.c
	lease, err := k.grant(ctx, ttl)
	if err != nil {
		return 0, false, fmt.Errorf("granting a lease: %w", err)
	}
	l := c.store.layout
	id := fmt.Sprintf("%x", int64(lease))
	p := &lockPut{
		key: key, owner: owner, lease: lease, id: id,
		value: holder{Claim: id, Owner: owner, Since: c.clock.Time().UTC(), Kind: kindLock, Epoch: e.Value, TTL: int64(ttl / time.Second)}.encode(),
	}
	resp, err := c.store.Do(ctx, txn.Request{
		In: txn.Of(
			append(cmps, c.store.epochIs(e), clientv3.Compare(clientv3.CreateRevision(l.void(id)), "=", 0)),
			[]clientv3.Op{
				clientv3.OpPut(l.own(key), p.value, clientv3.WithLease(lease)),
				clientv3.OpPut(l.lockIndex(owner, key), emptyValue, clientv3.WithLease(lease)),
			},
			[]clientv3.Op{clientv3.OpGet(l.epoch())},
		),
	})
	switch {
	case errors.Is(err, ErrUnknown):
		// The lease is left alone: a revocation that comes late would end a lock that
		// was reported as held.
		c.lockPuts.add(p)
		return 0, false, err
	case err != nil:
		k.revoke(ctx, lease)
		return 0, false, err
	case !resp.Succeeded:
		k.revoke(ctx, lease)
		return 0, false, c.store.learnEpoch(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
	}
	return e.Fence(resp.Header.Revision), true, nil
}

// settle finds out what became of an owner's puts, on a key or on all: afterwards each
// is a lock that every client can read, or never will be one.
func (k Locks) settle(ctx context.Context, key, owner string) error {
	for _, p := range k.c.lockPuts.of(key, owner) {
		for try := 0; ; try++ {
			err := k.settleOnce(ctx, p)
			if err == nil {
				break
			}
			if !retry.PauseUnless(ctx, k.c.closing, try) {
				return txn.Unknown(k.c.ended(txn.WithCause(ctx, txn.Failed(err))))
			}
		}
	}
	return nil
}

func (k Locks) settleOnce(ctx context.Context, p *lockPut) error {
	l := k.c.store.layout
	own := l.own(p.key)
	resp, err := k.c.store.Do(ctx, txn.Request{
		In: txn.Of(
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.Value(own), "=", p.value),
				clientv3.Compare(clientv3.LeaseValue(own), "=", int64(p.lease)),
			},
			[]clientv3.Op{clientv3.OpGet(own, clientv3.WithKeysOnly())},
			[]clientv3.Op{clientv3.OpPut(l.void(p.id), emptyValue, clientv3.WithLease(p.lease))},
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
	k.c.lockPuts.remove(p)
	return nil
}

// settleLater settles in the background what a caller did not wait for.
func (k Locks) settleLater(key, owner string) {
	c := k.c
	if len(c.lockPuts.of(key, owner)) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lockPuts.mu.Lock()
	defer c.lockPuts.mu.Unlock()
	if c.closed || c.lockPuts.working {
		return
	}
	c.lockPuts.working = true
	c.spawn(k.settleAll)
}

func (k Locks) settleAll() {
	l := &k.c.lockPuts
	for try := 0; ; try++ {
		l.mu.Lock()
		puts := make([]*lockPut, 0, len(l.unknown))
		for p := range l.unknown {
			puts = append(puts, p)
		}
		if len(puts) == 0 || k.c.io.Err() != nil {
			l.working = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		failures := 0
		eachOf(puts, func(p *lockPut) {
			ctx, cancel := context.WithTimeout(k.c.io, k.c.store.timeout)
			defer cancel()
			_ = k.settleOnce(ctx, p) // else it is among them yet
		})
		l.mu.Lock()
		for _, p := range puts {
			if _, yet := l.unknown[p]; yet {
				failures++
			}
		}
		l.mu.Unlock()
		if failures == 0 {
			try = 0
			continue
		}
		retry.Pause(k.c.io, try)
	}
}

// locksAtOnce is for how many locks something is done at the same time.
const locksAtOnce = 32

// eachOf calls f for each, for several at the same time.
func eachOf[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, locksAtOnce)
	for _, one := range all {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(one)
		})
	}
	wg.Wait()
}
