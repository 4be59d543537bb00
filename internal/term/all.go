package term

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReleaseAll gives up all terms, many to a request. When the client is being closed they count as
// lost by that, before anything is sent.
func (ts *Terms) ReleaseAll(ctx context.Context, closing bool) (int, error) {
	ts.Store.Hurry()
	all := ts.Keys.All()
	var plain, resting []*Term
	for _, t := range all {
		switch {
		case t.beginOrWant() != nil:
		case t.restLeft() > 0:
			resting = append(resting, t)
		default:
			plain = append(plain, t)
		}
	}
	for _, t := range resting {
		ts.Keys.Register(t.ID) // until its key is moved: no ghost, though the term has ended
	}
	if closing {
		for _, t := range append(plain[:len(plain):len(plain)], resting...) {
			if why := (claimerr.Loss{Reason: claimerr.Shutdown}); t.Lose(why) {
				t.Lost(why)
			}
		}
	}
	released := 0
	var errs []error
	end := func(t *Term, err error) {
		if err != nil {
			errs = append(errs, errtext.Call("release", t.Token().Key, err))
		}
		released++
		if !closing {
			t.finish(claimerr.ErrReleased)
			ts.countRelease(nil)
		}
	}
	ts.restAll(ctx, resting, func(m *move, err error) {
		defer ts.Keys.Unregister(m.t.ID)
		if errors.Is(err, claimerr.ErrLost) {
			m.t.loseReleased()
			return
		}
		if err != nil {
			m.later()
		}
		end(m.t, err)
	})
	exits := make([]*exit, len(plain))
	drop := func(i int) (txn.Request, bool) {
		x := plain[i].release()
		x.Drops, exits[i] = true, &x
		return x.Step(protocol.EndEvent{Kind: protocol.EndBegins}).Request, true
	}
	if closing { // what takes longer is done by one request, the end of the lease
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ts.Store.Timeout())
		defer cancel()
	}
	ts.Store.Each(ctx, len(plain), drop, func(i int, resp *clientv3.TxnResponse, err error) {
		x := exits[i]
		exits[i] = nil // so that not all requests are kept
		a := x.Step(x.came(resp, err))
		if !closing || a.Kind != protocol.EndUnsettled { // else the end of the lease settles it
			_ = x.end(ctx, a)
		}
		if a.Kind != protocol.EndLost {
			end(x.t, err)
		}
	})
	if len(errs) > 0 {
		call := fmt.Sprintf("release all: %d of %d claims are released in the background", len(errs), len(all))
		return released, errtext.CallOfAll(call, errs[0])
	}
	return released, nil
}
