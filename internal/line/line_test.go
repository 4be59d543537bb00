package line

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// caller is a call that acquires the key k.
type caller struct {
	leave context.CancelFunc
	term  *term.Term
	err   error
	ended bool
}

// acquires makes a call, and returns once that waits or has ended.
func (w *world) acquires(t *testing.T, o *acquire.Call) *caller {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	c := &caller{leave: leave}
	go func() {
		c.term, c.err = w.Acquire(ctx, "k", o)
		c.ended = true
	}()
	synctest.Wait()
	return c
}

// state names how a call stands.
func (c *caller) state() string {
	synctest.Wait()
	if !c.ended {
		return "waits"
	}
	return outcome(c.err)
}

// A free key takes one request. For one that is held the call joins the line: at once if the client has waited for
// it before.
func TestAcquire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		held      bool
		contended bool
		sent      string
		want      string
	}{
		{"free", false, false, "take", "won"},
		{"held", true, false, "take, join", "waits"},
		{"waited for before", true, true, "join", "waits"},
		{"waited for before, and free", false, true, "join", "won"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			if w.Keys.SetContended("k", tt.contended); tt.held {
				w.Other(layout.Own("k"), "x")
			}
			c := w.acquires(t, exclusive("k"))
			same(t, "sent", w.Steps(), tt.sent)
			same(t, "state", c.state(), tt.want)
			c.leave()
			if c.state(); tt.want == "waits" {
				same(t, "state", c.state(), "waited for x: context canceled")
				same(t, "contended", w.Contended.Load(), 1)
			}
		})
	}
}

// A call in line ends with its client. One whose session is lost waits with another, at the end of the line.
func TestAcquireEndsOrGoesOn(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Other(layout.Own("k"), "x")
		c := w.acquires(t, exclusive("k"))
		first := w.Pool.Live()[0]
		w.Parts.Etcd.EndLease(first.ID())
		first.Die(claimerr.Loss{Reason: claimerr.Revoked})
		pass(2 * time.Second)
		same(t, "state", c.state(), "waits")
		same(t, "places", w.places(), 1)
		same(t, "another session", w.Pool.Live()[0] != first, true)
		w.Life.Refuse()
		synctest.Wait()
		if !c.ended || !errors.Is(c.err, claimerr.ErrClosed) {
			t.Error(c.err)
		}
	})
}

// An attempt with an unknown outcome is undone, and another made, unless operations of the caller went with it.
func TestAcquireAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		then []clientv3.Op
		want string
	}{{"the key alone", nil, "won"}, {"operations with it", []clientv3.Op{clientv3.OpDelete("/q")}, "unknown"}} {
		run(t, tt.name, func(t *testing.T, w *world) {
			s := w.Open(t)
			w.Keys.SetContended("k", true)
			o := exclusive("k")
			o.Then = tt.then
			w.Answer(nil, testlayers.Always(txn.ErrNoAnswer))
			c := w.acquires(t, o)
			pass(time.Second)
			same(t, "state", c.state(), "waits")
			w.Parts.Etcd.EndLease(s.ID())
			w.Answer(nil, nil)
			s.Die(claimerr.Loss{Reason: claimerr.Revoked})
			pass(2 * time.Second)
			same(t, "state", c.state(), tt.want)
			if c.term != nil {
				same(t, "owner", w.Owner("k").Claim, c.term.ID)
			}
		})
	}
}

// Which calls wait on with another session.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	then := &acquire.Call{Then: []clientv3.Op{clientv3.OpDelete("/q")}}
	lost := func(fence int64, why error) error {
		return claimerr.Loss{Reason: claimerr.SessionDead, Err: why}.Of(fencing.Token{Key: "k", Fence: fence})
	}
	for _, tt := range []struct {
		name string
		err  error
		call *acquire.Call
		want bool
	}{
		{"session lost", claimerr.ErrSession, new(acquire.Call), true},
		{"session lost, with operations that may have been carried out", claimerr.ErrSession, then, false},
		{"session lost before it had the key, with operations", lost(0, claimerr.ErrSession), then, true},
		{"session lost with the key, with operations", lost(7, claimerr.ErrSession), then, false},
		{"session lost with the key", lost(7, claimerr.ErrSession), new(acquire.Call), true},
		{"another reason", lost(7, nil), new(acquire.Call), false},
		{
			"no permission for another", fmt.Errorf("%w: %w", claimerr.ErrSession, txn.ErrPermissionDenied),
			new(acquire.Call), false,
		},
		{"etcd went back", fmt.Errorf("%w: %w", claimerr.ErrSession, store.ErrRewound), new(acquire.Call), false},
		{"unknown", txn.Unknown(claimerr.ErrSession), new(acquire.Call), false},
	} {
		same(t, tt.name, goesOn(tt.err, tt.call), tt.want)
	}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no answer", txn.Unknown(txn.ErrNoAnswer), true},
		{"known", txn.ErrNoAnswer, false},
		{"denied", txn.Unknown(txn.ErrPermissionDenied), false},
		{"no space", txn.Unknown(rpctypes.ErrNoSpace), false},
	} {
		same(t, "open: "+tt.name, isOpen(tt.err), tt.want)
	}
}
