package etcdclaims

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/term"
)

// run is a handler that runs under a claim.
type run struct {
	in   *runs
	t    *term.Term
	stop context.CancelCauseFunc

	mu       sync.Mutex  // guards timer, returned and late
	timer    *time.Timer // fires if the handler has not stopped in time
	returned bool        // the handler returned
	late     bool        // it is a zombie
	once     sync.Once
	done     chan struct{} // closed when the handler has returned, or is a zombie
}

// runs are the handlers of a client that run.
type runs struct {
	life     *life.Life
	outlived func(t *term.Term, why error, drain time.Duration) // reports one that did not stop in time

	zombies, overdue atomic.Int64

	mu  sync.Mutex // guards set; only that of Life is taken while it is held
	set map[*run]struct{}
}

// add adds a handler. It reports false if the client is being closed.
func (rs *runs) add(r *run) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.set == nil {
		rs.set = make(map[*run]struct{})
	}
	rs.set[r] = struct{}{}
	return !rs.life.Closed()
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
	r.in.overdue.Add(1) // before finish can take it back
	lost := outlived(why)
	begun := r.t.BeginZombie(lost) // else it was lost before, and others may have it, or it is being given up
	r.mu.Unlock()
	if begun {
		r.t.Zombie(lost)
	}
	r.in.zombies.Add(1)
	r.in.outlived(r.t, why, drain)
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
	r.in.remove(r)
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
		r.in.overdue.Add(-1)
	}
}
