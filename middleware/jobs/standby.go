package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// errOvertaken ends the wait for an answer of etcd about a tick.
var errOvertaken = errors.New("no answer before the next tick was due")

// waiting is a tick about which etcd has not answered.
type waiting struct {
	nominal time.Time
	giveUp  context.CancelCauseFunc
}

// claim runs fn as the work of a tick. With StandBy, it waits as long as another
// process runs the tick. If it is unknown whether another process runs the tick,
// it waits until the next tick is due. So during an outage one tick waits, and
// not all that have come due.
func (t *Ticks) claim(ctx context.Context, tick Tick, fn func(context.Context) ([]byte, error)) (first bool, err error) {
	key, called := tick.Key(), false
	first, err = t.try(ctx, key, func(ctx context.Context) ([]byte, error) { called = true; return fn(ctx) })
	switch {
	case t.line == nil, err == nil, called:
		return first, err
	case isHeld(err):
		return t.stand(ctx, key, fn)
	}
	// In line, only missing answers are waited for: other errors are returned again.
	within, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	w := &waiting{nominal: tick.Nominal, giveUp: giveUp}
	if !t.await(w) {
		return false, fmt.Errorf("%w: %w", errOvertaken, err)
	}
	defer t.leave(w)
	first, err = t.stand(within, key, func(ctx context.Context) ([]byte, error) {
		if !t.leave(w) {
			return nil, onceMore{}
		}
		return fn(ctx)
	})
	if err == nil || !errors.Is(context.Cause(within), errOvertaken) {
		return first, err
	}
	// If another process runs the tick by now, wait for it after all.
	_, again := t.try(ctx, key, func(context.Context) ([]byte, error) { return nil, onceMore{} })
	switch {
	case again == nil: // another process has run it
		return false, nil
	case isHeld(again):
		return t.stand(ctx, key, fn)
	}
	return false, fmt.Errorf("%w: %w", errOvertaken, err)
}

// standAgain is how long a process waits after it lost its place in line.
const standAgain = time.Second

// stand runs fn as the work of the key, in line. A process loses its place in
// line if an outage lasts longer than its lease; stand then joins the line again.
func (t *Ticks) stand(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (first bool, err error) {
	for called := false; ; {
		first, err = t.line(ctx, key, func(ctx context.Context) ([]byte, error) { called = true; return fn(ctx) })
		if called || !errors.Is(err, fencing.ErrLost) {
			return first, err
		}
		timer := time.NewTimer(standAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, err
		case <-timer.C:
		}
	}
}

// await registers a tick that waits for an answer. It returns false if a later
// tick was due already.
func (t *Ticks) await(w *waiting) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken.After(w.nominal) {
		return false
	}
	t.waiting[w] = struct{}{}
	return true
}

// leave unregisters a tick, and reports whether it was still waiting.
func (t *Ticks) leave(w *waiting) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.waiting[w]
	delete(t.waiting, w)
	return waits
}

// overtake ends the wait of earlier ticks. The caller holds t.mu.
func (t *Ticks) overtake(nominal time.Time) {
	for w := range t.waiting {
		if w.nominal.Before(nominal) {
			delete(t.waiting, w)
			w.giveUp(errOvertaken)
		}
	}
}
