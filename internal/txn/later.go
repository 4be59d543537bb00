package txn

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lag is how long a request waits at most for another one to share its round trip; see Later.
const Lag = 20 * time.Millisecond

// mostDelayed is how many requests wait so.
const mostDelayed = FullBatch / 2

// ErrDropped is the outcome of a delayed request that was not sent, and will not be.
var ErrDropped = errors.New("etcdclaims: the request is not needed any more")

// delays are the requests that wait for another one to share its round trip. The mutex of the Batcher guards it.
type delays struct {
	waiting []*call
	open    map[string]*call // by key: those without an outcome, sent or not
	opened  atomic.Int32     // how many that are, which may be read without the mutex
	timer   *time.Timer      // ends the wait, nil until there was one
}

// Delayed is a request that no caller waits for; see Later.
type Delayed struct {
	b *Batcher
	c *call
}

// Later has a request with a key sent together with the next one, after Lag at the latest. A request for the same key
// that comes after it is sent when it has its outcome. There is one for a key at a time.
func (b *Batcher) Later(r Request) *Delayed {
	r.Urgent = true
	c := newCall(b.cfg.IO, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &b.delays
	if d.open == nil {
		d.open = make(map[string]*call)
	}
	d.open[c.Key], d.waiting = c, append(d.waiting, c)
	d.count()
	switch {
	case len(d.waiting) >= mostDelayed:
		b.hurry()
		b.launch()
	case len(d.waiting) > 1 || b.cfg.IO.Err() != nil:
	case d.timer == nil:
		d.timer = time.AfterFunc(Lag, b.Hurry)
	default:
		d.timer.Reset(Lag)
	}
	return &Delayed{b, c}
}

// Await returns the outcome of the request, as Do does.
func (d *Delayed) Await() (*clientv3.TxnResponse, error) { return d.b.await(d.c) }

// Hold keeps the request back until Resume or Drop is called, while another one may make it needless. It returns false if
// the request may have been sent, or is held.
func (d *Delayed) Hold() bool {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	all := &d.b.delays
	i := slices.Index(all.waiting, d.c)
	if i < 0 {
		return false
	}
	all.waiting = slices.Delete(all.waiting, i, i+1)
	all.rest()
	delete(all.open, d.c.Key) // the other request is for that key
	all.count()
	return true
}

// Resume sends a request that was held. Those for its key that come after it are sent when it has its outcome.
func (d *Delayed) Resume() {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.b.delays.open[d.c.Key] == nil {
		d.b.delays.open[d.c.Key] = d.c
		d.b.delays.count()
	}
	d.b.urgent = append(d.b.urgent, d.c)
	d.b.launch()
}

// Drop ends a request that was held: its outcome is ErrDropped.
func (d *Delayed) Drop() { fail([]*call{d.c}, ErrDropped) }

// Hurry sends the delayed requests.
func (b *Batcher) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hurry()
	b.launch()
}

// hurry makes the delayed requests wait no longer than others; b.mu is held.
func (b *Batcher) hurry() {
	if len(b.delays.waiting) > 0 {
		b.urgent = append(b.urgent, b.delays.waiting...)
		b.delays.waiting = nil
		b.delays.rest()
	}
}

// rest stops the timer if nothing waits.
func (d *delays) rest() {
	if len(d.waiting) == 0 && d.timer != nil {
		d.timer.Stop()
	}
}

// settled forgets those of the calls that have their outcome.
func (d *delays) settled(calls []*call) {
	if len(d.open) == 0 {
		return
	}
	for _, c := range calls {
		if d.open[c.Key] == c && c.isSettled() {
			delete(d.open, c.Key)
		}
	}
	d.count()
}

func (d *delays) count() { d.opened.Store(int32(len(d.open))) }

// before returns a delayed request, without an outcome, for a key that a later request concerns; or nil.
func (d *delays) before(r *Request) *call {
	if len(d.open) == 0 {
		return nil
	}
	of := func(key string) *call {
		if c := d.open[key]; c != nil && c.In != r.In && !c.isSettled() {
			return c
		}
		return nil
	}
	if c := of(r.Key); c != nil {
		return c
	}
	for _, key := range r.Also {
		if c := of(key); c != nil {
			return c
		}
	}
	return nil
}

// afterDelayed waits until a request may be sent that waits in no queue. It returns why it may not.
func (b *Batcher) afterDelayed(ctx context.Context, r *Request) error {
	for b.delays.opened.Load() > 0 {
		b.mu.Lock()
		c := b.delays.before(r)
		if c == nil {
			b.mu.Unlock()
			return nil
		}
		b.hurry()
		b.launch()
		b.mu.Unlock()
		select {
		case <-c.settled:
		case <-b.cfg.IO.Done():
			return ContextError(b.cfg.IO)
		case <-ctx.Done():
			return ContextError(ctx)
		}
	}
	return nil
}
