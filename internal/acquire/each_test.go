package acquire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// each calls Each, and returns how that ended for each key.
func (w *world) each(t *testing.T, errs []error, keys ...string) (e *Each, outcomes string) {
	t.Helper()
	e = &Each{Keys: keys, Call: exclusive(""), Hooked: noHooks, Terms: make([]*term.Term, len(keys)), Errs: errs}
	if errs == nil {
		e.Errs = make([]error, len(keys))
	}
	w.Each(t.Context(), e)
	var all []string
	for i, err := range e.Errs {
		if (err == nil) != (e.Terms[i] != nil) {
			t.Errorf("%s: %v with term %v", keys[i], err, e.Terms[i])
		}
		all = append(all, outcome(err))
	}
	return e, strings.Join(all, ", ")
}

// Each key has an outcome of its own, though all share a request.
func TestEach(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		do       func(w *world)
		outcomes string
		keys     string // at the end
	}{
		{"free", func(*world) {}, "won, won, won", "own/a:1 own/b:1 own/c:1"},
		{
			"one is held", func(w *world) { w.Other(layout.Own("b"), "x") },
			"won, b: held by x, won", "own/a:1 own/b:1 own/c:1",
		},
		{
			"a caller in line for one", func(w *world) { w.Other(layout.Place("c", "x"), "x") },
			"won, won, c: 1 in line", "own/a:1 own/b:1 wait:1",
		},
		{"request lost", func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) }, "won, won, won", ""},
		{"reply lost", func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, "won, won, won", ""},
		{
			"no leader for a moment", func(w *world) { w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil) },
			"won, won, won", "own/a:1 own/b:1 own/c:1",
		},
		{
			"lease gone", func(w *world) { w.Etcd.EndLease(w.Pool.Live()[0].ID()) }, "won, won, won",
			"own/a:1 own/b:1 own/c:1",
		},
		{"denied", func(w *world) { w.Answer(testlayers.Always(rpctypes.ErrPermissionDenied), nil) }, "denied, denied, denied", ""},
		{"closed meanwhile", func(w *world) {
			w.Answer(nil, func(*pb.TxnRequest) error { w.Life.Refuse(); return nil })
		}, "closed, closed, closed", ""},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			tt.do(w)
			e, outcomes := w.each(t, nil, "a", "b", "c")
			same(t, "outcomes", outcomes, tt.outcomes)
			for i, held := range e.Terms {
				if held != nil {
					same(t, "owner", w.Owner(e.Keys[i]).Claim, held.ID)
				}
			}
			pass(5 * time.Second)
			if keys := w.keys(); tt.keys != "" || !strings.HasPrefix(tt.outcomes, "won") {
				same(t, "keys", keys, tt.keys)
				w.balanced(t)
			}
		})
	}
}

// A key with an error is not tried for. Many keys share requests.
func TestEachOfSome(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		_, outcomes := w.each(t, []error{nil, claimerr.ErrRefused, nil}, "a", "b", "c")
		same(t, "outcomes", outcomes, "won, unmet, won")
		same(t, "keys", w.keys(), "own/a:1 own/c:1")
		same(t, "attempts", w.Attempts.Load(), 2)
		w.Steps()
		many := make([]string, 100)
		for i := range many {
			many[i] = "many" + strings.Repeat("x", i)
		}
		w.each(t, nil, many...)
		if requests := len(strings.Split(w.Steps(), ", ")); requests > 10 {
			t.Errorf("%d requests", requests)
		}
	})
}

// Without a session no key is had: at the end of the call, or at once if that does not pass.
func TestEachWithoutASession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   error
		after time.Duration
	}{{rpctypes.ErrNoLeader, time.Second + 2*time.Millisecond}, {rpctypes.ErrPermissionDenied, 0}} {
		run(t, tt.err.Error(), func(t *testing.T, w *world) {
			before := w.Etcd.Sent
			w.Etcd.Sent = func(kind string, in *pb.TxnRequest) error {
				if kind == memetcd.Grant {
					return tt.err
				}
				return before(kind, in)
			}
			begun := time.Now()
			e, _ := w.each(t, nil, "a", "b")
			same(t, "after", time.Since(begun), tt.after)
			for _, err := range e.Errs {
				if !errors.Is(err, tt.err) || errors.Is(err, txn.ErrUnknown) {
					t.Error(err)
				}
			}
		})
	}
}
