package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReleaseAll releases every claim of this client, whatever runs under it, and
// returns how many that were: call it when the work has stopped. Claims that
// could not be released for sure are given up in the background.
func (c *Client) ReleaseAll(ctx context.Context) (int, error) {
	if c.Passthrough() {
		return 0, nil
	}
	return c.releaseAll(ctx, false)
}

// releaseAll gives up all terms, many to a request; when closing they count as
// lost by that.
func (c *Client) releaseAll(ctx context.Context, closing bool) (int, error) {
	c.keysMu.Lock()
	all := make([]*term, 0, len(c.keys))
	for _, t := range c.keys {
		all = append(all, t)
	}
	c.keysMu.Unlock()
	var terms []*term
	released := 0
	for _, t := range all {
		if rest := t.rests(); rest > 0 {
			if t.begin() == nil && t.rest(ctx, rest) == nil {
				released++
			}
			continue
		}
		if t.begin() == nil {
			terms = append(terms, t)
		}
	}
	var errs []error
	drop := func(i int) (request, bool) { return terms[i].dropping(), true }
	c.store.each(ctx, len(terms), drop, func(i int, resp *clientv3.TxnResponse, err error) {
		t := terms[i]
		switch {
		case err != nil:
			t.settleLater(nil, request{})
			errs = append(errs, err)
		case !resp.Succeeded:
			t.back()
			if !t.owned(resp) {
				return
			}
		}
		released++
		if !closing {
			t.finish(ErrReleased)
			c.countRelease(t, nil)
		} else {
			t.back()
			t.lose(ReasonShutdown, nil)
		}
	})
	if len(errs) > 0 {
		return released, fmt.Errorf("etcdclaims: releasing all: %d of %d are released in the background: %w", len(errs), len(terms), errs[0])
	}
	return released, nil
}

// Close ends the client: it takes no more calls, ends the contexts of all
// handlers that Run and TryRun started, waits a drain (Config.Drain) for them,
// releases all claims and revokes the leases. A handler that goes on is a
// zombie; see TryRun. Claims that were acquired without Run are released at
// once: Close says that their work has stopped.
//
// The context bounds the waiting: when it ends, Close stops at the next step and
// leaves the rest to the end of the leases. Closing again waits for the first
// Close, as long as its own context allows, and returns what that did.
func (c *Client) Close(ctx context.Context) error {
	if c == nil {
		return nil
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
		return wire.ContextError(ctx)
	}
}

func (c *Client) close(ctx context.Context) error {
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
			err = wire.ContextError(ctx)
		}
	}
	releaseCtx, cancel := context.WithTimeout(ctx, 2*c.store.timeout)
	defer cancel()
	if _, rerr := c.releaseAll(releaseCtx, true); rerr != nil {
		err = errors.Join(err, rerr)
	}
	c.choresDone(releaseCtx)
	for _, s := range c.liveSessions() {
		if s.pending.Load() == 0 && releaseCtx.Err() == nil {
			c.revoke(s)
		}
		s.die(ReasonShutdown, nil)
	}
	c.stop()
	c.wg.Wait()
	c.store.wg.Wait()
	return err
}
