package etcdclaims

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
)

// run is a handler that runs under a claim.
type run struct {
	c    *Client
	t    *term.Term
	stop context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer // fires if the handler has not stopped in time
	returned bool        // the handler returned
	late     bool        // it is a zombie
	once     sync.Once
	done     chan struct{} // closed when the handler has returned, or is a zombie
}

// runs are the handlers of a client that run.
type runs struct {
	zombies, overdue atomic.Int64

	mu  sync.Mutex // only that of Life is taken while it is held
	set map[*run]struct{}
}

// add adds a handler. It reports false if the client is being closed.
func (rs *runs) add(r *run, l *life.Life) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.set == nil {
		rs.set = make(map[*run]struct{})
	}
	rs.set[r] = struct{}{}
	return !l.Closed()
}

func (rs *runs) remove(r *run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.set, r)
}

func (rs *runs) all() []*run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Keys(rs.set))
}

// Run does what TryRun does, but waits in line while the key is held, as
// Acquire does. If the key is not acquired the error is that of Acquire.
func (c *Client) Run(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	if fn == nil {
		return callError("run", key, errNilFunc)
	}
	cl, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// TryRun acquires the key if it is free, calls fn, and releases the key when
// fn has returned. If the key is not acquired, fn is not called and the error
// is that of TryAcquire.
//
// The context of fn carries the values of ctx and the token of the claim. It
// ends when ctx ends, when the claim is about to expire or is lost, and when the
// client is closed. With MaxHold it ends one drain (Config.Drain) before that time.
// fn then has one drain to return.
//
// A handler that does not return within its drain is a zombie. Its key is
// moved to a new term without an owner. The key stays held until the lease of
// that term lapses, and writes under the old fence are refused. Hooks.Zombie
// is called. TryRun still returns only when fn has returned.
//
// The error is that of fn. It is joined with a *LostError if the claim was
// lost before fn returned. In that case fn may have overlapped with another
// owner, unless its effects were fenced.
//
// A panic in fn, or runtime.Goexit, also releases the key and then continues.
//
// The release takes milliseconds, or a sixth of Config.TTL (1 s to 5 s) if etcd does not answer. A
// key that is not released by then is released in the background.
func (c *Client) TryRun(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	if fn == nil {
		return callError("run", key, errNilFunc)
	}
	cl, err := c.TryAcquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// Run calls fn while the claim is held and releases the claim when fn has
// returned, as TryRun does with the claim that it acquires. Use it when fn
// needs the claim itself, for example for [Claim.Txn]. Call it once.
func (cl *Claim) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if cl.owner != nil {
		return cl.owner.Run(ctx, fn)
	}
	if fn == nil {
		return callError("run", cl.key, errNilFunc)
	}
	return cl.run(ctx, fn, cl.releaseAfter)
}

// run calls fn and then end. end gives the claim up, and returns an error if fn must
// not count as successful.
func (cl *Claim) run(ctx context.Context, fn func(context.Context) error, end func(far beside.Far, err error) error) (err error) {
	if cl.t == nil {
		ctx, cancel := cl.Bind(ctx)
		defer cancel()
		if ctx.Err() != nil {
			return txn.ContextError(ctx)
		}
		return fn(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	ctx, unbind := cl.Bind(ctx)
	r := &run{c: cl.c, t: cl.t, stop: stop, done: make(chan struct{})}
	if !cl.c.runs.add(r, cl.c.life) {
		stop(ErrClosed)
	}
	forget := context.AfterFunc(ctx, func() { r.drain(context.Cause(ctx)) })
	far := beside.NotCalled
	defer func() {
		// Also after a panic or Goexit, which then continue.
		forget()
		r.finish()
		defer r.forget() // Close waits for the release, too
		unbind()
		stop(nil)
		lost := cl.t.Err()
		if eerr := end(far, err); lost == nil || errors.Is(lost, ErrReleased) {
			lost = eerr // found by the end itself
		}
		if lost != nil && !errors.Is(err, lost) {
			err = bothErrors(err, lost)
		}
	}()
	if err := cl.Check(); err != nil {
		return cl.afterRelease("run", err)
	}
	if ctx.Err() != nil {
		return txn.ContextError(ctx)
	}
	far = beside.Called
	err = fn(ctx)
	far = beside.Returned
	return err
}

// releaseAfter releases a claim whose handler has returned. Its time is the
// client's own: the caller's context may be over.
func (cl *Claim) releaseAfter(beside.Far, error) error {
	ctx, cancel := context.WithTimeout(cl.c.life.IO, cl.c.store.Timeout())
	defer cancel()
	return ignoreUnknown(cl.Release(ctx))
}

// drain gives the handler its time to return.
func (r *run) drain(why error) {
	if r.t.Put != nil && errors.Is(why, ErrReleased) {
		return // the handler has ended its work, and may return when it likes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned || r.timer != nil {
		return
	}
	drain := r.t.Session().Grant().Drain()
	r.timer = time.AfterFunc(drain, func() { r.overdue(why, drain) })
}

// overdue deals with a handler that did not return within its drain.
func (r *run) overdue(why error, drain time.Duration) {
	r.mu.Lock()
	if r.returned || r.late {
		r.mu.Unlock()
		return
	}
	r.late = true
	r.c.runs.overdue.Add(1) // before finish can take it back
	lost := outlived(why)
	begun := r.t.BeginZombie(lost) // else it was lost before, and others may have it, or it is being given up
	r.mu.Unlock()
	if begun {
		r.t.Zombie(lost)
	}
	r.c.runs.zombies.Add(1)
	r.c.events.zombie(r.t, why, drain, r.c.uptime()-r.t.Holding.Since)
	r.forget()
}

// outlived returns how a claim is lost whose handler was stopped for that reason and did not return.
func outlived(why error) claimerr.Loss {
	var lost *LostError
	if errors.As(why, &lost) {
		return claimerr.Loss{Reason: claimerr.Reason(lost.Reason), Err: lost.Err}
	}
	if errors.Is(why, ErrClosed) {
		return claimerr.Loss{Reason: claimerr.Shutdown, Err: why}
	}
	return claimerr.Loss{Reason: claimerr.Outlived, Err: why} // its caller's context ended
}

// forget ends the waiting for the handler.
func (r *run) forget() {
	r.c.runs.remove(r)
	r.once.Do(func() { close(r.done) })
}

func (r *run) finish() {
	r.mu.Lock()
	r.returned = true
	if r.timer != nil {
		r.timer.Stop()
	}
	late := r.late
	r.mu.Unlock()
	if late {
		r.c.runs.overdue.Add(-1)
	}
}

// ignoreUnknown is for the release after a handler: whether that is known changes nothing for the
// caller.
func ignoreUnknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

var errNilFunc = errors.New("the function is nil")
