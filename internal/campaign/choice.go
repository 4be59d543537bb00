package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// settling is how long links and members take to be themselves again after they
// were healed: a client of etcd waits for a second and more before it connects
// again.
const settling = 2 * time.Second

// choose picks a fault for a storm.
func (n *nemesis) choose(ctx context.Context) plannedFault {
	slot := n.r.IntN(n.o.workers)
	ttl := n.o.ttl
	switch choice := n.r.IntN(100); {
	case choice < 12:
		return n.killWorker(slot)
	case choice < 18: // so short that its keys may be taken or not, if it can be suspected
		return n.stopWorker(slot, between(n.r, 200*time.Millisecond, time.Second))
	case choice < 30:
		return n.stopWorker(slot, between(n.r, ttl/5, 2*ttl))
	case choice < 50:
		return n.linkFault(slot)
	case choice < 62:
		leader := n.members.leader(ctx)
		if leader < 0 {
			return n.compact()
		}
		return n.leaderFault(leader)
	case choice < 76:
		return n.followerFault(ctx)
	case choice < 80:
		return n.quorumFault()
	case choice < 88:
		return n.deleteClaim()
	case choice < 94:
		return n.revokeLease()
	}
	return n.compact()
}

func processOf(slot int) string { return fmt.Sprintf("worker %d", slot) }

const anyMember = "members" // never more than one fault of members at a time

func (n *nemesis) killWorker(slot int) plannedFault {
	return plannedFault{
		kind: killWorker, needs: processOf(slot), slot: slot, worker: n.workers.at(slot).name,
		begin: func(context.Context) error { n.workers.killAt(slot); return nil },
		lasts: between(n.r, 0, 2*time.Second),
		heal: func() error {
			n.mu.Lock()
			n.lives[slot]++
			next := n.lives[slot]
			n.mu.Unlock()
			return n.workers.start(slot, next)
		},
	}
}

func (n *nemesis) stopWorker(slot int, lasts time.Duration) plannedFault {
	h := n.workers.at(slot)
	return plannedFault{
		kind: stopWorker, needs: processOf(slot), slot: slot, worker: h.name,
		note:  lasts.Round(time.Millisecond).String(),
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
	s := plannedFault{
		needs: fmt.Sprintf("links %d", slot), slot: slot, worker: n.workers.at(slot).name, note: where,
		lasts: between(n.r, 500*time.Millisecond, 2*n.o.ttl),
		heal: func() error {
			for _, l := range links {
				l.heal()
			}
			return nil
		},
	}
	var each func(*link)
	switch n.r.IntN(4) {
	case 0:
		s.kind, each = cutLinks, func(l *link) { l.hold(true, true) }
	case 1:
		s.kind, each = halfCutLinks, func(l *link) { l.hold(true, false) }
		s.note += ", what it sends"
	case 2:
		s.kind, each = halfCutLinks, func(l *link) { l.hold(false, true) }
		s.note += ", what it is sent"
	default:
		s.kind, each = breakLinks, (*link).sever
	}
	s.begin = func(context.Context) error {
		for _, l := range links {
			each(l)
		}
		return nil
	}
	return s
}

func (n *nemesis) killMember(kind faultKind, i int) plannedFault {
	p := n.members.cluster.Members[i]
	return plannedFault{
		kind: kind, needs: anyMember, note: fmt.Sprintf("member %d", i),
		begin: func(context.Context) error { p.Kill(); return nil },
		lasts: between(n.r, 200*time.Millisecond, n.o.ttl),
		heal:  p.Restart,
	}
}

func (n *nemesis) stopMember(kind faultKind, i int, lasts time.Duration) plannedFault {
	p := n.members.cluster.Members[i]
	return plannedFault{
		kind: kind, needs: anyMember, note: fmt.Sprintf("member %d for %v", i, lasts.Round(time.Millisecond)),
		begin: func(context.Context) error { return p.Pause() },
		lasts: lasts,
		heal:  p.Resume,
	}
}

func (n *nemesis) leaderFault(leader int) plannedFault {
	switch n.r.IntN(3) {
	case 0:
		return n.killMember(killLeader, leader)
	case 1:
		// When it wakes it may revoke leases that were renewed elsewhere.
		return n.stopMember(stopLeader, leader, n.o.ttl+between(n.r, time.Second, n.o.ttl/2+time.Second))
	}
	to := (leader + 1 + n.r.IntN(len(n.members.clients)-1)) % len(n.members.clients)
	return plannedFault{
		kind: moveLeader, needs: anyMember, note: fmt.Sprintf("from member %d to %d", leader, to),
		begin: func(ctx context.Context) error { return n.members.moveLeader(ctx, leader, to) },
	}
}

func (n *nemesis) followerFault(ctx context.Context) plannedFault {
	leader := n.members.leader(ctx)
	i := n.r.IntN(len(n.members.clients))
	if i == leader {
		i = (i + 1) % len(n.members.clients)
	}
	if n.r.IntN(2) == 0 {
		return n.killMember(killFollower, i)
	}
	return n.stopMember(stopFollower, i, between(n.r, n.o.ttl/5, 2*n.o.ttl))
}

// quorumFault stops two members for a short time: the only fault that takes
// more than a minority away.
func (n *nemesis) quorumFault() plannedFault {
	one := n.r.IntN(len(n.members.clients))
	two := (one + 1) % len(n.members.clients)
	p, q := n.members.cluster.Members[one], n.members.cluster.Members[two]
	return plannedFault{
		kind: loseQuorum, needs: anyMember, note: fmt.Sprintf("members %d and %d", one, two),
		begin: func(context.Context) error { return errors.Join(p.Pause(), q.Pause()) },
		lasts: between(n.r, 500*time.Millisecond, n.o.ttl),
		heal:  func() error { return errors.Join(p.Resume(), q.Resume()) },
	}
}

// ownedKey returns a key that is owned now, or one that may be.
func (n *nemesis) ownedKey() string {
	if _, all := n.observer.owned(""); len(all) > 0 {
		return all[n.r.IntN(len(all))]
	}
	return keyName(0)
}

func (n *nemesis) deleteClaim() plannedFault {
	key := n.ownedKey()
	return plannedFault{kind: deleteClaim, note: key, begin: func(ctx context.Context) error {
		return n.members.ask(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Delete(ctx, ownPrefix+key)
			return err
		})
	}}
}

func (n *nemesis) revokeLease() plannedFault {
	key := n.ownedKey()
	owner := n.observer.owner(key)
	if owner == "" { // a record that is on no lease
		return n.deleteClaim()
	}
	return plannedFault{kind: revokeLease, worker: owner, note: "of " + key, begin: func(ctx context.Context) error {
		return n.members.ask(ctx, func(ctx context.Context, c *clientv3.Client) error {
			resp, err := c.Get(ctx, ownPrefix+key)
			if err != nil || len(resp.Kvs) == 0 || decoded[holder](resp.Kvs[0].Value).Owner != owner {
				return errors.Join(err, errors.New("the owner is another already"))
			}
			_, err = c.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
			return err
		})
	}}
}

func (n *nemesis) compact() plannedFault {
	return plannedFault{kind: compactAll, begin: func(ctx context.Context) error {
		return n.members.ask(ctx, func(ctx context.Context, c *clientv3.Client) error {
			resp, err := c.Get(ctx, ownPrefix, clientv3.WithCountOnly())
			if err != nil {
				return err
			}
			_, err = c.Compact(ctx, resp.Header.Revision)
			return err
		})
	}}
}
