package fencing_test

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTokenString(t *testing.T) {
	t.Parallel()
	for want, token := range map[string]fencing.Token{
		"@0":                        {},
		"orders/42@1234":            {Key: "orders/42", Fence: 1234},
		"a@b@7":                     {Key: "a@b", Fence: 7},
		"k@9223372036854775807":     {Key: "k", Fence: 1<<63 - 1},
		"negative@-1":               {Key: "negative", Fence: -1},
		"with space \"and\" quo@42": {Key: `with space "and" quo`, Fence: 42},
	} {
		if got := token.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTokenIsZero(t *testing.T) {
	t.Parallel()
	for token, want := range map[fencing.Token]bool{
		{}:                    true,
		{Key: "k"}:            true,
		{Fence: 1}:            false,
		{Key: "k", Fence: 1}:  false,
		{Key: "k", Fence: -1}: false,
	} {
		if got := token.IsZero(); got != want {
			t.Errorf("%v: %v", token, got)
		}
	}
}

func TestTokenInContext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if token, ok := fencing.FromContext(ctx); ok || token != (fencing.Token{}) {
		t.Errorf("%v, %v", token, ok)
	}
	one := fencing.Token{Key: "one", Fence: 1}
	outer := fencing.NewContext(ctx, one)
	two := fencing.Token{Key: "two", Fence: 2}
	inner, cancel := context.WithCancel(fencing.NewContext(outer, two))
	defer cancel()
	if token, ok := fencing.FromContext(outer); !ok || token != one {
		t.Errorf("%v, %v", token, ok)
	}
	if token, ok := fencing.FromContext(inner); !ok || token != two {
		t.Errorf("%v, %v", token, ok)
	}
	// A token without a fence is there, and says so.
	none := fencing.NewContext(ctx, fencing.Token{Key: "k"})
	if token, ok := fencing.FromContext(none); !ok || !token.IsZero() {
		t.Errorf("%v, %v", token, ok)
	}
}
