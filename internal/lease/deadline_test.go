package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/txn"
)

// What a session is good for, by three clocks. The wall clock alone never ends a claim, but no new work begins by it.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	stop, lose := "stop a: expired", "lose a: expired, lost a: expired (dead)"
	for _, tt := range []struct {
		name                    string
		passes, sleeps, stepped time.Duration
		fresh, young, over      bool
		left, silence           time.Duration
		happens                 string
	}{
		{name: "new", fresh: true, young: true, left: hard},
		{name: "young", passes: 999 * ms, fresh: true, young: true, left: hard - 999*ms},
		{name: "not so young", passes: s, fresh: true, left: hard - s},
		{name: "late", passes: 20 * s, fresh: true, left: hard - 20*s},
		{name: "silent", passes: 21 * s, fresh: true, left: hard - 21*s, silence: 21 * s},
		{name: "soft deadline", passes: soft, left: drain, silence: soft, happens: stop},
		{name: "hard deadline", passes: hard, silence: hard, happens: stop + ", " + lose},
		{name: "asleep for a second", sleeps: s, fresh: true, left: hard - s},
		{name: "asleep over the soft deadline", sleeps: soft, left: drain, silence: soft, happens: stop},
		{name: "asleep over the hard deadline", sleeps: hard + s, left: -s, silence: hard + s, happens: lose},
		{name: "awake and asleep", passes: 20 * s, sleeps: 2 * s, left: hard - 22*s, silence: 22 * s, happens: stop},
		{name: "stepped a second ahead", stepped: s, fresh: true, left: hard},
		{name: "stepped over the soft deadline", stepped: soft, left: hard, silence: soft},
		{name: "stepped over the hard deadline", stepped: hard, left: hard, silence: hard, over: true},
		{name: "stepped back", passes: 22 * s, stepped: -21 * s, left: hard - 22*s, happens: stop},
		{name: "stepped ahead when over", passes: hard, stepped: s, silence: hard + s, happens: stop + ", " + lose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				session := w.open(t, true)
				w.add(t, session, "a")
				pass(tt.passes)
				w.Slept.Store(int64(tt.sleeps))
				w.Stepped.Store(int64(tt.stepped))
				session.Enforce()
				left, over := session.Left()
				if session.Fresh() != tt.fresh || session.Young() != tt.young || left != tt.left || over != tt.over {
					t.Errorf("fresh %v, young %v, left %v, over by the wall clock %v", session.Fresh(), session.Young(), left, over)
				}
				same(t, "silence", session.Silence(), tt.silence)
				same(t, "happens", w.news.Take(), tt.happens)
				session.Enforce()
				same(t, "happens once more", w.news.Take(), "")
			})
		})
	}
}

// The alarm enforces both deadlines, without a call.
func TestAlarm(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		w.add(t, s, "a", "b")
		pass(soft - time.Millisecond)
		same(t, "before", w.news.Take(), "")
		pass(2 * time.Millisecond)
		same(t, "after the soft deadline", w.news.Take(), "stop a: expired, stop b: expired")
		pass(drain)
		same(t, "after the hard deadline", w.news.Take(),
			"lose a: expired, lose b: expired, lost a: expired (dead), lost b: expired (dead)")
		<-s.Dead()
	})
}

// A renewal moves the deadlines forward, and never back. The next soft deadline stops the claims anew.
func TestAdopt(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		w.add(t, s, "a")
		first := s.Grant()
		pass(2 * time.Second)
		s.adopt(first.T0, ttl)
		s.adopt(s.Now(), 20*time.Second) // less than is left
		same(t, "grant", s.Grant(), first)

		pass(soft - time.Second)
		same(t, "at the soft deadline", w.news.Take(), "stop a: expired")
		now := s.Now()
		s.adopt(now, 2*ttl)
		if g := s.Grant(); g.T0 != now || g.TTL != 2*ttl || !s.Fresh() {
			t.Errorf("%+v, fresh %v", g, s.Fresh())
		}
		pass(s.Grant().Soft - time.Millisecond)
		same(t, "before the next", w.news.Take(), "")
		pass(2 * time.Millisecond)
		same(t, "after the next", w.news.Take(), "stop a: expired")

		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		last := s.Grant()
		s.adopt(s.Now(), 3*ttl)
		same(t, "grant of a dead session", s.Grant(), last)
	})
}

// Why the last renewal failed becomes part of the loss. Only a missing permission can be matched, and stays the cause
// until a renewal succeeds.
func TestNotRenewed(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		if err := s.notRenewed(); err != nil {
			t.Error(err)
		}
		w.fails(memetcd.KeepAlive, errAway)
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := s.Renew(left); err == nil || s.notRenewed() != nil {
			t.Error("a caller that left shows nothing of etcd:", err, s.notRenewed())
		}
		_ = s.Renew(t.Context())
		if err := s.notRenewed(); err == nil || errors.Is(err, errAway) || err.Error() != "renewing the lease: away" {
			t.Error(err)
		}
		for _, err := range []error{txn.ErrPermissionDenied, txn.ErrPermissionDenied, errAway} {
			w.fails(memetcd.KeepAlive, err)
			_ = s.Renew(t.Context())
			if err := s.notRenewed(); !errors.Is(err, txn.ErrPermissionDenied) {
				t.Error(err)
			}
		}
		same(t, "log lines", w.logs.FilterMessage("renewal refused").Len(), 1)
		w.answers(nil)
		if err := s.Renew(t.Context()); err != nil || s.notRenewed() != nil {
			t.Error(err, s.notRenewed())
		}
	})
}
