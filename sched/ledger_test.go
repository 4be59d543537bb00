package sched_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
)

// deed is one run of a handler.
type deed struct {
	sched.Tick
	By    string
	From  time.Time
	Until time.Time // zero while it goes on
	Err   error
	Token fencing.Token
}

func (d deed) String() string {
	return fmt.Sprintf("%s by %s at %s, attempt %d", d.ID(), d.By, d.From.Format(time.TimeOnly+".000"), d.Attempt)
}

// ledger records every run.
type ledger struct {
	mu    sync.Mutex
	deeds []*deed
	dead  map[string]bool
}

func (l *ledger) record(by string, h func(context.Context, sched.Tick) error) func(context.Context, sched.Tick) error {
	return func(ctx context.Context, tick sched.Tick) error {
		token, _ := fencing.FromContext(ctx)
		d := &deed{Tick: tick, By: by, From: time.Now(), Token: token}
		l.mu.Lock()
		if l.dead[by] {
			l.mu.Unlock()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		l.deeds = append(l.deeds, d)
		l.mu.Unlock()
		err := context.Canceled // unless it returns
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			d.Until, d.Err = time.Now(), err
		}()
		err = h(ctx, tick)
		return err
	}
}

func (l *ledger) mute(by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil {
		l.dead = make(map[string]bool)
	}
	l.dead[by] = true
}

func (l *ledger) muted(by string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead[by]
}

// all returns the runs of a job in the order in which they began.
func (l *ledger) all(job string) []deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []deed
	for _, d := range l.deeds {
		if job == "" || d.Job == job {
			out = append(out, *d)
		}
	}
	return out
}

// nominals returns the nominal times of a job's runs, as times of day.
func (l *ledger) nominals(job string) []string {
	var out []string
	for _, d := range l.all(job) {
		out = append(out, d.Nominal.Format("15:04:05"))
	}
	return out
}

// once fails the test if a tick was run twice: an attempt, that is.
func (l *ledger) once(t *testing.T) {
	t.Helper()
	seen := map[string]deed{}
	for _, d := range l.all("") {
		id := fmt.Sprint(d.ID(), " attempt ", d.Attempt)
		if first, twice := seen[id]; twice {
			t.Errorf("run twice: %v, and %v", first, d)
		}
		seen[id] = d
	}
}

// want fails the test unless exactly these ticks of the job were run, in this
// order.
func (l *ledger) want(t *testing.T, job string, want ...string) {
	t.Helper()
	l.once(t)
	if got := l.nominals(job); !slices.Equal(got, want) {
		t.Errorf("%s ran at %v, want %v", job, got, want)
	}
}
