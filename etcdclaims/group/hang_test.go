package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

// beats calls Beat each second until ctx ends. For the partition that hangs it waits for free instead,
// which ends nothing that its context ends.
func beats(hangs int, free <-chan struct{}) group.Handler {
	return func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
		if partition == hangs {
			<-free
			return nil
		}
		for {
			if err := claim.Beat(); err != nil {
				return err
			}
			select {
			case <-time.After(sec):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// A partition whose handler hangs goes to another member, although the process lives. The member
// keeps its other partitions, and joins again once the handler has returned.
func TestHandlerThatHangs(t *testing.T) {
	t.Parallel()
	const partitions, within = 4, 7 * sec
	virtually(t, func(w *world) {
		free := make(chan struct{})
		cfg := config("a", partitions)
		cfg.Progress = within
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		a, err := group.Join(w.Context(), claims, cfg, beats(0, free))
		w.ok(err)
		v := w.view()
		w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		cfg.Name = "b"
		b, err := group.Join(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}), cfg, beats(-1, nil))
		w.ok(err)
		w.within(within+ttl/5+ttl+3*sec, "b owns the partition of the handler", func() bool {
			return v.Assignment().Owners[0].Member == "b" && !listed(v, "a")
		})
		kept := counts(v)["a"]
		if kept == 0 {
			w.Error("a has lost the partitions of the handlers that beat")
		}
		time.Sleep(20 * ttl)
		if listed(v, "a") || v.Assignment().Owners[0].Member != "b" {
			w.Errorf("while a handler hangs, its member is listed: %v; owners: %v", listed(v, "a"), counts(v))
		}
		if got := counts(v)["a"]; got != kept {
			w.Errorf("a owns %d partitions, and had %d", got, kept)
		}
		close(free)
		w.within(2*ttl, "a is on the list again", func() bool { return listed(v, "a") })
		w.within(2*ttl, "balanced", func() bool { return balanced(v) && counts(v)["a"] == partitions/2 })
		w.ok(a.Leave(w.Context()))
		w.ok(b.Leave(w.Context()))
	})
}

// A member can leave while a handler hangs. Leave waits for the handler for a TTL.
func TestLeaveWhileAHandlerHangs(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		free := make(chan struct{})
		defer close(free)
		cfg := config("a", 2)
		cfg.Progress = 7 * sec
		a, err := group.Join(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}), cfg, beats(0, free))
		w.ok(err)
		v := w.view()
		w.within(3*ttl, "a is off the list", func() bool { return !listed(v, "a") })
		begin := time.Now()
		w.ok(a.Leave(w.Context()))
		if took := time.Since(begin); took > 2*ttl {
			w.Errorf("Leave took %v", took)
		}
	})
}
