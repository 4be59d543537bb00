package group_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

// What tools read of a group at once is what a view knows of it.
func TestState(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		ctx := w.Context()
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{})
		names := func() (all []string) {
			for name, err := range group.Names(ctx, claims) {
				w.ok(err)
				all = append(all, name)
			}
			slices.Sort(all)
			return all
		}
		_, err := group.Read(ctx, claims, "g")
		w.wantErr(err, group.ErrNoGroup)
		if n := names(); len(n) > 0 {
			w.Errorf("groups %v", n)
		}
		a, c := config("a", partitions), config("c", partitions)
		a.Zone, a.Weight, c.Away = "eu-1", 2, time.Hour
		w.join(a)
		w.join(config("b", partitions))
		away := w.join(c)
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["a"] == partitions/2 })
		away.leave()
		left := time.Now()
		w.ok(v.Evict(ctx, "d", "hangs", time.Hour))
		other := config("a", 3)
		other.Group = "another"
		w.join(other)
		time.Sleep(sec)
		if n := names(); !slices.Equal(n, []string{"another", "g"}) {
			w.Errorf("groups %v", n)
		}

		s, err := group.Read(ctx, claims, "g")
		w.ok(err)
		var held []etcdclaims.Info
		for i, err := range claims.List(ctx, s.PartitionPrefix()) {
			w.ok(err)
			held = append(held, i)
		}
		got, want := s.Assign(slices.Values(held)), v.Assignment()
		if s.Partitions != partitions || !slices.Equal(got.Owners, want.Owners) || !slices.Equal(got.Members, want.Members) {
			w.Errorf("%d partitions, %+v; the view has %+v", s.Partitions, got, want)
		}
		if got.Owners[0].Token.Key != s.PartitionKey(0) || len(got.Plan(nil).Moves) > 0 || len(got.Plan(nil, "b").Moves) != partitions/4 {
			w.Errorf("plan %+v", got.Plan(nil, "b"))
		}
		if len(s.Members) != 4 {
			w.Fatalf("members %+v", s.Members)
		}
		if m := s.Members[0]; m.Name != "a" || m.Zone != "eu-1" || m.Lease == 0 || m.Away() || m.Evicted != nil || m.Reserved != 0 {
			w.Errorf("a is %+v", m)
		}
		if m := s.Members[2]; !m.Away() || m.Reserved != partitions/4 || m.Until.Sub(left).Abs() > time.Hour+ttl || m.Lease == 0 {
			w.Errorf("c is %+v", m)
		}
		if m := s.Members[3]; m.Away() || m.Lease != 0 || m.Evicted == nil || m.Evicted.Reason != "hangs" {
			w.Errorf("d is %+v", m)
		}
		without, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		w.ok(err)
		for range group.Names(context.Background(), without) {
			w.Error("a passthrough client has a group")
		}
		for _, err := range group.Names(context.Background(), nil) {
			w.wantErr(err, etcdclaims.ErrNoClient)
		}
		_, err = group.Read(ctx, claims, "a/b")
		w.wantErr(err, etcdclaims.ErrInvalidKey)
	})
}
