package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// promptly is how long a handler can take to return after its context ended, before
// its run is noted as stuck.
const promptly = 200 * time.Millisecond

func (g *group) noteStuck(ctx context.Context, a *active) {
	st := tick.Stuck{Version: valueVersion, Run: a.run.Run}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrCancelled):
		st.Cause = "the run was cancelled"
	case errors.Is(cause, ErrStopped):
		st.Cause = "its scheduler stopped"
	case errors.Is(cause, context.DeadlineExceeded) && a.job.Timeout > 0:
		st.Cause, st.Timeout = "its Timeout", a.job.Timeout
	default:
		return // the claim was lost
	}
	a.stuck.Store(true) // first: the handler may return now
	g.log.Warn("handler did not return after its context ended",
		append(a.fields(), zap.String("cause", st.Cause), zap.Duration("timeout", st.Timeout))...)
	key := g.keys.Run(a.job.Name, a.run.ID)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	// If this fails, the record of the run only lacks the reason.
	_, _ = a.claim.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", a.value)).
		Then(clientv3.OpPut(g.keys.Stuck(a.job.Name, a.run.ID), tick.Encode(st))).Commit()
}

// explain fills in why a run is settled by the owner, as far as that is known.
func (g *group) explain(j Job, r run, p *past) {
	p.Outcome = OutcomeLost
	p.Error = "the process died, or the claim was lost, before the run ended"
	key := g.keys.Stuck(j.Name, r.ID)
	is := g.view.Get(key)
	if is.Gone {
		return
	}
	st, err := decode[tick.Stuck](key, []byte(is.Value))
	if err != nil || st.Run != r.Run {
		return
	}
	after := st.Cause
	if st.Timeout > 0 {
		p.Outcome = OutcomeTimeout
		after += fmt.Sprintf(" of %v", st.Timeout)
	}
	p.Error = "the handler did not return after " + after + " and was shut out; it may still be running"
}
