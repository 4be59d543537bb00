package group_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watching makes members that watch over each other, and returns them and a view of the group when
// each has had an answer of the next one.
func (w *world) watching(partitions int, names ...string) (map[string]*process, *group.View) {
	w.Helper()
	all := make(map[string]*process)
	for _, name := range names {
		all[name] = w.join(suspectable(name, partitions))
	}
	v := w.view()
	w.within(10*sec, "balanced", func() bool { return balanced(v) })
	time.Sleep(3 * sec)
	return all, v
}

func suspectable(name string, partitions int) group.Config {
	cfg := config(name, partitions)
	cfg.Suspectable = true
	return cfg
}

// without reports whether all partitions have owners, and none of them is one of the members.
func without(v *group.View, names ...string) bool {
	n := counts(v)
	for _, name := range append(names, "") {
		if n[name] > 0 {
			return false
		}
	}
	return true
}

// The partitions of members that die have new owners after a second, and after the TTL if the member
// that watches over the next one dies with it: its place in line lasts as long as its lease.
func TestSuspectedMembersDie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		dead   []string
		within time.Duration
	}{
		{"one", []string{"b"}, time.Second},
		{"the last in the order of names", []string{"e"}, time.Second},
		{"two that are no neighbours", []string{"a", "c"}, time.Second},
		{"two neighbours", []string{"b", "c"}, ttl + sec},
		{"all but one", []string{"a", "b", "d", "e"}, ttl + sec},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const partitions = 30
				all, v := w.watching(partitions, "a", "b", "c", "d", "e")
				before, _ := moves(w.history(partitions))
				had := 0
				for _, name := range c.dead {
					had += counts(v)[name]
					all[name].die()
				}
				took := w.within(c.within, "their partitions are others'", func() bool { return without(v, c.dead...) })
				w.Logf("after %v", took)
				w.within(sec, "balanced", func() bool { return balanced(v) })
				if done, err := w.server.Admin().Get(w.ctx, "/etcdclaims/audit/", prefixKeys...); err != nil || done.Count > 0 {
					w.Errorf("the members' own doing is recorded as that of people: %v, %v", done, err)
				}
				if after, _ := moves(w.history(partitions)); len(c.dead) == 1 && after-before != had {
					w.Errorf("%d partitions moved, the dead had %d", after-before, had)
				}
			})
		})
	}
}

// A member that stands still for less than its watcher waits keeps its partitions.
func TestSlowMemberKeepsItsPartitions(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		all, v := w.watching(partitions, "a", "b", "c")
		before := v.Assignment().Owners
		for range 5 {
			all["b"].host.Cut()
			time.Sleep(300 * time.Millisecond)
			all["b"].host.Heal()
			time.Sleep(sec)
		}
		for partition, o := range v.Assignment().Owners {
			if o != before[partition] {
				w.Errorf("partition %d was owned by %+v, and is by %+v", partition, before[partition], o)
			}
		}
		for name, p := range all {
			if s := p.claims.Stats(); s.Suspected > 0 {
				w.Errorf("%s has suspected %d claims", name, s.Suspected)
			}
		}
	})
}

// A member that stood still for longer comes back with new fences. No write of it has an old one.
func TestSuspectedMemberComesBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		all, v := w.watching(partitions, "a", "b", "c")
		rounds := 2
		if testing.Short() {
			rounds = 1
		}
		for round := range rounds {
			if round > 0 {
				time.Sleep(time.Minute) // else it would pause
			}
			all["b"].host.Cut()
			w.within(4*sec, "the partitions of b are others'", func() bool { return without(v, "b") })
			time.Sleep(sec)
			all["b"].host.Heal()
			w.within(15*sec, "b is back", func() bool { return counts(v)["b"] == partitions/3 })
			w.history(partitions)
		}
		if err := all["b"].Err(); err != nil {
			w.Error(err)
		}
		w.history(partitions)
	})
}

// Members come and go while one has died and its death is not known yet.
func TestMembersComeAndGoBesideTheDead(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 24
		all, v := w.watching(partitions, "a", "b", "c", "d")
		all["b"].die()
		time.Sleep(200 * time.Millisecond)
		w.join(suspectable("aa", partitions)) // the one that watches over b is another from now on
		all["d"].leave()
		w.within(4*sec, "the partitions of b and d are others'", func() bool { return without(v, "b", "d") })
		w.within(10*sec, "balanced", func() bool { return balanced(v) && counts(v)["aa"] == partitions/3 })
		w.history(partitions)
	})
}

// Nobody is suspected because etcd does not answer, or after that.
func TestRestartOfEtcdSuspectsNobody(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		all, v := w.watching(partitions, "a", "b", "c")
		before := counts(v)
		for _, off := range []time.Duration{300 * time.Millisecond, 3 * sec} {
			w.server.Stop(w.T)
			time.Sleep(off)
			w.server.Restart(w.T)
			time.Sleep(20 * sec)
			if n := counts(v); !maps.Equal(n, before) {
				w.Errorf("owners before: %v, after %v without etcd: %v", before, off, n)
			}
		}
		for name, p := range all {
			if s := p.claims.Stats(); s.Suspected > 0 {
				w.Errorf("%s has suspected %d claims", name, s.Suspected)
			}
		}
		all["b"].die()
		w.within(1500*time.Millisecond, "the partitions of b are others'", func() bool { return without(v, "b") })
		w.history(partitions)
	})
}

// Each member is asked by one other, and none is without the option.
func TestEachMemberIsAskedByOne(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		virtually(t, func(w *world) {
			const members, partitions = 6, 12
			for i := range members {
				cfg := config(fmt.Sprint("m", i), partitions)
				cfg.Suspectable = on
				w.join(cfg)
			}
			time.Sleep(10 * sec)
			ctx, cancel := context.WithTimeout(w.Context(), 2*sec)
			defer cancel()
			asked := make(map[string]bool)
			for resp := range w.server.Admin().Watch(ctx, "/etcdclaims/session/", clientv3.WithPrefix()) {
				for _, ev := range resp.Events {
					if strings.Contains(string(ev.Kv.Key), "/ask/") {
						asked[string(ev.Kv.Key)] = true
					}
				}
			}
			if want := map[bool]int{true: members}[on]; len(asked) != want {
				w.Errorf("Suspectable %v: %d pairs of members ask each other, want %d", on, len(asked), want)
			}
		})
	}
}
