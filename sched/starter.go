package sched

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
)

// starter begins waiting ticks in this process. Each begins with one transaction that
// claims the run and removes the tick from the waiting ticks, so one process succeeds.
// The state belongs to the goroutine of start. Attempts and runs have goroutines of
// their own, and post their results.
type starter struct {
	s        *Scheduler
	handlers context.Context // of runs
	feed     *live.Feed
	changed  *changes
	wg       sync.WaitGroup
	slots    chan struct{} // requests in progress

	lanes *lanes.Lanes
	tries int // attempts in progress
	busy  int // attempts and runs of this process

	mu     sync.Mutex
	posted []func()
	post   chan struct{} // has an element when something was posted
}

const (
	attemptsAtOnce = 64
	spreadAtOnce   = 512 // with Spread, where attempts wait to let other processes go first
	mostWait       = time.Second
)

// start begins ticks until ctx ends, and returns when no attempt is in progress.
func (s *Scheduler) start(ctx, handlers context.Context) {
	b := s.newStarter(handlers)
	s.starter.Store(b)
	defer b.wg.Wait()
	defer s.starter.Store(nil)
	defer s.view.Unsubscribe(b.feed)
	defer s.catalog.unsubscribe(b.changed)
	for ctx.Err() == nil {
		b.absorb()
		timer := time.NewTimer(b.startSome(ctx))
		select {
		case <-b.feed.News:
		case <-b.post:
		case <-b.changed.news:
			_ = s.catalog.take(b.changed)
			b.lanes.Retry(nil, true)
		case <-s.retry:
			b.lanes.Retry(s.takeFreed())
		case <-timer.C:
			b.lanes.Unpark()
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (s *Scheduler) newStarter(handlers context.Context) *starter {
	return &starter{
		s: s, handlers: handlers, feed: s.view.Subscribe(live.KindReady, live.KindCancel), changed: s.catalog.subscribe(), slots: make(chan struct{}, attemptsAtOnce),
		lanes: lanes.New(),
		post:  make(chan struct{}, 1),
	}
}

// do calls a function on the goroutine of start.
func (b *starter) do(what func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted = append(b.posted, what)
	signal(b.post)
}

// absorb takes over results and changes.
func (b *starter) absorb() {
	b.mu.Lock()
	posted := b.posted
	b.posted = nil
	b.mu.Unlock()
	for _, do := range posted {
		do()
	}
	for key, is := range b.s.view.Take(b.feed) {
		if b.s.view.Kind(key) == live.KindCancel {
			b.s.cancelAsked(key, is)
			continue
		}
		b.lanes.Remove(key)
		if is.Ready != nil {
			w := &waiter{Waiting: tick.Waiting{Ready: *is.Ready, Key: key, Rev: is.Rev}}
			if rest := w.Rests(b.s.now()); rest > 0 {
				w.Begins = clock.Mono().Add(rest)
			}
			b.add(w)
		}
	}
}

func (b *starter) add(t *waiter) {
	b.lanes.Add(tick.RunClaim(b.s.cfg.Group, t.Job, t.ID, !t.Parallel), t)
}

// startSome begins ticks, oldest first, and returns after how long to call it again.
func (b *starter) startSome(ctx context.Context) time.Duration {
	s := b.s
	if !s.cfg.Spread && !s.owning.Load() {
		return mostWait
	}
	now := clock.Mono()
	b.lanes.Wake(now)
	most := attemptsAtOnce
	if s.cfg.Spread {
		most = spreadAtOnce
	}
	for b.tries < most && (s.cfg.Limit == 0 || b.busy < s.cfg.Limit) {
		l := b.lanes.Next()
		if l == nil {
			break
		}
		b.lanes.Lift(l)
		j, w := b.begins(l)
		if w == nil {
			if l.At.After(now) {
				b.lanes.Place(l) // its first tick waits for its next attempt
			} else {
				b.lanes.Park(l) // the owner drops late ticks; another process may have the job
			}
			continue
		}
		running := b.s.running(w.Ready)
		switch {
		case len(running) > 0:
			l.Ahead = running
		case !w.Parallel && (b.s.view.HasNews(b.feed, b.s.keys.ReadyOf(w.Job)) ||
			isBackfill(w.ID) && b.s.view.HasNews(b.feed, b.s.keys.Backfills(w.Job))):
			b.lanes.Place(l)
			return 0 // a run may have just ended whose tick waits again
		}
		l.Busy++
		b.busy++
		b.tries++
		b.wg.Add(1)
		go b.try(ctx, j, l, *w)
	}
	return b.lanes.Soonest(now, mostWait)
}

// begins returns the first tick of a lane that can begin, or nil.
func (b *starter) begins(l *lanes.Lane) (Job, *waiter) {
	now := b.s.now()
	for _, w := range l.Line.Ticks {
		j, ok := b.s.catalog.job(w.Job)
		if !ok {
			return Job{}, nil
		}
		if j.rules().TooLate(w.Nominal, now) && !isManual(w.ID) {
			continue
		}
		if w.Begins.After(clock.Mono()) {
			l.At, l.Rests = w.Begins, true
			return j, nil
		}
		return j, w
	}
	return Job{}, nil
}

// try makes one attempt to begin a tick, and runs it.
func (b *starter) try(ctx context.Context, j Job, l *lanes.Lane, w waiter) {
	begun, held := false, false
	defer func() {
		b.do(func() {
			l.Busy--
			b.busy--
			if !begun {
				b.tries--
			}
			if held {
				l.At, l.Rests = clock.Mono().Add(retry.Delay(l.Try)), false
				l.Try++
			}
			b.lanes.Place(l)
		})
		if !begun {
			b.wg.Done()
		}
	}()
	if !b.turn(ctx, w) {
		return
	}
	cl, r, value, refused := b.s.begin(ctx, l.Claim, w, l.Ahead)
	held = refused
	<-b.slots
	if cl == nil {
		return
	}
	begun = true
	b.do(func() { b.tries--; l.Try, l.Ahead = 0, nil })
	b.carryOut(j, r, value, cl, b.wg.Done)
}

// carryOut runs what has begun, and returns when its lane is free. It calls active when
// drain waits for the run.
func (b *starter) carryOut(j Job, r run, value string, cl *etcdclaims.Claim, active func()) {
	a := b.s.newActive(b.handlers, j, r, cl)
	active()
	go b.s.execute(a, value)
	select {
	case <-a.done:
	case <-cl.Done(): // the lane is free although the handler may not have returned
		if !b.s.view.Get(b.s.keys.Run(j.Name, r.ID)).Gone {
			signal(b.s.rescan)
		}
	}
}

// adopt carries out a run that the owner has begun.
func (b *starter) adopt(j Job, r run, value string, cl *etcdclaims.Claim, active func()) {
	b.do(func() {
		l := b.lanes.Of(r.Claim)
		b.lanes.Lift(l)
		l.Busy++
		b.busy++
	})
	b.carryOut(j, r, value, cl, active)
	b.do(func() {
		l := b.lanes.Of(r.Claim) // the same: it stays while it is busy
		l.Busy--
		b.busy--
		b.lanes.Place(l)
	})
}

// turn waits for a slot, and reports whether the tick still waits. With Spread,
// processes with more runs let the others go first.
func (b *starter) turn(ctx context.Context, w waiter) bool {
	if b.s.cfg.Spread {
		t := time.NewTimer(min(time.Duration(b.s.load())*time.Millisecond, 50*time.Millisecond) + rand.N(3*time.Millisecond))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if is := b.s.view.Get(w.Key); is.Gone || is.Rev != w.Rev {
		<-b.slots
		return false
	}
	return true
}
