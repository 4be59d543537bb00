package sched

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// beginner begins ticks that wait, in this process: each by one transaction that
// claims the run and takes the tick from those that wait, so that one of all who
// try succeeds.
type beginner struct {
	s        *Scheduler
	handlers context.Context // of runs
	wg       sync.WaitGroup
	slots    chan struct{} // attempts under way
	freed    chan struct{} // has an element when an attempt or a run of this process has ended

	mu    sync.Mutex
	busy  map[string]bool // claim keys with an attempt or a run of this process
	again map[string]wait // claim keys that were held by others
}

// wait is when to try again.
type wait struct {
	at  time.Time
	try int
}

const (
	attemptsAtOnce = 64
	mostWait       = time.Second
)

// begin begins ticks until ctx ends, and returns when no attempt is under way.
func (s *Scheduler) begin(ctx, handlers context.Context) {
	b := s.newBeginner(handlers)
	defer b.wg.Wait()
	heard := s.view.listen()
	defer s.view.deaf(heard)
	for ctx.Err() == nil {
		s.cancelAsked()
		timer := time.NewTimer(b.look(ctx))
		select {
		case <-heard:
		case <-b.freed:
		case <-s.kick:
			b.retry()
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (s *Scheduler) newBeginner(handlers context.Context) *beginner {
	return &beginner{
		s: s, handlers: handlers, slots: make(chan struct{}, attemptsAtOnce), freed: make(chan struct{}, 1),
		busy: make(map[string]bool), again: make(map[string]wait),
	}
}

// retry lets everything be tried again at once.
func (b *beginner) retry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.again)
}

// look begins what can be begun, and returns how long until it should be called
// again.
func (b *beginner) look(ctx context.Context) time.Duration {
	s := b.s
	d := mostWait
	if !s.cfg.Spread && !s.owning.Load() {
		return d
	}
	first := make(map[string]waiter) // of those that wait for one claim
	for key, is := range s.view.under(s.keys.readies()) {
		if is.ready == nil {
			continue
		}
		w := waiter{ready: *is.ready, key: key, rev: is.rev}
		j, ok := s.job(w.Job)
		if !ok || j.tooLate(w.Nominal, s.now()) && !isManual(w.ID) {
			continue // the owner sees to that
		}
		claim := claimKey(s.cfg.Group, j.Name, w.ID, !w.Parallel)
		if other, ok := first[claim]; !ok || w.before(other) {
			first[claim] = w
		}
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.again, func(claim string, _ wait) bool { return first[claim].key == "" })
	for claim, w := range first {
		if b.busy[claim] {
			continue
		}
		if at := b.again[claim].at; at.After(now) {
			d = min(d, at.Sub(now))
			continue
		}
		if limit := s.cfg.Limit; limit > 0 && len(b.busy) >= limit {
			break
		}
		b.busy[claim] = true
		j, _ := s.job(w.Job)
		b.wg.Add(1)
		go b.try(ctx, j, claim, w)
	}
	return d
}

// before says which of two ticks that want one claim goes first: what the
// schedule says goes before backfills, and then by time.
func (w waiter) before(o waiter) bool {
	if isBackfill(w.ID) != isBackfill(o.ID) {
		return isBackfill(o.ID)
	}
	if c := w.Nominal.Compare(o.Nominal); c != 0 {
		return c < 0
	}
	return w.ID < o.ID
}

// try makes one attempt to begin a tick, and runs it.
func (b *beginner) try(ctx context.Context, j Job, claim string, w waiter) {
	begun := false
	defer func() {
		b.mu.Lock()
		delete(b.busy, claim)
		b.mu.Unlock()
		signal(b.freed)
		if !begun {
			b.wg.Done()
		}
	}()
	if !b.turn(ctx, w) {
		return
	}
	cl, r, value := b.claim(ctx, claim, w)
	<-b.slots
	if cl == nil {
		return
	}
	begun = true
	a := b.s.newActive(b.handlers, j, r, cl)
	b.wg.Done() // from here on it is among the active, for which drain waits
	go b.s.execute(a, value)
	select {
	case <-a.done:
	case <-cl.Done(): // a handler that does not stop keeps nobody from waiting for what it held
		if !b.s.view.get(b.s.keys.run(j.Name, r.ID)).gone {
			signal(b.s.stir)
		}
	}
}

// turn waits for a slot. Where several processes may begin a tick, those that have
// more to do let the others go first.
func (b *beginner) turn(ctx context.Context, w waiter) bool {
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
	if is := b.s.view.get(w.key); is.gone || is.rev != w.rev {
		<-b.slots
		return false
	}
	return true
}

// claim claims the run and takes the tick, or says why not in the log and returns
// nil.
func (b *beginner) claim(ctx context.Context, claim string, w waiter) (*etcdclaims.Claim, run, string) {
	s := b.s
	r := run{
		ready: w.ready, Claim: claim, Run: uuid.NewString(), Owner: s.claims.Owner(), Instance: s.claims.Instance(), Began: s.now(),
	}
	r.Admitted, r.Epoch = w.admitted(), max(w.Epoch, s.epoch.Load())
	value, key := encode(r), s.keys.run(w.Job, w.ID)
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "=", w.rev)}
	if !w.Parallel {
		// The record of a dead run comes first: it may have to be begun again.
		cmps = append(cmps, absent(s.keys.runOf(w.Job)).WithPrefix())
	}
	// Not cut short by a stop: who knows that it began can give the tick back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	s.tries(r.Run)
	cl, err := s.claims.TryAcquire(ctx, claim,
		etcdclaims.If(cmps...),
		etcdclaims.Then(clientv3.OpDelete(w.key), clientv3.OpPut(key, value)))
	if err != nil {
		// If it was claimed it is given up in the background, or was lost before
		// anybody knew: the record of a run stays that was never begun.
		s.begunNever(r.Run, !errors.Is(err, etcdclaims.ErrHeld))
	}
	switch {
	case err == nil:
		s.epoch.Store(cl.Fence() >> epochShift)
		s.view.remove(w.key, cl.Revision())
		s.view.put(key, value, cl.Revision())
		b.mu.Lock()
		delete(b.again, claim)
		b.mu.Unlock()
		return cl, r, value
	case errors.Is(err, etcdclaims.ErrRefused) && !w.Parallel && len(s.view.under(s.keys.runOf(w.Job))) > 0:
	case errors.Is(err, etcdclaims.ErrRefused):
		s.view.forget(w.key, w.rev) // another has begun it, or it was taken back
		return nil, r, ""
	case errors.Is(err, etcdclaims.ErrHeld):
	default:
		s.log.Warn("a tick cannot be begun; trying again", zap.String("job", w.Job), zap.String("tick", w.ID), zap.Error(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.again[claim].try
	b.again[claim] = wait{at: time.Now().Add(min(10*time.Millisecond<<min(n, 7), mostWait)), try: n + 1}
	return nil, r, ""
}

// heard takes in what was heard about claims of the group.
func (s *Scheduler) heard(ev etcdclaims.Event) {
	switch ev.Kind {
	case etcdclaims.Resynced:
		signal(s.stir)
		signal(s.kick)
	case etcdclaims.Freed:
		if s.view.any(s.keys.readies()) {
			signal(s.kick)
		}
		for _, is := range s.view.under(s.keys.runs()) {
			if is.run != nil && is.rev == ev.Info.Revision() {
				signal(s.stir)
			}
		}
	}
}
