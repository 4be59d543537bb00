package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/oplog"
)

// Run takes part in the group until ctx ends. It waits in line for the ownership,
// admits ticks while this process is the owner, and runs ticks. When ctx ends, Run
// gives up the ownership at once and ends the contexts of its handlers. It then
// waits until the handlers have returned, or their drain is over.
//
// Run returns nil if ctx ended and all handlers returned. It returns an error that
//   - names the jobs whose handlers did not return, or
//   - reports that Run is in progress already, or
//   - matches etcdclaims.ErrClosed if the client was closed, or
//   - matches etcdclaims.ErrPermissionDenied if etcd does not permit a request that a
//     scheduler needs.
//
// An outage of etcd does not end Run. During an outage no tick is admitted and no run
// begins. The client logs its beginning and its end, to etcdclaims.Config.Logger.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.going.CompareAndSwap(false, true) {
		return fmt.Errorf("sched: run group %q: the scheduler is running already", s.cfg.Group)
	}
	defer s.going.Store(false)
	if hook := s.cfg.Hooks.Running; hook != nil {
		if returned := hook(s); returned != nil {
			defer returned()
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	returned := make(chan struct{})
	defer close(returned)
	defer attach.Of(s.claims).OnClose(func(closing context.Context) {
		end(etcdclaims.ErrClosed)
		select {
		case <-returned:
		case <-closing.Done():
		}
	})()
	handlers, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(fmt.Errorf("%w (%w)", ErrStopped, context.Cause(ctx))) })()
	if s.Passthrough() {
		s.log.Warn("no etcd configured; jobs run in every process")
		s.runLocal(ctx, handlers)
		return s.outcome(ctx, s.drain())
	}
	member, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	s.mu.Lock()
	s.denied = cancel
	s.mu.Unlock()
	wg.Go(func() { s.deny(s.view.Follow(member)) })
	wg.Go(func() { s.start(member, handlers) })
	wg.Go(func() { cancel(s.campaign(member)) })
	wg.Go(func() { s.watchOverdue(member) })
	wg.Go(func() { s.watchConflict(member) })
	wg.Go(func() { followDefinitions(member, s.catalog) })
	wg.Wait()
	s.prompt.Wait() // then drain knows their runs
	stop(ErrStopped)
	return s.outcome(member, s.drain())
}

// outcome returns what Run returns: why it ended, unless its caller ended it, and the error of drain.
func (s *Scheduler) outcome(member context.Context, drained error) error {
	if cause := context.Cause(member); errors.Is(cause, etcdclaims.ErrClosed) || oplog.IsDenied(cause) {
		return errors.Join(errtext.Wrap(fmt.Sprintf("sched: run group %q", s.cfg.Group), cause), drained)
	}
	return drained
}

// deny ends Run if err is a permission error of etcd.
func (s *Scheduler) deny(err error) {
	if !oplog.IsDenied(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied(err)
}

// drain waits for the handlers whose contexts have ended.
func (s *Scheduler) drain() error {
	s.mu.Lock()
	all := make([]*active, 0, len(s.active))
	for _, a := range s.active {
		all = append(all, a)
	}
	s.mu.Unlock()
	over := make([]bool, len(all))
	var wg sync.WaitGroup
	for i, a := range all { // at once: each may wait for as long as a drain takes
		wg.Go(func() { over[i] = a.over() })
	}
	wg.Wait()
	var on []string
	for i, a := range all {
		if !over[i] {
			on = append(on, a.tick.Job)
		}
	}
	if len(on) == 0 {
		return nil
	}
	slices.Sort(on)
	return fmt.Errorf("sched: run group %q: handlers of %d runs did not return and are shut out by their fences: %s", s.cfg.Group, len(on), strings.Join(slices.Compact(on), ", "))
}
