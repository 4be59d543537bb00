package group_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// ownedBy returns the partitions of a member.
func ownedBy(v *group.View, name string) (partitions []int) {
	for partition, o := range v.Assignment().Owners {
		if o.Member == name {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// While a member with a static name is away, all others are replaced by new processes. It
// gets the partitions back that it had.
func TestAwayWhileTheOthersRestart(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 24
		static := config("c", partitions)
		static.Away = time.Hour
		b, d := w.join(config("b", partitions)), w.join(config("d", partitions))
		time.Sleep(3 * sec)
		c := w.join(static)
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["c"] == partitions/3 })
		had := ownedBy(v, "c")
		c.leave()
		w.within(sec, "the partitions that it had are reserved", func() bool { return slices.Equal(reserved(v, "c"), had) })
		b.die()
		d.die()
		w.within(2*ttl, "nobody is there", func() bool { return counts(v)[""] == partitions })
		w.join(config("a", partitions))
		w.join(config("e", partitions))
		w.within(20*sec, "balanced", func() bool { return counts(v)["a"] == partitions/3 && counts(v)["e"] == partitions/3 })
		w.join(static)
		w.within(20*sec, "balanced", func() bool { return balanced(v) && owned(v) })
		if has := ownedBy(v, "c"); !slices.Equal(has, had) {
			w.Errorf("it has partitions %v, it had %v", has, had)
		}
		w.history(partitions)
		w.noOverlap()
	})
}

func reserved(v *group.View, name string) (partitions []int) {
	for partition, o := range v.Assignment().Owners {
		if o.Reserved == name {
			partitions = append(partitions, partition)
		}
	}
	return partitions
}

// Close of the client alone reserves partitions as Leave does.
func TestClientClosedWhileAway(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		static := config("b", partitions)
		static.Away = time.Hour
		w.join(config("a", partitions))
		b := w.join(static)
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["b"] == partitions/2 })
		had := ownedBy(v, "b")
		w.ok(b.claims.Close(w.Context()))
		w.wantErr(b.Err(), etcdclaims.ErrClosed)
		time.Sleep(2 * ttl)
		if got := reserved(v, "b"); !slices.Equal(got, had) || counts(v)["a"] != partitions/2 {
			w.Errorf("reserved are %v, it had %v; the others have %v", got, had, counts(v))
		}
		w.join(static)
		w.within(5*sec, "it has them again", func() bool { return slices.Equal(ownedBy(v, "b"), had) })
		w.history(partitions)
		w.noOverlap()
	})
}

// All members leave and are back in another order. Each has the partitions that it had.
func TestAllAreAway(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 24
		cfg := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.Away = time.Hour
			return cfg
		}
		processes := make(map[string]*process)
		for _, name := range []string{"c", "a", "b"} {
			processes[name] = w.join(cfg(name))
			time.Sleep(3 * sec)
		}
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && owned(v) })
		before := v.Assignment().Owners
		for _, name := range []string{"b", "a", "c"} {
			processes[name].leave()
		}
		for _, name := range []string{"c", "b", "a"} {
			w.join(cfg(name))
			time.Sleep(3 * sec)
		}
		w.within(20*sec, "all partitions are owned", func() bool { return owned(v) })
		for partition, o := range v.Assignment().Owners {
			if o.Member != before[partition].Member {
				w.Errorf("partition %d is %s's, was %s's", partition, o.Member, before[partition].Member)
			}
		}
		w.history(partitions)
		w.noOverlap()
	})
}

// A reservation of an earlier version does not name partitions. It reserves a share.
func TestAwayWithoutPartitions(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		b := config("b", partitions)
		b.Away = time.Hour
		a := w.join(config("a", partitions))
		p := w.join(b)
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && counts(v)["b"] == partitions/2 })
		time.Sleep(sec) // until a is in no line for partitions of b, which it may have wanted before b was there
		p.leave()
		key := w.root() + "away/b"
		value, _, found := strings.Cut(w.value(key), `,"until"`)
		if !found {
			w.Fatalf("the value is %q", value)
		}
		w.put(key, value+"}")
		time.Sleep(5 * sec)
		if n := counts(v); n["a"] != partitions/2 || n[""] != partitions/2 {
			w.Errorf("while b is away: %v", n)
		}
		if len(reserved(v, "b")) > 0 {
			w.Error("partitions are reserved by name")
		}
		w.join(b)
		w.within(5*sec, "b is back", func() bool { return counts(v)["b"] == partitions/2 })
		w.ok(a.Err())
	})
}

// A dry run says of a partition that it would wait for a member that is away, and whose partition it was.
// The log of a member that leaves in order has no error.
func TestPlanNamesTheAbsent(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		static := config("a", 2)
		static.Away, static.Logger = time.Hour, zap.New(core)
		a := w.join(static)
		w.join(config("c", 2))
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) && owned(v) })
		partition := ownedBy(v, "c")[0]
		a.leave()
		if left := logs.FilterMessage("leaving").All(); len(left) != 1 || left[0].ContextMap()["error"] != nil || left[0].ContextMap()["reason"] != "Leave was called" {
			w.Errorf("logged: %v", left)
		}
		w.within(5*sec, "a is away", func() bool {
			first := v.Assignment().Members[0]
			return first.Name == "a" && first.Instance == "" && len(reserved(v, "a")) == 1
		})
		moves := v.Plan(nil, "c").Moves
		if len(moves) != 1 || moves[0].Partition != partition || moves[0].To != "a" || moves[0].From != "" ||
			moves[0].Why != "its owner c is to leave; a is away, and gets the partition when it is back" {
			w.Errorf("moves: %+v", moves)
		}
		moves = v.Plan([]group.MemberInfo{{Name: "new"}}, "c").Moves // which is there when it joins
		if len(moves) != 1 || moves[0].To != "new" || moves[0].Why != "its owner c is to leave" {
			w.Errorf("moves: %+v", moves)
		}
	})
}
