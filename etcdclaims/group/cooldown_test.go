package group_test

import (
	"testing"
	"time"
)

// A member without others has its partitions at once.
func TestMemberAloneStartsAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		a := w.join(config("a", partitions))
		w.within(200*time.Millisecond, "all partitions are a's", func() bool { return counts(a.View())["a"] == partitions })
	})
}

// What the first member took because it was early moves on without a cool-down, and after that
// waits for it.
func TestPartitionMovesEarlyOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions, cooldown = 12, 20 * sec
		cfg := config("a", partitions)
		cfg.Cooldown = cooldown
		w.join(cfg)
		v := w.view()
		w.within(sec, "all partitions are a's", func() bool { return counts(v)["a"] == partitions })
		join := func(name string) time.Time {
			cfg.Name = name
			w.join(cfg)
			return time.Now()
		}
		join("b")
		w.within(1500*time.Millisecond, "b has its share", func() bool { return counts(v)["b"] == 6 })
		joined := join("c")
		w.within(1500*time.Millisecond, "c has what it gets from a", func() bool { return counts(v)["c"] == 2 })
		time.Sleep(time.Until(joined.Add(cooldown - sec)))
		if n := counts(v); n["b"] != 6 || n["c"] != 2 {
			w.Errorf("owners before the end of the cool-down: %v", n)
		}
		w.within(3*sec, "balanced", func() bool { return balanced(v) })
		for partition, terms := range w.history(partitions) {
			if len(terms) > 3 {
				w.Errorf("partition %d had the terms %+v", partition, terms)
			}
		}
		w.noOverlap()
	})
}
