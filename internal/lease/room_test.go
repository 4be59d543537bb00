package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
)

// A session refuses a place when it has no room, or may not last long enough for new work.
func TestReserve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(w *world, s *Session)
		want bool
	}{
		{"new", func(*world, *Session) {}, true},
		{"one place left", func(_ *world, s *Session) { s.room.reserved = claimsPerLease - 1 }, true},
		{"all places reserved", func(_ *world, s *Session) { s.room.reserved = claimsPerLease }, false},
		{"void keys in the last places", func(_ *world, s *Session) {
			s.room.reserved = claimsPerLease - 2
			s.Voided("a")
			s.Voided("b")
		}, false},
		{"one void key, made twice", func(_ *world, s *Session) {
			s.room.reserved = claimsPerLease - 2
			s.Voided("a")
			s.Voided("a")
		}, true},
		{"full", func(_ *world, s *Session) { s.room.full = true }, false},
		{"retiring", func(_ *world, s *Session) { s.room.retiring = true }, false},
		{"dead", func(_ *world, s *Session) { s.Die(claimerr.Loss{Reason: claimerr.Revoked}) }, false},
		{"before the soft deadline", func(*world, *Session) { pass(soft - 1) }, true},
		{"asleep over the soft deadline", func(w *world, _ *Session) { w.Slept.Store(int64(soft)) }, false},
		{"over it by the wall clock", func(w *world, _ *Session) { w.Stepped.Store(int64(soft)) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s := w.open(t, true)
				tt.do(w, s)
				same(t, "reserved", s.reserve(), tt.want)
			})
		})
	}
}

// A session that lacked room for all of some claims takes no others until it is empty.
func TestReserveMore(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, false)
		same(t, "taken", s.ReserveMore(5), 5)
		same(t, "taken of too many", s.ReserveMore(claimsPerLease), claimsPerLease-6)
		for range claimsPerLease - 1 {
			s.Unreserve()
		}
		same(t, "has room with one claim left", s.reserve(), false)
		s.Unreserve()
		same(t, "has room when empty", s.reserve(), true)
		s.Unreserve()
		pass(soft) // it was renewed meanwhile
		if taken := s.ReserveMore(1); taken != 1 || full(s) {
			t.Errorf("taken %d, full %v", taken, s.room.full)
		}
	})
}

func full(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room.full
}

// A claim keeps its place whichever others leave.
func TestMembers(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, other := w.open(t, true), w.open(t, true)
		a := w.add(t, s, "a", "b", "c", "d")
		b := w.add(t, other, "x")
		for _, step := range []struct {
			name   string
			remove *member
			want   string
		}{
			{"the first", a[0], "b c d"},
			{"the first again", a[0], "b c d"},
			{"that moved", a[3], "b c"},
			{"of another session", b[0], "b c"},
			{"never added", &member{w: w, s: s}, "b c"},
			{"the last", a[2], "b"},
			{"all", a[1], ""},
		} {
			s.Remove(step.remove)
			same(t, step.name, names(s), step.want)
		}
		same(t, "place of a claim whose place was reserved", s.isUsed(), true)
		s.Unreserve()
		same(t, "used", s.isUsed(), false)
		same(t, "others", names(other), "x")
	})
}

// A claim that is not admitted leaves its place reserved. Its caller gives that back.
func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		m, asked := &member{w: w, s: s, name: "a"}, 0
		admit := func() bool { asked++; return asked > 1 }
		if s.Add(m, admit) || s.Size() != 0 || s.room.reserved != 1 {
			t.Errorf("size %d, reserved %d", s.Size(), s.room.reserved)
		}
		if !s.Add(m, admit) || s.Size() != 1 || s.room.reserved != 0 {
			t.Errorf("size %d, reserved %d", s.Size(), s.room.reserved)
		}
		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		if s.Add(m, admit) || asked != 2 {
			t.Error("a dead session has asked, or added a claim")
		}
	})
}

// A session that carries nothing for two of its TTLs is revoked. Each claim begins that anew.
func TestIdle(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, false)
		pass(idle * ttl)
		a := w.add(t, s, "a")[0]
		s.Unreserve()
		pass(2 * idle * ttl)
		s.Remove(a)
		pass(idle*ttl - time.Second)
		same(t, "reserved", s.reserve(), true)
		s.Unreserve()
		pass(idle*ttl - time.Second)
		if s.Ended() || w.requests(memetcd.Revoke) > 0 {
			t.Fatal("ended before")
		}
		pass(2 * time.Second)
		if !s.Ended() || w.Etcd.Lives(s.ID()) || len(w.Live()) > 0 {
			t.Errorf("ended %v, lease lives %v", s.Ended(), w.Etcd.Lives(s.ID()))
		}
		same(t, "lines", w.logs.Len(), 0)
		if next := w.open(t, false); next == s || next.n != 2 {
			t.Errorf("the next is number %d", next.n)
		}
	})
}

// A manual session ends with its claim, and one of several with the last of its claims, but not the last one.
func TestRetireIdle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		manual bool
		beside func(t *testing.T, w *world, s *Session) *Session // nil: none
		want   bool
	}{
		{"manual", true, nil, true},
		{"alone", false, nil, false},
		{"one of two", false, func(t *testing.T, w *world, s *Session) *Session { return second(t, w, s) }, true},
		{"beside a manual one", false, func(t *testing.T, w *world, _ *Session) *Session { return w.open(t, true) }, false},
		{"beside a full one", false, func(t *testing.T, w *world, s *Session) *Session {
			other := second(t, w, s)
			other.room.full = true
			return other
		}, false},
		{"beside one that is half full", false, func(t *testing.T, w *world, s *Session) *Session {
			other := second(t, w, s)
			other.ReserveMore(claimsPerLease / 2)
			return other
		}, false},
		{"beside one that retires", false, func(t *testing.T, w *world, s *Session) *Session {
			other := second(t, w, s)
			other.room.retiring = true
			return other
		}, false},
		{"beside one of another TTL", false, func(t *testing.T, w *world, _ *Session) *Session {
			other, err := w.Session(t.Context(), 2*ttl, false)
			if err != nil {
				t.Fatal(err)
			}
			return other
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s := w.open(t, tt.manual)
				if tt.beside != nil {
					tt.beside(t, w, s)
				}
				s.RetireIdle()
				synctest.Wait()
				same(t, "ended while it is reserved", s.Ended(), false)
				s.Unreserve()
				synctest.Wait()
				same(t, "ended", s.Ended(), tt.want)
				same(t, "lease lives", w.Etcd.Lives(s.ID()), !tt.want)
			})
		})
	}
}

// second opens another session with the TTL of one.
func second(t *testing.T, w *world, s *Session) *Session {
	t.Helper()
	s.mu.Lock()
	s.room.full = true
	s.mu.Unlock()
	other := w.open(t, false)
	s.mu.Lock()
	s.room.full = false
	s.mu.Unlock()
	return other
}

// The lease of a session that retires is revoked after all other cleanups on it, and not while the client is being
// closed: Close does that.
func TestRetireAfterOthers(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		var failing atomic.Bool
		failing.Store(true)
		s.CleanUp("needs the lease", func(context.Context) error {
			if failing.Load() {
				return errAway
			}
			return nil
		})
		s.Unreserve()
		pass(10 * time.Second)
		same(t, "ended", s.Ended(), false)
		failing.Store(false)
		pass(3 * time.Second)
		same(t, "ended when it is needed no more", s.Ended(), true)
		for _, line := range w.logs.FilterMessage("cleanup failed; retrying").All() {
			if err := line.ContextMap()["error"]; err != "away" {
				t.Errorf("logged: %v", err)
			}
		}

		last := w.open(t, true)
		w.Life.Refuse()
		last.Unreserve()
		synctest.Wait()
		if last.Ended() || w.isBusy() {
			t.Error("retired by the end of its claim")
		}
	})
}
