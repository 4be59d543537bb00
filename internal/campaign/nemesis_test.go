package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestHealingFails sees that the first fault that cannot be healed ends the others, which
// are healed, and that no more are made.
func TestHealingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nemesis{ttl: 5 * time.Second, line: func(string, ...any) {}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n.giveUp = cancel
		begin := func(context.Context) error { return nil }
		var healed time.Duration
		start := time.Now()
		n.inject(ctx, plannedFault{fault: fault{kind: cutLinks}, begin: begin, lasts: time.Hour, heal: func() error {
			healed = time.Since(start)
			return nil
		}})
		gone := errors.New("the member does not serve")
		n.inject(ctx, plannedFault{fault: fault{kind: killFollower}, begin: begin, lasts: time.Second, heal: func() error { return gone }})
		n.lasting.Wait()

		n.inject(ctx, plannedFault{fault: fault{kind: cutLinks}, begin: func(context.Context) error {
			t.Error("a fault was made after one that could not be healed")
			return nil
		}})
		n.lasting.Wait()
		if healed != time.Second {
			t.Errorf("the other fault was healed after %v, want 1s", healed)
		}
		if _, err := n.run(ctx); !errors.Is(err, gone) {
			t.Errorf("run: %v, want %v", err, gone)
		}
	})
}
