package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// resolve finds out what became of a request whose reply was lost: it succeeded
// with the returned revision, or it did not and, with rev 0, never will. It
// tries until ctx or the session ends.
func (a *attempt) resolve(ctx context.Context) (rev int64, err error) {
	st := a.s.c.store
	step := protocol.Confirm{Try: &a.Try, Enqueues: a.enqueues, Answered: a.answered}
	for _, b := range a.with {
		step.With = append(step.With, &b.Try)
	}
	r := step.Build()
	if r.Void != nil {
		a.s.voided(a.Ticket)
	}
	for try := 0; ; try++ {
		resp, err := st.Do(ctx, r)
		switch {
		case err == nil:
			rev := step.Judge((*pb.TxnResponse)(resp))
			a.unsure = a.unsure && resp.Succeeded
			if rev > 0 && (a.enqueues || !resp.Succeeded) {
				a.handed() // for all that is known
			}
			return rev, nil
		case a.s.gone(ctx, err, false):
			if len(a.opts.ops) > 0 {
				// The claim is gone, and the keys beside it may be there. The
				// cause is not wrapped: a caller that retries when a lease is gone must not
				// retry this.
				return 0, txn.Unknown(errors.New(errtext.Bare(err)))
			}
			return 0, nil // whatever arrives late needs the lease
		case !errors.Is(err, ErrUnknown) && !txn.IsTransient(err):
			return 0, txn.Unknown(err)
		}
		if !retry.PauseUnless(ctx, a.s.dead, try) {
			return 0, txn.Unknown(txn.WithCause(ctx, err))
		}
	}
}

// undo removes, in the background, all that the attempt may have put or may yet put. So
// a shared lease never keeps a claim without a holder alive.
func (a *attempt) undo() {
	a = a.copied()
	u := &undoing{a: a}
	if a.put != nil {
		u.beside = a.opts.beside.Undo(a.put)
	}
	u.build()
	if u.all.Void != nil {
		a.s.voided(a.Ticket)
	}
	a.s.c.addCleanup(&cleanup{s: a.s, what: "undoing a claim that was given up", outlives: a.put != nil, do: func(ctx context.Context) error {
		err := u.do(ctx)
		if err == nil {
			a.s.c.log.Debug("claim undone", zap.String("key", a.claimKey()), zap.String("claim", a.ID))
		}
		u.settle(err)
		return err
	}})
}
