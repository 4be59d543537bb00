package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/attach"
	"go.uber.org/zap"
)

// What is built on a client, such as a queue, reaches the following by package attach.

func init() {
	attach.Provide(func(claims any) attach.Client {
		if c, ok := claims.(*Client); ok && c != nil && c.log != nil {
			return attached{c}
		}
		return nil
	})
}

// attached is a client as package attach shows it.
type attached struct{ c *Client }

// Logger returns Config.Logger.
func (a attached) Logger() *zap.Logger { return a.c.log }

// Warn logs an event.
func (a attached) Warn(event string, err error, fields ...string) bool {
	all := make([]zap.Field, 0, len(fields)/2+1)
	for i := 0; i+1 < len(fields); i += 2 {
		all = append(all, zap.String(fields[i], fields[i+1]))
	}
	if err != nil {
		all = append(all, zap.Error(err))
	}
	line := a.c.log.Check(zap.WarnLevel, event)
	if line != nil {
		line.Write(all...)
	}
	return line != nil
}

// Await lists a call that waits.
func (a attached) Await(what string) (done func()) { return a.c.outage.Await(what) }

// Explain names the outage that an error comes from.
func (a attached) Explain(err error) error { return a.c.outage.Explain(err) }

// OnClose lists what Close ends.
func (a attached) OnClose(end func(ctx context.Context)) (forget func()) {
	return a.c.dependents.Add(end)
}
