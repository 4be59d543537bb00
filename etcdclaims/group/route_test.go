package group_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/fencing"
)

// A request that follows an outdated route is refused by the gate of the former owner,
// and sent once more to the new one.
func TestCallIsRetriedOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		gates := make(map[string]fencing.Gate)
		for _, name := range []string{"a", "b"} {
			cfg := config(name, partitions)
			cfg.Address = name + ":80"
			gates[cfg.Address] = w.join(cfg)
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		var sent []string
		send := func(ctx context.Context, r group.Route) error {
			token, ok := fencing.FromContext(ctx)
			if !ok || token != r.Token {
				w.Errorf("the context has the token %v, the route %v", token, r.Token)
			}
			sent = append(sent, r.Member.Address)
			return gates[r.Member.Address].Admit(ctx, token)
		}
		for partition := range partitions {
			w.ok(v.Call(w.Context(), partition, send))
		}
		if len(sent) != partitions {
			w.Errorf("%d requests for %d calls", len(sent), partitions)
		}

		// Between the route and its use the partition moves.
		r, err := v.Route(0)
		w.ok(err)
		gone := r.Member.Name
		members := make(map[string]*process)
		for _, g := range gates {
			p := g.(*process)
			members[p.Name()] = p
		}
		sent = nil
		err = v.Call(w.Context(), 0, func(ctx context.Context, r group.Route) error {
			if len(sent) == 0 {
				w.ok(members[gone].Leave(ctx))
			}
			return send(ctx, r)
		})
		w.ok(err)
		if len(sent) != 2 || sent[0] == sent[1] {
			w.Errorf("sent to %v", sent)
		}

		// A gate of the resource refuses the old token, too, once it has seen the new
		// one.
		var memory fencing.Memory
		now, err := v.Route(0)
		w.ok(err)
		w.ok(memory.Admit(w.Context(), now.Token))
		w.wantErr(memory.Admit(w.Context(), r.Token), fencing.ErrStale)
		w.wantErr(gates[now.Member.Address].Admit(w.Context(), r.Token), fencing.ErrStale)
		w.wantErr(gates[now.Member.Address].Admit(w.Context(), fencing.Token{Key: "other", Fence: 1}), fencing.ErrStale)
		w.wantErr(gates[now.Member.Address].Admit(w.Context(), fencing.Token{}), fencing.ErrNoToken)

		// It is sent twice at most, and other errors once.
		calls, other := 0, errors.New("other")
		ctx, cancel := context.WithTimeout(w.Context(), 5*sec)
		defer cancel()
		w.wantErr(v.Call(ctx, 0, func(context.Context, group.Route) error { calls++; return other }), other)
		err = v.Call(ctx, 0, func(context.Context, group.Route) error { calls++; return fencing.ErrStale })
		w.wantErr(err, fencing.ErrStale)
		w.wantErr(err, context.DeadlineExceeded)
		if calls != 2 {
			w.Errorf("%d calls", calls)
		}
		_, err = v.Route(partitions)
		if err == nil {
			w.Error("there is a route to a partition that does not exist")
		}
	})
}

// A call waits for an owner.
func TestCallWaitsForAnOwner(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 1))
		v := w.view()
		w.within(2*sec, "a has it", func() bool { return counts(v)["a"] == 1 })
		a.die()
		time.Sleep(ttl + sec)
		_, err := v.Route(0)
		w.wantErr(err, group.ErrNoOwner)
		called := make(chan string, 1)
		go func() {
			_ = v.Call(w.Context(), 0, func(_ context.Context, r group.Route) error {
				called <- r.Member.Name
				return nil
			})
		}()
		time.Sleep(5 * sec)
		if len(called) > 0 {
			w.Error("called without an owner")
		}
		w.join(config("b", 1))
		time.Sleep(sec)
		if len(called) != 1 || <-called != "b" {
			w.Error("not called when b had the partition")
		}
	})
}
