package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReleaseAll releases every claim of this client and returns how many keys it
// released. Handles that share a claim (Reentrant) count once. Call it when the work
// under the claims has stopped, since handlers are not waited for. Check fails on every
// claim from before the first request is sent.
//
// ReleaseAll does not end work of package work. Its record stays, as an orphan: the attempt
// counts, and work that is at most once does not begin again. To give an attempt back,
// call Release of the work first.
//
// If some releases could not be confirmed, an error is returned, and those
// claims are released in the background. A key whose MinHold is not over stays
// held for the rest of it; see [MinHold]. As with [Claim.Release], ctx may have ended.
func (c *Client) ReleaseAll(ctx context.Context) (int, error) {
	if err := c.refusal(); err != nil || c.Passthrough() {
		return 0, err
	}
	ctx, cancel := c.releasing(ctx)
	defer cancel()
	return c.releaseAll(ctx, false)
}

// releaseAll gives up all terms, many to a request; when closing they count as
// lost by that, before anything is sent.
func (c *Client) releaseAll(ctx context.Context, closing bool) (int, error) {
	all := c.keys.All()
	var plain, resting []*term
	for _, t := range all {
		switch {
		case t.beginOrWant() != nil:
		case t.rests() > 0:
			resting = append(resting, t)
		default:
			plain = append(plain, t)
		}
	}
	for _, t := range resting {
		c.keys.Register(t.ID) // until its key is moved: no ghost, though the term has ended
	}
	if closing {
		for _, t := range append(plain[:len(plain):len(plain)], resting...) {
			t.shut()
		}
	}
	released := 0
	var errs []error
	end := func(t *term, err error) {
		if err != nil {
			errs = append(errs, callError("release", t.Token().Key, err))
		}
		released++
		if !closing {
			t.finish(ErrReleased)
			c.countRelease(t, nil)
		}
	}
	c.restAll(ctx, resting, func(m *move, err error) {
		defer c.keys.Unregister(m.t.ID)
		if errors.Is(err, ErrLost) {
			m.t.loseReleased()
			return
		}
		if err != nil {
			m.later()
		}
		end(m.t, err)
	})
	drop := func(i int) (txn.Request, bool) { return plain[i].dropping(), true }
	if closing { // what takes longer is done by one request, the end of the lease
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.Timeout())
		defer cancel()
	}
	c.store.Each(ctx, len(plain), drop, func(i int, resp *clientv3.TxnResponse, err error) {
		t := plain[i]
		if err == nil && !resp.Succeeded {
			t.back()
			if !t.owned(resp) {
				return
			}
		}
		if err != nil && !closing {
			t.settleLater(nil, txn.Request{})
		}
		if err == nil && resp.Succeeded {
			t.clearLeft(resp, 0)
		}
		end(t, err)
	})
	if len(errs) > 0 {
		return released, errtext.CallOfAll(fmt.Sprintf("release all: %d of %d claims are released in the background", len(errs), len(all)), errs[0])
	}
	return released, nil
}

// shut ends a term as lost because its client is closed. What it has in etcd is
// for the caller to give up.
func (t *term) shut() {
	t.s.mu.Lock()
	l := t.loseLocked(ReasonShutdown, nil)
	t.s.mu.Unlock()
	if l != nil {
		t.s.c.events.lost(t, l)
	}
}

// Close ends the client. First it ends what was made from the client and has not ended, the newest
// first, as if each were closed by a defer: queues as by Queue.Close, members of groups as by
// Member.Leave, views, and calls of Scheduler.Run and WorkMany as by the end of their context. ctx
// bounds that as it bounds those calls. While ctx lives, each is waited for before the next is told
// to end: without etcd, that can take ten seconds for each queue. Once ctx has ended, all the others
// end side by side, which takes ten seconds at most. So give ctx a deadline. Whoever closes them
// later finds nothing left to do. What is to be made from the client after that fails with ErrClosed.
//
// Then Close refuses further calls and ends the contexts of all
// handlers that the client runs. It waits one drain (Config.Drain) for these
// handlers, releases all claims and revokes the leases.
//
// A handler that does not return within the drain is a zombie; see TryRun.
// Claims that were acquired without Run are released after the handlers of Run
// have returned: stop the work under them before Close. Before the first claim is given away in
// etcd, all claims have ended locally, with ReasonShutdown. From then on no call returns a
// claim. A key whose MinHold is not over stays held for
// the rest of it; see [MinHold].
//
// ctx bounds the waiting for handlers. When ctx ends, the remaining handlers
// count as zombies immediately. Releasing has its own time limit, so that
// Close works even with a context that has ended. Releasing takes
// milliseconds, or a third of Config.TTL (2 s to 10 s) if etcd does not answer.
// Claims that are not released by then are held until their leases lapse.
//
// Calling Close again waits for the first call, bounded by its own ctx, and
// returns the result of that call.
func (c *Client) Close(ctx context.Context) error {
	if err := c.refusal(); err != nil {
		return err
	}
	first := false
	c.closeOnce.Do(func() { first = true })
	if first {
		defer close(c.closedDown)
		c.closeErr = c.close(ctx)
		return c.closeErr
	}
	select {
	case <-c.closedDown:
		return c.closeErr
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

func (c *Client) close(ctx context.Context) error {
	c.dependents.End(ctx)
	c.mu.Lock()
	c.closed = true
	runs := make([]*run, 0, len(c.runs))
	for r := range c.runs {
		runs = append(runs, r)
	}
	c.mu.Unlock()
	c.shut(ErrClosed)
	if c.Passthrough() {
		c.stop()
		return nil
	}
	for _, r := range runs {
		r.stop(ErrClosed)
	}
	var err error
	for _, r := range runs {
		select {
		case <-r.done: // returned, or a zombie
		case <-ctx.Done():
			r.overdue(ErrClosed, 0)
			err = txn.ContextError(ctx)
		}
	}
	releaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*c.store.Timeout())
	defer cancel()
	_, unsettled := c.releaseAll(releaseCtx, true)
	c.quiet(releaseCtx)
	if c.endSessions(releaseCtx) {
		unsettled = nil // it was settled by that
	}
	c.mu.Lock()
	released := c.onReleased
	c.mu.Unlock()
	for _, f := range released {
		f(releaseCtx)
	}
	err = errors.Join(err, unsettled)
	c.mu.Lock()
	c.stop() // nothing is spawned after it
	c.mu.Unlock()
	c.wg.Wait()
	c.store.Wait()
	c.events.clientClosed()
	return err
}

// endSessions ends all sessions and revokes their leases. It reports whether that
// was done with all.
func (c *Client) endSessions(ctx context.Context) bool {
	var wg sync.WaitGroup
	var left atomic.Int32
	for _, s := range c.liveSessions() {
		// What is under way yet, such as the move of a key that has a MinHold, needs
		// the lease: it is left to lapse.
		needed := s.pending.Load() > 0 || s.size() > 0 || ctx.Err() != nil
		s.die(ReasonShutdown, nil)
		if needed {
			left.Add(1)
			continue
		}
		wg.Go(func() {
			if !c.revoke(s) {
				left.Add(1)
			}
		})
	}
	wg.Wait()
	return left.Load() == 0
}

// cleaning reports whether there are cleanups, or leases that are being granted.
func (c *Client) cleaning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unfinished+c.grants > 0
}

// acquiring reports whether a session has claims, or acquisitions under way.
func (c *Client) acquiring() bool {
	return slices.ContainsFunc(c.liveSessions(), func(s *session) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.terms)+s.reserved > 0
	})
}

// quiet waits until nothing of this client is under way: no cleanup, no release, no
// acquisition, and no lease that is being granted; or ctx ends.
func (c *Client) quiet(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		// Before and after: a grant becomes a session, and an acquisition a cleanup.
		if !c.cleaning() && !c.acquiring() && !c.cleaning() {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
