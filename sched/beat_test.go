package sched_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// beat is a scheduler of the kind that has a pluggable backend of locks, such as
// those of Celery and celers: of all replicas the one with the leader's lock
// fires what is due, each firing under a lock of its own. That one is not
// released: it has to outlive the job, since a replica whose clock is behind has
// yet to try it.
type beat struct {
	locks    locks.Locks
	owner    string
	now      func() time.Time
	job      string
	schedule calendar.Schedule
	fire     func(nominal time.Time, fence int64)
	every    time.Duration // it looks what is due
	wrong    bool          // without a leader, under a lock of the job that is released

	last time.Time // up to here it has tried
}

const (
	leaderTTL = 15 * time.Second
	firingTTL = 300 * time.Second
	// What a new leader looks back: of what is older the locks may have ended.
	beatWindow = firingTTL / 2
)

func (b *beat) run(ctx context.Context) {
	b.last = b.now()
	for ; ctx.Err() == nil; sleep(ctx, b.every) {
		if !b.wrong {
			_, ok, err := b.locks.TryAcquire(ctx, "beat/leader", b.owner, leaderTTL)
			if err != nil || !ok {
				continue // whoever does not know is not the leader
			}
		}
		now := b.now()
		from := b.last
		if oldest := now.Add(-beatWindow); from.Before(oldest) {
			from = oldest
		}
		for nominal := range calendar.Between(b.schedule, from, now) {
			key := fmt.Sprintf("beat/%s@%s", b.job, nominal.Format(time.RFC3339))
			if b.wrong {
				key = "beat/" + b.job
			}
			fence, ok, err := b.locks.TryAcquire(ctx, key, b.owner, firingTTL)
			if err != nil {
				break // whether it is ours is asked again
			}
			if ok {
				b.fire(nominal, fence)
			}
			b.last = nominal
			if b.wrong && ok {
				_, _ = b.locks.Release(ctx, key, b.owner)
			}
		}
	}
	_, _ = b.locks.ReleaseAll(context.WithoutCancel(ctx), b.owner)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// firings records what beats fire.
type firings struct {
	mu   sync.Mutex
	dead map[string]bool
	all  []time.Time
	last int64
	fall bool // of fences
}

func (l *firings) fire(by string) func(time.Time, int64) {
	return func(nominal time.Time, fence int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.dead[by] {
			return
		}
		l.all = append(l.all, nominal)
		l.fall = l.fall || fence <= l.last
		l.last = fence
	}
}

func (l *firings) times() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *firings) fell() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fall
}

func (l *firings) kill(by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead[by] = true
}

// TestBeat runs a beat of three replicas on Locks and the same job with a
// Scheduler beside it, while the leader of the one and the owner of the other are
// killed.
func TestBeat(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		minutes := calendar.Must(calendar.Every(time.Minute, 0))
		f.do(sched.Job{Name: "job", Schedule: minutes}, 5*time.Millisecond)
		fired := &firings{dead: make(map[string]bool)}
		ctx, cancel := context.WithCancel(t.Context())
		var beats sync.WaitGroup
		f.Cleanup(beats.Wait)
		f.Cleanup(cancel)
		time.Sleep(10 * time.Second) // now it is the same minute by all clocks
		began := time.Now()
		for _, skew := range []time.Duration{0, 30 * time.Millisecond, -400 * time.Millisecond} {
			n := f.start(skew)
			b := &beat{
				locks: locks.New(n.claims), owner: n.name, job: "job", schedule: minutes, fire: fired.fire(n.name),
				now: func() time.Time { return time.Now().Add(skew).UTC() }, every: time.Second,
			}
			beats.Go(func() { b.run(ctx) })
		}
		time.Sleep(3*time.Minute + 45*time.Second)
		// It would fire at the next full minute, when its lock has not ended yet.
		leader, _, err := locks.New(f.nodes[0].claims).Owner(ctx, "beat/leader")
		if err != nil {
			t.Fatal(err)
		}
		owner := f.owner()
		for _, n := range f.nodes {
			if n.name == leader || n == owner {
				fired.kill(n.name)
				n.kill()
			}
		}
		time.Sleep(6*time.Minute + 20*time.Second)

		want := slices.Collect(calendar.Between(minutes, began, time.Now().Add(-time.Second)))
		if got := fired.times(); !slices.Equal(got, want) {
			t.Errorf("the beat fired at %v, want %v", got, want)
		}
		if fired.fell() {
			t.Error("the fences of firings do not rise")
		}
		f.ledger.once(t)
		if got := len(f.ledger.all("job")); got != len(want) {
			t.Errorf("the scheduler ran %d ticks, want %d", got, len(want))
		}
		if now, _, err := locks.New(f.nodes[0].claims).Owner(ctx, "beat/leader"); err == nil && now == leader {
			t.Errorf("%s leads still, which was killed", now)
		}
	})
}

// TestBeatReleasing shows why the lock of a firing is not released, and is not
// one per job: a perfect lock around the job lets each replica fire.
func TestBeatReleasing(t *testing.T) {
	testetcd.SkipUnlessLong(t, "polls each 10 ms, and shows only how such a lock fails")
	inFleet(t, func(t *testing.T, f *fleet) {
		fired := &firings{dead: make(map[string]bool)}
		ctx, cancel := context.WithCancel(t.Context())
		var beats sync.WaitGroup
		f.Cleanup(beats.Wait)
		f.Cleanup(cancel)
		for i, skew := range []time.Duration{0, 30 * time.Millisecond, 60 * time.Millisecond} {
			n := f.start(skew)
			b := &beat{
				locks: locks.New(n.claims), owner: fmt.Sprint("beat", i), job: "job", schedule: calendar.Must(calendar.Every(time.Second, 0)),
				now: func() time.Time { return time.Now().Add(skew).UTC() },
				fire: func(nominal time.Time, fence int64) {
					fired.fire("")(nominal, fence)
					time.Sleep(5 * time.Millisecond) // the job
				},
				every: 10 * time.Millisecond, wrong: true,
			}
			beats.Go(func() { b.run(ctx) })
		}
		time.Sleep(time.Duration(1+someOf(8))*time.Second + 500*time.Millisecond)
		all, ticks := fired.times(), make(map[time.Time]bool)
		for _, nominal := range all {
			ticks[nominal] = true
		}
		// The last tick is perhaps not over.
		if got, want := len(all), 3*(len(ticks)-1); got < want {
			t.Errorf("%d ticks made %d firings, want %d: if they are fewer now, the documentation says what is not so", len(ticks), got, want)
		}
	})
}
