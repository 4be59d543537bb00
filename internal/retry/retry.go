// Package retry is how this module tries again what failed for a reason that may pass.
// Its contract:
//
//   - The caller bounds it: by ctx, and where something else can end the wait, by a
//     channel. The package counts no tries and has no timeout.
//   - The wait before the next try is random, from 1 ms to a limit (full jitter): clients
//     that failed together do not come back together. The limit is 20 ms after the first
//     try, doubles with each further one, and is 1 s from the seventh on.
//   - The caller decides which errors end it, because only the caller knows whether a
//     request may be sent twice. An unknown outcome is never repeated blindly: either the
//     request changes nothing when it is carried out again, or the caller first finds out
//     what became of it.
//   - The error of the last try is returned, joined with the cause of the end of ctx.
//   - It logs nothing. If a caller waits for the result, the error is its answer. A loop
//     in the background logs the first failure of a row, with the key, and not the others.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

const (
	shortest = 20 * time.Millisecond
	longest  = time.Second
)

// Delay returns how long to wait after a try, which is counted from 0.
func Delay(try int) time.Duration {
	return time.Millisecond + rand.N(min(shortest<<min(max(try, 0), 6), longest))
}

// Pause waits after a try, which is counted from 0. It returns false, with the wait cut
// short, if ctx ended first.
func Pause(ctx context.Context, try int) bool { return PauseUnless(ctx, nil, try) }

// PauseUnless is Pause that is also cut short by the end of a channel.
func PauseUnless(ctx context.Context, end <-chan struct{}, try int) bool {
	return wait(ctx, end, Delay(try))
}

// Sleep waits for a given time. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool { return wait(ctx, nil, d) }

func wait(ctx context.Context, end <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-end:
	}
	return false
}

// Do calls attempt until it returns no error, or one that again does not accept, or ctx
// ends. It calls attempt at least once.
func Do(ctx context.Context, again func(error) bool, attempt func() error) error {
	for try := 0; ; try++ {
		err := attempt()
		if err == nil || !again(err) {
			return err
		}
		if !Pause(ctx, try) {
			return txn.WithCause(ctx, err)
		}
	}
}

// Forever calls step until ctx ends, with a pause after each call. A step that got
// anywhere, such as a watch that delivered something before it broke, is followed by the
// shortest pause.
func Forever(ctx context.Context, step func() (progress bool)) {
	for try := 0; ctx.Err() == nil; try++ {
		if step() {
			try = 0
		}
		if !Pause(ctx, try) {
			return
		}
	}
}
