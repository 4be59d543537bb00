package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A call of a package that is built on the client can claim a key together with another one, that of
// a companion; see package beside.

// awaitTurn waits until a call with a key beside its claim may ask for the key.
func (c *Client) awaitTurn(ctx context.Context, key string, o *acquireOptions) error {
	if o.beside == nil {
		return nil
	}
	var end func()
	err := o.beside.Turn(ctx, func() {
		o.waits()
		end = c.ownWaits.Watch(ctx, key, o.from)
	})
	if end != nil {
		end()
		if err != nil {
			c.stats.contended.Add(1)
		}
	}
	return err
}

// inLineBeside has the companion know that the attempt is in line.
func (a *attempt) inLineBeside(news *waiter) {
	if a.put != nil {
		a.opts.beside.InLine(news.doubt)
	}
}

// prepareBeside prepares the key beside the claim for another request. again is true if that must be
// tried again.
func (a *attempt) prepareBeside(ctx context.Context, try int) (again bool, err error) {
	if a.put == nil {
		return false, nil
	}
	if err := a.opts.beside.Prepare(ctx); err != nil {
		if isPassing(err) && retry.PauseUnless(ctx, a.s.dead, try) {
			return true, nil
		}
		return false, err
	}
	a.describe()
	return false, nil
}

// sawBeside has the companion know the claim that the attempt waits for.
func (a *attempt) sawBeside(own *mvccpb.KeyValue) {
	if a.put != nil {
		a.opts.beside.Saw(own)
	}
}

// attempt is the number of the attempt, of what has a key beside the claim.
func (t *term) attempt() int {
	if t.put == nil {
		return 0
	}
	return t.put.Number
}

// number is the number of the attempt, of what has a key beside the claim.
func (a *attempt) number() int {
	if a.put == nil {
		return 0
	}
	return a.put.Number
}
