package claimerr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestIsPassing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"session lost", ErrSession, true},
		{"outcome unknown", txn.ErrUnknown, true},
		{"no leader", rpctypes.ErrNoLeader, true},
		{"no answer", txn.ErrNoAnswer, true},
		{"unavailable", status.Error(codes.Unavailable, "away"), true},
		{"permission denied", rpctypes.ErrPermissionDenied, false},
		{"lease gone", rpctypes.ErrLeaseNotFound, false},
		{"caller gone", context.Canceled, false},
		{"of this process", errors.New("no disk"), false},
		{"client closed", ErrClosed, false},
		{"client closed while the outcome was unknown", txn.Unknown(ErrClosed), false},
		{"client closed while etcd was away", fmt.Errorf("%w (%w)", ErrClosed, rpctypes.ErrNoLeader), false},
		{"revision went back", store.ErrRewound, false},
		{"revision went back, as an unknown outcome", txn.Unknown(store.ErrRewound), false},
		{"session lost by a revision that went back", fmt.Errorf("%w: %w", ErrSession, store.ErrRewound), false},
	} {
		if got := IsPassing(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Packages that do not link this one match its errors by their namesakes.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	for own, other := range map[error]error{ErrHeld: fencing.ErrHeld, ErrLost: fencing.ErrLost, ErrClosed: attach.ErrClosed} {
		if !errors.Is(own, other) || errors.Is(other, own) {
			t.Errorf("%v: matches %v, and that this: %v, %v", own, other, errors.Is(own, other), errors.Is(other, own))
		}
	}
}
