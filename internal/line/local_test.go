package line

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queue is calls of one client for the key k that come one after the other. The first has it at once.
func (w *world) queue(t *testing.T, n int) (all []*caller) {
	t.Helper()
	for range n {
		all = append(all, w.acquires(t, exclusive("k")))
	}
	same(t, "sent", w.Steps(), "take")
	return all
}

// states names how calls stand.
func states(all []*caller) string {
	var names []string
	for _, c := range all {
		names = append(names, c.state())
	}
	return strings.Join(names, ", ")
}

// Callers of one client take turns within it. Each release hands the key on in one request.
func TestLocalTurns(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		all := w.queue(t, 3)
		pass(time.Second)
		same(t, "sent", w.Steps(), "read") // the arrival of both
		for i, want := range []string{"won, won, waits", "won, won, won"} {
			if err := all[i].term.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			same(t, "states", states(all), want)
			same(t, "owner", w.Owner("k").Claim, all[i+1].term.ID)
			same(t, "the one before", all[i].term.IsHeld(), false)
		}
		same(t, "sent", w.Steps(), "take, take")
		same(t, "places", w.places(), 0)
		same(t, "listed", w.Waiters.Count(), 0)
	})
}

// Callers that come at once ask etcd one after the other: one has the key, and the others wait behind it.
func TestLocalTurnsOfThoseThatComeAtOnce(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Open(t)
		asked := make(chan struct{})
		w.Answer(func(*pb.TxnRequest) error { <-asked; return nil }, nil)
		all := []*caller{w.acquires(t, exclusive("k")), w.acquires(t, exclusive("k")), w.acquires(t, exclusive("k"))}
		same(t, "sent", w.Steps(), "take")
		w.Answer(nil, nil)
		close(asked)
		same(t, "states", states(all), "won, waits, waits")
		same(t, "sent", w.Steps(), "")
	})
}

// What ends the wait of a caller behind a claim of its own client. The others keep their order.
func TestLocalWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		do     func(t *testing.T, w *world, all []*caller)
		states string
		sent   string
		places int
	}{
		{"the first leaves", func(_ *testing.T, _ *world, all []*caller) {
			all[1].leave()
		}, "won, waited behind true: context canceled, waits", "", 0},
		{"the session dies", func(_ *testing.T, _ *world, all []*caller) {
			all[0].term.Session().Die(claimerr.Loss{Reason: claimerr.Revoked})
		}, "won, waits, waits", "", 0}, // with another session
		{"the claim is lost", func(_ *testing.T, w *world, all []*caller) {
			w.Other(layout.Own("k"), "x")
			all[0].term.TakeAway(claimerr.Loss{Reason: claimerr.Superseded})
		}, "won, waits, waits", "join, join", 2},
		{"a release that is refused", func(t *testing.T, w *world, all []*caller) {
			w.Answer(testlayers.Once(rpctypes.ErrNoSpace), nil)
			_ = all[0].term.Release(t.Context())
			synctest.Wait()
			w.Waiters.DoubtAll() // as a watch does: they may have joined the line before the key was deleted
		}, "won, won, waits", "", -1},
		{"a hand-over whose reply is lost", func(t *testing.T, w *world, all []*caller) {
			w.Answer(nil, testlayers.Once(txn.ErrNoAnswer))
			_ = all[0].term.Release(t.Context())
		}, "won, won, waits", "", 0},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			all := w.queue(t, 3)
			pass(time.Second)
			w.Steps()
			tt.do(t, w, all)
			same(t, "states", states(all), tt.states)
			if sent := w.Steps(); tt.sent != "" {
				same(t, "sent", sent, tt.sent)
			}
			if tt.places >= 0 {
				same(t, "places", w.places(), tt.places)
			}
			for _, c := range all {
				c.leave()
			}
			states(all)
		})
	}
}

// A waiter of another client that came first is not passed: the local waiters go to the end of the line, in their
// order.
func TestLocalWaitersGiveWay(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		all := w.queue(t, 3)
		w.Other(layout.Place("k", "0"), "0")
		pass(time.Second)
		same(t, "states", states(all), "won, waits, waits")
		same(t, "joins", strings.Count(w.Steps(), "join"), 2)
		same(t, "places", w.places(), 3)
		w.Remove(layout.Place("k", "0"))
		w.Remove(layout.Own("k"))
		all[0].term.TakeAway(claimerr.Loss{Reason: claimerr.Deleted})
		w.Waiters.DoubtAll()
		same(t, "states", states(all), "won, won, waits")
		for _, c := range all {
			c.leave()
		}
		states(all)
	})
}

// A caller whose arrival is known asks etcd for it no more. One for which etcd does not answer asks again.
func TestArrival(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		all := w.queue(t, 2)
		w.Answer(testlayers.Always(rpctypes.ErrNoLeader), nil)
		pass(5 * time.Second)
		if n := strings.Count(w.Steps(), "read"); n < 5 || n > 20 {
			t.Errorf("asked %d times", n)
		}
		w.Answer(nil, nil)
		pass(2 * time.Second)
		same(t, "sent", w.Steps(), "read")
		pass(2 * time.Second)
		same(t, "sent", w.Steps(), "")
		all[1].leave()
		same(t, "states", states(all), "won, waited behind true: context canceled")
	})
}

// Which calls wait within their client.
func TestMayWaitLocally(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		shares, own := w.Open(t), w.Session(t)
		for _, tt := range []struct {
			name string
			call func(o *acquire.Call)
			want bool
		}{
			{"the key", func(*acquire.Call) {}, true},
			{"a preference that it has itself", func(o *acquire.Call) { o.Preference = 1 }, true},
			{"a note", func(o *acquire.Call) { o.Note = []byte("n") }, false},
			{"operations", func(o *acquire.Call) { o.Then = []clientv3.Op{clientv3.OpDelete("/q")} }, false},
			{"reentrant", func(o *acquire.Call) { o.Reentrant = true }, false},
			{"supersedes", func(o *acquire.Call) { o.Supersede = true }, false},
			{"prefers others", func(o *acquire.Call) { o.Prefers = true }, false},
			{"a slot", func(o *acquire.Call) { o.Mode = protocol.NewSlots(layout, "k", 2, 0) }, false},
		} {
			o := exclusive("k")
			tt.call(o)
			same(t, tt.name, mayWaitLocally(shares, o), tt.want)
			same(t, tt.name+", on a lease of its own", mayWaitLocally(own, o), false)
		}
		synctest.Wait()
	})
}
