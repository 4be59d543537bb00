package group_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

// In real time: 256 partitions on eight members, of which one leaves.
func TestRealTime(t *testing.T) {
	t.Parallel()
	server := claimtest.Start(t)
	const partitions = 256
	var running [partitions]atomic.Int64
	var members []*group.Member
	join := func(i int) {
		cfg := config(fmt.Sprint("m", i), partitions)
		cfg.Cooldown = 100 * time.Millisecond
		claims := claimtest.NewClient(t, server, etcdclaims.Config{})
		handler := func(ctx context.Context, partition int, _ *etcdclaims.Claim) error {
			if n := running[partition].Add(1); n > 1 {
				t.Errorf("partition %d has %d handlers", partition, n)
			}
			<-ctx.Done()
			running[partition].Add(-1)
			return nil
		}
		m, err := group.Join(t.Context(), claims, cfg, handler)
		for try := 0; err != nil && try < 10; try++ { // the machine may be busy
			t.Log(err)
			m, err = group.Join(t.Context(), claims, cfg, handler)
		}
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	settled := func(each int) {
		t.Helper()
		v := members[0].View()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range v.Watch(ctx) {
			if n := counts(v); balanced(v) && n["m0"] == each && n["m1"] == each {
				return
			}
		}
		t.Fatalf("not balanced: %v", counts(v))
	}
	begin := time.Now()
	for i := range 8 {
		join(i)
	}
	settled(partitions / 8)
	t.Logf("eight members have 256 partitions after %v", time.Since(begin))
	begin = time.Now()
	for _, m := range members[4:] {
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	settled(partitions / 4)
	t.Logf("four of them left within %v", time.Since(begin))
	for _, m := range members[:4] {
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
