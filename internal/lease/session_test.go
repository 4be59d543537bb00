package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A session ends once, for the first reason. Its claims are lost before it is dead, and reported after that, those alone
// that had not ended otherwise. No method of theirs is called under its mutex.
func TestDie(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		w.add(t, s, "a", "b", "c")[1].ended = true
		s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		same(t, "calls", w.news.Take(),
			"lose a: lease revoked, lose b: lease revoked, lose c: lease revoked, lost a: lease revoked (dead), lost c: lease revoked (dead)")
		s.Die(claimerr.Loss{Reason: claimerr.Expired})
		s.Enforce()
		if w.news.Take() != "" || s.Size() != 0 || !s.Ended() || !s.IsLost() || len(w.Live()) != 0 {
			t.Errorf("size %d, ended %v, lost %v, %d live", s.Size(), s.Ended(), s.IsLost(), len(w.Live()))
		}
		lines := w.logs.FilterMessage("session ended").All()
		if len(lines) != 1 || lines[0].ContextMap()["reason"] != "lease revoked" || lines[0].ContextMap()["claims"] != int64(2) {
			t.Error(lines)
		}
		pass(2 * hard)
		same(t, "later", w.news.Take(), "")
	})
}

// A claim that is added while the session dies is lost with it, or refused.
func TestDieWhileClaimsAreAdded(t *testing.T) {
	t.Parallel()
	for range 50 {
		in(t, func(t *testing.T, w *world) {
			s := w.open(t, true)
			var all sync.WaitGroup
			added := make([]bool, 8)
			members := make([]*member, len(added))
			for i := range added {
				members[i] = &member{w: w, s: s, name: "a"}
				all.Go(func() {
					s.Again()
					added[i] = s.Add(members[i], func() bool { return true })
				})
			}
			all.Go(func() { s.Die(claimerr.Loss{Reason: claimerr.Shutdown}) })
			all.Wait()
			n := 0
			for _, ok := range added {
				if ok {
					n++
				}
			}
			lost := strings.Count(w.news.Take(), "lost a: shut down (dead)")
			if lost != n || s.Size() != 0 {
				t.Errorf("%d added, %d lost, %d left", n, lost, s.Size())
			}
		})
	}
}

// Why a session was given up is in the log, unless its own client ended it.
func TestEndInTheLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		reason           claimerr.Reason
		retiring, claims bool
		lines            int
	}{
		{"expired", claimerr.Expired, false, false, 1},
		{"shut down", claimerr.Shutdown, false, true, 0},
		{"revoked by itself", claimerr.Revoked, true, false, 0},
		{"retiring, with a claim after all", claimerr.Revoked, true, true, 1},
	} {
		in(t, func(t *testing.T, w *world) {
			s := w.open(t, true)
			if tt.claims {
				w.add(t, s, "a")
			}
			s.room.retiring = tt.retiring
			s.Die(claimerr.Loss{Reason: tt.reason})
			same(t, tt.name, w.logs.FilterMessage("session ended").Len(), tt.lines)
		})
	}
}

// What is opened is there, or gone: no lease stays without its sentinel.
func TestOpen(t *testing.T) {
	t.Parallel()
	denied := rpctypes.ErrPermissionDenied
	for _, tt := range []struct {
		name    string
		kind    string
		err     error
		matches error
		revoked int
	}{
		{"no lease", memetcd.Grant, errAway, errAway, 0},
		{"sentinel refused", memetcd.Txn, denied, denied, 1},
		{"lease ended at once", memetcd.Txn, rpctypes.ErrLeaseNotFound, claimerr.ErrSession, 1},
	} {
		in(t, func(t *testing.T, w *world) {
			w.fails(tt.kind, tt.err)
			s, err := w.Session(t.Context(), ttl, false)
			if s != nil || !errors.Is(err, tt.matches) || w.requests(memetcd.Revoke) != tt.revoked || w.Etcd.Lives(1) {
				t.Errorf("%s: %v, %d revoked", tt.name, err, w.requests(memetcd.Revoke))
			}
			w.answers(nil)
			s = w.open(t, false)
			w.Etcd.With(func(m *memetcd.Model) {
				kv := m.KV(s.Sentinel())
				if kv == nil || !s.HasSentinel(kv.ModRevision, kv.Lease) || s.HasSentinel(kv.ModRevision, 99) || s.HasSentinel(1, kv.Lease) {
					t.Errorf("%s: sentinel %v", tt.name, kv)
				}
			})
		})
	}
}

// An answer that there is no lease is judged by whose lease it may mean.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		err          error
		others, ends bool // other leases in the request; the lease has ended
		want         bool
		renewals     int
	}{
		{"another error", errAway, false, true, false, 0},
		{"the only lease", rpctypes.ErrLeaseNotFound, false, false, true, 0},
		{"one of two, this", rpctypes.ErrLeaseNotFound, true, true, true, 1},
		{"one of two, the other", rpctypes.ErrLeaseNotFound, true, false, false, 1},
	} {
		in(t, func(t *testing.T, w *world) {
			s := w.open(t, true)
			if tt.ends {
				w.Etcd.EndLease(s.ID())
			}
			got := s.Gone(t.Context(), tt.err, tt.others)
			if got != tt.want || s.Ended() != tt.want || w.requests(memetcd.KeepAlive) != tt.renewals {
				t.Errorf("%s: gone %v, ended %v, %d renewals", tt.name, got, s.Ended(), w.requests(memetcd.KeepAlive))
			}
			same(t, tt.name+": lives", s.Lives(t.Context()), !tt.ends && !tt.want)
		})
	}
}

// What waited on a session learns why that is dead.
func TestLossOf(t *testing.T) { // not in parallel: it sets the provider of all
	claimerr.Provide(claimerr.Provider{Of: func(token fencing.Token, l claimerr.Loss) error {
		return fmt.Errorf("%s: %v: %w", token.Key, l.Reason, l.Err)
	}})
	in(t, func(t *testing.T, w *world) {
		s, other := w.open(t, true), w.open(t, true)
		s.Die(claimerr.Loss{Reason: claimerr.Expired, Err: errAway})
		other.Die(claimerr.Loss{Reason: claimerr.Revoked})
		err := s.LossOf(fencing.Token{Key: "k"})
		if !errors.Is(err, claimerr.ErrSession) || !errors.Is(err, errAway) {
			t.Error(err)
		}
		same(t, "text", err.Error(), "k: session dead: etcdclaims: session lost: expired: away")
		same(t, "text", other.LossOf(fencing.Token{Key: "l"}).Error(), "l: session dead: etcdclaims: session lost: lease revoked")
	})
}

// A request ends with the claim. Without hurry it has its own timeout alone.
func TestWithin(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.open(t, true)
		ctx, cancel := s.Hurried(context.Background())
		defer cancel()
		if _, bounded := ctx.Deadline(); bounded {
			t.Error("a deadline far from that of the claim")
		}
		pass(hard - 2*time.Second + 1) // two requests may not be in time
		ctx, cancel = s.Hurried(context.Background())
		defer cancel()
		begun := time.Now()
		<-ctx.Done()
		if d := time.Since(begun); d != 2*time.Second-1 || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("ended after %v: %v", d, context.Cause(ctx))
		}
		ctx, cancel = s.Within(context.Background())
		defer cancel()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("begins after the deadline")
		}
	})
}

// A reply to the sentinel that arrives when the client is being closed ends the session.
func TestClosedWhileOpening(t *testing.T) {
	t.Parallel()
	for _, manual := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			w.answers(func(kind string, in *pb.TxnRequest) error {
				if kind == memetcd.Txn {
					w.Life.BeginEnd()
				}
				return nil
			})
			s, err := w.Session(t.Context(), ttl, manual)
			if s != nil || !errors.Is(err, claimerr.ErrClosed) || w.Etcd.Lives(1) || len(w.Live()) > 0 || w.isOpening() {
				t.Errorf("%v, lease lives %v", err, w.Etcd.Lives(1))
			}
		})
	}
}
