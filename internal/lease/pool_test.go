package lease

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Callers at the same time share one opening. Each has a place of its own.
func TestShareOpening(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		const callers = 1000
		granted := w.hangs(memetcd.Grant)
		var all sync.WaitGroup
		sessions := make([]*Session, callers)
		for i := range callers {
			all.Go(func() { sessions[i] = w.open(t, false) })
		}
		synctest.Wait()
		if n := w.requests(memetcd.Grant); n != 1 || !w.isOpening() {
			t.Errorf("%d requests, opening %v", n, w.isOpening())
		}
		close(granted)
		all.Wait()
		for _, s := range sessions {
			if s != sessions[0] {
				t.Fatal("two sessions")
			}
		}
		if s := sessions[0]; s.room.reserved != callers || w.began.Load() != s.born || s.born == 0 || w.isOpening() {
			t.Errorf("reserved %d, born at %d, began at %d", s.room.reserved, s.born, w.began.Load())
		}
		w.open(t, true)
		synctest.Wait()
		same(t, "began", w.began.Load(), sessions[0].born) // once
	})
}

// A failure is that of all who wait for it. The next caller asks etcd again.
func TestOpeningFails(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		answered := make(chan struct{})
		w.answers(func(kind string, _ *pb.TxnRequest) error {
			if kind == memetcd.Grant {
				<-answered
				return errAway
			}
			return nil
		})
		results := make(chan error, 3)
		for range cap(results) {
			go func() {
				_, err := w.Session(t.Context(), ttl, false)
				results <- err
			}()
		}
		synctest.Wait()
		close(answered)
		for range cap(results) {
			if err := <-results; !errors.Is(err, errAway) {
				t.Error(err)
			}
		}
		same(t, "requests", w.requests(memetcd.Grant), 1)
		w.answers(nil)
		w.open(t, false)
		same(t, "requests", w.requests(memetcd.Grant), 2)
	})
}

// A caller that leaves says why, and does not end the opening. A manual session without its caller ends.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		for name, within := range map[string]time.Duration{"cancelled": 0, "etcd has not answered: ": time.Second} {
			in(t, func(t *testing.T, w *world) {
				granted := w.hangs(memetcd.Grant)
				ctx, cancel := context.WithCancel(t.Context())
				if within > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), within)
				}
				defer cancel()
				if within == 0 {
					time.AfterFunc(time.Millisecond, cancel)
				}
				s, err := w.Session(ctx, ttl, manual)
				if s != nil || !errors.Is(err, ctx.Err()) || strings.HasPrefix(err.Error(), "etcd has not answered: ") != (within > 0) {
					t.Errorf("%s: %v", name, err)
				}
				w.answers(nil)
				close(granted)
				synctest.Wait()
				if w.isOpening() || w.Etcd.Lives(1) == manual || len(w.Live()) == 0 != manual {
					t.Errorf("manual %v: lease lives %v, %d sessions", manual, w.Etcd.Lives(1), len(w.Live()))
				}
				same(t, "requests of the next caller", w.requests(memetcd.Grant), 1)
				if next := w.open(t, false); !manual && next != w.Live()[0] {
					t.Error("the next caller has another session")
				}
			})
		}
	}
}

// Which sessions callers share, by what they ask for.
func TestWhichSession(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		first := w.open(t, false)
		for _, tt := range []struct {
			name   string
			ttl    time.Duration
			manual bool
			do     func()
			shared bool
		}{
			{"the same TTL", ttl, false, nil, true},
			{"the same in full seconds", ttl - time.Second + 1, false, nil, true},
			{"another TTL", ttl + 1, false, nil, false},
			{"manual", ttl, true, nil, false},
			{"the same after that", ttl, false, nil, true},
			{"the first is full", ttl, false, func() { first.ReserveMore(claimsPerLease) }, false},
		} {
			if tt.do != nil {
				tt.do()
			}
			s, err := w.Session(t.Context(), tt.ttl, tt.manual)
			if err != nil || (s == first) != tt.shared || s.Manual() != tt.manual || s.Grant().TTL != Seconds(tt.ttl) {
				t.Errorf("%s: shared %v, %v", tt.name, s == first, err)
			}
		}
	})
}

// A closed client opens nothing, and sends nothing for it.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			w.open(t, false)
			w.Life.BeginEnd()
			for _, ttl := range []time.Duration{ttl, 2 * ttl} {
				if s, err := w.Session(t.Context(), ttl, manual); s != nil || !errors.Is(err, claimerr.ErrClosed) {
					t.Error(err)
				}
			}
			same(t, "requests", w.requests(memetcd.Grant), 1)
			same(t, "opening", w.isOpening(), false)
		})
	}
}

// A caller that waits for an opening learns that the client was closed meanwhile.
func TestClosedWhileWaiting(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		granted, result := w.hangs(memetcd.Grant), make(chan error)
		go func() {
			_, err := w.Session(t.Context(), ttl, false)
			result <- err
		}()
		synctest.Wait()
		w.Life.BeginEnd()
		w.answers(nil)
		close(granted)
		if err := <-result; !errors.Is(err, claimerr.ErrClosed) || w.Etcd.Lives(1) || len(w.Live()) > 0 {
			t.Errorf("%v, lease lives %v", err, w.Etcd.Lives(1))
		}
	})
}

// A session that dies before it is admitted does not become part of the client. That happens if the process stood
// still, or etcd was slow, for longer than the lease lasts.
func TestDeadBeforeAdmission(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		s.Die(claimerr.Loss{Reason: claimerr.Expired})
		if !w.admit(s) || len(w.Live()) != 0 {
			t.Errorf("%d live sessions", len(w.Live()))
		}
	})
}

// A lease that was granted too late for new work is not used.
func TestGrantedTooLate(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			late := true
			w.answers(func(kind string, _ *pb.TxnRequest) error {
				if kind == memetcd.Txn && late {
					late = false
					w.Slept.Store(int64(hard))
				}
				return nil
			})
			s, err := w.Session(t.Context(), ttl, manual)
			synctest.Wait()
			if manual && !errors.Is(err, claimerr.ErrSession) || !manual && (err != nil || !s.Fresh() || s.n != 2) {
				t.Errorf("manual %v: %v", manual, err)
			}
			for _, l := range w.Live() {
				if l != s {
					t.Errorf("manual %v: session %d is left", manual, l.n)
				}
			}
		})
	}
}
