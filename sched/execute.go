package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// active is a run of this process.
type active struct {
	job    Job
	run    run
	tick   Tick
	claim  *etcdclaims.Claim
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it is over and recorded, or cannot be
}

// drainAlone is how long a passthrough scheduler waits for handlers that were told
// to stop.
const drainAlone = 5 * time.Second

// over waits until the run is over, and returns false if its claim is instead.
func (a *active) over() bool {
	gone := a.claim.Done()
	var patience <-chan time.Time
	if gone == nil { // nothing will shut it out
		patience = time.After(drainAlone)
	}
	select {
	case <-a.done:
		return true
	case <-gone:
		// That may be its own release, just now.
		patience = time.After(time.Second)
	case <-patience:
		return false
	}
	select {
	case <-a.done:
		return true
	case <-patience:
		return false
	}
}

func (s *Scheduler) newActive(handlers context.Context, j Job, r run, cl *etcdclaims.Claim) *active {
	a := &active{job: j, run: r, claim: cl, done: make(chan struct{})}
	a.tick = Tick{
		Group: s.cfg.Group, Job: j.Name, Nominal: r.Nominal, Actual: r.Actual, Admitted: r.Admitted, Attempt: r.Attempt,
		Missed: r.Missed, Manual: isManual(r.ID), Fence: cl.Fence(), id: r.ID,
	}
	a.ctx, a.cancel = context.WithCancelCause(withTick(handlers, a.tick))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[r.Run] = a
	delete(s.trying, r.Run)
	return a
}

// load is how many runs go on here.
func (s *Scheduler) load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// runs reports whether a run goes on here under its claim, or may be about to.
func (s *Scheduler) runs(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, trying := s.trying[id]; trying {
		return true
	}
	a := s.active[id]
	return a != nil && a.claim.Err() == nil
}

// neverBegun reports whether no handler was called in an attempt of this process
// that left a record.
func (s *Scheduler) neverBegun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, never := s.unbegun[id]
	return never
}

func (s *Scheduler) begunNever(id string, never bool) {
	const most = 10_000 // forgetting one means to call it lost
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trying, id)
	if !never {
		delete(s.unbegun, id)
		return
	}
	if len(s.unbegunIDs) >= most {
		delete(s.unbegun, s.unbegunIDs[0])
		s.unbegunIDs = s.unbegunIDs[1:]
	}
	s.unbegun[id] = struct{}{}
	s.unbegunIDs = append(s.unbegunIDs, id)
}

// tries notes that an attempt is under way, until it is active or known never to
// have begun.
func (s *Scheduler) tries(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trying[id] = struct{}{}
}

// cancelAsked ends the contexts of runs that shall end: those begun before that
// was asked for.
func (s *Scheduler) cancelAsked() {
	if !s.view.any(s.keys.cancels()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active {
		if is := s.view.get(s.keys.cancel(a.job.Name)); !is.gone && is.rev > a.claim.Revision() {
			a.cancel(ErrCancelled)
		}
	}
}

// execute calls the handler under the run's claim, and records what became of it
// before that is given up.
func (s *Scheduler) execute(a *active, value string) {
	called := false
	defer func() {
		if !called { // stopped, or the claim lost, just now
			s.begunNever(a.run.Run, true)
		}
		a.cancel(nil)
		s.mu.Lock()
		delete(s.active, a.run.Run)
		s.mu.Unlock()
		close(a.done)
		if !s.Passthrough() && !s.view.get(s.keys.run(a.job.Name, a.run.ID)).gone {
			signal(s.stir) // its record is left for the owner
		}
	}()
	if a.ctx.Err() != nil {
		called = s.giveBack(a, value)
		_ = a.claim.Release(context.WithoutCancel(a.ctx)) // what it cannot release ends with its lease
		return
	}
	ctx := a.ctx
	if a.job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.job.Timeout)
		defer cancel()
	}
	_ = a.claim.Run(ctx, func(ctx context.Context) error { // its errors are the claim's: the record says so
		called = true
		s.call(ctx, a, value)
		return nil
	})
}

// call calls the handler, and records what became of that: after a panic and
// Goexit too.
func (s *Scheduler) call(ctx context.Context, a *active, value string) {
	if hook := s.cfg.Hooks.Began; hook != nil {
		hook(a.tick)
	}
	var err error
	returned := false
	defer func() {
		var outcome Outcome
		if returned {
			outcome = judge(ctx, err)
		} else {
			outcome, err = OutcomePanicked, errors.New("it called runtime.Goexit")
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
				s.log.Error("a handler panicked", zap.String("job", a.job.Name), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			}
		}
		s.finish(a, value, outcome, err)
	}()
	err = a.job.Handler(ctx, a.tick)
	returned = true
}

// judge says what a handler's return means.
func judge(ctx context.Context, err error) Outcome {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return OutcomeOK
	case cause == nil:
		return OutcomeFailed
	case errors.Is(cause, ErrCancelled):
		return OutcomeCancelled
	case errors.Is(cause, ErrStopped), errors.Is(cause, etcdclaims.ErrLost), errors.Is(cause, etcdclaims.ErrReleased), errors.Is(cause, etcdclaims.ErrClosed):
		return OutcomeInterrupted
	case errors.Is(cause, context.DeadlineExceeded):
		return OutcomeTimeout
	}
	return OutcomeFailed
}

// finish records how a run ended, if its claim still is the run's own. What is not
// recorded is for the owner to settle, as if the process had died.
func (s *Scheduler) finish(a *active, value string, outcome Outcome, err error) {
	p := a.run.past()
	p.Outcome, p.Fence, p.Ended = outcome, a.claim.Fence(), s.now()
	if err != nil {
		p.Error = limitText(err.Error())
	}
	rerr := s.recordEnd(a, value, p)
	fields := []zap.Field{
		zap.String("job", a.job.Name), zap.String("tick", a.run.ID), zap.Int("attempt", a.run.Attempt), zap.Int64("fence", p.Fence),
		zap.Duration("took", p.Ended.Sub(p.Began)),
	}
	switch {
	case rerr != nil:
		p.Outcome = OutcomeAbandoned
		p.Error = limitText(fmt.Sprintf("it ended as %s, which could not be recorded: %v", outcome, rerr))
		s.log.Warn("the end of a run could not be recorded", append(fields, zap.String("ended", string(outcome)), zap.Error(rerr))...)
	case err != nil:
		s.log.Warn("a run ended with an error", append(fields, zap.String("outcome", string(outcome)), zap.Error(err))...)
	default:
		s.log.Debug("a run ended", fields...)
	}
	if hook := s.cfg.Hooks.Finished; hook != nil {
		hook(p.entry(s.cfg.Group))
	}
}

// past is the record of a run, but for how it ended.
func (r run) past() past {
	return past{
		Version: valueVersion, Job: r.Job, ID: r.ID, Nominal: r.Nominal, Actual: r.Actual, Admitted: r.Admitted, Attempt: r.Attempt,
		Missed: r.Missed, Owner: r.Owner, Instance: r.Instance, Run: r.Run, Began: r.Began,
	}
}

// recordEnd writes the record of a run in the place of its being under way.
func (s *Scheduler) recordEnd(a *active, value string, p past) error {
	if p.Outcome == OutcomeInterrupted && a.job.Delivery == AtLeastOnce && a.run.Attempt < a.job.MaxAttempts {
		next := a.run.again(p, "was interrupted")
		return s.end(a, value, p, &next)
	}
	return s.end(a, value, p, nil)
}

// giveBack lets the tick wait again whose handler was not called.
func (s *Scheduler) giveBack(a *active, value string) bool {
	return s.end(a, value, past{Ended: s.now()}, &a.run.ready) == nil
}

// end replaces the record that the run is under way: by the tick that waits again,
// if there is a next attempt, and else by p. It tries until that is settled or
// the claim is over: it is sent under the claim's guard, and changes nothing if
// the record is gone, so that a request which comes late, or twice, does no harm.
func (s *Scheduler) end(a *active, value string, p past, next *ready) error {
	if s.Passthrough() {
		return nil
	}
	j, key := a.job, s.keys.run(a.job.Name, a.run.ID)
	ctx := context.WithoutCancel(a.ctx)
	for try := 0; ; try++ {
		cmps := []clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "=", value)}
		ops := []clientv3.Op{clientv3.OpDelete(key)}
		left := p
		if next == nil {
			more, then, err := s.countFailure(ctx, j, p)
			if err != nil {
				if !s.wait(a, try) {
					return err
				}
				continue
			}
			cmps, ops = append(cmps, more...), append(append(ops, s.add(j, p)...), then...)
		} else {
			var op clientv3.Op
			op, left = s.waitAgain(j, *next, p.Ended)
			ops = append(ops, op)
		}
		waits, entry := s.keys.ready(j.Name, a.run.ID), s.keys.entry(j.Name, left)
		resp, err := a.claim.Txn(ctx).If(cmps...).Then(ops...).
			Else(clientv3.OpGet(waits), clientv3.OpGet(entry), clientv3.OpGet(key)).Commit()
		switch {
		case err == nil && resp.Succeeded:
			s.rings.learn(resp.Responses)
			s.view.remove(key, resp.Header.Revision)
			if inner := resp.Responses[1].GetResponseTxn(); next != nil && (inner == nil || inner.Succeeded) {
				s.view.put(waits, encode(next), resp.Header.Revision)
			}
			return nil
		case err == nil:
			there := func(i int) string {
				for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
					return string(kv.Value)
				}
				return ""
			}
			if there(1) != "" || next != nil && there(0) == encode(next) {
				return nil // by a request whose reply was lost
			}
			if there(2) != value {
				return errors.New("the record of the run is gone")
			}
			continue // others have counted a failure meanwhile
		case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased), errors.Is(err, etcdclaims.ErrClosed):
			return err
		}
		if !s.wait(a, try) {
			return err
		}
	}
}

// wait waits before the next try, as long as the claim lasts.
func (s *Scheduler) wait(a *active, try int) bool {
	t := time.NewTimer(min(10*time.Millisecond<<min(try, 7), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return a.claim.Err() == nil
	case <-a.claim.Done():
		return false
	}
}

// countFailure counts runs that fail in a row, and pauses the job when that are
// too many.
func (s *Scheduler) countFailure(ctx context.Context, j Job, p past) ([]clientv3.Cmp, []clientv3.Op, error) {
	if j.PauseOnFailure == 0 {
		return nil, nil, nil
	}
	key := s.keys.fail(j.Name)
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	resp, err := s.claims.Etcd().Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	var f failures
	rev := int64(0)
	if len(resp.Kvs) > 0 {
		if f, err = decode[failures](key, resp.Kvs[0].Value); err != nil {
			return nil, nil, err
		}
		rev = resp.Kvs[0].ModRevision
	}
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)}
	f.Version, f.InARow = valueVersion, f.InARow+1
	switch {
	case p.Outcome == OutcomeOK:
		return cmps, []clientv3.Op{clientv3.OpDelete(key)}, nil
	case !p.Outcome.bad():
		return nil, nil, nil
	case f.InARow < j.PauseOnFailure:
		return cmps, []clientv3.Op{clientv3.OpPut(key, encode(f))}, nil
	}
	note := fmt.Sprintf("%d runs failed in a row; the last: %s", f.InARow, p.Error)
	stop := encode(pause{Version: valueVersion, By: "sched", Note: limitText(note), At: p.Ended})
	paused := s.keys.paused(j.Name)
	return cmps, []clientv3.Op{
		clientv3.OpDelete(key),
		clientv3.OpTxn([]clientv3.Cmp{absent(paused)}, []clientv3.Op{clientv3.OpPut(paused, stop)}, nil),
	}, nil
}

func itoa(n int) string { return strconv.Itoa(n) }

// lines joins what stands in lines.
func lines(all []string) string { return strings.Join(all, "\n") }
