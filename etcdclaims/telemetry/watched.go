package telemetry

import (
	"context"
	"sync"
	"time"
)

// askBudget is how long a collection waits for the answers to all that is watched.
const askBudget = 2 * time.Second

// watched is something that etcd is asked about when gauges are collected.
type watched[S any] struct {
	name  string
	every time.Duration
	ask   func(ctx context.Context) (S, error)

	mu    sync.Mutex // held while etcd is asked, so that two collections share an answer
	asked time.Time
	last  answer[S]
}

// answer is what etcd said.
type answer[S any] struct {
	is  S
	err error
}

// answer returns an answer that is not older than w.every. budget is derived from the
// collection's ctx.
func (w *watched[S]) answer(ctx, budget context.Context) (a answer[S]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !w.asked.IsZero() && now.Sub(w.asked) < w.every {
		return w.last
	}
	if a.err = budget.Err(); a.err != nil {
		return a // it went by while another collection asked
	}
	a.is, a.err = w.ask(budget)
	if a.err != nil && ctx.Err() != nil {
		return a // the collection has ended: this says nothing of etcd
	}
	w.last, w.asked = a, now
	return a
}

// askAll returns the answers to all, which are asked for at the same time.
func askAll[S any](ctx, budget context.Context, all []*watched[S]) []answer[S] {
	answers := make([]answer[S], len(all))
	var asking sync.WaitGroup
	for i, w := range all {
		asking.Go(func() { answers[i] = w.answer(ctx, budget) })
	}
	asking.Wait()
	return answers
}
