package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// root returns the prefix of the keys of group g in etcd.
func (w *world) root() string {
	w.Helper()
	resp, err := w.server.Admin().Get(w.Context(), etcdclaims.DefaultPrefix+"group/", prefixKeys...)
	w.ok(err)
	for _, kv := range resp.Kvs {
		if root, found := strings.CutSuffix(string(kv.Key), "spec"); found {
			return root
		}
	}
	w.Fatal("no group")
	return ""
}

// value returns the value of a key in etcd, or "" if etcd does not have the key.
func (w *world) value(key string) string {
	w.Helper()
	resp, err := w.server.Admin().Get(w.Context(), key)
	w.ok(err)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

func (w *world) put(key, value string) {
	w.Helper()
	_, err := w.server.Admin().Put(w.Context(), key, value)
	w.ok(err)
}

// What this version does about a value of a later version under each kind of key. The
// value stays as it is. A call that would have to change it fails and says so. Members
// that are there go on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const partitions = 12
	const strange = `{"v":2,"group":["g"],"partitions":"12","instance":{"id":7},"weight":"heavy","since":0,"reason":[],"until":1}`
	const similar = `{"v":2,"instance":"later-1","weight":2,"since":[2000,1,1],"reason":"hangs","until":"2100-01-01T00:00:00Z","new":{}}`
	join := func(name string) func(*world, *group.View) error {
		return func(w *world, _ *group.View) error {
			cfg := config(name, partitions)
			cfg.Away = time.Hour
			p := w.tryJoin(cfg)
			if p.err == nil {
				time.Sleep(sec)
				w.ok(p.Leave(w.Context()))
			}
			return p.err
		}
	}
	open := func(w *world, _ *group.View) error {
		v, err := group.Open(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{}), "g")
		if err == nil {
			v.Close()
		}
		return err
	}
	evict := func(w *world, v *group.View) error { return v.Evict(w.Context(), "x", "test", time.Hour) }
	readmit := func(w *world, v *group.View) error { return v.Readmit(w.Context(), "x") }
	for name, tt := range map[string]struct {
		key, value string // below the group
		call       func(*world, *group.View) error
		want       string // the error has it; empty means none
		members    int    // beside a
	}{
		"spec, join":                 {"spec", strange, join("b"), "newer", 0},
		"spec, open":                 {"spec", strange, open, "newer", 0},
		"member, its name joins":     {"member/x", similar, join("x"), "newer", 1},
		"member, another name joins": {"member/x", similar, join("b"), "", 1},
		"member, evict":              {"member/x", similar, evict, "newer", 1},
		"member, readmit":            {"member/x", similar, readmit, "", 1},
		"member, open":               {"member/x", similar, open, "", 1},
		"strange member, join":       {"member/x", strange, join("b"), "newer", 0},
		"strange member, its name":   {"member/x", strange, join("x"), "newer", 0},
		"strange member, open":       {"member/x", strange, open, "", 0},
		"away, its name joins":       {"away/x", strings.Replace(similar, "later-1", "", 1), join("x"), "", 1},
		"away, evict":                {"away/x", strings.Replace(similar, "later-1", "", 1), evict, "", 1},
		"strange away, its name":     {"away/x", strange, join("x"), "newer", 0},
		"evicted, its name joins":    {"evicted/x", similar, join("x"), "evicted", 0},
		"strange evicted, joins":     {"evicted/x", strange, join("x"), "evicted", 0},
		"evicted, evict":             {"evicted/x", strange, evict, "newer", 0},
		"evicted, readmit":           {"evicted/x", similar, readmit, "newer", 0},
		"evicted, another joins":     {"evicted/x", strange, join("b"), "", 0},
		"unknown, join":              {"of-a-later-version/x", strange, join("x"), "", 0},
		"unknown, open":              {"of-a-later-version/x", strange, open, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testetcd.Sample(t)
			virtually(t, func(w *world) {
				a := w.join(config("a", partitions))
				v := w.view()
				w.within(5*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
				key := w.root() + tt.key
				before := w.value(key)
				w.put(key, tt.value)
				time.Sleep(sec)
				if n := len(v.Assignment().Members); n != 1+tt.members {
					w.Errorf("%d members: %+v", n, v.Assignment().Members)
				}
				err := tt.call(w, v)
				if tt.want == "" {
					w.ok(err)
				} else if err == nil || !strings.Contains(err.Error(), tt.want) {
					w.Errorf("got error %v, want one with %q", err, tt.want)
				}
				time.Sleep(15 * sec)
				if got := w.value(key); got != tt.value {
					w.Errorf("the value is %q", got)
				}
				if before == "" {
					_, err = w.server.Admin().Delete(context.Background(), key)
					w.ok(err)
				} else {
					w.put(key, before)
				}
				if err := a.Err(); err != nil {
					w.Errorf("a does not go on: %v", err)
				}
			})
		})
	}
}

// A group that only a later version has left something in is not removed.
func TestRemoveKeepsLaterVersions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"spec", "away/x", "evicted/x", "of-a-later-version/x"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				w.join(config("a", 4)).leave()
				key := w.root() + kind
				w.put(key, `{"v":2}`)
				err := group.Remove(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{}), "g")
				if err == nil || !strings.Contains(err.Error(), "newer") {
					w.Errorf("got error %v", err)
				}
				if w.value(key) == "" || w.value(w.root()+"spec") == "" {
					w.Error("it was removed")
				}
			})
		})
	}
}

// Members plan with one of a later version as that one does: by its name, its weight and
// what it owns.
func TestPlanWithLaterVersion(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		w.join(config("a", partitions))
		x := config("x", partitions)
		x.Weight = 2
		w.join(x)
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["x"] == 8 })
		key := w.root() + "member/x"
		resp, err := w.server.Admin().Get(w.Context(), key)
		w.ok(err)
		value := strings.Replace(w.value(key), `{"v":1,`, `{"v":2,"new":[1],`, 1)
		value = strings.Replace(value, `"since":"`, `"since":[1],"began":"`, 1)
		_, err = w.server.Admin().Txn(w.Context()).Then(clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(resp.Kvs[0].Lease)))).Commit()
		w.ok(err)
		b := w.join(config("b", partitions))
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["x"] == 6 && counts(v)["b"] == 3 })
		if got := w.value(key); got != value {
			w.Errorf("the value is %q", got)
		}
		b.leave()
		w.within(20*sec, "balanced again", func() bool { return balanced(v) && counts(v)["x"] == 8 })
		_, err = w.server.Admin().Delete(context.Background(), key) // as a later version does that leaves
		w.ok(err)
	})
}
