package fencing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

func TestCheck(t *testing.T) {
	if err := fencing.Check(t.Context()); err != nil {
		t.Errorf("a context without claims: %v", err)
	}
	var outer, inner error
	asked := 0
	ctx := fencing.WithCheck(t.Context(), func() error { return outer })
	ctx = fencing.WithCheck(ctx, func() error { asked++; return inner })
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := fencing.Check(ctx); err != nil {
		t.Errorf("an ended context of claims that are held: %v", err)
	}
	inner = errors.New("inner")
	if err := fencing.Check(ctx); !errors.Is(err, inner) {
		t.Errorf("got %v, want the inner claim's error", err)
	}
	asked, outer = 0, errors.New("outer")
	if err := fencing.Check(ctx); !errors.Is(err, outer) || asked != 0 {
		t.Errorf("got %v after asking the inner %d times, want the outer claim's error", err, asked)
	}
}
