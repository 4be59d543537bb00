package sched

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/wire"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// outage reduces the failures of many requests to two log lines: one when etcd becomes
// unreachable, and one when it is reachable again.
type outage struct {
	log *zap.Logger

	mu      sync.Mutex
	since   time.Time            // when the outage began; zero if there is none
	granted map[string]bool      // the operations that have succeeded before
	refused map[string]time.Time // since when operations have been denied
}

// deniedFor is how long etcd can deny an operation that it permitted before, as while
// an operator changes roles, until the error is final.
const deniedFor = 5 * time.Second

// denied notes that etcd denied an operation, and reports whether that is final.
func (o *outage) denied(what string, err error, fields ...zap.Field) bool {
	o.mu.Lock()
	since, again := o.refused[what]
	if !again {
		since = time.Now()
		if o.refused == nil {
			o.refused = make(map[string]time.Time)
		}
		o.refused[what] = since
	}
	final := !o.granted[what] || time.Since(since) >= deniedFor
	o.mu.Unlock()
	if !again || final {
		o.log.Error("etcd denies permission", append(fields, zap.String("operation", what), zap.Error(err))...)
	}
	return final
}

// permitted notes that an operation succeeded.
func (o *outage) permitted(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.granted == nil {
		o.granted = make(map[string]bool)
	}
	o.granted[what] = true
	delete(o.refused, what)
}

// fail notes that a request failed. The fields name its keys.
func (o *outage) fail(what string, err error, fields ...zap.Field) {
	if errors.Is(err, context.Canceled) {
		return
	}
	fields = append(fields, zap.String("operation", what), zap.Error(err))
	if isTooLarge(err) || isRefusal(err) {
		o.log.Warn("request refused; retrying", fields...)
		return
	}
	o.mu.Lock()
	first := o.since.IsZero()
	if first {
		o.since = time.Now()
	}
	o.mu.Unlock()
	if first {
		o.log.Warn("etcd unreachable; no tick is admitted and no run begins until it is back", fields...)
		return
	}
	o.log.Debug("request failed; retrying", fields...)
}

// over notes that a request succeeded that needs a quorum, which ends an outage.
func (o *outage) over() {
	o.mu.Lock()
	since := o.since
	o.since = time.Time{}
	o.mu.Unlock()
	if !since.IsZero() {
		o.log.Info("etcd reachable again", zap.Duration("after", time.Since(since)))
	}
}

// isDenied reports whether etcd refused a request because of a missing permission.
func isDenied(err error) bool { return errors.Is(err, etcdclaims.ErrPermissionDenied) }

// denial adds etcdclaims.ErrPermissionDenied to an error of a request that this
// package sends itself, as the requests of a claim have it.
func denial(err error) error {
	if err == nil || isDenied(err) {
		return err
	}
	switch wire.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", etcdclaims.ErrPermissionDenied, err)
	}
	return err
}

// backoff returns how long to wait before the next try, which is counted from 0. It
// grows with each try up to a second, with jitter.
func backoff(try int) time.Duration {
	most := min(50*time.Millisecond<<min(max(try, 0), patience), time.Second)
	return most/2 + rand.N(most/2)
}

// pauseFor waits before the next try.
func pauseFor(ctx context.Context, try int) {
	t := time.NewTimer(backoff(try))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
