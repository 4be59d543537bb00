// Package fencing has the token that travels with a request, so that whoever
// receives the request can refuse it once a newer owner exists.
//
// It imports the standard library only: a resource that checks tokens links
// neither etcd nor gRPC.
//
// A token proves nothing by itself. It is worth what the resource checks: a
// write that does not compare the fence is not protected by it (Kleppmann, "How
// to do distributed locking", 2016).
package fencing

import (
	"context"
	"strconv"
)

// Token names one term of ownership: a key, and the fence of the owner. Fences
// of one key rise over every change of ownership; fences of different keys do
// not compare.
//
// Fence 0 stands for "no fence": passthrough claims carry it, and a gate must
// refuse it.
type Token struct {
	Key   string
	Fence int64
}

// IsZero reports whether the token carries no fence.
func (t Token) IsZero() bool { return t.Fence == 0 }

// String returns the token for people and logs, as "key@fence".
func (t Token) String() string { return t.Key + "@" + strconv.FormatInt(t.Fence, 10) }

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
