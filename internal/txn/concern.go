package txn

import "context"

type concernKey struct{}

// Concerning returns a context in which a caller names what its conditions and operations
// concern. Transactions without a name in common may share a round trip: etcd evaluates the
// conditions of all before it carries out any, so there must be an order in which it could
// carry out one after the other with the same result. The names mean nothing to etcd.
func Concerning(ctx context.Context, names ...string) context.Context {
	return context.WithValue(ctx, concernKey{}, names)
}

// ConcernOf returns the names that a context was given by Concerning, nil if none: then a
// caller's conditions and operations may concern any key, and share with no other request.
func ConcernOf(ctx context.Context) []string {
	names, _ := ctx.Value(concernKey{}).([]string)
	return names
}
