package acquire

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// resolve finds out what became of a request whose reply was lost: it succeeded
// with the returned revision, or it did not and, with rev 0, never will. It
// tries until ctx or the session ends.
func (a *Attempt) resolve(ctx context.Context) (rev int64, err error) {
	step := protocol.Confirm{Try: &a.Try, Enqueues: a.Enqueues, Answered: a.answered}
	for _, b := range a.with {
		step.With = append(step.With, &b.Try)
	}
	r := step.Build()
	if r.Void != nil {
		a.S.Voided(a.Ticket)
	}
	for try := 0; ; try++ {
		resp, err := a.ac.Store.Do(ctx, r)
		switch {
		case err == nil:
			rev := step.Judge((*pb.TxnResponse)(resp))
			a.unsure = a.unsure && resp.Succeeded
			if rev > 0 && (a.Enqueues || !resp.Succeeded) {
				a.HandedUnread() // for all that is known
			}
			return rev, nil
		case a.S.Gone(ctx, err, false):
			if len(a.Call.Then) > 0 {
				// The claim is gone, and the keys beside it may be there. The
				// cause is not wrapped: a caller that retries when a lease is gone must not
				// retry this.
				return 0, txn.Unknown(errors.New(errtext.Bare(err)))
			}
			return 0, nil // whatever arrives late needs the lease
		case !errors.Is(err, txn.ErrUnknown) && !txn.IsTransient(err):
			return 0, txn.Unknown(err)
		}
		if !retry.PauseUnless(ctx, a.S.Dead(), try) {
			return 0, txn.Unknown(txn.WithCause(ctx, err))
		}
	}
}

// Undo removes, in the background, all that the attempt may have put or may yet put. So
// a shared lease never keeps a claim without a holder alive.
func (a *Attempt) Undo() {
	a = a.Copied()
	u := &undoing{a: a}
	if a.Put != nil {
		u.beside = a.Call.Beside.Undo(a.Put)
	}
	u.build()
	if u.all.Void != nil {
		a.S.Voided(a.Ticket)
	}
	do := func(ctx context.Context) error {
		err := u.do(ctx)
		if err == nil {
			a.ac.Log.Debug("claim undone", zap.String("key", a.claimKey()), zap.String("claim", a.ID))
		}
		u.settle(err)
		return err
	}
	a.ac.Pool.Add(&lease.Cleanup{Of: a.S, What: "undoing a claim that was given up", Outlives: a.Put != nil, Do: do})
}
