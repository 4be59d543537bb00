package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
)

// admit reports whether work whose key is free may be begun, as far as its record
// is known. It marks work that may not run again as dead.
func (w *plan) admit(ctx context.Context) error {
	switch {
	case w.err != nil:
		return fmt.Errorf("%w: Forget removes it", w.err)
	case w.prev == nil:
		return nil
	case w.isOver():
		return &Error{Record: *w.prev}
	}
	w.anew = w.prev.State == StateDone || w.prev.State == StateDead
	if w.prev.State == StateClaimed {
		return w.admitOrphan(ctx)
	}
	return nil
}

// admitOrphan is admit for work that is an orphan, or this client's own to be
// superseded.
func (w *plan) admitOrphan(ctx context.Context) error {
	if u := w.c.undos.of(w.prev.Claim); u != nil {
		// It is of an attempt of this client that no caller has had. The undo puts the record
		// before back.
		if err := u.wait(ctx); err != nil {
			return err
		}
		w.rev = -1
		return nil
	}
	if own, held := w.c.host.Own(w.key); w.call.Supersede && own == w.prev.Claim {
		if w.prev.AtMostOnce {
			return held
		}
		return nil
	}
	why := w.prev.buries(w.c.cfg.MaxAttempts)
	if why == "" {
		return nil
	}
	if w.opts.beginsAgain(StateDead) {
		w.anew = true
		return nil
	}
	return w.bury(ctx, why)
}

// bury marks orphaned work as dead. It returns nil if the work may be begun. It also returns nil
// if the key is held again: then no attempt can succeed before it has read the record.
func (w *plan) bury(ctx context.Context, why string) error {
	c := w.c
	dead := w.prev.buried(why, c.host.Now())
	lease, err := c.records.Get(ctx, 0)
	if err != nil {
		return err
	}
	put := false
	defer func() { lease.Leave(put) }()
	for try := 0; ; try++ {
		resp, err := c.change(ctx, w.key, w.rev, dead.stored().put(w.Key(), lease))
		switch {
		case err == nil && resp.Succeeded:
			put = true
			c.logDead(dead)
			return &Error{Record: dead}
		case err == nil:
			if own := txn.First(resp, 0); own != nil {
				switch err := c.host.HeldBy(ctx, w.key, own, true); {
				case errors.Is(err, etcdclaims.ErrHeld):
					w.rev = -1
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
