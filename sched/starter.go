package sched

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/inbox"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// starter begins ticks in this process: each in one transaction that claims the run, and either
// removes its tick from the waiting ticks or admits it. So one process succeeds. The state
// belongs to the goroutine of start. Attempts and runs have goroutines of their own, and post
// their results.
type starter struct {
	*runner
	deny    func(err error) // ends Run after a permission error
	inbox   *inbox.Inbox
	feed    *live.Feed
	changed *changes
	wg      sync.WaitGroup // attempts
	slots   chan struct{}  // requests for waiting ticks in progress

	runs    *runs
	lanes   *lanes.Lanes
	limits  *limits
	tries   int  // attempts in progress
	busy    int  // attempts and runs of this process
	stopped bool // whether nothing begins any more

	unparked time.Time // when lanes were last unparked, by the monotonic clock
}

// beginning is a tick that begins: what a step of package tick adds to the acquisition of the
// claim, and what follows.
type beginning interface {
	// request returns what the step adds for a run, of which value is the record.
	request(r run, value string) *pb.TxnRequest
	// begun takes over that the run began at the revision.
	begun(r *run, value string, rev int64)
	// failed takes over that it did not, and reports whether to try again later.
	failed(ctx context.Context, err error) (again bool)
}

// launch is a tick that is about to begin.
type launch struct {
	beginning
	lane  *lanes.Lane
	run   *active
	waits *waiter // nil if the tick is admitted as it begins
	slots []tick.Slot
	until time.Time // when to give up, by the monotonic clock; zero for readTime after the request
}

const (
	attemptsAtOnce = 64
	spreadAtOnce   = 512 // with Spread, where attempts wait to let other processes go first
	mostWait       = time.Second

	starting = "begin ticks"
)

func newStarter(x *runner, deny func(error)) *starter {
	b := &starter{
		runner: x, deny: deny, inbox: inbox.New(), feed: x.view.Subscribe(live.KindReady, live.KindCancel, live.KindSlot),
		changed: x.catalog.subscribe(), slots: make(chan struct{}, attemptsAtOnce), runs: newRuns(x.group), lanes: lanes.New(),
	}
	b.limits = &limits{group: x.group, lanes: b.lanes, taking: make(map[string]bool)}
	x.over = func(a *active, never bool) { b.inbox.Post(func() { b.runs.remove(a, never) }) }
	return b
}

// close is called when start has returned, or instead of it.
func (b *starter) close() {
	b.view.Unsubscribe(b.feed)
	b.catalog.unsubscribe(b.changed)
}

// start begins ticks until ctx ends, and returns when no attempt is in progress.
func (b *starter) start(ctx context.Context) {
	defer b.close()
	for ctx.Err() == nil {
		b.absorb()
		later := time.After(b.startSome(ctx))
		select {
		case <-b.feed.News:
		case <-b.inbox.News:
		case <-b.changed.news:
			b.relearn()
		case <-later:
		case <-ctx.Done():
		}
	}
	b.stopped = true
	b.wg.Wait()
	b.inbox.Work()
}

// absorb takes over results and changes.
func (b *starter) absorb() {
	b.inbox.Work()
	for key, is := range b.view.Take(b.feed) {
		switch b.view.Kind(key) {
		case live.KindCancel:
			b.runs.cancelAsked(key, is)
			continue
		case live.KindSlot:
			if is.Gone {
				b.lanes.Free(b.view.Dir(key))
			}
			continue
		}
		b.lanes.Remove(key)
		if is.Ready != nil {
			w := &waiter{Waiting: tick.Waiting{Ready: *is.Ready, Key: key, Rev: is.Rev}}
			if rest := w.Rests(b.now()); rest > 0 {
				w.Begins = clock.Mono().Add(rest)
			}
			j, _ := b.catalog.lookUp(w.Job)
			w.Priority = j.Priority
			b.lanes.Add(tick.RunClaim(b.cfg.Group, w.Job, w.ID, !w.Parallel), w)
		}
	}
}

// relearn takes over changes of jobs.
func (b *starter) relearn() {
	priorities := make(map[string]int)
	for _, name := range b.catalog.take(b.changed) {
		j, _ := b.catalog.lookUp(name)
		priorities[name] = j.Priority
	}
	b.lanes.Prioritize(priorities)
	b.lanes.Retry(nil, true)
}

// retry lets waiting ticks be tried at once: those of claims that are free, or all.
func (b *starter) retry(freed []string, all bool) {
	b.inbox.Post(func() { b.lanes.Retry(freed, all) })
}

// fates returns what this process knows of attempts, by their ids.
func (b *starter) fates(ctx context.Context, ids []string) ([]fate, error) {
	known := make(chan []fate, 1)
	b.inbox.Post(func() {
		var all []fate
		for _, id := range ids {
			all = append(all, b.runs.fate(id))
		}
		known <- all
	})
	select {
	case all := <-known:
		return all, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// settled forgets an attempt whose record is settled.
func (b *starter) settled(id string) {
	b.inbox.Post(func() { delete(b.runs.never, id) })
}

// newRun returns the run of a tick that is about to begin.
func (b *starter) newRun(claim string, of ready) run {
	r := run{Ready: of, Claim: claim, Run: uuid.NewString(), Owner: b.claims.Owner(), Instance: b.claims.Instance(), Began: b.now()}
	r.Epoch = max(of.Epoch, b.epoch.Load())
	return r
}

// startNow lets a tick begin that does not wait. The result is failed if nothing begins any more.
func (b *starter) startNow(ctx context.Context, j Job, first ready, of beginning, until time.Time) {
	b.inbox.Post(func() {
		if b.stopped {
			of.failed(ctx, ErrStopped)
			return
		}
		l := b.lanes.Of(tick.RunClaim(b.cfg.Group, j.Name, first.ID, !first.Parallel))
		b.launch(ctx, launch{beginning: of, lane: l, run: &active{job: j, run: b.newRun(l.Claim, first)}, until: until})
	})
}

// launch lets a tick begin. This is the one way in which ticks do.
func (b *starter) launch(ctx context.Context, t launch) {
	b.lanes.Lift(t.lane)
	t.lane.Busy++
	b.busy++
	b.tries++
	b.runs.add(t.run)
	b.limits.take(t.slots)
	b.wg.Add(1)
	go func() {
		begun, never, again := b.attempt(ctx, t)
		b.inbox.Post(func() { b.tried(t, begun, never, again) })
		b.wg.Done()
	}()
}

// attempt claims a run, and reports whether it began. If it did not, its record may be there:
// never. It reports whether to try again later.
func (b *starter) attempt(ctx context.Context, t launch) (begun, never, again bool) {
	if t.waits != nil {
		if !b.turn(ctx, t) {
			return false, false, false
		}
		defer func() { <-b.slots }()
	}
	if t.until.IsZero() {
		t.until = clock.Mono().Add(readTime)
	}
	r, value := t.run.run, tick.Encode(t.run.run)
	cmps, ops, _ := txn.Operations(t.request(r, value))
	// A stop does not cut this short: a process that knows of its begin can give the
	// tick back.
	within, cancel := context.WithDeadline(context.WithoutCancel(ctx), t.until)
	defer cancel()
	_, concerns := b.keys.SlotsOf(r)
	cl, err := b.claims.TryAcquire(within, r.Claim,
		option.OwnKey{}, option.Concern{Names: append(concerns, b.keys.Concern(r.Job, r.ID, r.Parallel))},
		etcdclaims.If(cmps...), etcdclaims.Then(ops...))
	if err != nil {
		// The claim may have been taken although the reply was lost. Then it is given up
		// in the background, and the record of a run stays whose handler was never called.
		return false, !errors.Is(err, etcdclaims.ErrHeld), t.failed(ctx, err)
	}
	b.outage.Succeed(starting)
	b.epoch.Store(keyspace.Epoch(cl.Fence()))
	is := r.At(cl.Revision())
	b.view.PutRun(b.keys.Run(r.Job, r.ID), value, is, cl.Revision())
	b.hasSlots(r, cl.Revision())
	t.begun(is, value, cl.Revision())
	t.run.begins(b.handlers, b.cfg.Group, *is, value, cl)
	if t.run.job.tooLate(is.Ready, b.now()) {
		t.run.cancel(context.DeadlineExceeded) // so the tick is given back, and the owner drops it
	}
	return true, false, false
}

// tried takes over what became of an attempt.
func (b *starter) tried(t launch, begun, never, again bool) {
	b.tries--
	b.limits.taken(t.slots)
	if begun {
		t.lane.Try, t.lane.Ahead = 0, nil
		b.runs.begin(t.run)
		go b.carryOut(t.run, t.lane)
		return
	}
	b.runs.remove(t.run, never)
	if again {
		t.lane.At, t.lane.Rests = clock.Mono().Add(retry.Delay(t.lane.Try)), false
		t.lane.Try++
	}
	b.ended(t.lane)
}

// ended lets the next tick of a lane begin.
func (b *starter) ended(l *lanes.Lane) {
	l.Busy--
	b.busy--
	b.lanes.Place(l)
}

// carryOut runs what has begun, and lets the next tick of its lane begin.
func (b *starter) carryOut(a *active, l *lanes.Lane) {
	go b.execute(a)
	select {
	case <-a.done:
	case <-a.claim.Done(): // the lane is free although the handler may not have returned
		if !b.view.Get(b.keys.Run(a.job.Name, a.run.ID)).Gone {
			signal(b.rescan)
		}
	}
	b.inbox.Post(func() { b.ended(l) })
}

// tooLate reports whether a tick may not begin any more.
func (j Job) tooLate(r ready, now time.Time) bool {
	return j.rules.TooLate(r.Nominal, now) && !tick.IsManual(r.ID)
}

// turn waits for a slot, and reports whether the tick still waits and is not too late. With
// Spread, processes with more runs let the others go first.
func (b *starter) turn(ctx context.Context, t launch) bool {
	if b.cfg.Spread {
		others := min(time.Duration(b.running.Load())*time.Millisecond, 50*time.Millisecond)
		select {
		case <-time.After(others + rand.N(3*time.Millisecond)):
		case <-ctx.Done():
			return false
		}
	}
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	w := t.waits
	if is := b.view.Get(w.Key); is.Gone || is.Rev != w.Rev || t.run.job.tooLate(w.Ready, b.now()) || !b.stillFree(t.slots) {
		<-b.slots
		return false
	}
	return true
}

// watchClaims watches the claims of the group until ctx ends, while this process is the owner.
func (b *starter) watchClaims(ctx context.Context) {
	const watching = "watch claims"
	for try := 0; ctx.Err() == nil; try++ {
		for ev, err := range b.claims.Watch(ctx, "sched/"+b.cfg.Group+"/") {
			if err != nil {
				b.outage.Fail(watching, err, zap.String("key", "sched/"+b.cfg.Group+"/"))
				break
			}
			b.outage.Succeed(watching)
			b.heard(ev)
		}
		retry.Pause(ctx, try+5)
	}
}

// heard handles an event about a claim of the group.
func (b *starter) heard(ev etcdclaims.Event) {
	switch ev.Kind {
	case etcdclaims.Resynced:
		signal(b.rescan)
		b.retry(nil, true)
	case etcdclaims.Freed:
		b.retry([]string{ev.Info.Key}, false)
		if b.view.BegunUnder(ev.Info.Key, ev.Info.Revision()) {
			signal(b.rescan)
		}
	}
}
