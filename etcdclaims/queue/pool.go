package queue

import "context"

// handlers bounds how many handlers run at the same time.
type handlers interface {
	// acquire waits until some may run, and returns how many; 0 if ctx ends.
	acquire(ctx context.Context) (n int, err error)
	release(n int)
}

// pool is the handlers of one worker.
type pool struct {
	taken chan struct{} // one value for each that runs
	batch int           // that are acquired at once at most
}

func (p pool) acquire(ctx context.Context) (n int, err error) {
	select {
	case p.taken <- struct{}{}:
	case <-ctx.Done():
		return 0, nil
	}
	for n = 1; n < p.batch && len(p.taken) < cap(p.taken); n++ {
		p.taken <- struct{}{}
	}
	return n, nil
}

func (p pool) release(n int) {
	for range n {
		<-p.taken
	}
}
