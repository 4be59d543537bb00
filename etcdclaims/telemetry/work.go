package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"go.opentelemetry.io/otel/metric"
)

const (
	defaultWorkInterval = time.Minute
	// countFor is how long one count may take.
	countFor = 30 * time.Second
)

// workStates are the states of work that is counted. Done work is not: there can be much of
// it, and it needs no attention.
var workStates = []work.State{
	work.StateFree, work.StateClaimed, work.StateOrphaned, work.StateFailed, work.StateDead, work.StateUnreadable,
}

// WatchWork observes how much of the work whose keys begin with prefix is free, claimed,
// orphaned, failed, dead or unreadable. The name is an attribute of the counts; give
// different prefixes different names. All processes see the same counts, so one process is
// enough; where several watch, take the maximum.
//
// When gauges are collected, and the last count began longer ago than every, it counts anew.
// Zero means a minute. A count reads all records below the prefix, page by page,
// also those of done work. etcd needs more time for each page the more records follow, so
// reading 50,000 takes half a second, and 200,000 ten. A collection waits for at most two
// seconds, and then observes the counts before. A count that takes more than half a minute,
// or fails, is given up: nothing is observed then, and the error goes to OpenTelemetry's
// error handler. Call stop when the work is not to be watched any more.
func (t *Telemetry) WatchWork(name string, claims *etcdclaims.Client, prefix string, every time.Duration) (stop func()) {
	if every <= 0 {
		every = defaultWorkInterval
	}
	works, _ := work.New(claims, work.Config{}) // nil refuses every call
	w := &watchedWork{name: name, works: works, prefix: prefix, every: every}
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	forget := track(t, t.works, w, true)
	return func() {
		forget()
		cancel()
		w.counting.Wait()
	}
}

// watchedWork is work that is counted by its states.
type watchedWork struct {
	name   string
	works  *work.Runner
	prefix string
	every  time.Duration
	ctx    context.Context // until it is not watched any more

	counting sync.WaitGroup
	mu       sync.Mutex
	begun    time.Time     // the last count
	done     chan struct{} // of that
	counts   map[work.State]int
	err      error // of the last count that has ended
}

// count begins to count, unless the last count is recent or still runs.
func (w *watchedWork) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil || w.ctx.Err() != nil || !w.begun.IsZero() && time.Since(w.begun) < w.every {
		return
	}
	w.begun, w.done = time.Now(), make(chan struct{})
	w.counting.Go(func() {
		counts, err := w.read()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.counts, w.err = counts, err
		close(w.done)
		w.done = nil
	})
}

func (w *watchedWork) read() (map[work.State]int, error) {
	ctx, cancel := context.WithTimeout(w.ctx, countFor)
	defer cancel()
	n := make(map[work.State]int)
	for r, err := range w.works.Records(ctx, w.prefix, workStates...) {
		if err != nil {
			return nil, fmt.Errorf("telemetry: count the work %q: %w", w.name, err)
		}
		n[r.State]++
	}
	return n, nil
}

// latest returns the last counts, or nil if there are none. It waits for a count that
// still runs, until ctx ends.
func (w *watchedWork) latest(ctx context.Context) (map[work.State]int, error) {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts, w.err
}

// countWork begins to count the watched work, and returns it.
func (t *Telemetry) countWork() []*watchedWork {
	t.mu.Lock()
	works := slices.Collect(maps.Keys(t.works))
	t.mu.Unlock()
	for _, w := range works {
		w.count()
	}
	return works
}

// collectWork observes work that is being counted.
func (t *Telemetry) collectWork(ctx context.Context, works []*watchedWork, o metric.Observer) error {
	var errs []error
	for _, w := range works {
		counts, err := w.latest(ctx)
		if errs = append(errs, err); counts == nil {
			continue
		}
		for _, state := range workStates {
			o.ObserveInt64(t.work, int64(counts[state]), t.options.of(series{}.with(keyWork, w.name).with(keyWorkState, string(state))).observe...)
		}
	}
	return errors.Join(errs...)
}
