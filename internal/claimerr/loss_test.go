package claimerr

import (
	"errors"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// Each reason has a name of its own. What is no reason has none.
func TestReasonNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Reason{"": 0, "unknown reason": 0}
	for r := Expired; int(r) < Reasons; r++ {
		if other, ok := seen[r.String()]; ok {
			t.Errorf("reasons %d and %d are both %q", other, r, r)
		}
		seen[r.String()] = r
	}
	for _, r := range []Reason{-1, 0, Reason(Reasons)} {
		if r.String() != "unknown reason" {
			t.Errorf("%d is %q", r, r)
		}
	}
}

// lostError is what a client makes of a loss.
type lostError struct {
	error
	fence int64
}

// Without a provider the error says what is known. A provider makes and reads the errors.
func TestLoss(t *testing.T) {
	token, loss := fencing.Token{Key: "k", Fence: 7}, Loss{Reason: Revoked}
	if err := loss.Of(token); !errors.Is(err, ErrLost) || err.Error() != `etcdclaims: claim lost: "k" (fence 7): lease revoked` {
		t.Error(err)
	}
	if WasAttempt(loss.Of(fencing.Token{Key: "k"})) {
		t.Error("read by no provider")
	}
	before := provider
	defer Provide(before)
	Provide(Provider{
		Of: func(token fencing.Token, l Loss) error { return lostError{l.Err, token.Fence} },
		Fence: func(err error) (int64, bool) {
			var lost lostError
			ok := errors.As(err, &lost)
			return lost.fence, ok
		},
	})
	cause := errors.New("cause")
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"attempt", Loss{Err: cause}.Of(fencing.Token{Key: "k"}), true},
		{"claim", Loss{Err: cause}.Of(token), false},
		{"no loss", cause, false},
	} {
		if got := WasAttempt(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
