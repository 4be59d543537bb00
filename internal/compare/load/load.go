// Package load makes the load under which claims and their peers are compared,
// and measures what came of it. The program that compares and the one that
// drives other people's clients share it, so that both measure alike.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Shape says how much load is made, and for how long.
type Shape struct {
	Workers int           `json:"workers"` // that repeat the step, each one after the other
	WarmUp  time.Duration `json:"warmUp"`  // before the window, at least; each worker makes a step in it
	Window  time.Duration `json:"window"`  // in which steps are counted
}

// A Result is what came of it.
type Result struct {
	Rate    float64 `json:"rate"`    // steps a second
	P50     float64 `json:"p50"`     // of one step, in ms
	P99     float64 `json:"p99"`     // of one step, in ms
	Longest float64 `json:"longest"` // step, in ms
	Counted float64 `json:"counted"` // what count counted, for each step
}

// grace is how long a measurement may take beside its window before it is given
// up: for warming up and for the last steps to end.
const grace = time.Minute

const (
	warming int32 = iota
	measuring
	over
)

// Run has the workers repeat step until the window is over. A step counts if it
// ends in the window: the workers are under way before it and after it, so that
// neither beginning nor end is part of what is measured.
//
// If count is not nil, it is read when the window begins and when it ends.
func Run(ctx context.Context, s Shape, count func() int64, step func(ctx context.Context, who int) error) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.WarmUp+s.Window+grace,
		fmt.Errorf("%d workers did not end within %v", s.Workers, grace))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var phase, warm atomic.Int32
	warmed := make(chan struct{})
	took := make([][]time.Duration, s.Workers)
	var workers sync.WaitGroup
	for who := range s.Workers {
		workers.Go(func() {
			for i := 0; phase.Load() != over; i++ {
				began := time.Now()
				if err := step(ctx, who); err != nil {
					fail(err) // the first one says what was wrong, those after it that it was cancelled
					return
				}
				if phase.Load() == measuring {
					took[who] = append(took[who], time.Since(began))
				}
				if i == 0 && int(warm.Add(1)) == s.Workers {
					close(warmed)
				}
			}
		})
	}

	wait(ctx, s.WarmUp)
	select {
	case <-warmed:
	case <-ctx.Done():
	}
	before := read(count)
	began := time.Now()
	phase.Store(measuring)
	wait(ctx, s.Window)
	phase.Store(over)
	window := time.Since(began)
	counted := read(count) - before
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}

	all := slices.Concat(took...)
	if len(all) == 0 {
		return Result{}, fmt.Errorf("none of %d workers finished a step within %v", s.Workers, window)
	}
	slices.Sort(all)
	return Result{
		Rate:    float64(len(all)) / window.Seconds(),
		P50:     ms(all[len(all)/2]),
		P99:     ms(all[len(all)*99/100]),
		Longest: ms(all[len(all)-1]),
		Counted: float64(counted) / float64(len(all)),
	}, nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func read(count func() int64) int64 {
	if count == nil {
		return 0
	}
	return count()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
