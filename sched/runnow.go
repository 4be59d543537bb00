package sched

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RunOption changes what RunNow and Backfill request.
type RunOption interface{ applyRun(*ask) error }

type runOption func(*ask) error

func (f runOption) applyRun(a *ask) error { return f(a) }

// Payload passes JSON of at most 16 KiB to the handlers of the requested ticks, as Tick.Payload. For
// a job that is defined it replaces Definition.Payload. Each attempt gets it, in whichever process.
// An empty payload has no effect.
func Payload(payload json.RawMessage) RunOption {
	return runOption(func(a *ask) error {
		a.Payload = nil
		if len(payload) > 0 {
			a.Payload = bytes.Clone(payload)
		}
		return checkPayload(payload)
	})
}

// apply applies the options to a request.
func apply(opts []RunOption, a *ask) error {
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt.applyRun(a); err != nil {
			return err
		}
	}
	return nil
}

// RunNow requests one run of the job in addition to its schedule. The job's Overlap
// applies to it. RunNow does not wait for the run. The returned id is the Tick.ID of
// the run. See [Payload] for what it can pass to the handler.
//
// Errors: that of an invalid option, before any request, [ErrUnknownJob], and those of
// etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the request may
// have been made; after any other error it was not.
func (s *Scheduler) RunNow(ctx context.Context, job string, opts ...RunOption) (id string, err error) {
	a := ask{Version: valueVersion, Job: job, ID: uuid.NewString(), By: s.claims.Owner(), At: s.now(), Trace: s.trace(ctx)}
	if err := apply(opts, &a); err != nil {
		return "", fmt.Errorf("sched: run job %.80q: %w", job, err)
	}
	return s.cfg.Group + "/" + job + "/" + tick.ManualID + a.ID, s.ask(ctx, s.act(ctx, audit.RunJob, job, a.ID, ""), "run", a)
}

// Backfill requests runs of all ticks of the job's schedule from the instant from up
// to, but not including, the instant to. It runs them whether or not they ran before,
// and does not move the job's high-water mark. The owner computes the ticks from its
// own schedule, some at a time.
//
// The overlap is BufferAll or Allow; nil means BufferAll, and its Max is ignored. With
// BufferAll the ticks run one after the other, oldest first, and not while another run
// of the job is in progress. Scheduled ticks begin before them. With Allow they run
// beside each other and beside all other runs. The job's own Overlap does not apply to
// a backfill. But its runs are runs of the job. So a job with the Overlap Skip can
// leave out scheduled ticks because of them. And a tick of a job with the Overlap
// CancelRunning ends a run of a backfill with BufferAll.
//
// Backfill does not wait for the runs. The returned id is the common prefix of their
// Tick.IDs.
//
// Backfill returns an error if an option is invalid, if from is not before to, or if either is
// outside the years 1 to 9999. It also does if the job runs after another one (see [After]). Other
// errors: [ErrUnknownJob], and those of etcdclaims.Client.TryAcquire. If the error matches etcdclaims.ErrUnknown, the
// request may have been made; after any other error it was not.
func (s *Scheduler) Backfill(
	ctx context.Context, job string, from, to time.Time, overlap Overlap, opts ...RunOption,
) (id string, err error) {
	a := ask{
		Version: valueVersion, Job: job, ID: uuid.NewString(), By: s.claims.Owner(), At: s.now(),
		From: from.UTC().Add(-1), To: to.UTC().Add(-1), Trace: s.trace(ctx),
	}
	switch overlap.(type) {
	case nil, BufferAll:
	case Allow:
		a.Parallel = true
	default:
		return "", fmt.Errorf("sched: backfill job %.80q: Overlap %T is not supported; want BufferAll or Allow", job, overlap)
	}
	if from.UTC().Year() < 1 || to.UTC().Year() > mostYear {
		return "", fmt.Errorf("sched: backfill job %.80q: %v to %v is out of range; want the years 1 to %d", job, from, to, mostYear)
	}
	if !from.Before(to) {
		return "", fmt.Errorf("sched: backfill job %.80q: %v is not before %v", job, from, to)
	}
	if err := apply(opts, &a); err != nil {
		return "", fmt.Errorf("sched: backfill job %.80q: %w", job, err)
	}
	act := s.act(ctx, audit.BackfillJob, job, stamp(from)+" to "+stamp(to), "")
	return s.cfg.Group + "/" + job + "/" + tick.BackfillID + a.ID, s.ask(ctx, act, "backfill", a)
}

// mostTrace is the most bytes of a trace that are stored with each tick of a request.
const mostTrace = 64

// trace returns the trace of a caller, by Hooks.Asked.
func (s *Scheduler) trace(ctx context.Context) string {
	if s.cfg.Hooks.Asked == nil {
		return ""
	}
	if trace := s.cfg.Hooks.Asked(ctx); len(trace) <= mostTrace {
		return trace
	}
	return ""
}

// mostYear is the last year that a JSON time can have.
const mostYear = 9999

// ask stores a request for the owner.
func (s *Scheduler) ask(ctx context.Context, act *audit.Act, what string, a ask) error {
	key := s.keys.AsksOf(a.Job) + a.ID
	return s.operate(ctx, act, what, a.Job, func(st *jobSnapshot) ([]clientv3.Cmp, []clientv3.Op, error) {
		if st.removed() {
			return nil, nil, s.unknownJob(a.Job)
		}
		if before, follows := st.before(); follows && !a.From.IsZero() {
			return nil, nil, fmt.Errorf("it runs after %.80q and has no ticks of its own: backfill that job", before.Names())
		}
		return []clientv3.Cmp{absent(key), s.definedAs(a.Job, st.definitionRev)}, []clientv3.Op{clientv3.OpPut(key, tick.Encode(a))}, nil
	})
}
