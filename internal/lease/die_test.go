package lease

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// claim is a member that calls lose when it is lost, and lost when that is reported.
type claim struct {
	Seat
	lose, report func()

	stopped, over atomic.Bool
	why           claimerr.Loss // once over
}

func (c *claim) Stop(claimerr.Loss) { c.stopped.Store(true) }
func (c *claim) Woke(clock.Reading) {}

func (c *claim) Lose(why claimerr.Loss) bool {
	if c.lose != nil {
		c.lose()
	}
	c.why = why
	return c.over.CompareAndSwap(false, true)
}

func (c *claim) Lost(claimerr.Loss) {
	if c.report != nil {
		c.report()
	}
}

// opened returns a session with the claims. It needs no etcd until a request is sent.
func opened(t *testing.T, claims ...*claim) *Session {
	t.Helper()
	p := NewPool(Config{Store: &store.Store{Layout: protocol.Layout{Prefix: "claims/", Instance: "one"}}, Log: zap.NewNop(), Life: life.New()})
	p.began = true
	s := &Session{p: p, n: 1, dead: make(chan struct{})}
	s.renewal.init()
	s.grant.Store(&Grant{T0: s.Now(), Timing: NewTiming(10*time.Second, time.Second)})
	s.setAlarm()
	t.Cleanup(func() { s.Die(claimerr.Loss{Reason: claimerr.Shutdown}) })
	if !p.admit(s) {
		t.Fatal("a session is not admitted to an open client")
	}
	for _, c := range claims {
		if !s.reserve() || !s.Add(c, func() bool { return true }) {
			t.Fatal("a claim is not admitted to a new session")
		}
	}
	return s
}

// While claims are being lost, their session is given up, but Dead is not closed. A goroutine that
// waits for Dead finds every claim lost. No claim is added to a session that was given up.
func TestClaimsAreLostBeforeTheirSessionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		var first, second claim
		s = opened(t, &first, &second)
		losing := func() {
			if s.Ended() {
				t.Error("the session has ended before its claims are lost")
			}
			if !s.IsLost() {
				t.Error("a claim is being lost, and its session does not know why")
			}
			if s.reserve() || s.Add(new(claim), func() bool { return true }) {
				t.Error("a claim was added to a session that loses its claims")
			}
			s.Remove(&first)
		}
		reported := 0
		reporting := func() {
			reported++
			if !s.Ended() || !first.over.Load() || !second.over.Load() {
				t.Error("a loss is reported before all claims are lost")
			}
			s.Die(claimerr.Loss{Reason: claimerr.Revoked}) // of a hook that finds the same
		}
		first.lose, first.report, second.lose, second.report = losing, reporting, losing, reporting
		s.Die(claimerr.Loss{Reason: claimerr.Expired})
		if reported != 2 || first.why.Reason != claimerr.Expired || second.why.Reason != claimerr.Expired {
			t.Errorf("%d losses were reported, for the reasons %v and %v; want 2, expired", reported, first.why.Reason, second.why.Reason)
		}
		if n := len(s.p.Live()); n != 0 || s.Size() != 0 {
			t.Errorf("%d sessions live, with %d claims; want none", n, s.Size())
		}
	})
}

// A call that finds a session dead waits until another call has ended all its claims. Otherwise it
// would find a claim still held, and report a wrong cause, or none.
func TestWhoFindsASessionDeadWaitsForItsClaims(t *testing.T) {
	for _, to := range []struct {
		call string
		find func(s *Session)
	}{
		{"Die", func(s *Session) { s.Die(claimerr.Loss{Reason: claimerr.Revoked}) }},
		{"Enforce", (*Session).Enforce},
		{"Gone", func(s *Session) {
			if !s.Gone(t.Context(), rpctypes.ErrLeaseNotFound, false) {
				t.Error("a lease that does not exist is not gone")
			}
		}},
	} {
		t.Run(to.call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				var first, second claim
				second.lose = func() { <-goOn }
				s := opened(t, &first, &second)
				var all sync.WaitGroup
				all.Go(func() { s.Die(claimerr.Loss{Reason: claimerr.Expired}) })
				synctest.Wait()
				var found atomic.Bool
				all.Go(func() { to.find(s); found.Store(true) })
				synctest.Wait()
				if found.Load() {
					t.Errorf("%s returned while a claim of the dead session is still held", to.call)
				}
				close(goOn)
				all.Wait()
				if !second.over.Load() || second.why.Reason != claimerr.Expired {
					t.Errorf("the claim is lost: %t, for the reason %v; want true, expired", second.over.Load(), second.why.Reason)
				}
			})
		})
	}
}
