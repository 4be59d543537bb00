// Package attach is how the packages of this module that are built on a client reach what the
// client keeps for them: its logger, its report of outages, and its end. Package etcdclaims
// provides that. It is no API for users, so no method for it is exported.
package attach

import (
	"context"
	"errors"
)

// ErrClosed is what etcdclaims.ErrClosed matches, for packages that do not import that one.
var ErrClosed = errors.New("client closed")

// Client is what a client keeps for packages that are built on it.
type Client interface {
	// Warn logs an event at the level warn, with pairs of a field's name and its text. It is for
	// packages that link no logger. It reports whether there is a log.
	Warn(event string, err error, fields ...string) bool
	// Await notes that a call waits for etcd until done is called. The report of an outage
	// names what the call is for, such as a key.
	Await(what string) (done func())
	// Explain adds to an error of a request, if etcd answers no other request either, the endpoints
	// and why there is no connection.
	Explain(err error) error
	// OnClose has Client.Close call end, until forget is called. Close calls the newest first,
	// as if each were deferred, and ends its claims after that. ctx is that of Close. When ctx has
	// ended, Close calls them side by side. After Close, OnClose itself calls end, with a context
	// that has ended.
	OnClose(end func(ctx context.Context)) (forget func())
}

var of func(claims any) Client

// Provide sets how Of finds what a client keeps. It is called once, before main.
func Provide(f func(claims any) Client) { of = f }

// Of returns what a client keeps. For anything but a *etcdclaims.Client, which a caller may
// have wrapped, its methods do nothing.
func Of(claims any) Client {
	if of != nil {
		if c := of(claims); c != nil {
			return c
		}
	}
	return none{}
}

// Logger returns the logger of a client, or what without returns if it has none. L is
// *zap.Logger, which this package does not link.
func Logger[L any](claims any, without func() L) L {
	if c, ok := Of(claims).(interface{ Logger() L }); ok {
		return c.Logger()
	}
	return without()
}

type none struct{}

func (none) Warn(string, error, ...string) bool   { return false }
func (none) Await(string) func()                  { return func() {} }
func (none) Explain(err error) error              { return err }
func (none) OnClose(func(context.Context)) func() { return func() {} }
