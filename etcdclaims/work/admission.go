package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
)

// admit reports whether work whose key is free may be begun, as far as its record
// is known. It marks work that may not run again as dead.
func (w *plan) admit(ctx context.Context) error {
	switch known := &w.known; known.Admits(w.c.host.Now(), w.opts.again) {
	case record.Barred:
		return fmt.Errorf("%w: Forget removes it", known.Err)
	case record.Ended:
		return &Error{Record: Record(*known.Prev)}
	case record.Orphans:
		return w.admitOrphan(ctx)
	case record.Begins:
	}
	return nil
}

// admitOrphan is admit for work that is an orphan, or this client's own to be
// superseded.
func (w *plan) admitOrphan(ctx context.Context) error {
	known := &w.known
	if u := w.c.undos.of(known.Prev.Claim); u != nil {
		// It is of an attempt of this client that no caller has had. The undo puts the record
		// before back.
		if err := u.wait(ctx); err != nil {
			return err
		}
		known.Rev = -1
		return nil
	}
	if own, held := w.c.host.Own(known.Key); w.call.Supersede && own == known.Prev.Claim {
		if known.Prev.AtMostOnce {
			return held
		}
		return nil
	}
	why := known.Buries(w.c.cfg.MaxAttempts, w.opts.again)
	if why == "" {
		return nil
	}
	return w.bury(ctx, why)
}

// bury marks orphaned work as dead. It returns nil if the work may be begun. It also returns nil
// if the key is held again: then no attempt can succeed before it has read the record.
func (w *plan) bury(ctx context.Context, why string) error {
	c, known := w.c, &w.known
	dead := known.Prev.Buried(why, c.host.Now())
	lease, err := c.records.Get(ctx, 0)
	if err != nil {
		return err
	}
	done := false
	defer func() { lease.Leave(done) }()
	for try := 0; ; try++ {
		resp, err := c.change(ctx, known.Key, known.Rev, put(w.Key(), dead.Value(), lease))
		switch {
		case err == nil && resp.Succeeded:
			done = true
			c.logDead(Record(dead))
			return &Error{Record: Record(dead)}
		case err == nil:
			if own := txn.First(resp, 0); own != nil {
				switch err := c.host.HeldBy(ctx, known.Key, own, true); {
				case errors.Is(err, etcdclaims.ErrHeld):
					known.Rev = -1
					return nil
				case err != nil:
					return err
				}
			}
			w.Changed(txn.First(resp, 1))
			return w.admit(ctx)
		case c.records.Gone(err, lease):
			return w.bury(ctx, why)
		case errors.Is(err, etcdclaims.ErrUnknown):
			lease.Doubt()
		case !txn.IsTransient(err):
			return fmt.Errorf("burying orphaned work: %w", err)
		}
		if !retry.PauseUnless(ctx, c.host.Open().Done(), try) {
			return txn.WithCause(ctx, err)
		}
	}
}
