package etcdclaims_test

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// claimed is what became of an Acquire on a goroutine of its own.
type claimed struct {
	cl  *etcdclaims.Claim
	err error
	at  time.Time
}

func acquiring(ctx context.Context, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) <-chan claimed {
	done := make(chan claimed, 1)
	go func() {
		cl, err := c.Acquire(ctx, key, opts...)
		done <- claimed{cl, err, time.Now()}
	}()
	return done
}

// within returns the claim of an Acquire, which it may take so long for.
func (w *world) within(d time.Duration, done <-chan claimed) *etcdclaims.Claim {
	w.Helper()
	select {
	case r := <-done:
		if r.err != nil {
			w.Fatalf("acquiring: %v; etcd has %v", r.err, w.All())
		}
		return r.cl
	case <-time.After(d):
		w.Fatalf("not acquired within %v; etcd has %v", d, w.All())
		return nil
	}
}

// places counts those in line, for whatever key.
func (w *world) places() int {
	w.Helper()
	return w.Count("wait/")
}

// notices counts the notices of hand-overs that are kept.
func (w *world) notices() int {
	w.Helper()
	return w.Count("/won/")
}
