package work

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
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

// patience is how long a caller waits in line before the record is watched.
const patience = 200 * time.Millisecond

// outcomes are those of work that callers of a client wait for. No other mutex is taken
// while its own is held.
type outcomes struct {
	mu    sync.Mutex
	byKey map[string]*outcome
}

// outcome is that of one piece of work, for as long as callers wait for it.
type outcome struct {
	seekers map[*plan]*seeker
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
	plan *plan
	turn chan struct{} // closed when it may join the line
	news chan struct{} // holds one element when there is a record

	// Guarded by the mutex of outcomes:
	record *mvccpb.KeyValue // that ends its waiting, or nil
	wake   func()           // makes the call look again, once it is in line
}

// seek lists a caller that waits for work, until leave is called.
func (c *Runner) seek(w *plan) *seeker {
	s := &seeker{plan: w, turn: make(chan struct{}), news: make(chan struct{}, 1)}
	c.outcomes.mu.Lock()
	defer c.outcomes.mu.Unlock()
	o := c.outcomes.byKey[w.key]
	if o == nil {
		o = &outcome{seekers: make(map[*plan]*seeker)}
		o.over, o.stop = context.WithCancel(c.host.Open())
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
func (os *outcomes) leave(w *plan) {
	if w.seeker == nil {
		return
	}
	os.mu.Lock()
	defer os.mu.Unlock()
	o := os.byKey[w.key]
	if i := slices.Index(o.turns, w.seeker); i >= 0 {
		if o.turns = slices.Delete(o.turns, i, i+1); i == 0 && len(o.turns) > 0 {
			close(o.turns[0].turn)
		}
	}
	if delete(o.seekers, w); len(o.seekers) == 0 {
		o.stop()
		delete(os.byKey, w.key)
	}
}

// Turn waits until the call may join the line. An error means that its waiting is over.
func (w *plan) Turn(ctx context.Context, waits func()) error {
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
				if w.prev.isOver(c.host.Clock().Time(), w.opts.again) {
					return &beside.Verdict{Err: &Error{Record: *w.prev}}
				}
			}
		case <-ctx.Done():
			return c.host.Waited(ctx, w.key, c.outcomes.found(w.key, nil))
		}
	}
}

// InLine notes that the call is in line. From now on an outcome wakes it.
func (w *plan) InLine(wake func()) {
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
		c.host.Go(func(context.Context) { c.watchOutcome(w.key, o) })
	}
}

// Saw notes the claim that the call has found.
func (w *plan) Saw(own *mvccpb.KeyValue) { w.c.outcomes.found(w.key, own) }

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
func (os *outcomes) tell(w *plan) bool {
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
	var known *Error
	return errors.As(err, &known)
}

// ends returns those of the callers whose waiting the record ends.
func (c *Runner) ends(key string, kv *mvccpb.KeyValue, of []*seeker) (all []*seeker) {
	if kv == nil {
		return nil
	}
	r, err := decodeRecord(key, kv)
	if err != nil {
		return nil // deleted, or unreadable
	}
	now := c.host.Clock().Time()
	for _, s := range of {
		if r.isOver(now, s.plan.opts.again) {
			all = append(all, s)
		}
	}
	return all
}

// readOutcome reads the record, in the background, for all callers that wait for it now.
func (c *Runner) readOutcome(key string) {
	c.outcomes.mu.Lock()
	o := c.outcomes.byKey[key]
	reads := o != nil && !o.reading
	if o != nil {
		o.again, o.reading = o.reading, true
	}
	c.outcomes.mu.Unlock()
	if reads {
		c.host.Go(func(context.Context) {
			for c.readOnce(key, o) {
				continue
			}
		})
	}
}

// readOnce reports whether another read is due.
func (c *Runner) readOnce(key string, o *outcome) bool {
	c.outcomes.mu.Lock()
	asking := slices.Collect(maps.Values(o.seekers))
	o.again = false
	c.outcomes.mu.Unlock()
	var answered []*seeker
	resp, err := c.host.Read(o.over, clientv3.OpGet(c.recordKey(key)))
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
	o.reading = o.again && txn.ContextError(o.over) == nil
	return o.reading
}

// watchOutcome watches the record until no caller waits any more.
func (c *Runner) watchOutcome(key string, o *outcome) {
	if !retry.Sleep(o.over, patience) {
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
func (c *Runner) followRecord(key string, o *outcome) (heard bool) {
	news, stop := c.host.Watch(o.over, c.recordKey(key))
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
