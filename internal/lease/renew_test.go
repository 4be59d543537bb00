package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// How an attempt to renew ends: what it returns, whether the deadline moves, and how often the claims are verified.
func TestRenew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		keepAlive error
		verify    []error
		passes    time.Duration
		want      error
		verified  int
		ends      string
	}{
		{name: "renewed", verified: 1},
		{name: "verified at the third try", verify: []error{errPassing, errPassing}, verified: 3},
		{name: "not verified", verify: []error{errPassing, errPassing, errPassing}, want: txn.ErrUnknown, verified: 3},
		{name: "verification refused", verify: []error{rpctypes.ErrPermissionDenied}, want: rpctypes.ErrPermissionDenied, verified: 1},
		{name: "not answered", keepAlive: errAway, want: errAway},
		{name: "refused", keepAlive: rpctypes.ErrPermissionDenied, want: txn.ErrPermissionDenied},
		{name: "lease gone", keepAlive: rpctypes.ErrLeaseNotFound, want: claimerr.ErrSession, ends: "lease revoked"},
		{name: "asleep over the deadline", passes: hard, want: claimerr.ErrSession, ends: "expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s := w.open(t, true)
				w.fails(memetcd.KeepAlive, tt.keepAlive)
				w.Slept.Store(int64(tt.passes))
				pass(time.Second)
				verified, before, sent := 0, s.Grant(), s.Now()
				w.verifies(func(*Session, Turn) (Verified, error) {
					verified++
					time.Sleep(time.Second)
					if verified <= len(tt.verify) {
						return Verified{}, tt.verify[verified-1]
					}
					return Verified{Rev: 7}, nil
				})
				err := s.Renew(t.Context())
				renewed := tt.want == nil
				if !errors.Is(err, tt.want) || verified != tt.verified || (s.Grant() != before) != renewed || (w.renewed() == 1) != renewed {
					t.Errorf("%v, verified %d times, renewed %v, reported %d", err, verified, s.Grant() != before, w.renewed())
				}
				if renewed && (s.Grant().T0 != sent || w.renewals[0].T0 != sent || w.renewals[0].Before != before) {
					t.Error("the deadline is not counted from before the request")
				}
				if rev := s.VerifiedAt(); renewed && rev != 7 || !renewed && rev != 0 {
					t.Errorf("verified at %d", rev)
				}
				if tt.ends == "" && s.Ended() || tt.ends != "" && (!s.Ended() || s.cause.Reason.String() != tt.ends) {
					t.Errorf("ended: %v", s.cause)
				}
			})
		})
	}
}

var errPassing = fmt.Errorf("%w: away", txn.ErrUnknown)

// A session that carries nothing has nothing verified, unless etcd's revision went back.
func TestRenewEmptySession(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		m := w.add(t, s, "a")[0]
		s.Unreserve()
		s.Remove(m)
		verified := 0
		w.verifies(func(*Session, Turn) (Verified, error) {
			verified++
			return Verified{}, nil
		})
		renew := func(what string, want int) {
			t.Helper()
			pass(time.Second)
			before := s.Grant()
			if err := s.Renew(t.Context()); err != nil || verified != want || s.Grant() == before {
				t.Errorf("%s: %v, verified %d times, want %d, renewed %v", what, err, verified, want, s.Grant() != before)
			}
		}
		renew("empty", 0)
		w.add(t, s, "b")
		renew("used", 1)
		s.Remove(MembersOf[*member](s)[0])
		renew("empty again", 1)
		var old memetcd.Model
		w.Etcd.With(func(m *memetcd.Model) { old = *m; m.Put("/k", "v", 0) })
		if err := w.Store.ReadEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Etcd.With(func(m *memetcd.Model) { *m = old })
		renew("the revision went back", 2)
	})
}

// One attempt is under way at a time, so that its deadline counts from before its own request. A caller that
// waits for it returns when its context ends, and when the session dies.
func TestOneRenewalAtATime(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		answered := w.hangs(memetcd.KeepAlive)
		results := make(chan error, 3)
		renew := func(ctx context.Context) { go func() { results <- s.Renew(ctx) }(); synctest.Wait() }
		sent := s.Now()
		renew(t.Context())
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		renew(ctx)
		renew(t.Context())
		same(t, "requests", w.requests(memetcd.KeepAlive), 1)
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.answers(nil)
		close(answered)
		if err := errors.Join(<-results, <-results); err != nil {
			t.Error(err)
		}
		same(t, "requests", w.requests(memetcd.KeepAlive), 2)
		if w.renewals[0].T0 != sent || w.renewals[1].T0 != s.Grant().T0 || s.Grant().T0 == sent {
			t.Errorf("sent at %v, renewals %+v", sent, w.renewals)
		}

		again := w.hangs(memetcd.KeepAlive)
		renew(t.Context())
		renew(t.Context())
		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		if err := <-results; !errors.Is(err, claimerr.ErrSession) {
			t.Error(err)
		}
		last := s.Grant()
		close(again)
		<-results
		same(t, "grant", s.Grant(), last)
	})
}

// A session renews itself at each third of its TTL, verifies part after part, and all when it is asked, or in doubt.
func TestRun(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		var refused atomic.Bool
		w.verifies(func(_ *Session, what Turn) (v Verified, err error) {
			w.turns.Note(fmt.Sprintf("%v %d", what.All, what.Part))
			if refused.CompareAndSwap(true, false) {
				return v, errPassing
			}
			return v, nil
		})
		s := w.open(t, false)
		pass(10*time.Second - 1)
		same(t, "before the first", w.turns.Take(), "")
		pass(31 * time.Second)
		same(t, "of four", w.turns.Take(), "true 0, false 1, false 2, false 0")
		s.RenewSoon()
		synctest.Wait()
		same(t, "asked for", w.turns.Take(), "true 1")
		pass(10 * time.Second)
		same(t, "after that", w.turns.Take(), "false 2")
		w.Doubt()
		pass(10 * time.Second)
		same(t, "in doubt", w.turns.Take(), "true 0")
		w.fails(memetcd.KeepAlive, errAway)
		pass(10 * time.Second)
		w.answers(nil)
		pass(3 * time.Second)
		same(t, "after one that failed", w.turns.Take(), "true 1")
		refused.Store(true)
		pass(10 * time.Second)
		same(t, "tried again", w.turns.Take(), "false 2, true 2")
	})
}

// Etcd is asked often while it does not answer, until the deadline ends the session.
func TestRunFails(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, false)
		w.fails(memetcd.KeepAlive, errAway)
		pass(hard - time.Second)
		if n := w.requests(memetcd.KeepAlive); n < 10 || n > 80 || s.Ended() {
			t.Errorf("%d attempts, ended %v", n, s.Ended())
		}
		pass(2 * time.Second)
		if !s.Ended() || s.cause.Reason != claimerr.Expired || s.cause.Err == nil {
			t.Errorf("ended %v: %+v", s.Ended(), s.cause)
		}
		before := w.requests(memetcd.KeepAlive)
		pass(time.Minute)
		same(t, "attempts after that", w.requests(memetcd.KeepAlive)-before, 0)
	})
}

// A manual session is renewed while it is held, and by nobody after that.
func TestHold(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		end := s.Hold()
		pass(time.Minute)
		if n := w.requests(memetcd.KeepAlive); n != 6 {
			t.Errorf("%d renewals", n)
		}
		end()
		pass(hard - 1)
		same(t, "ended before its deadline", s.Ended(), false)
		pass(2)
		same(t, "ended", s.Ended(), true)
		w.Life.BeginEnd()
		s.Hold()()
	})
}

// RenewVerified returns with the first renewal, or with the session, or with its caller's context.
func TestRenewVerified(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		failures := 3
		w.answers(func(kind string, _ *pb.TxnRequest) error {
			if failures--; failures >= 0 {
				return errAway
			}
			return nil
		})
		if err := s.RenewVerified(t.Context()); err != nil || w.requests(memetcd.KeepAlive) != 4 {
			t.Errorf("%v after %d", err, w.requests(memetcd.KeepAlive))
		}
		w.fails(memetcd.KeepAlive, errAway)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.RenewVerified(ctx); !errors.Is(err, errAway) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.Etcd.EndLease(s.ID())
		w.answers(nil)
		if err := s.RenewVerified(t.Context()); !errors.Is(err, claimerr.ErrSession) {
			t.Error(err)
		}
	})
}
