package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// commit carries out a transaction, and tries again if it may have failed in passing. All
// transactions of this package do the same when they are carried out twice.
func commit(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
		resp, err := kv.Txn(attempt).If(cmps...).Then(then...).Else(els...).Commit()
		cancel()
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		switch wire.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Aborted, codes.Unknown:
		case codes.PermissionDenied, codes.Unauthenticated:
			return nil, fmt.Errorf("%w: %w", etcdclaims.ErrPermissionDenied, err)
		default:
			return nil, err
		}
		if !sleep(ctx, backoff(min(try, 8))) {
			return nil, err
		}
	}
}

// ensureSpec makes sure that the group has the number of slots, and returns the revision
// of the key that says so.
func (m *Member) ensureSpec(ctx context.Context) (rev int64, err error) {
	key := m.keys.spec()
	resp, err := commit(ctx, m.claims.KV(), []clientv3.Cmp{absent(key)},
		[]clientv3.Op{clientv3.OpPut(key, encode(spec{valueVersion, m.cfg.Group, m.cfg.Slots}))}, []clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return 0, err
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	kv := resp.Responses[0].GetResponseRange().Kvs[0]
	have, err := decode[spec](key, kv.Value)
	if err == nil && have.Slots != m.cfg.Slots {
		err = fmt.Errorf("%w: it has %d, Config.Slots is %d; start a group with a new name, or end all members and call group.Remove", ErrSlots, have.Slots, m.cfg.Slots)
	}
	return kv.ModRevision, err
}

// register puts the member's entry on the lease of a new claim, and takes the name over
// from another process unless the member joins again. A member that was away is back.
func (m *Member) register(ctx context.Context, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*readTimeout)
	defer cancel()
	rev, err := m.ensureSpec(ctx)
	if err != nil {
		return err
	}
	claim, err := m.claims.TryAcquire(ctx, m.keys.claimOf(m.claims.Instance()), etcdclaims.TTL(m.cfg.TTL))
	if errors.Is(err, etcdclaims.ErrHeld) && !again {
		err = fmt.Errorf("%w: %w", ErrJoined, err)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.life = max(m.life, claim.Remaining())
	m.mu.Unlock()
	lease, err := m.leaseOf(ctx, claim, again)
	if err == nil {
		err = m.enter(ctx, claim, lease, rev, again)
	}
	if err != nil {
		m.erase(claim)
	}
	return err
}

// leaseOf returns the lease of a claim. It also notes the process that has the name of the
// member, unless the member joins again: that process may own slots for a while.
func (m *Member) leaseOf(ctx context.Context, claim *etcdclaims.Claim, again bool) (clientv3.LeaseID, error) {
	key := m.keys.member(m.cfg.Name)
	resp, err := commit(ctx, m.claims.KV(), nil, []clientv3.Op{clientv3.OpGet(m.claims.OwnKey(claim.Key())), clientv3.OpGet(key)}, nil)
	if err != nil {
		return 0, err
	}
	if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 && !again {
		if e, err := decode[entry](key, kvs[0].Value); err == nil {
			m.earlier = e.info(m.cfg.Name)
		}
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		return clientv3.LeaseID(kvs[0].Lease), nil // if it is another claim's, the guard of the entry refuses it
	}
	return 0, etcdclaims.ErrLost
}

// enter puts the entry under the guard of its claim.
func (m *Member) enter(ctx context.Context, claim *etcdclaims.Claim, lease clientv3.LeaseID, specRev int64, again bool) error {
	key := m.keys.member(m.cfg.Name)
	value := encode(entry{valueVersion, claim.ID(), m.claims.Instance(), m.cfg.Weight, m.cfg.Address, m.cfg.Zone, time.Now().UTC()})
	enter := func(rev int64) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.claim, m.entry, m.since, m.pause = claim, value, rev, 0
		return nil
	}
	m.mu.Lock()
	m.tried = value
	m.mu.Unlock()
	cmps := append(claim.Held(), absent(m.keys.evicted(m.cfg.Name)), clientv3.Compare(clientv3.ModRevision(m.keys.spec()), "=", specRev))
	mine := absent(key)
	for {
		all := cmps
		if again { // the first time, a member of the same name is replaced
			all = append(all[:len(all):len(all)], mine)
		}
		resp, err := commit(ctx, m.claims.KV(), all,
			[]clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(lease)), clientv3.OpDelete(m.keys.away(m.cfg.Name), clientv3.WithPrevKV())},
			[]clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(m.keys.evicted(m.cfg.Name))})
		if err != nil {
			return err
		}
		if resp.Succeeded {
			m.wg.Go(func() { revoke(m.claims.Etcd().Ctx(), m.claims, resp.Responses[1:], clientv3.NoLease) })
			return enter(resp.Header.Revision)
		}
		if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
			e, err := decode[eviction](string(kvs[0].Key), kvs[0].Value)
			if err != nil {
				return err
			}
			return &EvictedError{m.cfg.Name, e.Reason, e.By, e.Until}
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) > 0 && string(kvs[0].Value) == value {
			return enter(kvs[0].ModRevision) // an earlier reply was lost
		}
		if err := claim.Err(); err != nil {
			return err
		}
		if owns, err := claim.Owns(ctx); err != nil || !owns {
			return errors.Join(err, claim.Err())
		}
		if len(kvs) == 0 {
			return fmt.Errorf("group %q was removed meanwhile", m.cfg.Group) // or nearly: another try finds out
		}
		if e, err := decode[entry](key, kvs[0].Value); err != nil || e.Instance != m.claims.Instance() {
			return errors.Join(ErrReplaced, err)
		}
		mine = clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision) // left over from before
	}
}

// release gives up the claim of an entry.
func (m *Member) release(claim *etcdclaims.Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if err := claim.Release(ctx); err != nil && !errors.Is(err, etcdclaims.ErrLost) {
		m.log.Warn("member's claim not released", zap.String("key", claim.Key()), zap.Error(err))
	}
}

// depart takes the member off the list, before it drains its slots. It reserves them if
// the member is to come back.
func (m *Member) depart() {
	<-m.stayed // a try to join again may still put an entry
	m.mu.Lock()
	value, life := m.entry, m.life
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), max(life, readTimeout))
	defer cancel()
	key := m.keys.member(m.cfg.Name)
	then := []clientv3.Op{clientv3.OpDelete(key)}
	if m.cfg.Away > 0 && errors.Is(m.Err(), ErrLeft) {
		grant, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
		lease, err := m.claims.GrantLease(grant, m.cfg.Away)
		cancel()
		if err == nil {
			away := entry{Version: valueVersion, Weight: m.cfg.Weight, Address: m.cfg.Address, Zone: m.cfg.Zone, Since: time.Now().UTC()}
			then = append(then, clientv3.OpPut(m.keys.away(m.cfg.Name), encode(away), clientv3.WithLease(lease)))
		} else {
			m.log.Warn("slots not reserved for the member's return", zap.Error(err))
		}
	}
	m.remove(ctx, value, then...)
}

// erase gives up a claim, so that no late request can put an entry under its guard, and
// then removes what such a request may have put before. The lease of an entry can outlive
// the claim: other claims of the client share it. So erase tries for as long as a lease
// lasts, in the background after 5 s.
func (m *Member) erase(claim *etcdclaims.Claim) {
	m.release(claim)
	m.mu.Lock()
	values, life := []string{m.tried}, m.life
	if m.entry != "" && m.entry != m.tried {
		values = append(values, m.entry)
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.claims.Etcd().Ctx(), max(2*life, readTimeout))
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		defer cancel()
		for _, value := range values {
			m.remove(ctx, value, clientv3.OpDelete(m.keys.member(m.cfg.Name)))
		}
	}()
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	select {
	case <-removed:
	case <-timer.C:
	}
}

// remove removes the member's entry if it has the value.
func (m *Member) remove(ctx context.Context, value string, then ...clientv3.Op) {
	key := m.keys.member(m.cfg.Name)
	if _, err := commit(ctx, m.claims.KV(), []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, then, nil); err != nil {
		m.log.Warn("member not taken off the list", zap.String("key", key), zap.Error(err))
	}
}
