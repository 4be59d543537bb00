package group_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestBadConfigIsRefusedBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		host := w.server.Host(w.T)
		claims := claimtest.NewClient(w.T, host, etcdclaims.Config{})
		handler := func(context.Context, int, *etcdclaims.Claim) error { return nil }
		for what, cfg := range map[string]group.Config{
			"group name":       {Partitions: 1},
			"a slash":          {Group: "a/b", Partitions: 1},
			"long":             {Group: strings.Repeat("x", 129), Partitions: 1},
			"member name":      {Group: "g", Partitions: 1, Name: "a\n"},
			"Partitions 0":     {Group: "g"},
			"Partitions 16385": {Group: "g", Partitions: 16385},
			"Weight":           {Group: "g", Partitions: 1, Weight: -1},
			"Address":          {Group: "g", Partitions: 1, Address: strings.Repeat("x", 1025)},
			"Away":             {Group: "g", Partitions: 1, Away: time.Second},
			"Away -1s":         {Group: "g", Partitions: 1, Name: "a", Away: -time.Second},
			"MaxMoves":         {Group: "g", Partitions: 1, MaxMoves: -1},
			"MoveInterval":     {Group: "g", Partitions: 1, MoveInterval: -1},
			"TTL":              {Group: "g", Partitions: 1, TTL: -1},
		} {
			if _, err := group.Join(w.Context(), claims, cfg, handler); err == nil || errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("%s: %v", what, err)
			}
		}
		if _, err := group.Join(w.Context(), claims, config("a", 1), nil); err == nil {
			w.Error("joined without a handler")
		}
		without, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		w.ok(err)
		for c, want := range map[*etcdclaims.Client]error{without: etcdclaims.ErrPassthrough, nil: etcdclaims.ErrNoClient, {}: etcdclaims.ErrNoClient} {
			_, err := group.Join(w.Context(), c, config("a", 1), handler)
			w.wantErr(err, want)
			_, err = group.Open(w.Context(), c, "g")
			w.wantErr(err, want)
			_, err = group.Read(w.Context(), c, "g")
			w.wantErr(err, want)
			w.wantErr(group.Remove(w.Context(), c, "g"), want)
		}
		_, err = group.Open(w.Context(), claims, "a/b")
		w.wantErr(err, etcdclaims.ErrInvalidKey)
		if n := len(host.Sent(claimtest.Other)) + len(host.Sent(steps.Take)) + len(host.Sent(claimtest.Grant)); n > 0 {
			w.Errorf("%d requests", n)
		}
		_, err = group.Open(w.Context(), claims, "g")
		w.wantErr(err, group.ErrNoGroup)
	})
}

func TestJoinRefusals(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 8))
		w.wantErr(w.tryJoin(config("b", 9)).err, group.ErrPartitions)
		w.wantText(w.joinFrom(a.host, a.claims, config("c", 8)).err, "client is a member already")
		w.wantErr(group.Remove(w.Context(), a.claims, "g"), group.ErrInUse)
		v := w.view()
		w.within(2*sec, "a has all", func() bool { return counts(v)["a"] == 8 })
		if names := v.Assignment().Members; len(names) != 1 {
			w.Errorf("members %v", names)
		}
		// Another number of partitions is a new beginning.
		a.leave()
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{})
		w.ok(group.Remove(w.Context(), claims, "g"))
		w.join(config("b", 9))
	})
}

// The later process with a name keeps it, and has the partitions of the earlier one.
func TestNameIsTakenOver(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 20
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before := v.Assignment().Owners
		again := w.join(config("b", partitions))
		w.within(5*sec, "the new b has the partitions", func() bool {
			for partition, o := range v.Assignment().Owners {
				if o.Member != before[partition].Member || o.Member == "b" && o.Instance != again.claims.Instance() {
					return false
				}
			}
			return true
		})
		<-b.Done()
		w.wantErr(b.Err(), group.ErrReplaced)
		if again.Err() != nil {
			w.Error(again.Err())
		}

		// A crashed process that is back before its TTL is over waits for its own partitions.
		again.die()
		time.Sleep(2 * sec)
		last := w.join(config("b", partitions))
		w.within(ttl+sec, "the last b has the partitions", func() bool {
			for partition, o := range v.Assignment().Owners {
				if o.Member != before[partition].Member || o.Member == "b" && o.Instance != last.claims.Instance() {
					return false
				}
			}
			return true
		})
		again.host.Heal()
		w.within(ttl+5*sec, "the dead b knows", func() bool { return errors.Is(again.Err(), group.ErrReplaced) })
		w.history(partitions)
		w.noOverlap()
	})
}

// An owner keeps a partition until the member that is to have it waits in line.
func TestFrozenTargetGetsNothing(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 16
		cfg := config("a", partitions)
		cfg.Cooldown = 4 * sec
		w.join(cfg)
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		cfg.Name = "b"
		host := w.server.Host(w.T)
		claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "b"})
		host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, LoseRequest: true})
		w.joinFrom(host, claims, cfg)
		time.Sleep(8 * sec)
		if n := counts(v); n["a"] != partitions {
			w.Errorf("owners: %v", n)
		}
		host.Cut()
		time.Sleep(30 * sec)
		if _, free := moves(w.history(partitions)); free > 0 || counts(v)["a"] != partitions {
			w.Errorf("%d partitions were free: %v", free, counts(v))
		}
	})
}

func TestEvict(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 20
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		_, before := moves(w.history(partitions))
		begin := time.Now()
		w.ok(v.Evict(w.Context(), "b", "disk is slow", time.Minute))
		if took := time.Since(begin); took > sec {
			w.Errorf("a member that works was evicted in %v", took)
		}
		<-b.Done()
		var evicted *group.EvictedError
		if !errors.As(b.Err(), &evicted) || evicted.Reason != "disk is slow" || evicted.Member != "b" {
			w.Error(b.Err())
		}
		if _, free := moves(w.history(partitions)); free > before || counts(v)["a"] != partitions {
			w.Errorf("%d partitions were free: %v", free-before, counts(v))
		}
		w.wantEvicted(w.tryJoin(config("b", partitions)).err)
		w.ok(v.Readmit(w.Context(), "b"))
		w.join(config("b", partitions))
		w.wantErr(v.Evict(w.Context(), "a/b", "", sec), etcdclaims.ErrInvalidKey)
		if err := v.Evict(w.Context(), "b", "", 0); err == nil {
			w.Error("evicted for no time")
		}
		w.noOverlap()
	})
}

// A member that renews its claims and does nothing else loses its partitions all the same.
func TestEvictGrayMember(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 20
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		// It hears nothing of the group, and its handlers do not stop.
		b.host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseRequest: true, Skip: 0})
		b.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true})
		w.mu.Lock()
		w.ignore["b"] = true
		w.mu.Unlock()
		w.ok(v.Evict(w.Context(), "b", "gray", time.Hour))
		w.within(sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		if members := v.Assignment().Members; len(members) != 1 {
			w.Errorf("members: %v", members)
		}
		w.history(partitions)
	})
}

// A handler that does not stop keeps neither its partition nor its member for longer than the
// drain and a TTL.
func TestHandlerThatDoesNotStop(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		a := w.join(config("a", partitions))
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		w.mu.Lock()
		w.ignore["a"] = true
		w.mu.Unlock()
		w.join(config("b", partitions))
		w.within(2*sec+ttl/5+ttl+2*sec, "balanced", func() bool { return balanced(v) && counts(v)["b"] == partitions/2 })
		w.history(partitions) // no write of a late handler
		if a.Err() != nil {
			w.Error(a.Err())
		}
		ctx, cancel := context.WithTimeout(w.Context(), 3*ttl)
		defer cancel()
		w.ok(a.Leave(ctx)) // it waits for them no longer than that
		w.mu.Lock()
		clear(w.ignore)
		w.mu.Unlock()
		time.Sleep(2 * sec) // until they have returned
	})
}

// Close of the client waits for a handler that never returns as Leave does: for a TTL after its
// claim has ended. Then nothing but the goroutine of the handler is left.
func TestHandlerThatNeverReturnsAndClose(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		hang := make(chan struct{})
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		m, err := group.Join(w.Context(), claims, config("a", 1), func(context.Context, int, *etcdclaims.Claim) error {
			<-hang
			return nil
		})
		w.ok(err)
		v := w.view()
		w.within(2*sec, "it has the partition", func() bool { return counts(v)["a"] == 1 })
		v.Close()
		begun := time.Now()
		w.ok(claims.Close(w.Context()))
		if took := time.Since(begun); took > ttl/5+ttl+sec {
			w.Errorf("the client was closed after %v", took)
		}
		<-m.Done()
		if took := time.Since(begun); took > ttl/5+ttl+sec {
			w.Errorf("the member ended after %v", took)
		}
		w.wantErr(m.Err(), etcdclaims.ErrClosed)
		w.ok(m.Leave(w.Context()))
		time.Sleep(sec)
		if n := w.goroutines("etcdclaims/group.(*"); n != 1 {
			w.Errorf("%d goroutines of the package, want that of the handler", n)
		}
		close(hang)
		time.Sleep(sec)
		if n := w.goroutines("etcdclaims/group.(*"); n != 0 {
			w.Errorf("%d goroutines of the package after the handler has returned", n)
		}
	})
}

// goroutines returns how many goroutines of the world have the text in their stacks.
func (w *world) goroutines(text string) (n int) {
	stacks := make([]byte, 16<<20)
	own, _, _ := strings.Cut(string(stacks[:runtime.Stack(stacks, false)]), "\n")
	_, bubble, ok := strings.Cut(own, "synctest bubble ")
	if !ok {
		w.Fatalf("no bubble in %q", own)
	}
	bubble = "synctest bubble " + bubble
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if first, frames, _ := strings.Cut(stack, "\n"); strings.Contains(first, bubble) && strings.Contains(frames, text) {
			n++
		}
	}
	return n
}

// A handler that returns is called again under the same claim.
func TestHandlerThatReturns(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		var calls, started, stopped atomic.Int64
		var fence atomic.Int64
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		cfg := config("a", 1)
		cfg.Hooks = group.Hooks{
			Started: func(_ int, t fencing.Token) { started.Add(1); fence.Store(t.Fence) },
			Stopped: func(_ int, t fencing.Token, cause error) {
				if cause == nil || t.Fence != fence.Load() {
					w.Errorf("stopped with %v, %v", t, cause)
				}
				stopped.Add(1)
			},
		}
		m, err := group.Join(w.Context(), claims, cfg, func(_ context.Context, _ int, claim *etcdclaims.Claim) error {
			if calls.Add(1) > 1 && claim.Fence() != fence.Load() {
				w.Error("another claim")
			}
			return errors.New("failed")
		})
		w.ok(err)
		time.Sleep(10 * sec)
		w.ok(m.Leave(w.Context()))
		if n := calls.Load(); n < 4 || n > 10 || started.Load() != 1 || stopped.Load() != 1 {
			w.Errorf("%d calls in 10 s, %d started, %d stopped", n, started.Load(), stopped.Load())
		}
	})
}

// Leave can be called twice, and with a context that has ended.
func TestLeaveWithoutTime(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		w.wantErr(b.Leave(ctx), context.Canceled)
		w.ok(b.Leave(w.Context()))
		for range 64 {
			w.ok(b.Leave(ctx))
		}
		w.within(sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		w.noOverlap()
	})
}

// Join returns an error, and leaves nothing behind, if etcd does not answer in time.
func TestJoinInAnOutage(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		host := w.server.Host(w.T)
		claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseRequest: true})
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(w.Context(), 3*sec)
		defer cancel()
		begin := time.Now()
		if p := w.joinFrom(host, claims, config("a", 4)); p.err == nil {
			w.Error("joined") // with the context of the test
		}
		_, err := group.Join(ctx, claims, config("b", 4), func(context.Context, int, *etcdclaims.Claim) error { return nil })
		w.wantErr(err, context.DeadlineExceeded)
		w.Logf("after %v: %v", time.Since(begin), err)
		host.RemoveFaults()
		w.join(config("c", 4))
	})
}

// The dry run shows what happens.
func TestDryRun(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 30
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		follows := func(plan group.Plan) {
			w.Helper()
			w.within(10*sec, "balanced", func() bool { return balanced(v) && owned(v) })
			for partition, o := range v.Assignment().Owners {
				if o.Member != plan.Target[partition] {
					w.Errorf("partition %d is owned by %s, planned was %s", partition, o.Member, plan.Target[partition])
				}
			}
		}
		plan := v.Plan([]group.MemberInfo{{Name: "c", Weight: 2}})
		if len(plan.Moves) != partitions/2 || plan.Moves[0].To != "c" || plan.Moves[0].Why == "" {
			w.Errorf("%+v", plan.Moves)
		}
		c := config("c", partitions)
		c.Weight = 2
		w.join(c)
		w.within(10*sec, "c is there", func() bool { return len(v.Assignment().Members) == 3 })
		follows(plan)
		plan = v.Plan(nil, "b")
		b.leave()
		w.within(10*sec, "b is gone", func() bool { return len(v.Assignment().Members) == 2 })
		follows(plan)
	})
}

// A client that is closed without Leave ends its member.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		w.ok(b.claims.Close(w.Context()))
		w.within(2*sec, "b is over", func() bool { return b.Err() != nil })
		w.wantErr(b.Err(), etcdclaims.ErrClosed)
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
	})
}

// An entry that an operator deletes by hand is put again.
func TestEntryDeletedByHand(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 4))
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == 4 })
		resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/group/", prefixKeys...)
		w.ok(err)
		for _, kv := range resp.Kvs {
			if strings.Contains(string(kv.Key), "/member/") {
				w.server.Delete(w.T, string(kv.Key))
			}
		}
		w.within(2*sec, "it is back", func() bool { return len(v.Assignment().Members) == 1 && counts(v)["a"] == 4 })
		if a.Err() != nil {
			w.Error(a.Err())
		}
	})
}

// Requests of a member that has nothing to do.
func TestRequestsAtRest(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		idle := func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil }
		const partitions, members = 256, 8
		var hosts []*claimtest.Host
		var all []*group.Member
		for i := range members {
			host := w.server.Host(w.T)
			m, err := group.Join(w.Context(), claimtest.NewClient(w.T, host, etcdclaims.Config{}), config(string(rune('a'+i)), partitions), idle)
			w.ok(err)
			hosts, all = append(hosts, host), append(all, m)
		}
		w.within(time.Minute, "balanced", func() bool { return balanced(all[0].View()) })
		time.Sleep(10 * sec)
		count := func() (n int) {
			for _, host := range hosts {
				n += len(host.Sent(claimtest.Every))
			}
			return n
		}
		before := count()
		time.Sleep(2 * time.Minute)
		rate := float64(count()-before) / 120 / members
		w.Logf("%.2f requests a second and member", rate)
		if rate >= 1 || rate == 0 {
			w.Errorf("%.2f requests a second and member", rate)
		}
		for _, m := range all {
			w.ok(m.Leave(w.Context()))
		}
	})
}
