package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

func TestWatchGroup(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		join := func(name string) *group.Member {
			claims, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
			m, err := group.Join(w.Context(), claims, group.Config{Group: "shards", Partitions: 8, Name: name},
				func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
			if err != nil {
				w.Fatal(err)
			}
			return m
		}
		one, two := join("one"), join("two")
		view, err := group.Open(w.Context(), claims, "shards")
		if err != nil {
			w.Fatal(err)
		}
		defer view.Close()
		stop := w.tel.WatchGroup("shards", view)
		time.Sleep(10 * sec)
		w.expect(map[string]string{
			"etcdclaims.group.members{group=shards}":                             "2",
			"etcdclaims.group.partitions{group=shards,partition.state=owned}":    "8",
			"etcdclaims.group.partitions{group=shards,partition.state=free}":     "0",
			"etcdclaims.group.partitions{group=shards,partition.state=reserved}": "0",
		})
		for _, m := range []*group.Member{one, two} {
			if err := m.Leave(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(sec)
		w.expect(map[string]string{
			"etcdclaims.group.members{group=shards}":                          "0",
			"etcdclaims.group.partitions{group=shards,partition.state=owned}": "0",
			"etcdclaims.group.partitions{group=shards,partition.state=free}":  "8",
		})
		stop()
		w.expect(map[string]string{"etcdclaims.group.members{group=shards}": ""})
	})
}
