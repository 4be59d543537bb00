package etcdclaims

import (
	"context"
	"sync"

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
func (a attached) Await(what string) (done func()) { return a.c.calls.await(what) }

// Explain names the outage that an error comes from.
func (a attached) Explain(err error) error { return a.c.outage.explain(a.c, err) }

// OnClose lists what Close ends.
func (a attached) OnClose(end func(ctx context.Context)) (forget func()) {
	return a.c.dependents.add(end)
}

// dependents are what is built on a client and has not ended yet. No other mutex is taken
// while its own is held.
type dependents struct {
	mu     sync.Mutex
	ends   []*dependent // the newest is the last
	closed bool         // all have been ended; what is added now ends at once
}

type dependent struct{ end func(ctx context.Context) }

func (d *dependents) add(end func(ctx context.Context)) (forget func()) {
	x := &dependent{end}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.ends = append(d.ends, x)
	}
	d.mu.Unlock()
	if closed {
		over, cancel := context.WithCancel(context.Background())
		cancel() // Close has no time left for it
		end(over)
	}
	return func() { d.remove(x) }
}

func (d *dependents) remove(x *dependent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.ends {
		if other == x {
			d.ends = append(d.ends[:i:i], d.ends[i+1:]...)
			return
		}
	}
}

// newest takes the newest dependent off the list. If the list is empty, newest closes it and
// returns nil.
func (d *dependents) newest() *dependent {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.ends) - 1
	if last < 0 {
		d.closed = true
		return nil
	}
	x := d.ends[last]
	d.ends = d.ends[:last:last]
	return x
}

// end ends all of them, the newest first: what was made later may use what was made before,
// and not the other way round. One by one may take long without etcd: once ctx has ended, none
// waits for another.
func (d *dependents) end(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for x := d.newest(); x != nil; x = d.newest() {
		ended := make(chan struct{})
		wg.Go(func() {
			defer close(ended)
			x.end(ctx)
		})
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}
