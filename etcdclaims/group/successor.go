package group

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// watched is a member that this one watches over: it waits for the claim of its entry, and so gets it
// soon after that member's process has died. Each claim has one entry, and is watched over once.
type watched struct {
	name, instance, claim string
	rev                   int64 // of the entry
}

// entryOptions returns the options of the claims of entries.
func (m *Member) entryOptions() []etcdclaims.AcquireOption {
	options := []etcdclaims.AcquireOption{option.OwnKey{}, etcdclaims.TTL(m.cfg.TTL)}
	if m.cfg.Suspectable {
		options = append(options, etcdclaims.Suspectable())
	}
	return options
}

// successorOf returns the name of the member that follows in the order of names, and after the last
// that of the first. It is empty if there is no other member. Members that are away have no claim.
func successorOf(name string, members []MemberInfo) string {
	first, next := "", ""
	for _, m := range members {
		switch {
		case m.Instance == "" || m.Name == name:
		case m.Name > name && (next == "" || m.Name < next):
			next = m.Name
		case first == "" || m.Name < first:
			first = m.Name
		}
	}
	if next != "" {
		return next
	}
	return first
}

// successor returns the member that follows. The mutex is held.
func (v *View) successor(name string, members []MemberInfo) watched {
	next := successorOf(name, members)
	return watched{name: next, instance: v.members[next].Instance, claim: v.termOf[next], rev: v.revs[next]}
}

// watchOver begins to watch over the next member. It ends earlier watches, except those of members that
// still own partitions though they have left the list, or though their name was taken over.
func (m *Member) watchOver(a Assignment, next watched) {
	for w, dismiss := range m.watches {
		listed := slices.ContainsFunc(a.Members, func(o MemberInfo) bool { return o.Instance == w.instance })
		owns := slices.ContainsFunc(a.Owners, func(o Owner) bool { return o.Instance == w.instance })
		if w != next && (listed || !owns) {
			dismiss()
			delete(m.watches, w)
		}
	}
	if !m.cfg.Suspectable || next.claim == "" || m.watches[next] != nil {
		return
	}
	ctx, dismiss := context.WithCancel(m.ctx)
	m.watches[next] = dismiss
	m.wg.Go(func() { m.outlive(ctx, next) })
}

// outlive waits until the claim of a member has ended, which happens once. If that was since the
// member did not answer, its partitions go to others.
func (m *Member) outlive(ctx context.Context, w watched) {
	var claim *etcdclaims.Claim
	open := func(err error) bool { return !errors.Is(err, etcdclaims.ErrClosed) }
	err := retry.Do(ctx, open, func() (err error) {
		if claim, err = m.claims.Acquire(ctx, m.keys.claimOf(w.instance), m.entryOptions()...); err != nil && ctx.Err() == nil {
			m.log.Debug("next member is not watched over", zap.String("next", w.name), zap.Error(err))
		}
		return err
	})
	if err != nil {
		return
	}
	defer m.release(claim)
	again := func(err error) bool {
		return claim.Err() == nil && !errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, etcdclaims.ErrPermissionDenied)
	}
	var owned []Owner
	err = retry.Do(ctx, again, func() (err error) {
		owned, err = m.bury(ctx, claim, w)
		return err
	})
	if err == nil {
		err = retry.Do(ctx, again, func() (err error) {
			owned, err = m.force(ctx, claim, owned)
			return err
		})
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("partitions of a member that does not answer were not all freed", zap.String("next", w.name), zap.Error(err))
	}
}

// suspected reports whether a member's claim was taken from it because it did not answer. The notice
// of that is there until the member reads it, or its lease ends. No claim that was given up, freed by
// an operator, or has lapsed has such a notice.
func (m *Member) suspected(ctx context.Context, w watched) (bool, error) {
	notice := core.Of(m.claims).Layout().Eviction(w.instance, w.claim)
	resp, err := read(ctx, core.Of(m.claims).KV(), clientv3.OpGet(notice))
	if err != nil || txn.First(resp, 0) == nil {
		return false, err
	}
	e, err := keyspace.Decode[protocol.Eviction](notice, txn.First(resp, 0).Value, protocol.Version)
	return e.Suspected && err == nil, nil //nolint:nilerr // of a later version: it may mean anything
}

// bury takes a suspected member off the list, and returns the terms of partitions that it has then.
// Any other member keeps what it owns.
func (m *Member) bury(ctx context.Context, claim *etcdclaims.Claim, w watched) ([]Owner, error) {
	suspected, err := m.suspected(ctx, w)
	if err != nil || !suspected {
		return nil, err
	}
	m.view.mu.Lock()
	owned := m.view.ownedBy(map[string]bool{w.instance: true})
	m.view.mu.Unlock()
	// The guard holds, so the member cannot have joined again: the terms are from before.
	var gone []clientv3.Op
	for _, key := range []string{m.keys.member(w.name), m.keys.process(w.instance)} {
		at := clientv3.Compare(clientv3.ModRevision(key), "=", w.rev)
		gone = append(gone, clientv3.OpTxn([]clientv3.Cmp{at}, []clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	resp, err := commit(ctx, core.Of(m.claims).KV(), claim.Guard(), gone, nil)
	if err == nil && !resp.Succeeded {
		err = etcdclaims.ErrLost
	}
	if err != nil {
		return nil, err
	}
	m.log.Warn("member does not answer; its partitions go to others", zap.String("next", w.name),
		zap.String("instance", w.instance), zap.Int("partitions", len(owned)))
	return owned, nil
}

// force frees partitions of a dead member, for as long as this member has its claim. It returns those
// that it could not free.
func (m *Member) force(ctx context.Context, claim *etcdclaims.Claim, owned []Owner) (left []Owner, err error) {
	ctx = audit.Part(ctx) // a program does this, not a person
	var mu sync.Mutex     // of the results
	core.EachOf(owned, func(o Owner) {
		failed := claim.Check()
		if failed == nil {
			failed = admin.ForceReleaseTerm(ctx, m.claims, o.Token, "its member does not answer")
		}
		if failed == nil || errors.Is(failed, etcdclaims.ErrRefused) { // it has ended
			return
		}
		mu.Lock()
		defer mu.Unlock()
		left, err = append(left, o), errors.Join(err, failed)
	})
	return left, err
}

// restsAfter returns how long a member that has lost its claim waits until it joins again. One from
// which the claim was taken again within a minute is off the list for longer and longer: each time
// costs all its partitions a term. A member that was suspected may learn only that its claim is gone.
func (m *Member) restsAfter(claim *etcdclaims.Claim) time.Duration {
	lost, _ := errors.AsType[*etcdclaims.LostError](claim.Err())
	m.mu.Lock()
	entry := m.entry
	if time.Since(m.seen) > time.Minute {
		m.flaps = 0
	}
	taken := m.cfg.Suspectable && lost != nil && (lost.Reason == etcdclaims.ReasonDeleted || lost.Reason == etcdclaims.ReasonSuperseded)
	if taken && m.flaps > 0 {
		m.pause = m.life << min(m.flaps-1, 4)
	}
	if taken {
		m.flaps++
	}
	pause := m.pause
	m.mu.Unlock()
	if taken && pause > 0 {
		m.stayAway(claim, entry)
	}
	return pause
}
