package txn

import "context"

type concernKey struct{}

// Concerning returns a context in which a caller says what its conditions and operations
// concern: transactions without a name in common do not depend on each other, and may
// share a round trip. The names mean nothing to etcd.
func Concerning(ctx context.Context, names ...string) context.Context {
	return context.WithValue(ctx, concernKey{}, names)
}

// ConcernOf returns the names that a context was given by Concerning, nil if none: then a
// caller's conditions and operations may concern any key, and share with no other request.
func ConcernOf(ctx context.Context) []string {
	names, _ := ctx.Value(concernKey{}).([]string)
	return names
}
