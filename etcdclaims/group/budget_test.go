package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Without d on the list the first move of the budget is b's, and with d it is a's. b makes
// its move before it has heard of d. So a waits until b has heard of d, and has seen b's
// move by then.
func TestBudgetWaitsForOneList(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions, interval = 4, 4 * sec
		w.join(config("a", partitions))
		v := w.view()
		w.within(2*sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		time.Sleep(sec)
		w.join(config("b", partitions))
		w.within(10*sec, "balanced", func() bool { return counts(v)["b"] == partitions/2 })
		for partition, want := range []string{"a", "a", "b", "b"} {
			if o := v.Assignment().Owners[partition]; o.Member != want {
				w.Fatalf("partition %d is owned by %s, want %s", partition, o.Member, want)
			}
		}

		// Processes that have just started permit no move before one interval is over.
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.Cooldown, cfg.MaxMoves, cfg.MoveInterval = -1, 1, interval
			return cfg
		}
		begin := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
		w.join(budget("a"))
		host := w.server.Host(w.T)
		hears := make(chan struct{}, 1) // full while b hears nothing
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(any) { hears <- struct{}{}; <-hears }})
		at(300 * time.Millisecond)
		w.ok(w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "b"}), budget("b")).err)
		w.join(budget("e")) // it is to have b's second partition

		at(interval + 100*time.Millisecond)
		hears <- struct{}{}
		w.join(budget("d")) // it is to have a's second partition, which comes before
		time.Sleep(900 * time.Millisecond)
		<-hears
		if n := counts(v); n["d"] != 0 || n["e"] != 1 {
			w.Errorf("one partition may move within %v; owners: %v", interval, n)
		}
		w.within(2*interval, "balanced", func() bool { return balanced(v) && counts(v)["d"] == 1 })
	})
}

// The target of a partition changes while the reply to a member's claim is on its way. The
// member gives the partition back without a call of its handler, outside the budget.
func TestBudgetIgnoresPartitionNotServed(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 2 // the client claims them at once
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.MaxMoves = 1
			return cfg
		}
		host := w.server.Host(w.T)
		host.Inject(claimtest.Fault{On: steps.Take, Skip: 1, Times: -1, DelayReply: 500 * time.Millisecond})
		w.ok(w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "a"}), budget("a")).err)
		v := w.view()
		time.Sleep(200 * time.Millisecond)
		if n := counts(v); n["a"] != partitions {
			w.Errorf("a is to have claimed all partitions; owners: %v", n)
		}
		w.join(budget("b"))
		w.within(5*sec, "balanced", func() bool { return balanced(v) && counts(v)["b"] == partitions/2 })
		if first := w.history(partitions)[1][0]; first.owner != "a" || w.wasServed(1, first.from) {
			w.Errorf("a is to have given partition 1 back without a call of its handler; its first term: %+v", first)
		}
		w.noOverlap()
	})
}

// A partition whose handler does not stop counts in the budget from when its owner gives it up,
// not only when its next owner can have it.
func TestBudgetCountsPartitionGivenUpWithoutTheirHandlers(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions, interval = 12, 10 * sec
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.MaxMoves, cfg.MoveInterval = 1, interval
			return cfg
		}
		w.join(budget("a"))
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		time.Sleep(interval)
		w.mu.Lock()
		w.ignore["a"] = true
		w.mu.Unlock()
		w.join(budget("b"))
		took := w.within(2*time.Minute, "balanced", func() bool { return counts(v)["b"] == partitions/2 })
		if took < (partitions/2-1)*interval {
			w.Errorf("%d partitions have moved within %v, one may move within %v", partitions/2, took, interval)
		}
	})
}

// While the target of a partition does not stand in line, its owner reads the line again and
// again. That costs no more where thousands of callers wait for keys that are not the group's.
func TestForeignLinesCostNothing(t *testing.T) {
	t.Parallel()
	requests := func(foreign int) (n int64) {
		virtually(t, func(w *world) {
			for i := range foreign / 100 {
				var puts []clientv3.Op
				for j := range 100 {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("%swait/%032x/%d", etcdclaims.DefaultPrefix, i, j), "{}"))
				}
				_, err := w.server.Admin().Txn(w.Context()).Then(puts...).Commit()
				w.ok(err)
			}
			a := w.join(config("a", 8))
			time.Sleep(10 * sec)
			w.joinDeaf(config("b", 8))
			time.Sleep(3 * sec)
			before := a.claims.Stats().Requests
			time.Sleep(10 * sec)
			n = a.claims.Stats().Requests - before
		})
		return n
	}
	few, many := requests(0), requests(4000)
	if few < 8 || many > few+2 {
		t.Errorf("%d requests in 10 s, and %d beside 4,000 foreign callers", few, many)
	}
}
