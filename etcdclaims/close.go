package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/txn"
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
	return c.terms.ReleaseAll(ctx, false)
}

// Close ends the client. First it ends what was made from the client and has not ended, the newest
// first, as if each were closed by a defer: queues as by Queue.Close, members of groups as by
// Member.Leave, views, and calls of Scheduler.Run and WorkMany as by the end of their context. ctx
// bounds that as it bounds those calls. While ctx lives, each is waited for before the next is told
// to end: without etcd, that can take fifteen seconds for each queue. Once ctx has ended, all the others
// end side by side, which takes fifteen seconds at most. So give ctx a deadline. Closing them once more
// does nothing. Calls that make more of them from the client then fail with ErrClosed.
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
	return c.closing.once(ctx, c.close)
}

// abandon ends the client as the death of its process would: all claims end here, and their keys
// stay held until the leases lapse.
func (c *Client) abandon() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return c.closing.once(context.Background(), func(context.Context) error {
		c.life.BeginEnd()
		c.life.Refuse()
		c.pool.End(ended) // revokes nothing
		c.life.End()
		c.dependents.End(ended) // they can send nothing any more
		c.store.Wait()
		c.events.clientClosed()
		return nil
	})
}

func (c *Client) close(ctx context.Context) error {
	c.dependents.End(ctx)
	c.life.BeginEnd()
	runs := c.runs.all()
	c.life.Refuse()
	if c.Passthrough() {
		c.life.End()
		return nil
	}
	for _, r := range runs {
		r.stop(ErrClosed)
		r.drain(ErrClosed) // its context may have ended before, without a drain, as its work had
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
	_, unsettled := c.terms.ReleaseAll(releaseCtx, true)
	c.pool.Quiet(releaseCtx)
	if c.pool.End(releaseCtx) {
		unsettled = nil // it was settled by that
	}
	c.closing.released(releaseCtx)
	err = errors.Join(err, unsettled)
	c.life.End()
	c.store.Wait()
	c.events.clientClosed()
	return err
}
