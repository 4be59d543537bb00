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

// A new member gets its share from the others, slot by slot, and no slot is free
// meanwhile.
func TestJoinMovesItsShare(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 64
		w.join(config("a", slots))
		v := w.view()
		w.within(2*sec, "all slots are a's", func() bool { return counts(v)["a"] == slots })
		before, _ := moves(w.history(slots))
		for i, name := range []string{"b", "c", "d", "e", "f"} {
			w.join(config(name, slots))
			w.within(6*sec, name+" has its share", func() bool { return counts(v)[name] >= slots/(i+2) && balanced(v) })
			after, free := moves(w.history(slots))
			if most := slots/(i+2) + 1; after-before > most || free > 0 {
				w.Errorf("the join of %s moved %d slots, at most %d are needed; %d were free", name, after-before, most, free)
			}
			before = after
		}
		w.noOverlap()
	})
}

// A member that has just joined gets no slots of others for as long as the cool-down.
func TestCooldown(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 16
		cfg := config("a", slots)
		cfg.Cooldown = 20 * sec
		w.join(cfg)
		v := w.view()
		w.within(2*sec, "all slots are a's", func() bool { return counts(v)["a"] == slots })
		cfg.Name = "b"
		w.join(cfg)
		time.Sleep(19 * sec)
		if n := counts(v); n["a"] != slots {
			w.Errorf("owners before the end of the cool-down: %v", n)
		}
		w.within(4*sec, "balanced", func() bool { return balanced(v) })
	})
}

// The slots of a member that leaves go to the others, and are not free meanwhile.
func TestLeaveMovesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 60
		var members []*process
		for _, name := range []string{"a", "b", "c", "d"} {
			members = append(members, w.join(config(name, slots)))
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, freeBefore := moves(w.history(slots))
		begin := time.Now()
		members[1].leave()
		if took := time.Since(begin); took > 2*sec {
			w.Errorf("leaving took %v", took)
		}
		w.wantErr(members[1].Err(), group.ErrLeft)
		w.within(sec, "balanced", func() bool { return balanced(v) })
		if after, free := moves(w.history(slots)); after-before != slots/4 || free > freeBefore {
			w.Errorf("%d slots moved, want %d; %d were free", after-before, slots/4, free-freeBefore)
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
		if err != nil || len(resp.Kvs) > 0 {
			w.Errorf("left after Remove: %v, %v", resp.Kvs, err)
		}
		w.noOverlap()
	})
}

// The slots of a member that dies are owned by others within TTL + 1 s.
func TestDeath(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 64
		w.join(config("a", slots))
		b := w.join(config("b", slots))
		w.join(config("c", slots))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, _ := moves(w.history(slots))
		had := counts(v)["b"]
		b.die()
		took := w.within(ttl+sec, "the slots of b are others'", func() bool { return owned(v) && counts(v)["b"] == 0 })
		w.Logf("after %v", took)
		w.within(sec, "balanced", func() bool { return balanced(v) })
		if after, _ := moves(w.history(slots)); after-before != had {
			w.Errorf("%d slots moved, b had %d", after-before, had)
		}
		w.noOverlap()
	})
}

// A member that is cut off has lost its slots, and joins again when it can.
func TestCutOffAndBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 30
		w.join(config("a", slots))
		b := w.join(config("b", slots))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		b.host.Cut()
		w.within(ttl+sec, "all slots are a's", func() bool { return counts(v)["a"] == slots })
		time.Sleep(5 * sec)
		b.host.Heal()
		w.within(15*sec, "b is back", func() bool { return counts(v)["b"] == slots/2 })
		if b.Err() != nil {
			w.Error(b.Err())
		}
		w.history(slots)
		w.noOverlap()
	})
}

// Members restart one by one, with the same names: no slot goes to another name.
func TestRollingRestartMovesNothing(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 48
		members := make([]*process, 6)
		cfg := func(i int) group.Config {
			cfg := config(fmt.Sprint("m", i), slots)
			cfg.Away = 30 * sec
			return cfg
		}
		for i := range members {
			members[i] = w.join(cfg(i))
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		before, _ := moves(w.history(slots))
		terms := w.history(slots)
		for i, m := range members {
			m.leave()
			time.Sleep(5 * sec) // a restart takes its time
			members[i] = w.join(cfg(i))
			w.within(2*sec, "all slots are owned", func() bool { return owned(v) })
		}
		after := w.history(slots)
		if moved, _ := moves(after); moved != before {
			w.Errorf("%d slots moved", moved-before)
		}
		for slot, of := range after {
			if len(of) != len(terms[slot])+1 {
				w.Errorf("slot %d had %d terms, want one more than %d", slot, len(of), len(terms[slot]))
			}
		}
		w.noOverlap()
	})
}

// If a member does not come back, its slots go to others.
func TestAwayForTooLong(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 20
		w.join(config("a", slots))
		cfg := config("b", slots)
		cfg.Away = 10 * sec
		b := w.join(cfg)
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		b.leave()
		time.Sleep(8 * sec)
		if n := counts(v); n["a"] != 10 || n[""] != 10 {
			w.Errorf("while b is away: %v", n)
		}
		w.within(5*sec, "all slots are a's", func() bool { return counts(v)["a"] == slots })
	})
}

func TestWeights(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 60
		for i, name := range []string{"a", "b", "c"} {
			cfg := config(name, slots)
			cfg.Weight = i + 1
			w.join(cfg)
		}
		v := w.view()
		w.within(10*sec, "by weight", func() bool { n := counts(v); return n["a"] == 10 && n["b"] == 20 && n["c"] == 30 })
	})
}

// At most so many slots move in each interval, in the whole group. Slots that have no
// owner do not wait for that.
func TestMoveBudget(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(w *world) {
		const slots, most, interval = 60, 5, 10 * sec
		budget := func(name string) group.Config {
			cfg := config(name, slots)
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
				for slot, o := range a.Owners {
					if o.Member == "" {
						continue
					}
					if was := last[slot]; was.Member != "" && was.Member != o.Member && w.wasServed(slot, was.Token.Fence) {
						at = append(at, time.Now())
					}
					last[slot] = o
				}
			}
		}()
		w.within(2*time.Minute, "balanced", func() bool { return balanced(v) })
		w.join(budget("c"))
		w.join(budget("d"))
		begin := time.Now()
		w.within(5*time.Minute, "balanced", func() bool { return balanced(v) && counts(v)["d"] == slots/4 })
		if took := time.Since(begin); took < 5*interval {
			w.Errorf("30 slots moved within %v", took)
		}
		cancel()
		<-watched
		for i := most; i < len(at); i++ {
			if d := at[i].Sub(at[i-most]); d < interval-100*time.Millisecond {
				w.Errorf("%d slots moved within %v", most+1, d)
			}
		}
		w.noOverlap()
	})
}
