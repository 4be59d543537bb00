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
	Window  time.Duration `json:"window"`  // in which steps are counted, at least
}

// A Result is what came of it.
type Result struct {
	Rate    float64   `json:"rate"`              // steps a second
	P50     float64   `json:"p50"`               // of one step, in ms
	P99     float64   `json:"p99"`               // of one step, in ms
	Longest float64   `json:"longest"`           // step, in ms
	Counted []float64 `json:"counted,omitempty"` // what each counter counted, for each step
}

// grace is how long a measurement may take beside its window before it is given
// up: for warming up and for the last steps to end.
const grace = time.Minute

const (
	warming int32 = iota
	measuring
	ending
	over
)

// Run has the workers repeat step until the window is over, and each of them has
// begun one in it. A step counts if it begins in the window, and the workers go
// on until all of these have ended, so that neither beginning nor end is part of
// what is measured.
//
// The rate is the number of workers over the mean time of a step (Little's law).
// To count the ends of steps in a window would be wrong where a step takes about
// as long as that: those of thousands of workers come in waves.
//
// The counters are read when the window begins and when it ends.
func Run(ctx context.Context, s Shape, counters []func() int64, step func(ctx context.Context, who int) error) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.WarmUp+s.Window+grace,
		fmt.Errorf("%d workers did not end within %v", s.Workers, grace))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var phase atomic.Int32
	warm, begun, done := newTally(s.Workers), newTally(s.Workers), newTally(s.Workers)
	took := make([][]time.Duration, s.Workers)
	var workers sync.WaitGroup
	for who := range s.Workers {
		workers.Go(func() {
			last := warming
			for i := 0; ; i++ {
				now := phase.Load()
				if now >= ending && last < ending {
					done.add()
				}
				if now >= measuring && last < measuring {
					begun.add()
				}
				if last = now; now == over {
					return
				}
				began := time.Now()
				if err := step(ctx, who); err != nil {
					fail(err) // the first one says what was wrong, those after it that it was cancelled
					return
				}
				if now == measuring {
					took[who] = append(took[who], time.Since(began))
				}
				if i == 0 {
					warm.add()
				}
			}
		})
	}

	wait(ctx, s.WarmUp)
	warm.await(ctx)
	before := read(counters)
	began := time.Now()
	phase.Store(measuring)
	wait(ctx, s.Window)
	begun.await(ctx)
	phase.Store(ending)
	window := time.Since(began)
	after := read(counters)
	done.await(ctx)
	phase.Store(over)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}

	all := slices.Concat(took...) // one of each worker at least
	slices.Sort(all)
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	rate := float64(s.Workers) * float64(len(all)) / sum.Seconds()
	counted := make([]float64, len(counters))
	for i := range counters {
		counted[i] = float64(after[i]-before[i]) / (rate * window.Seconds())
	}
	return Result{
		Rate:    rate,
		P50:     ms(all[len(all)/2]),
		P99:     ms(all[len(all)*99/100]),
		Longest: ms(all[len(all)-1]),
		Counted: counted,
	}, nil
}

// A tally waits until all workers have come so far.
type tally struct {
	left atomic.Int32
	all  chan struct{}
}

func newTally(workers int) *tally {
	t := &tally{all: make(chan struct{})}
	t.left.Store(int32(workers))
	return t
}

func (t *tally) add() {
	if t.left.Add(-1) == 0 {
		close(t.all)
	}
}

func (t *tally) await(ctx context.Context) {
	select {
	case <-t.all:
	case <-ctx.Done():
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func read(counters []func() int64) []int64 {
	values := make([]int64, len(counters))
	for i, counter := range counters {
		values[i] = counter()
	}
	return values
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
