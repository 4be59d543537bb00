package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// groupOptions are those of a group: how many partitions its members share, how long it rests
// before requests are counted, and for how long they are.
type groupOptions struct {
	members, partitions int
	settle, hold        time.Duration
}

// groups is what it takes to spread partitions over members, and to keep them so. The reference
// spreads nothing: each member locks a part of the partitions that it was told.
func groups(o options) workload {
	g := o.group
	return workload{
		name: "group", of: "members", rounds: 1,
		title: fmt.Sprintf("%s partitions over %d members, each on a connection of its own, TTL %v: until all members have their share, requests at rest, "+
			"partitions that change members when one more joins, and until a dead member's partitions have owners", thousands(int64(g.partitions)), g.members, etcdclaims.DefaultTTL),
		columns: []metric{balanced, perMember, moved, ownedAgain},
		points: []point{{name: count(g.members, "member"), n: g.members, rows: []row{
			{name: "etcdclaims/group", open: func(_ context.Context, st *stage, _ int) (contender, error) {
				return &groupRun{groupOptions: g, st: st}, nil
			}},
			{name: "etcd Mutex for each partition, told in advance", open: func(_ context.Context, st *stage, _ int) (contender, error) {
				return &staticRun{groupOptions: g, st: st}, nil
			}},
		}}},
	}
}

// requestsAtRest counts the requests of each member.
func (g groupOptions) requestsAtRest(ctx context.Context, sent func() int64) (float64, error) {
	if err := sleep(ctx, g.settle); err != nil {
		return 0, err
	}
	before := sent()
	if err := sleep(ctx, g.hold); err != nil {
		return 0, err
	}
	return float64(sent()-before) / g.hold.Seconds() / float64(g.members), nil
}

// groupRun is a group of members that come, stay and die.
type groupRun struct {
	groupOptions
	st      *stage
	fleet   *fleet
	clients []*etcdclaims.Client
	joined  []*group.Member
	prefix  string
}

func (g *groupRun) close() {}

func (g *groupRun) measure(ctx context.Context) (s sample, err error) {
	if g.fleet, err = newFleet(g.st, g.members+1); err != nil {
		return nil, err
	}
	g.prefix, g.clients, g.joined = prefix(), nil, make([]*group.Member, g.members+1)
	defer g.shut()
	for i := range g.joined {
		c, err := etcdclaims.New(g.fleet.of(i), etcdclaims.Config{Prefix: g.prefix})
		if err != nil {
			return nil, err
		}
		g.clients = append(g.clients, c)
	}
	s = sample{}

	began := time.Now()
	if err := each(g.members, g.members, func(i int) error { return g.join(ctx, i) }); err != nil {
		return nil, err
	}
	if err := g.await(ctx, g.members); err != nil {
		return nil, err
	}
	s[balanced] = time.Since(began).Seconds()
	if s[perMember], err = g.requestsAtRest(ctx, g.fleet.requests); err != nil {
		return nil, err
	}

	before := g.owners()
	if err := g.join(ctx, g.members); err != nil {
		return nil, err
	}
	if err := g.await(ctx, g.members+1); err != nil {
		return nil, err
	}
	for partition, owner := range g.owners() {
		if owner != before[partition] {
			s[moved]++
		}
	}

	// Without its connection the member can neither leave nor renew, as if it was killed.
	dead := g.members
	g.joined[dead], began = nil, time.Now()
	hangUp(g.fleet.of(dead))
	if err := g.await(ctx, g.members); err != nil {
		return nil, err
	}
	s[ownedAgain] = time.Since(began).Seconds()
	return s, nil
}

func (g *groupRun) join(ctx context.Context, i int) (err error) {
	g.joined[i], err = group.Join(ctx, g.clients[i], group.Config{Group: "compare", Partitions: g.partitions, Name: fmt.Sprintf("member-%02d", i)},
		func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			<-ctx.Done()
			return nil
		})
	return err
}

// owners returns the owner of each partition as the first member knows it.
func (g *groupRun) owners() []string {
	a := g.joined[0].View().Assignment()
	all := make([]string, g.partitions)
	for partition, o := range a.Owners {
		all[partition] = o.Member
	}
	return all
}

// await waits until so many members have all partitions, the same number each or one more.
func (g *groupRun) await(ctx context.Context, members int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("%d partitions were not balanced over %d members within 2m", g.partitions, members))
	defer cancel()
	for range g.joined[0].View().Watch(ctx) {
		have := map[string]int{}
		for _, owner := range g.owners() {
			have[owner]++
		}
		counts := slices.Sorted(maps.Values(have))
		if have[""] == 0 && len(have) == members && counts[members-1]-counts[0] <= 1 {
			return nil
		}
	}
	return context.Cause(ctx)
}

func (g *groupRun) shut() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var all sync.WaitGroup
	for i, c := range g.clients {
		all.Go(func() {
			if m := g.joined[i]; m != nil {
				_ = m.Leave(ctx) // what it leaves in etcd is gone with that
			}
			closeClaims(ctx, c)
		})
	}
	all.Wait()
	g.fleet.close()
}

// staticRun is members that each lock the partitions that they were told.
type staticRun struct {
	groupOptions
	st *stage
}

func (g *staticRun) close() {}

func (g *staticRun) measure(ctx context.Context) (sample, error) {
	f, err := newFleet(g.st, g.members)
	if err != nil {
		return nil, err
	}
	defer f.close()
	keys := names(prefix(), g.partitions)
	sessions := make([]*concurrency.Session, g.members)
	defer func() {
		for _, s := range sessions {
			if s != nil {
				s.Orphan() // its lease is gone with the etcd of the point
			}
		}
	}()
	began := time.Now()
	err = each(g.members, g.members, func(i int) error {
		s, err := session(ctx, f.of(i))
		if err != nil {
			return err
		}
		sessions[i] = s
		for partition := i; partition < g.partitions; partition += g.members {
			if err := concurrency.NewMutex(s, keys[partition]).Lock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := sample{balanced: time.Since(began).Seconds()}
	s[perMember], err = g.requestsAtRest(ctx, f.requests)
	return s, err
}
