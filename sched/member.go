package sched

import (
	"context"
	"errors"
	"fmt"
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
	x := &runner{group: s.group, catalog: s.catalog, handlers: handlers, rescan: make(chan struct{}, 1)}
	if s.Passthrough() {
		s.log.Warn("no etcd configured; jobs run in every process")
		return s.outcome(ctx, runLocal(ctx, x))
	}
	member, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deny := func(err error) { // a permission error of etcd ends Run
		if oplog.IsDenied(err) {
			cancel(err)
		}
	}
	s.view.Restart()
	b := newStarter(x, deny)
	var wg sync.WaitGroup
	wg.Go(func() { deny(s.view.Follow(member)) })
	wg.Go(func() { b.start(member) })
	wg.Go(func() { cancel(campaign(member, b)) })
	wg.Go(func() { s.watchOverdue(member) })
	wg.Go(func() { s.watchConflict(member) })
	wg.Go(func() { followDefinitions(member, s.catalog) })
	wg.Wait()
	stop(ErrStopped)
	return s.outcome(member, b.runs.drain())
}

// outcome returns what Run returns: why it ended, unless its caller ended it, and the error of drain.
func (s *Scheduler) outcome(member context.Context, drained error) error {
	if cause := context.Cause(member); errors.Is(cause, etcdclaims.ErrClosed) || oplog.IsDenied(cause) {
		return errors.Join(errtext.Wrap(fmt.Sprintf("sched: run group %q", s.cfg.Group), cause), drained)
	}
	return drained
}
