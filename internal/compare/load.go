package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcdclaims/claims/internal/retry"
)

// A shape says how much load is made, and for how long.
type shape struct {
	workers int           // that repeat the step, each one after the other
	warmUp  time.Duration // before the window, at least; each worker makes a step in it
	window  time.Duration // in which steps are counted, at least
}

// driven repeats a step under load.
type driven struct {
	shape shape
	each  int          // what is counted of one step, if that is not 1
	sent  func() int64 // requests to etcd so far
	step  func(ctx context.Context, who int) error
	shut  func()
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

// measure has the workers repeat step until the window is over, and each of them has
// begun one in it. A step counts if it begins in the window, and the workers go
// on until all of these have ended, so that neither beginning nor end is part of
// what is measured.
//
// The rate is the number of workers over the mean time of a step (Little's law). To count the
// ends of steps would be wrong where a step takes as long as the window: they come in waves.
//
// sent is read when the window begins and ends.
func (d *driven) measure(ctx context.Context) (sample, error) {
	s := d.shape
	ctx, cancel := context.WithTimeoutCause(ctx, s.warmUp+s.window+grace,
		fmt.Errorf("%d workers did not end within %v", s.workers, grace))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var phase, warm, begun, done atomic.Int32
	took := make([][]time.Duration, s.workers)
	var workers sync.WaitGroup
	for who := range s.workers {
		workers.Go(func() {
			last := warming
			for i := 0; ; i++ {
				now := phase.Load()
				if now >= ending && last < ending {
					done.Add(1)
				}
				if now >= measuring && last < measuring {
					begun.Add(1)
				}
				if last = now; now == over {
					return
				}
				began := time.Now()
				if err := d.step(ctx, who); err != nil {
					fail(err) // the first one says what was wrong, those after it that it was cancelled
					return
				}
				if now == measuring {
					took[who] = append(took[who], time.Since(began))
				}
				if i == 0 {
					warm.Add(1)
				}
			}
		})
	}

	retry.Sleep(ctx, s.warmUp)
	await(ctx, &warm, s.workers)
	before := d.sent()
	began := time.Now()
	phase.Store(measuring)
	retry.Sleep(ctx, s.window)
	await(ctx, &begun, s.workers)
	phase.Store(ending)
	window := time.Since(began)
	sent := d.sent() - before
	await(ctx, &done, s.workers)
	phase.Store(over)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}

	all := slices.Concat(took...) // one of each worker at least
	slices.Sort(all)
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	steps := float64(s.workers) * float64(len(all)) / sum.Seconds()
	each := float64(max(d.each, 1))
	return sample{
		rate:     steps * each,
		p50:      ms(all[len(all)/2]),
		p99:      ms(all[len(all)*99/100]),
		longest:  ms(all[len(all)-1]),
		requests: float64(sent) / (steps * window.Seconds()) / each,
	}, nil
}

// await returns when all workers have come so far, or the context ends.
func await(ctx context.Context, come *atomic.Int32, workers int) {
	for come.Load() < int32(workers) && retry.Sleep(ctx, time.Millisecond) {
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// drive measures what is opened for that.
func drive(open func(ctx context.Context, st *stage, n int) (*driven, error)) measurer {
	return func(ctx context.Context, st *stage, n int) (sample, error) {
		d, err := open(ctx, st, n)
		if err != nil {
			return nil, err
		}
		defer d.shut()
		return d.measure(ctx)
	}
}

// none is how many requests to etcd somebody else's client has sent.
func none() int64 { return 0 }

// shape is the load that n workers make.
func (st *stage) shape(n int) shape {
	window := st.window
	if n >= 1024 {
		window *= 2 // a cycle of each takes about as long as the window of fewer
	}
	return shape{workers: n, warmUp: st.warmUp, window: window}
}

// lineShape has a longer window the longer the line is: each waiter should get to its head.
func (st *stage) lineShape(n int) shape {
	s := st.shape(n)
	s.window *= time.Duration(1 + n/128)
	return s
}

// each calls do for 0 to n-1, so many at once, and returns the first error.
func each(atOnce, n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}
