package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// mostForced is how many partitions of a dead member are freed at the same time.
const mostForced = 64

// successor is the next member of the list. A member with Config.Suspectable waits for its claim,
// and so gets it soon after that member's process has died.
type successor struct {
	name, instance string
	rev            int64 // of its entry
	dismiss        context.CancelFunc
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

// watchOver waits for the claim of the successor, and no longer for that of an earlier one.
func (m *Member) watchOver(members []MemberInfo, revs map[string]int64) {
	if !m.cfg.Suspectable {
		return
	}
	name := successorOf(m.cfg.Name, members)
	next := successor{name: name, instance: instancesOf(members)[name], rev: revs[name]}
	if next.instance == m.next.instance && next.rev == m.next.rev {
		return
	}
	if m.next.dismiss != nil {
		m.next.dismiss()
	}
	if next.instance != "" {
		var ctx context.Context
		ctx, next.dismiss = context.WithCancel(m.ctx)
		m.wg.Go(func() { m.outlive(ctx, next) })
	}
	m.next = next
}

// outlive waits until a member is dead, and then has its partitions go to others.
func (m *Member) outlive(ctx context.Context, next successor) {
	retry.Forever(ctx, func() (progress bool) {
		claim, err := m.claims.Acquire(ctx, m.keys.claimOf(next.instance), m.entryOptions()...)
		if err != nil {
			if ctx.Err() == nil {
				m.log.Debug("next member is not watched over", zap.String("next", next.name), zap.Error(err))
			}
			return false
		}
		defer m.release(claim)
		if err := m.bury(m.claims.Etcd().Ctx(), claim, next); err != nil {
			m.log.Warn("partitions of a member that does not answer were not all freed", zap.String("next", next.name), zap.Error(err))
		}
		return true
	})
}

// bury takes a member off the list whose claim this member has got, and frees its partitions. A
// member that has left the list by itself keeps its partitions until it has handed them over.
func (m *Member) bury(ctx context.Context, claim *etcdclaims.Claim, dead successor) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	entry := m.keys.member(dead.name)
	resp, err := read(ctx, core.Of(m.claims).KV(), clientv3.OpGet(entry))
	if err != nil || txn.First(resp, 0).GetModRevision() != dead.rev {
		return err
	}
	gone := []clientv3.Op{clientv3.OpDelete(entry), clientv3.OpDelete(m.keys.process(dead.instance))}
	resp, err = commit(ctx, core.Of(m.claims).KV(), append(claim.Guard(), unchanged(entry, dead.rev)), gone, nil)
	if err != nil || !resp.Succeeded {
		return err
	}
	m.log.Warn("member does not answer; its partitions go to others", zap.String("next", dead.name), zap.String("instance", dead.instance))
	for {
		m.view.mu.Lock()
		left, changed := m.view.ownedBy(map[string]bool{dead.instance: true}), m.view.changed
		m.view.mu.Unlock()
		if len(left) == 0 {
			return nil
		}
		if err := errors.Join(m.force(ctx, claim, left), context.Cause(ctx), claim.Err()); err != nil {
			return err
		}
		select {
		case <-changed:
			retry.Sleep(ctx, time.Millisecond) // others follow
		case <-ctx.Done():
		}
	}
}

// force frees partitions of a dead member, for as long as this member has its claim.
func (m *Member) force(ctx context.Context, claim *etcdclaims.Claim, owners []Owner) error {
	errs := make([]error, len(owners))
	var forced sync.WaitGroup
	room := make(chan struct{}, mostForced)
	for i, o := range owners {
		room <- struct{}{}
		forced.Go(func() {
			defer func() { <-room }()
			if errs[i] = claim.Check(); errs[i] != nil {
				return
			}
			err := admin.ForceReleaseTerm(ctx, m.claims, o.Token, "its member does not answer")
			if !errors.Is(err, etcdclaims.ErrRefused) {
				errs[i] = err
			}
		})
	}
	forced.Wait()
	return errors.Join(errs...)
}
