package etcdclaims

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Callers that wait for work want to know how it ends: most of a crowd never begin it. If
// each learned that when its turn in line comes, the last would wait for all others. So
// those of one client take turns in line, and share a watch of the record and what is read
// of it. An outcome costs one event and one read a client, however many wait.
//
// Events are hints. What answers a caller was read after the caller came: a record from
// before may have been forgotten since.

// outcomes are those of work that callers of a client wait for. No other mutex is taken
// while its own is held.
type outcomes struct {
	mu    sync.Mutex
	byKey map[string]*outcome
}

// outcome is that of one piece of work, for as long as callers wait for it.
type outcome struct {
	seekers map[*workPlan]*seeker
	turns   []*seeker        // the first is in line, or on its way there; the others wait for their turn
	own     *mvccpb.KeyValue // the claim that the one in line has found
	watched bool             // the record is watched, or soon will be
	reading bool             // a read of the record is under way
	again   bool             // and another is due
	over    context.Context  // ends when no caller waits any more
	stop    context.CancelFunc
}

// seeker is a caller that waits for work.
type seeker struct {
	plan *workPlan
	turn chan struct{} // closed when it may join the line
	news chan struct{} // holds one element when there is a record

	// Guarded by the mutex of outcomes:
	record *mvccpb.KeyValue // that ends its waiting, or nil
	wake   func()           // makes the call look again, once it is in line
}

// seek lists a caller that waits for work, until leave is called.
func (c *Client) seek(w *workPlan) *seeker {
	s := &seeker{plan: w, turn: make(chan struct{}), news: make(chan struct{}, 1)}
	c.outcomes.mu.Lock()
	defer c.outcomes.mu.Unlock()
	o := c.outcomes.byKey[w.key]
	if o == nil {
		o = &outcome{seekers: make(map[*workPlan]*seeker)}
		o.over, o.stop = context.WithCancel(c.open)
		c.outcomes.byKey[w.key] = o
	}
	o.seekers[w] = s
	if w.call.OutOfTurn {
		close(s.turn) // it may pass others
	} else if o.turns = append(o.turns, s); len(o.turns) == 1 {
		close(s.turn)
	}
	return s
}

// leave ends what Turn began.
func (c *Client) leave(w *workPlan) {
	if w.seeker == nil {
		return
	}
	c.outcomes.mu.Lock()
	defer c.outcomes.mu.Unlock()
	o := c.outcomes.byKey[w.key]
	if i := slices.Index(o.turns, w.seeker); i >= 0 {
		if o.turns = slices.Delete(o.turns, i, i+1); i == 0 && len(o.turns) > 0 {
			close(o.turns[0].turn)
		}
	}
	if delete(o.seekers, w); len(o.seekers) == 0 {
		o.stop()
		delete(c.outcomes.byKey, w.key)
	}
}

// spawnOpen is spawn while the client is open.
func (c *Client) spawnOpen(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.spawn(f)
	}
}

// Turn waits until the call may join the line. An error means that its waiting is over.
func (w *workPlan) Turn(ctx context.Context, waits func()) error {
	c := w.c
	w.seeker = c.seek(w)
	select {
	case <-w.seeker.turn:
		return nil
	default:
	}
	waits()
	for {
		select {
		case <-w.seeker.turn:
			return nil
		case <-w.seeker.news:
			if c.outcomes.tell(w); w.prev != nil {
				if err := w.refusal(w.prev, c.clock.Time()); err != nil {
					return verdictOf(err)
				}
			}
		case <-ctx.Done():
			return c.waitedInTurn(ctx, w.key, c.outcomes.found(w.key, nil))
		}
	}
}

// waitedInTurn is waited for a call that is not in line yet.
func (c *Client) waitedInTurn(ctx context.Context, key string, own *mvccpb.KeyValue) error {
	cause := wire.ContextError(ctx)
	if errors.Is(cause, ErrClosed) {
		return cause
	}
	var holder Info
	if own != nil {
		holder = c.info(key, own, nil, 0)
	}
	return &WaitError{Key: key, Info: holder, Err: c.outage.explain(c, cause), own: c.isOwn(holder)}
}

// InLine notes that the call is in line. From now on an outcome wakes it.
func (w *workPlan) InLine(wake func()) {
	c := w.c
	c.outcomes.mu.Lock()
	o := c.outcomes.byKey[w.key]
	if o == nil || o.seekers[w] == nil {
		c.outcomes.mu.Unlock()
		return
	}
	o.seekers[w].wake = wake
	watched := o.watched
	o.watched = true
	c.outcomes.mu.Unlock()
	if !watched {
		c.spawnOpen(func() { c.watchOutcome(w.key, o) })
	}
}

// Saw notes the claim that the call has found.
func (w *workPlan) Saw(own *mvccpb.KeyValue) { w.c.outcomes.found(w.key, own) }

// found notes the claim that a caller in line has found, if not nil, and returns the last
// one.
func (os *outcomes) found(key string, own *mvccpb.KeyValue) *mvccpb.KeyValue {
	os.mu.Lock()
	defer os.mu.Unlock()
	o := os.byKey[key]
	if o == nil {
		return nil
	}
	if own != nil {
		o.own = own
	}
	return o.own
}

// tell lets the plan of a caller know the record that was read for it, if there is one.
func (os *outcomes) tell(w *workPlan) bool {
	os.mu.Lock()
	var kv *mvccpb.KeyValue
	if o := os.byKey[w.key]; o != nil && o.seekers[w] != nil {
		s := o.seekers[w]
		kv, s.record = s.record, nil
	}
	os.mu.Unlock()
	return kv != nil && w.Changed(kv)
}

// isOutcome reports whether an error is the outcome of work.
func isOutcome(err error) bool {
	var known *WorkError
	return errors.As(err, &known)
}

// ends returns those of the callers whose waiting the record ends.
func (c *Client) ends(key string, kv *mvccpb.KeyValue, of []*seeker) (all []*seeker) {
	if kv == nil {
		return nil
	}
	r, err := decodeRecord(key, kv)
	if err != nil {
		return nil // deleted, or unreadable
	}
	now := c.clock.Time()
	for _, s := range of {
		if s.plan.refusal(&r, now) != nil {
			all = append(all, s)
		}
	}
	return all
}

// readOutcome reads the record, in the background, for all callers that wait for it now.
func (c *Client) readOutcome(key string) {
	c.outcomes.mu.Lock()
	o := c.outcomes.byKey[key]
	reads := o != nil && !o.reading
	if o != nil {
		o.again, o.reading = o.reading, true
	}
	c.outcomes.mu.Unlock()
	if reads {
		c.spawnOpen(func() {
			for c.readOnce(key, o) {
				continue
			}
		})
	}
}

// readOnce reports whether another read is due.
func (c *Client) readOnce(key string, o *outcome) bool {
	c.outcomes.mu.Lock()
	asking := slices.Collect(maps.Values(o.seekers))
	o.again = false
	c.outcomes.mu.Unlock()
	var answered []*seeker
	resp, err := c.read(o.over, clientv3.OpGet(c.store.layout.Work(key)))
	if err == nil {
		answered = c.ends(key, firstKV(resp, 0), asking)
	}
	c.outcomes.mu.Lock()
	defer c.outcomes.mu.Unlock()
	for _, s := range answered {
		s.record = firstKV(resp, 0)
		if s.wake != nil {
			s.wake()
		}
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
	o.reading = o.again && wire.ContextError(o.over) == nil
	return o.reading
}

// watchOutcome watches the record until no caller waits any more.
func (c *Client) watchOutcome(key string, o *outcome) {
	if !retry.Sleep(o.over, patience(true)) {
		return // most waiting is over soon
	}
	for try := 0; ; try++ {
		if c.followRecord(key, o) {
			try = 0
		}
		if !retry.Pause(o.over, try) {
			return
		}
	}
}

// followRecord reads the record as soon as a watch has begun, and whenever that brings an
// outcome. It returns when the watch ends, and reports whether there were events.
func (c *Client) followRecord(key string, o *outcome) (heard bool) {
	select {
	case c.watches.creations <- struct{}{}:
	case <-o.over.Done():
		return false
	}
	news, stop, _ := c.beginWatch(o.over, c.store.layout.Work(key))
	<-c.watches.creations
	defer stop()
	c.readOutcome(key)
	for resp := range news {
		if resp.Err() != nil {
			break
		}
		for _, ev := range resp.Events {
			heard = true
			c.outcomes.mu.Lock()
			asking := slices.Collect(maps.Values(o.seekers))
			c.outcomes.mu.Unlock()
			if len(c.ends(key, ev.Kv, asking)) > 0 {
				c.readOutcome(key)
			}
		}
	}
	return heard
}

// waiting is how many callers wait for their turn.
func (os *outcomes) waiting() (n int) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for _, o := range os.byKey {
		n += max(0, len(o.turns)-1)
	}
	return n
}
