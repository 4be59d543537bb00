package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// settling is how long links and members take to be themselves again after they
// were healed: a client of etcd waits for a second and more before it connects
// again.
const settling = 2 * time.Second

// choose picks a fault for a storm.
func (n *nemesis) choose(ctx context.Context) plannedFault {
	slot, member := n.r.IntN(workerCount), n.r.IntN(memberCount)
	switch choice := n.r.IntN(100); {
	case choice < 12:
		return n.killWorker(slot)
	case choice < 18: // so short that its keys may be taken or not, if it can be suspected
		return n.stopWorker(slot, between(n.r, 200*time.Millisecond, time.Second))
	case choice < 30:
		return n.stopWorker(slot, between(n.r, n.ttl/5, 2*n.ttl))
	case choice < 50:
		return n.linkFault(slot)
	case choice < 62:
		if leader := n.members.leader(ctx); leader >= 0 {
			return n.leaderFault(leader)
		}
	case choice < 76:
		if member == n.members.leader(ctx) {
			member = (member + 1) % memberCount
		}
		if n.r.IntN(2) == 0 {
			return n.killMember(killFollower, member)
		}
		return n.stopMembers(stopFollower, between(n.r, n.ttl/5, 2*n.ttl), member)
	case choice < 80: // the only fault that takes more than a minority away
		return n.stopMembers(loseQuorum, between(n.r, 500*time.Millisecond, n.ttl), member, (member+1)%memberCount)
	case choice < 88:
		return n.deleteClaim()
	case choice < 94:
		return n.revokeLease()
	}
	return n.compact()
}

func (n *nemesis) killWorker(slot int) plannedFault {
	return plannedFault{
		fault: fault{kind: killWorker, worker: n.workers.at(slot).name},
		needs: &n.processes[slot], slot: slot,
		begin: func(context.Context) error { n.workers.killAt(slot); return nil },
		lasts: between(n.r, 0, 2*time.Second),
		heal:  func() error { return n.workers.start(slot) },
	}
}

func (n *nemesis) stopWorker(slot int, lasts time.Duration) plannedFault {
	h := n.workers.at(slot)
	return plannedFault{
		fault: fault{kind: stopWorker, worker: h.name, note: lasts.Round(time.Millisecond).String()},
		needs: &n.processes[slot], slot: slot,
		begin: func(context.Context) error { return h.child.Pause() },
		lasts: lasts,
		heal:  h.child.Resume,
	}
}

func (n *nemesis) linkFault(slot int) plannedFault {
	links, where := n.workers.net[slot], "to all members"
	if n.r.IntN(2) == 0 {
		i := n.r.IntN(len(links))
		links, where = links[i:i+1], fmt.Sprintf("to member %d", i)
	}
	way := []struct {
		kind faultKind
		note string
		do   func(*link)
	}{
		{cutLinks, "", func(l *link) { l.hold(&l.up, &l.down) }},
		{halfCutLinks, ", what it sends", func(l *link) { l.hold(&l.up) }},
		{halfCutLinks, ", what it is sent", func(l *link) { l.hold(&l.down) }},
		{breakLinks, "", (*link).sever},
	}[n.r.IntN(4)]
	each := func(do func(*link)) error {
		for _, l := range links {
			do(l)
		}
		return nil
	}
	return plannedFault{
		fault: fault{kind: way.kind, worker: n.workers.at(slot).name, note: where + way.note},
		needs: &n.links[slot], slot: slot,
		begin: func(context.Context) error { return each(way.do) },
		lasts: between(n.r, 500*time.Millisecond, 2*n.ttl),
		heal:  func() error { return each((*link).heal) },
	}
}

// A change is what a fault does to a member, or what ends that.
type change func(*testetcd.ProcessMember) error

// memberFault does something to members, and ends it after a time.
func (n *nemesis) memberFault(kind faultKind, lasts time.Duration, begin, heal change, which ...int) plannedFault {
	each := func(do change) (err error) {
		for _, i := range which {
			err = errors.Join(err, do(n.members.cluster.Members[i]))
		}
		return err
	}
	return plannedFault{
		fault: fault{kind: kind, note: fmt.Sprintf("member %v for %v", which, lasts.Round(time.Millisecond))},
		needs: &n.anyMember,
		begin: func(context.Context) error { return each(begin) },
		lasts: lasts,
		heal:  func() error { return each(heal) },
	}
}

func (n *nemesis) killMember(kind faultKind, i int) plannedFault {
	kill := func(m *testetcd.ProcessMember) error { m.Kill(); return nil }
	return n.memberFault(kind, between(n.r, 200*time.Millisecond, n.ttl), kill, (*testetcd.ProcessMember).Restart, i)
}

func (n *nemesis) stopMembers(kind faultKind, lasts time.Duration, which ...int) plannedFault {
	return n.memberFault(kind, lasts, (*testetcd.ProcessMember).Pause, (*testetcd.ProcessMember).Resume, which...)
}

func (n *nemesis) leaderFault(leader int) plannedFault {
	switch n.r.IntN(3) {
	case 0:
		return n.killMember(killLeader, leader)
	case 1:
		// When it wakes it may revoke leases that were renewed elsewhere.
		return n.stopMembers(stopLeader, n.ttl+between(n.r, time.Second, n.ttl/2+time.Second), leader)
	}
	to := (leader + 1 + n.r.IntN(memberCount-1)) % memberCount
	return plannedFault{
		fault: fault{kind: moveLeader, note: fmt.Sprintf("from member %d to %d", leader, to)},
		needs: &n.anyMember,
		begin: func(ctx context.Context) error { return n.members.moveLeader(ctx, leader, to) },
	}
}

// ownedKey returns a key that is owned now, or one that may be.
func (n *nemesis) ownedKey() string {
	if all := n.observer.owned(""); len(all) > 0 {
		return all[n.r.IntN(len(all))]
	}
	return keyName(0)
}

// asking returns a fault that asks something of etcd.
func (n *nemesis) asking(f fault, ask question) plannedFault {
	return plannedFault{fault: f, begin: func(ctx context.Context) error { return n.members.ask(ctx, ask) }}
}

func (n *nemesis) deleteClaim() plannedFault {
	key := n.ownedKey()
	return n.asking(fault{kind: deleteClaim, note: key}, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Delete(ctx, ownPrefix+key)
		return err
	})
}

func (n *nemesis) revokeLease() plannedFault {
	key := n.ownedKey()
	owner := n.observer.owner(key)
	if owner == "" { // a record that is on no lease
		return n.deleteClaim()
	}
	return n.asking(fault{kind: revokeLease, worker: owner, note: "of " + key}, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, ownPrefix+key)
		if err != nil || len(resp.Kvs) == 0 || decoded[holder](resp.Kvs[0].Value).Owner != owner {
			return errors.Join(err, errors.New("the owner is another already"))
		}
		_, err = c.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
		return err
	})
}

// compact compacts etcd up to what the observer has seen, so that the observer misses nothing.
// Watches of workers that are stopped or cut off do.
func (n *nemesis) compact() plannedFault {
	return n.asking(fault{kind: compactAll}, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Compact(ctx, n.observer.seen())
		return err
	})
}
