package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each is the keys of a call that acquires each of them independently of the others.
type Each struct {
	Keys   []string
	Call   *Call
	Hooked func(i int) context.Context // of the i-th key

	// The results, by key. A key with an error is not tried for.
	Terms []*term.Term
	Errs  []error
}

// Each acquires those of the keys that are free.
func (ac *Acquirer) Each(ctx context.Context, e *Each) {
	// Many keys take longer than one: a second more for each thousand.
	ctx, cancel := context.WithTimeout(ctx, ac.Bound+time.Duration(len(e.Keys))*time.Millisecond)
	defer cancel()
	var todo []int
	for i := range e.Keys {
		if e.Errs[i] == nil {
			todo = append(todo, i)
		}
	}
	ac.Attempts.Add(int64(len(todo)))
	for try := 0; len(todo) > 0; try++ {
		if try > 0 && !retry.PauseUnless(ctx, ac.Life.Open.Done(), try) {
			for _, i := range todo {
				e.Errs[i] = ac.explained(e.Keys[i], txn.WithCause(ctx, e.Errs[i]))
			}
			break
		}
		todo = ac.tryEach(ctx, e, todo)
	}
}

// explained is the error of a call for a key.
func (ac *Acquirer) explained(key string, err error) error {
	return ac.Errors.Explain(key, ac.Life.Explain(err))
}

// tryEach makes one attempt for each of the keys at todo, and returns those that
// want another.
func (ac *Acquirer) tryEach(ctx context.Context, e *Each, todo []int) (again []int) {
	attempts := make(map[int]*Attempt)
	var noSession error
	next := func(n int) (txn.Request, bool) {
		s, err := ac.Pool.Session(ctx, e.Call.TTL, false)
		if err != nil {
			noSession = err
			return txn.Request{}, false
		}
		a := ac.New(s, protocol.Exclusive{Layout: ac.Store.Layout, Key: e.Keys[todo[n]]}, e.Call)
		a.hooked = e.Hooked(todo[n])
		attempts[n] = a
		act := a.Step(protocol.Event{Kind: protocol.BeginTake})
		return a.request(&act), true
	}
	made := ac.Store.Each(ctx, len(todo), next, func(n int, resp *clientv3.TxnResponse, err error) {
		a, i := attempts[n], todo[n]
		delete(attempts, n)
		act := a.Drive(ctx, a, a.Step(a.answer(ctx, resp, err, nil)), nil)
		r := ac.Conclude(ctx, a, &act)
		a.End()
		if e.Terms[i], e.Errs[i] = r.Term, r.Err; r.Term != nil {
			return
		}
		a.S.Unreserve()
		if r.Next != Stop {
			again = append(again, i)
			return
		}
		if errors.Is(r.Err, claimerr.ErrHeld) {
			ac.Contended.Add(1)
		}
		e.Errs[i] = ac.explained(a.User, r.Err)
	})
	for _, i := range todo[made:] { // the others would fail, too
		if e.Errs[i] = txn.Failed(noSession); claimerr.IsPassing(noSession) {
			again = append(again, i)
		} else {
			e.Errs[i] = ac.explained(e.Keys[i], e.Errs[i])
		}
	}
	return again
}
