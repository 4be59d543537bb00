package fencing

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the length of the longest key.
const MaxKeyBytes = 1024

// Token names one term of ownership: a key, and the fence of the owner. Fences
// of one key rise over every change of ownership; fences of different keys do
// not compare.
//
// Fence 0 stands for "no fence": passthrough claims carry it, it is never sent,
// and every gate refuses it.
type Token struct {
	Key   string
	Fence int64
}

// IsZero reports whether the token carries no fence.
func (t Token) IsZero() bool { return t.Fence == 0 }

// Validate returns nil for a token that a gate may judge: with a fence of 1 or
// more, and a key of 1 to MaxKeyBytes bytes of UTF-8 without control characters.
// For fence 0 the error matches ErrNoToken, else ErrMalformed. Gates call it
// first.
func (t Token) Validate() error {
	switch {
	case t.Fence == 0:
		return fmt.Errorf("%w: the one for key %.40q has fence 0, as claims made without etcd have", ErrNoToken, t.Key)
	case t.Fence < 0:
		return malformed("fence %d is below 1", t.Fence)
	case t.Key == "":
		return malformed("its key is empty")
	case len(t.Key) > MaxKeyBytes:
		return malformed("its key %.40q… has %d bytes, the limit is %d", t.Key, len(t.Key), MaxKeyBytes)
	case !utf8.ValidString(t.Key), strings.ContainsFunc(t.Key, unicode.IsControl):
		return malformed("its key %.80q is not UTF-8 without control characters", t.Key)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

type contextKey struct{}

// NewContext returns a context that carries the token.
func NewContext(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// FromContext returns the token that ctx carries; ok is false where there is
// none.
func FromContext(ctx context.Context) (t Token, ok bool) {
	t, ok = ctx.Value(contextKey{}).(Token)
	return t, ok
}
