package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.opentelemetry.io/otel/metric"
)

// DefaultWorkInterval is how old the counts of work may be that WatchWork observes.
const DefaultWorkInterval = time.Minute

// workStates are the states of work that is counted. Done work is not: there can be much of
// it, and it needs nobody.
var workStates = []etcdclaims.State{
	etcdclaims.StateClaimed, etcdclaims.StateOrphaned, etcdclaims.StateFailed, etcdclaims.StateDead, etcdclaims.StateUnreadable,
}

// WatchWork observes how much of the work whose keys begin with prefix is claimed, orphaned,
// failed, dead or unreadable. The name is an attribute of the counts; give different
// prefixes different names. All processes see the same counts, so one process is enough;
// where several watch, take the maximum.
//
// When gauges are collected, and the last counts are older than every, it reads all records
// below the prefix, page by page, with those of done work. Zero means DefaultWorkInterval.
// A collection waits at most two seconds. If etcd does not answer in that time, nothing is
// observed, and the error goes to OpenTelemetry's error handler. Call stop when the work is
// not to be watched any more.
func (t *Telemetry) WatchWork(name string, claims *etcdclaims.Client, prefix string, every time.Duration) (stop func()) {
	if every <= 0 {
		every = DefaultWorkInterval
	}
	count := func(ctx context.Context) (map[etcdclaims.State]int, error) {
		n := make(map[etcdclaims.State]int)
		for r, err := range claims.Records(ctx, prefix, workStates...) {
			if err != nil {
				return nil, err
			}
			n[r.State]++
		}
		return n, nil
	}
	return track(t, t.works, &watchedWork{name: name, every: every, ask: count}, true)
}

// watchedWork is work that is counted by its states.
type watchedWork = watched[map[etcdclaims.State]int]

// collectWork observes the work that is watched.
func (t *Telemetry) collectWork(ctx, budget context.Context, o metric.Observer) error {
	t.mu.Lock()
	works := slices.Collect(maps.Keys(t.works))
	t.mu.Unlock()
	var errs []error
	for i, a := range askAll(ctx, budget, works) {
		if a.err != nil {
			errs = append(errs, fmt.Errorf("telemetry: count the work %q: %w", works[i].name, a.err))
			continue
		}
		for _, state := range workStates {
			o.ObserveInt64(t.work, int64(a.is[state]), t.options.of(series{}.with(keyWork, works[i].name).with(keyWorkState, string(state))).observe...)
		}
	}
	return errors.Join(errs...)
}
