package fencing

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxKeyBytes is the maximum length of a key, in bytes. keyspace.MaxKeyBytes is the same.
const maxKeyBytes = 1024

// Token identifies one term of ownership: a key, and the fence of its owner. Each
// exclusive owner of a key has a greater fence than every owner before it. Owners that
// share a key have the same fence. Fences of different keys cannot be compared. A key has
// 1 to 1,024 bytes of UTF-8 without control characters.
//
// Fence 0 means "no fence". Passthrough claims have it. It is never sent, and
// every gate refuses it.
type Token struct {
	Key   string
	Fence int64
}

// IsZero reports whether the fence is 0.
func (t Token) IsZero() bool { return t.Fence == 0 }

// Validate returns nil if a gate can judge the token. The fence must be at least
// 1. The key must have 1 to 1,024 bytes of UTF-8 without control characters.
//
// The error matches ErrNoToken for fence 0, and ErrMalformed otherwise. Gates
// call Validate first.
func (t Token) Validate() error {
	switch {
	case t.Fence == 0:
		return fmt.Errorf("%w: the token for key %.40q has fence 0, as claims without etcd have", ErrNoToken, t.Key)
	case t.Fence < 0:
		return malformed("fence %d is below 1", t.Fence)
	case t.Key == "":
		return malformed("its key is empty")
	case len(t.Key) > maxKeyBytes:
		return malformed("its key %.40q… has %d bytes, the limit is %d", t.Key, len(t.Key), maxKeyBytes)
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

// FromContext returns the token that ctx carries. ok is false if ctx carries no token.
func FromContext(ctx context.Context) (t Token, ok bool) {
	t, ok = ctx.Value(contextKey{}).(Token)
	return t, ok
}
