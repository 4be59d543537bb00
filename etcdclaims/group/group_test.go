package group_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A new member gets its share from the others, partition by partition, and no partition is free
// meanwhile.
func TestJoinMovesItsShare(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 64
		w.join(config("a", partitions))
		v := w.view()
		w.within(2*sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		before, _ := moves(w.history(partitions))
		for i, name := range []string{"b", "c", "d", "e", "f"} {
			w.join(config(name, partitions))
			w.within(6*sec, name+" has its share", func() bool { return counts(v)[name] >= partitions/(i+2) && balanced(v) })
			after, free := moves(w.history(partitions))
			if most := partitions/(i+2) + 1; after-before > most || free > 0 {
				w.Errorf("the join of %s moved %d partitions, at most %d are needed; %d were free", name, after-before, most, free)
			}
			before = after
		}
		w.noOverlap()
	})
}

// A member that has just joined gets no partitions for as long as the cool-down, if others have had
// them for longer than that.
func TestCooldown(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 16
		cfg := config("a", partitions)
		cfg.Cooldown = 20 * sec
		w.join(cfg)
		v := w.view()
		w.within(2*sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		time.Sleep(cfg.Cooldown)
		cfg.Name = "b"
		w.join(cfg)
		time.Sleep(19 * sec)
		if n := counts(v); n["a"] != partitions {
			w.Errorf("owners before the end of the cool-down: %v", n)
		}
		w.within(4*sec, "balanced", func() bool { return balanced(v) })
	})
}

// The partitions of a member that leaves go to the others, and are not free meanwhile.
func TestLeaveMovesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 60
		var members []*process
		for _, name := range []string{"a", "b", "c", "d"} {
			members = append(members, w.join(config(name, partitions)))
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, freeBefore := moves(w.history(partitions))
		begin := time.Now()
		members[1].leave()
		if took := time.Since(begin); took > 2*sec {
			w.Errorf("leaving took %v", took)
		}
		w.wantErr(members[1].Err(), group.ErrLeft)
		w.within(sec, "balanced", func() bool { return balanced(v) })
		if after, free := moves(w.history(partitions)); after-before != partitions/4 || free > freeBefore {
			w.Errorf("%d partitions moved, want %d; %d were free", after-before, partitions/4, free-freeBefore)
		}
		for _, m := range members[2:] {
			m.leave()
		}
		members[0].leave()
		var left []string
		resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/", prefixKeys...)
		w.ok(err)
		for _, kv := range resp.Kvs {
			left = append(left, string(kv.Key))
		}
		if len(left) != 1 || !strings.HasSuffix(left[0], "/spec") {
			w.Errorf("left in etcd: %q", left)
		}
		w.ok(group.Remove(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{}), "g"))
		resp, err = w.server.Admin().Get(w.Context(), "/etcdclaims/", prefixKeys...)
		if err != nil || len(resp.Kvs) != 1 || !strings.HasPrefix(string(resp.Kvs[0].Key), "/etcdclaims/audit/") {
			w.Errorf("left after Remove, besides its record: %v, %v", resp.Kvs, err)
		}
		w.noOverlap()
	})
}

// The partitions of a member that dies are owned by others within TTL + 1 s.
func TestDeath(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 64
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		w.join(config("c", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, _ := moves(w.history(partitions))
		had := counts(v)["b"]
		b.die()
		took := w.within(ttl+sec, "the partitions of b are others'", func() bool { return owned(v) && counts(v)["b"] == 0 })
		w.Logf("after %v", took)
		w.within(sec, "balanced", func() bool { return balanced(v) })
		if after, _ := moves(w.history(partitions)); after-before != had {
			w.Errorf("%d partitions moved, b had %d", after-before, had)
		}
		w.noOverlap()
	})
}

// A member that is cut off has lost its partitions, and joins again when it can.
func TestCutOffAndBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 30
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		b.host.Cut()
		w.within(ttl+sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		time.Sleep(5 * sec)
		b.host.Heal()
		w.within(15*sec, "b is back", func() bool { return counts(v)["b"] == partitions/2 })
		if b.Err() != nil {
			w.Error(b.Err())
		}
		w.history(partitions)
		w.noOverlap()
	})
}

// Members restart one by one, with the same names: no partition goes to another name.
func TestRollingRestartMovesNothing(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 48
		members := make([]*process, 6)
		cfg := func(i int) group.Config {
			cfg := config(fmt.Sprint("m", i), partitions)
			cfg.Away = 30 * sec
			return cfg
		}
		for i := range members {
			members[i] = w.join(cfg(i))
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, _ := moves(w.history(partitions))
		terms := w.history(partitions)
		for i, m := range members {
			m.leave()
			time.Sleep(5 * sec) // a restart takes its time
			members[i] = w.join(cfg(i))
			w.within(2*sec, "all partitions are owned", func() bool { return owned(v) })
		}
		after := w.history(partitions)
		if moved, _ := moves(after); moved != before {
			w.Errorf("%d partitions moved", moved-before)
		}
		for partition, of := range after {
			if len(of) != len(terms[partition])+1 {
				w.Errorf("partition %d had %d terms, want one more than %d", partition, len(of), len(terms[partition]))
			}
		}
		w.noOverlap()
	})
}

// If a member does not come back, its partitions go to others.
func TestAwayForTooLong(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 20
		w.join(config("a", partitions))
		cfg := config("b", partitions)
		cfg.Away = 10 * sec
		b := w.join(cfg)
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		b.leave()
		time.Sleep(8 * sec)
		if n := counts(v); n["a"] != 10 || n[""] != 10 {
			w.Errorf("while b is away: %v", n)
		}
		w.within(5*sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
	})
}

func TestWeights(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 60
		for i, name := range []string{"a", "b", "c"} {
			cfg := config(name, partitions)
			cfg.Weight = i + 1
			w.join(cfg)
		}
		v := w.view()
		w.within(10*sec, "by weight", func() bool { n := counts(v); return n["a"] == 10 && n["b"] == 20 && n["c"] == 30 })
	})
}

// At most so many partitions move in each interval, in the whole group. Partitions that have no
// owner do not wait for that.
func TestMoveBudget(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions, most, interval = 60, 5, 10 * sec
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.MaxMoves, cfg.MoveInterval = most, interval
			return cfg
		}
		w.join(budget("a"))
		w.join(budget("b"))
		v := w.view()
		var at []time.Time
		last := make(map[int]group.Owner)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for a := range v.Watch(ctx) {
				for partition, o := range a.Owners {
					if o.Member == "" {
						continue
					}
					if was := last[partition]; was.Member != "" && was.Member != o.Member && w.wasServed(partition, was.Token.Fence) {
						at = append(at, time.Now())
					}
					last[partition] = o
				}
			}
		}()
		w.within(2*time.Minute, "balanced", func() bool { return balanced(v) })
		w.join(budget("c"))
		w.join(budget("d"))
		begin := time.Now()
		w.within(5*time.Minute, "balanced", func() bool { return balanced(v) && counts(v)["d"] == partitions/4 })
		if took := time.Since(begin); took < 5*interval {
			w.Errorf("30 partitions moved within %v", took)
		}
		cancel()
		<-watched
		for i := most; i < len(at); i++ {
			if d := at[i].Sub(at[i-most]); d < interval-100*time.Millisecond {
				w.Errorf("%d partitions moved within %v", most+1, d)
			}
		}
		w.noOverlap()
	})
}
