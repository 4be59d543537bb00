package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

var (
	errNoSpec   = errors.New("the number of partitions was deleted, and no member has put it back yet")
	errRestored = errors.New("etcd was restored: the name has the entry of an earlier process until that lapses")
)

// commit carries out a transaction, and tries again if it may have failed in passing. All
// transactions of this package do the same when they are carried out twice. Once a try may have
// been carried out, no later refusal is the answer: the error then matches etcdclaims.ErrUnknown.
func commit(ctx context.Context, kv clientv3.KV, cmps []clientv3.Cmp, then, els []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	again := func(err error) bool { return txn.MayPass(err) && ctx.Err() == nil }
	unsure := false
	err = retry.Do(ctx, again, func() (err error) {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
		defer cancel()
		resp, err = kv.Txn(attempt).If(cmps...).Then(then...).Else(els...).Commit()
		unsure = unsure || err != nil && txn.MayBeDone(err)
		return txn.Unanswered(ctx, err)
	})
	if err = txn.Denied(err); err != nil && unsure && slices.ContainsFunc(then, changes) {
		err = txn.Unknown(err)
	}
	return resp, err
}

// changes reports whether an operation does more than read.
func changes(op clientv3.Op) bool { return !op.IsGet() }

// ensureSpec makes sure that the group has the number of partitions, and returns the revision
// of the key that contains it. If the key was deleted by hand, the members know the number.
// One of them puts the key back, and ensureSpec waits for that.
func (m *Member) ensureSpec(ctx context.Context) (rev int64, err error) {
	key := m.keys.spec()
	unused := []clientv3.Cmp{absent(key), absent(m.keys.root + dirMember).WithPrefix()}
	var kv *mvccpb.KeyValue
	err = retry.Do(ctx, func(err error) bool { return errors.Is(err, errNoSpec) }, func() error {
		resp, err := commit(ctx, core.Of(m.claims).KV(), unused,
			[]clientv3.Op{m.putSpec()}, []clientv3.Op{clientv3.OpGet(key)})
		switch {
		case err != nil:
			return err
		case resp.Succeeded:
			rev = resp.Header.Revision
		default:
			if kv = txn.First(resp, 0); kv == nil {
				return errNoSpec
			}
		}
		return nil
	})
	if err != nil || kv == nil {
		return rev, err
	}
	have, err := decode[spec](key, kv.Value)
	if err == nil && have.Partitions != m.cfg.Partitions {
		err = fmt.Errorf("%w: it has %d, Config.Partitions is %d; start a group with a new name, or end all members and call group.Remove",
			ErrPartitions, have.Partitions, m.cfg.Partitions)
	}
	return kv.ModRevision, err
}

func (m *Member) putSpec() clientv3.Op {
	return clientv3.OpPut(m.keys.spec(), encode(spec{valueVersion, m.cfg.Group, m.cfg.Partitions}))
}

// restoreSpec puts the number of partitions back, which was deleted by hand: Remove leaves it
// while there are members. It returns when to try again.
func (m *Member) restoreSpec(claim *etcdclaims.Claim) time.Duration {
	ctx, cancel := context.WithTimeout(m.ctx, readTimeout)
	defer cancel()
	resp, err := commit(ctx, core.Of(m.claims).KV(), append(claim.Guard(), absent(m.keys.spec())),
		[]clientv3.Op{m.putSpec()}, nil)
	if err != nil {
		m.log.Warn("number of partitions not put back", zap.String("etcd_key", m.keys.spec()), zap.Error(err))
		return time.Second
	}
	if resp.Succeeded {
		m.log.Warn("number of partitions was deleted; put back", zap.String("etcd_key", m.keys.spec()))
	}
	return rest
}

// register puts the member's entry on the lease of a new claim, and takes the name over
// from another process unless the member joins again. A member that was away is back.
func (m *Member) register(caller context.Context, again bool) (err error) {
	ctx, cancel := context.WithTimeout(caller, 3*readTimeout)
	defer cancel()
	defer func() { err = unanswered(caller, err) }()
	rev, err := m.ensureSpec(ctx)
	if err != nil {
		return err
	}
	key := m.keys.claimOf(m.claims.Instance())
	claim, err := m.claims.TryAcquire(ctx, key, m.entryOptions()...)
	if errors.Is(err, etcdclaims.ErrHeld) && !again { // an earlier Member, which has left or failed to join, is still giving it up
		held := err
		if claim, err = m.claims.Acquire(ctx, key, m.entryOptions()...); err != nil {
			if unanswered(caller, err) == txn.ErrNoAnswer { //nolint:errorlint // only itself: etcd may well answer
				err = held
			}
			err = fmt.Errorf("the claim of an earlier member of this client is not given up yet: %w", err)
		}
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.life = max(m.life, claim.Remaining())
	m.mu.Unlock()
	lease, have, err := m.lookAround(ctx, claim, again)
	if err == nil {
		err = m.enter(ctx, claim, lease, rev, have, again)
	}
	if err != nil {
		m.erase(claim, !again, m.tried, m.entry)
	}
	return err
}

// unanswered is txn.Unanswered for an error whose outcome may be unknown: it stays so.
func unanswered(caller context.Context, err error) error {
	said := txn.Unanswered(caller, err)
	if errors.Is(err, etcdclaims.ErrUnknown) {
		said = txn.Unknown(said)
	}
	return said
}

// namesake is what etcd has under the name of a member, at a revision.
type namesake struct {
	rev           int64
	entry, away   *mvccpb.KeyValue // each is nil if etcd does not have the key
	evicted, spec *mvccpb.KeyValue
}

// namesake returns the reads of a namesake, and what reads their results.
func (m *Member) namesake() (ops txn.Ops, from func(txn.Reply) namesake) {
	entry, away := ops.Add(clientv3.OpGet(m.keys.member(m.cfg.Name))), ops.Add(clientv3.OpGet(m.keys.away(m.cfg.Name)))
	evicted, spec := ops.Add(clientv3.OpGet(m.keys.evicted(m.cfg.Name))), ops.Add(clientv3.OpGet(m.keys.spec()))
	return ops, func(r txn.Reply) namesake {
		return namesake{r.Rev, r.First(entry), r.First(away), r.First(evicted), r.First(spec)}
	}
}

// lookAround returns the lease of a claim, and what there is under the member's name.
// Unless the member joins again, it also notes the process that has the name: that process
// may own partitions for a while. The member does not join beside others that it cannot plan with.
func (m *Member) lookAround(ctx context.Context, claim *etcdclaims.Claim, again bool) (clientv3.LeaseID, namesake, error) {
	ops, from := m.namesake()
	own, group := ops.Add(clientv3.OpGet(m.claims.OwnKey(claim.Key()))), ops.Add(clientv3.OpGet(m.keys.root, clientv3.WithPrefix()))
	resp, err := retry.InParts(ops, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
		return commit(ctx, core.Of(m.claims).KV(), nil, ops, nil)
	})
	if err != nil {
		return 0, namesake{}, err
	}
	r := txn.ReplyIn(resp)
	if !again {
		all := newList(m.keys.root, r.Kvs(group))
		if all.later != nil {
			return 0, namesake{}, fmt.Errorf("another member cannot be planned with: %w", all.later)
		}
		if earlier := all.members[m.cfg.Name]; earlier.Instance != "" {
			m.earlier = earlier
		}
	}
	if kv := r.First(own); kv != nil {
		return clientv3.LeaseID(kv.Lease), from(r), nil // if it is another claim's, the guard of the entry refuses it
	}
	return 0, namesake{}, etcdclaims.ErrLost
}

// mayReplace returns an error if the member must not take the place of an entry. The first
// time, it replaces a member of the same name; when it joins again, only what is left over
// of itself. An entry that is older than the member's is there again because etcd was
// restored. If it is not of the process that the member replaced, the member waits until
// it lapses.
func (m *Member) mayReplace(kv *mvccpb.KeyValue, again bool) error {
	if kv == nil {
		return nil
	}
	e, err := readEntry(kv)
	mine := err == nil && e.Instance == m.claims.Instance()
	restored := again && kv.ModRevision < m.since
	switch {
	case restored && err == nil && e.Instance == m.earlier.Instance:
		return nil
	case restored && !mine:
		return errors.Join(errRestored, err)
	case again && !mine:
		return errors.Join(ErrReplaced, err)
	case newer(kv) != nil:
		return fmt.Errorf("a process of a later version is the member: %w", newer(kv))
	}
	return nil
}

// enter puts the entry under the guard of its claim. It ends a reservation of the name,
// except one of a later version: that one lapses.
func (m *Member) enter(ctx context.Context, claim *etcdclaims.Claim, lease clientv3.LeaseID, specRev int64, have namesake, again bool,
) error {
	key := m.keys.member(m.cfg.Name)
	value := encode(entry{
		Version: valueVersion, Name: m.cfg.Name, Claim: claim.ID(), Instance: m.claims.Instance(), Weight: m.cfg.Weight,
		Address: m.cfg.Address, Zone: m.cfg.Zone, Since: clock.For(m.claims.Etcd()).Time().UTC(),
	})
	entered := func(rev int64) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.claim, m.entry, m.since, m.seen, m.pause = claim, value, rev, clock.Mono(), 0
		m.forgive()
		return nil
	}
	m.mu.Lock()
	m.tried = value
	m.mu.Unlock()
	els, from := m.namesake()
	for {
		switch {
		case have.entry != nil && string(have.entry.Value) == value:
			return entered(have.entry.ModRevision) // an earlier reply was lost
		case have.evicted != nil:
			return readEviction(m.cfg.Name, have.evicted)
		case have.spec == nil || have.spec.ModRevision != specRev:
			return fmt.Errorf("group %q was removed meanwhile", m.cfg.Group) // or nearly: another try finds out
		}
		if err := m.mayReplace(have.entry, again); err != nil {
			return err
		}
		cmps := append(claim.Guard(), absent(m.keys.evicted(m.cfg.Name)), clientv3.Compare(clientv3.ModRevision(m.keys.spec()), "=", specRev),
			unchanged(key, have.rev), unchanged(m.keys.away(m.cfg.Name), have.rev))
		then := []clientv3.Op{
			clientv3.OpPut(key, value, clientv3.WithLease(lease)),
			clientv3.OpPut(m.keys.process(m.claims.Instance()), value, clientv3.WithLease(lease)),
		}
		if newer(have.away) == nil {
			then = append(then, clientv3.OpDelete(m.keys.away(m.cfg.Name), clientv3.WithPrevKV()))
		}
		resp, err := commit(ctx, core.Of(m.claims).KV(), cmps, then, els)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			m.wg.Go(func() { revoke(m.claims.Etcd().Ctx(), m.claims, leasesOf(resp.Responses, clientv3.NoLease)...) })
			return entered(resp.Header.Revision)
		}
		have = from(txn.ReplyIn(resp))
		if err := claim.Err(); err != nil {
			return err
		}
		if owns, err := claim.Owns(ctx); err != nil || !owns {
			return errors.Join(err, claim.Err())
		}
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

// depart takes the member off the list, before it drains its partitions. It reserves them if
// the member may come back (Config.Away).
func (m *Member) depart() {
	<-m.stayed // a try to join again may still put an entry
	m.mu.Lock()
	value, life := m.entry, m.life
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), max(life, readTimeout))
	defer cancel()
	key := m.keys.member(m.cfg.Name)
	then, els := txn.Ops{clientv3.OpDelete(key)}, txn.Ops{}
	if !m.mayReturn() {
		_, _ = m.remove(ctx, value, then, nil)
		return
	}
	lease, reserve, err := m.reserve(ctx)
	then = append(then, reserve...)
	away := clientv3.OpGet(m.keys.away(m.cfg.Name))
	reserved, stays := then.Add(away), els.Add(away)
	resp, failed := m.remove(ctx, value, then, els)
	switch {
	case err != nil:
		m.log.Warn("partitions not reserved for the member's return", zap.Error(err))
	case failed != nil: // they may be reserved
	default:
		r, have := txn.ReplyIn(resp), stays
		if r.Succeeded {
			have = reserved
		}
		if clientv3.LeaseID(r.First(have).GetLease()) != lease {
			m.log.Warn("partitions not reserved for the member's return: it was off the list")
			revoke(ctx, m.claims, lease)
		}
	}
}

// reserve returns the operations that reserve the partitions that the member owns for its
// return, and the lease of the reservation. A reservation of a later version stays as it is.
func (m *Member) reserve(ctx context.Context) (clientv3.LeaseID, []clientv3.Op, error) {
	key := m.keys.away(m.cfg.Name)
	resp, err := commit(ctx, core.Of(m.claims).KV(), nil, []clientv3.Op{clientv3.OpGet(key)}, nil)
	if err != nil {
		return 0, nil, err
	}
	if err := newer(txn.First(resp, 0)); err != nil {
		return 0, nil, err
	}
	grant, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
	defer cancel()
	lease, err := core.Of(m.claims).GrantLease(grant, m.cfg.Away)
	if err != nil {
		return 0, nil, err
	}
	now := clock.For(m.claims.Etcd()).Time().UTC()
	away := entry{
		Version: valueVersion, Weight: m.cfg.Weight, Address: m.cfg.Address, Zone: m.cfg.Zone, Since: now, Until: now.Add(m.cfg.Away),
	}
	m.mu.Lock()
	for partition, r := range m.runs {
		if r.claim != nil && r.claim.Err() == nil {
			away.Partitions = away.Partitions.with(partition)
		}
	}
	m.mu.Unlock()
	put := clientv3.OpPut(key, encode(away), clientv3.WithLease(lease))
	return lease, []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{unchanged(key, resp.Header.Revision)}, []clientv3.Op{put}, nil)}, nil
}

// erase gives up a claim, so that no late request can put an entry under its guard, and
// then removes what such a request may have put before. The lease of an entry can outlive
// the claim: other claims of the client share it. So erase tries for as long as a lease
// lasts, in the background after 5 s. The values are those that may have been put: the
// member may have another entry by then. ended is set if the process owns no partitions any more.
func (m *Member) erase(claim *etcdclaims.Claim, ended bool, values ...string) {
	m.release(claim)
	m.mu.Lock()
	life := m.life
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.claims.Etcd().Ctx(), max(2*life, readTimeout))
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		defer cancel()
		for _, value := range slices.Compact(values) {
			if value == "" {
				continue
			}
			var also []clientv3.Op
			if process := m.keys.process(m.claims.Instance()); ended {
				also = append(also, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(process), "=", value)}, []clientv3.Op{clientv3.OpDelete(process)}, nil))
			}
			_, _ = m.remove(ctx, value, append(also, clientv3.OpDelete(m.keys.member(m.cfg.Name))), also)
		}
	}()
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	select {
	case <-removed:
	case <-timer.C:
	}
}

// remove carries out operations that remove the member's entry, if it has the value, and
// the others if not.
func (m *Member) remove(ctx context.Context, value string, then, els []clientv3.Op) (*clientv3.TxnResponse, error) {
	key := m.keys.member(m.cfg.Name)
	resp, err := commit(ctx, core.Of(m.claims).KV(),
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}, then, els)
	if err != nil {
		m.log.Warn("member not taken off the list", zap.String("etcd_key", key), zap.Error(err))
	}
	return resp, err
}
