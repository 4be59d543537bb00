package sched

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/priority"
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
	wg       sync.WaitGroup
	slots    chan struct{} // requests in progress

	lanes  map[string]*lane       // by claim key
	where  map[string]spot        // the places of ticks, by their key
	next   *priority.Queue[*lane] // lanes that can be tried, by their first tick
	later  *priority.Queue[*lane] // lanes whose claims were held, by when to try again
	parked map[*lane]bool         // lanes whose ticks this process cannot begin
	tries  int                    // attempts in progress
	busy   int                    // attempts and runs of this process

	mu     sync.Mutex
	posted []func()
	post   chan struct{} // has an element when something was posted
}

// lane holds the ticks that need the same claim.
type lane struct {
	claim string
	line  line
	busy  int // the attempts and runs of this process
	// ahead holds the ticks whose runs were recorded when an attempt was last made. If
	// such a run was lost, its tick waits again, and begins before later ones.
	ahead []*waiter
	at    time.Time // when to try again
	rests bool      // because of the first tick's back-off, not because the claim was held
	try   int
}

// unrest forgets the back-off of the first tick: another tick may be the first.
func (l *lane) unrest() {
	if l.rests {
		l.at, l.rests = time.Time{}, false
	}
}

// spot is the place of a tick.
type spot struct {
	lane *lane
	w    *waiter
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
	for ctx.Err() == nil {
		b.absorb()
		timer := time.NewTimer(b.startSome(ctx))
		select {
		case <-b.feed.News:
		case <-b.post:
		case <-s.retry:
			b.retry(s.takeFreed())
		case <-timer.C:
			b.unpark()
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (s *Scheduler) newStarter(handlers context.Context) *starter {
	return &starter{
		s: s, handlers: handlers, feed: s.view.Subscribe(live.KindReady, live.KindCancel), slots: make(chan struct{}, attemptsAtOnce),
		lanes: make(map[string]*lane), where: make(map[string]spot), parked: make(map[*lane]bool),
		next:  priority.New(func(a, b *lane) bool { return byTurn(a.line.ticks[0], b.line.ticks[0]) < 0 }),
		later: priority.New(func(a, b *lane) bool { return a.at.Before(b.at) }),
		post:  make(chan struct{}, 1),
	}
}

// retry queues lanes to be tried at once: those of the freed claims, or all.
func (b *starter) retry(freed []string, all bool) {
	if all {
		for _, l := range b.lanes {
			l.at, l.try = time.Time{}, 0
			b.place(l)
		}
		return
	}
	for _, claim := range freed {
		if l := b.lanes[claim]; l != nil {
			l.at = time.Time{}
			b.place(l)
		}
	}
}

// unpark queues the lanes that this process could not begin.
func (b *starter) unpark() {
	for l := range b.parked {
		b.place(l)
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
		b.remove(key)
		if is.Ready != nil {
			w := &waiter{ready: *is.Ready, key: key, rev: is.Rev}
			if rest := w.Rests(b.s.now()); rest > 0 {
				w.begins = clock.Mono().Add(rest)
			}
			b.add(w)
		}
	}
}

// lane returns the lane of a claim.
func (b *starter) lane(claim string) *lane {
	l := b.lanes[claim]
	if l == nil {
		l = &lane{claim: claim, line: line{order: byTurn}}
		b.lanes[claim] = l
	}
	return l
}

func (b *starter) add(w *waiter) {
	l := b.lane(tick.RunClaim(b.s.cfg.Group, w.Job, w.ID, !w.Parallel))
	b.lift(l) // before its order changes
	l.unrest()
	l.line.add(w)
	b.where[w.key] = spot{l, w}
	b.place(l)
}

func (b *starter) remove(key string) {
	at, ok := b.where[key]
	if !ok {
		return
	}
	delete(b.where, key)
	b.lift(at.lane)
	at.lane.unrest()
	at.lane.line.remove(at.w)
	b.place(at.lane)
}

// lift removes a lane from its queue.
func (b *starter) lift(l *lane) {
	b.next.Drop(l)
	b.later.Drop(l)
	delete(b.parked, l)
}

// place moves a lane to its queue.
func (b *starter) place(l *lane) {
	b.lift(l)
	switch {
	case l.busy > 0:
	case len(l.line.ticks) == 0:
		delete(b.lanes, l.claim)
	case l.at.After(clock.Mono()):
		b.later.Set(l)
	default:
		b.next.Set(l)
	}
}

// startSome begins ticks, oldest first, and returns after how long to call it again.
func (b *starter) startSome(ctx context.Context) time.Duration {
	s := b.s
	if !s.cfg.Spread && !s.owning.Load() {
		return mostWait
	}
	now := clock.Mono()
	for _, l := range b.later.TakeWhile(b.later.Len(), func(l *lane) bool { return !l.at.After(now) }) {
		b.place(l)
	}
	most := attemptsAtOnce
	if s.cfg.Spread {
		most = spreadAtOnce
	}
	for b.tries < most && (s.cfg.Limit == 0 || b.busy < s.cfg.Limit) {
		l, ok := b.next.First()
		if !ok {
			break
		}
		b.lift(l)
		j, w := b.begins(l)
		if w == nil {
			if l.at.After(now) {
				b.later.Set(l) // its first tick waits for its next attempt
			} else {
				b.parked[l] = true // the owner drops late ticks; another process may have the job
			}
			continue
		}
		running := b.s.running(w.ready)
		switch {
		case len(running) > 0:
			l.ahead = running
		case !w.Parallel && (b.s.view.HasNews(b.feed, b.s.keys.ReadyOf(w.Job)) || isBackfill(w.ID) && b.s.view.HasNews(b.feed, b.s.keys.Backfills(w.Job))):
			b.place(l)
			return 0 // a run may have just ended whose tick waits again
		}
		l.busy++
		b.busy++
		b.tries++
		b.wg.Add(1)
		go b.try(ctx, j, l, *w)
	}
	d := mostWait
	if l, ok := b.later.First(); ok {
		d = min(d, max(l.at.Sub(now), 0))
	}
	return d
}

// begins returns the first tick of a lane that can begin, or nil.
func (b *starter) begins(l *lane) (Job, *waiter) {
	now := b.s.now()
	for _, w := range l.line.ticks {
		j, ok := b.s.job(w.Job)
		if !ok {
			return Job{}, nil
		}
		if j.rules().TooLate(w.Nominal, now) && !isManual(w.ID) {
			continue
		}
		if w.begins.After(clock.Mono()) {
			l.at, l.rests = w.begins, true
			return j, nil
		}
		return j, w
	}
	return Job{}, nil
}

// try makes one attempt to begin a tick, and runs it.
func (b *starter) try(ctx context.Context, j Job, l *lane, w waiter) {
	begun, held := false, false
	defer func() {
		b.do(func() {
			l.busy--
			b.busy--
			if !begun {
				b.tries--
			}
			if held {
				l.at, l.rests = clock.Mono().Add(retry.Delay(l.try)), false
				l.try++
			}
			b.place(l)
		})
		if !begun {
			b.wg.Done()
		}
	}()
	if !b.turn(ctx, w) {
		return
	}
	cl, r, value, refused := b.s.begin(ctx, l.claim, w, l.ahead)
	held = refused
	<-b.slots
	if cl == nil {
		return
	}
	begun = true
	b.do(func() { b.tries--; l.try, l.ahead = 0, nil })
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
		l := b.lane(r.Claim)
		b.lift(l)
		l.busy++
		b.busy++
	})
	b.carryOut(j, r, value, cl, active)
	b.do(func() {
		l := b.lane(r.Claim) // the same: it stays while it is busy
		l.busy--
		b.busy--
		b.place(l)
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
	if is := b.s.view.Get(w.key); is.Gone || is.Rev != w.rev {
		<-b.slots
		return false
	}
	return true
}
