package group_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Many members start together, and one dies: how long it takes until all partitions are owned as
// planned, with how many requests and how much memory. With -long it is 5,000 partitions on 50
// members.
func TestManyPartitionAndMembers(t *testing.T) {
	testetcd.SkipRace(t)
	partitions, members := 500, 10
	if testetcd.Long() {
		partitions, members = 5000, 50
	}
	virtually(t, func(w *world) {
		all, clients, hosts := make([]*group.Member, members), make([]*etcdclaims.Client, members), make([]*claimtest.Host, members)
		requests := func() (n int64) {
			for _, c := range clients {
				n += c.Stats().Requests
			}
			return n
		}
		settled := func(live []*group.Member) bool {
			for _, m := range live {
				if n := len(m.View().Assignment().Members); n != len(live) || !balanced(m.View()) {
					return false
				}
			}
			return true
		}
		for i := range all {
			hosts[i] = w.server.Host(w.T)
			clients[i] = claimtest.NewClient(w.T, hosts[i], etcdclaims.Config{TTL: ttl})
		}
		before := heap()
		began := time.Now()
		var joins sync.WaitGroup
		for i := range all {
			joins.Go(func() {
				m, err := group.Join(w.Context(), clients[i], config(fmt.Sprintf("m%02d", i), partitions), untilEnd)
				w.ok(err)
				all[i] = m
			})
		}
		joins.Wait()
		w.within(30*sec, "balanced", func() bool { return settled(all) })
		took, sent, grown := time.Since(began), requests(), int64(heap())-int64(before)
		time.Sleep(ttl)
		rest := requests()
		time.Sleep(time.Minute)
		rest = requests() - rest
		w.Logf("%d partitions on %d members: balanced after %v, %d requests, %d kB a partition; at rest %.1f requests a second in all",
			partitions, members, took, sent, grown/int64(partitions)>>10, float64(rest)/60)
		// A request carries many callers' operations.
		if most := int64(4*partitions + 40*members); sent > most {
			w.Errorf("%d requests until the partitions are balanced, want at most %d", sent, most)
		}
		if rate := float64(rest) / 60 / float64(members); rate > 1.5 {
			w.Errorf("%.2f requests a second and member at rest", rate)
		}
		if most := int64(partitions) * 128 << 10; grown > most { // the server's included
			w.Errorf("the heap has grown by %d MB", grown>>20)
		}
		hosts[0].Kill()
		died := time.Now()
		w.within(ttl+3*sec, "the partitions of the dead are owned", func() bool { return settled(all[1:]) })
		w.Logf("owned again %v after a death", time.Since(died))
		hosts[0].Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var leaves sync.WaitGroup
		for _, m := range all {
			leaves.Go(func() { w.ok(m.Leave(ctx)) })
		}
		leaves.Wait()
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
