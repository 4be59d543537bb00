package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/clusters"
)

// Families are spread evenly, and a new cluster takes only what is to be its own.
func TestRank(t *testing.T) {
	t.Parallel()
	four, count, moved := []string{"c0", "c1", "c2", "c3"}, map[string]int{}, 0
	const families = 10_000
	for i := range families {
		family := fmt.Sprint("family", i)
		before, after := clusters.Rank(family, four)[0], clusters.Rank(family, append(slices.Clone(four), "c4"))[0]
		count[before]++
		if after != before {
			moved++
			if after != "c4" {
				t.Fatalf("%s moves from %s to %s because of c4", family, before, after)
			}
		}
	}
	for _, name := range four {
		if n := count[name]; n < families/4*9/10 || n > families/4*11/10 {
			t.Errorf("%s has %d of %d families", name, n, families)
		}
	}
	if moved < families/5*9/10 || moved > families/5*11/10 {
		t.Errorf("%d of %d families move to the new cluster", moved, families)
	}
}

// pair is two clusters, and a process that reaches them by hosts of its own.
type pair struct {
	t       *testing.T
	servers map[string]*claimtest.Server
	hosts   map[string]*claimtest.Host
	*clusters.Families
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, servers: map[string]*claimtest.Server{}, hosts: map[string]*claimtest.Host{}}
	p.Families = &clusters.Families{Founders: []string{"a", "b"}, Clusters: map[string]clientv3.KV{}}
	for _, name := range p.Founders {
		p.servers[name] = claimtest.Start(t)
		p.hosts[name] = p.servers[name].Host(t)
		p.Clusters[name] = p.hosts[name].Etcd(t)
	}
	return p
}

// found returns the home of the family.
func (p *pair) found(hint string) clusters.Place {
	p.t.Helper()
	place, err := p.Find(p.t.Context(), "orders", hint)
	if err != nil {
		p.t.Fatal(err)
	}
	return place
}

func (p *pair) client(cluster string) *etcdclaims.Client {
	return claimtest.NewClient(p.t, p.servers[cluster], etcdclaims.Config{Prefix: clusters.Prefix("orders")})
}

func other(cluster string) string { return strings.Trim("ab", cluster) }

// A move ends the claims of the old home before it opens the new one, in which fences are greater. So is
// the way back.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		home := p.found("").Cluster
		old, err := p.client(home).TryAcquire(t.Context(), "42", etcdclaims.If(p.found(home).Here()))
		if err != nil {
			t.Fatal(err)
		}
		fence := old.Fence()
		for range 3 {
			from, stale := p.found(""), p.client(home)
			if err := p.Move(t.Context(), "orders", other(home)); err != nil {
				t.Fatal(err)
			}
			if _, err := old.Txn(t.Context()).Then(clientv3.OpPut("/late", "")).Commit(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Fatalf("a late write in the old home: %v", err)
			}
			if _, err := stale.TryAcquire(t.Context(), "43", etcdclaims.If(from.Here())); !errors.Is(err, etcdclaims.ErrRefused) {
				t.Fatalf("a late acquisition in the old home: %v", err)
			}
			time.Sleep(16 * time.Second) // until the lease of the claim has ended, a zombie has the key there
			if home = other(home); p.found(from.Cluster).Cluster != home || p.found("").Cluster != home {
				t.Fatalf("the family is not found in %s", home)
			}
			if old, err = p.client(home).TryAcquire(t.Context(), "42", etcdclaims.If(p.found(home).Here())); err != nil {
				t.Fatal(err)
			}
			if old.Fence() <= fence {
				t.Fatalf("fence %d after %d", old.Fence(), fence)
			}
			fence = old.Fence()
		}
	})
}

// A family whose mover has died half-way is opened by the next process that looks for it. A reply that
// is lost does not move it twice.
func TestHalfMoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault claimtest.Fault
		moved bool
	}{
		{"seal lost", claimtest.Fault{LoseRequest: true, Code: codes.Unavailable}, false},
		{"seal's reply lost", claimtest.Fault{LoseReply: true, Code: codes.Unavailable}, true},
		{"opening lost", claimtest.Fault{LoseRequest: true, Code: codes.Unavailable}, true},
		{"opening's reply lost", claimtest.Fault{LoseReply: true, Code: codes.Unavailable}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				from := p.found("").Cluster
				to := other(from)
				at := from
				if strings.HasPrefix(c.name, "opening") {
					at = to
				}
				c.fault.Times, c.fault.On = -1, claimtest.Other // reads are of another kind
				met := p.hosts[at].Inject(c.fault)
				if err := p.Move(t.Context(), "orders", to); err == nil || met.Hits() == 0 {
					t.Fatalf("the fault was not met: %v", err)
				}
				met.Remove()
				want := from
				if c.moved {
					want = to
				}
				for _, hint := range []string{"", from, to} {
					if got := p.found(hint).Cluster; got != want {
						t.Fatalf("with the hint %q the family is in %s, want %s", hint, got, want)
					}
				}
				if err := p.Move(t.Context(), "orders", to); err != nil || p.found("").Cluster != to {
					t.Fatalf("moved again: %v", err)
				}
			})
		})
	}
}

// A family is born in one cluster, wherever processes look for it first.
func TestWrongHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		born := p.found("a")
		if again := p.found("b"); again != born {
			t.Fatalf("born in %s and in %s", born.Cluster, again.Cluster)
		}
	})
}

// A request to open a home that arrives when the family has moved on changes nothing.
func TestLateOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		from := p.found("").Cluster
		to := other(from)
		late := make(chan struct{})
		held := p.hosts[to].Inject(claimtest.Fault{On: claimtest.Other, Hold: late})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Move(ctx, "orders", to); err == nil || held.Hits() != 1 {
			t.Fatalf("the opening was not held: %v", err)
		}
		for _, next := range []string{to, from} {
			if err := p.Move(t.Context(), "orders", next); err != nil {
				t.Fatal(err)
			}
		}
		close(late)
		synctest.Wait()
		for _, hint := range []string{to, from} {
			if got := p.found(hint).Cluster; got != from {
				t.Fatalf("with the hint %q the family is in %s, want %s", hint, got, from)
			}
		}
	})
}
