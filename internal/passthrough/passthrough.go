// Package passthrough recognizes claims that do not come from a working client: those
// without etcd, which wrappers let through at no cost, and those of no client, which
// nothing may run under.
package passthrough

import "errors"

// ErrNoClient is etcdclaims.ErrNoClient, for packages that must not import etcdclaims.
var ErrNoClient = errors.New("etcdclaims: no client: New was not called, or it returned an error that was ignored; " +
	"NewPassthrough makes a client for development without etcd")

// ErrPassthrough is etcdclaims.ErrPassthrough, likewise.
var ErrPassthrough = errors.New("etcdclaims: needs etcd, and this client has none")

// Of reports whether claims let everything through.
func Of(claims any) bool {
	p, ok := claims.(interface{ Passthrough() bool })
	return ok && p.Passthrough()
}

// Check returns ErrNoClient if claims are nil, or of a client that New has not made. It does
// no I/O.
func Check(claims any) error {
	if claims == nil {
		return ErrNoClient
	}
	if c, ok := claims.(interface{ Unreachable() error }); ok && errors.Is(c.Unreachable(), ErrNoClient) {
		return ErrNoClient
	}
	return nil
}

// Refuse returns why claims cannot be used for what needs etcd, or nil. It does no I/O.
func Refuse(claims any) error {
	if Of(claims) {
		return ErrPassthrough
	}
	return Check(claims)
}
