package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// backOff waits with full jitter before the next try; it returns false, with
// the wait cut short, if ctx or any of the channels ended first.
func backOff(ctx context.Context, try int, ends ...<-chan struct{}) bool {
	limit := min(20*time.Millisecond<<min(try, 6), time.Second)
	t := time.NewTimer(time.Millisecond + rand.N(limit))
	defer t.Stop()
	waits := make([]reflect.SelectCase, 0, 2+len(ends))
	waits = append(waits,
		reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(t.C)},
		reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())})
	for _, end := range ends {
		waits = append(waits, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(end)})
	}
	first, _, _ := reflect.Select(waits)
	return first == 0
}

// isPassing reports whether what failed, of a kind that changes nothing, may
// succeed when it is tried again.
func isPassing(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrRewound) {
		return false
	}
	if txn.IsTransient(err) || errors.Is(err, ErrUnknown) || errors.Is(err, errSessionLost) {
		return true
	}
	switch wire.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Aborted:
		return true
	case codes.Unknown: // of etcd, not of something else that has no code
		_, ok := status.FromError(err)
		return ok
	}
	return false
}

// unanswered returns the cause of the end of a context in which etcd was waited for.
func unanswered(ctx context.Context) error {
	err := wire.ContextError(ctx)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("etcd has not answered: %w", err)
}
