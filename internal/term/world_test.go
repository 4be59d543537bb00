package term

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/localline"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

const ttl = 30 * time.Second

var layout = testlayers.Layout

// world is the terms of a client on an etcd in memory. It is also the observer of the terms, and those that wait.
type world struct {
	*Terms
	*testlayers.Parts
	ids   atomic.Int64
	waits []Wait
	since int64 // of notices; 0: no caller waits
}

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testlayers.In(t, newWorld, test)
}

// End ends the client.
func (w *world) End() {
	w.Answer(nil, nil)
	for _, s := range w.Pool.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
	}
	w.Parts.End()
}

func newWorld() *world {
	w := &world{Parts: testlayers.New(zap.NewNop())}
	w.Attend(w.Etcd, func(string, *pb.TxnRequest) string { return "transaction" })
	pool := lease.NewPool(lease.Config{
		Etcd: w.Client, Store: w.Parts.Store, Clock: w.Parts.Clock, Log: w.Parts.Log, Owner: "owner", Life: w.Parts.Life, Outage: w.Parts.Outage,
		Timing: func(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, 5*time.Second) },
		Verify: func(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
			return w.Verify(ctx, s, what)
		},
		Renewed: func(*lease.Session, lease.Renewal) {}, Began: func(int64) {},
	})
	w.Terms = New(Config{
		Store: w.Parts.Store, Pool: pool, Life: w.Parts.Life, Outage: w.Parts.Outage, Clock: w.Parts.Clock, Log: w.Parts.Log, Owner: "owner",
		Observer: w, Waiters: w, Uptime: w.Parts.Uptime, Bound: time.Second,
	})
	return w
}

func (w *world) TermLost(t *Term, why claimerr.Loss) {
	w.Note("lost " + t.Key + ": " + why.Reason.String())
}
func (w *world) TermEnded(t *Term)                                     { w.Note("ended " + t.Key) }
func (w *world) ReleaseFailed(t *Term, _ error)                        { w.Note("not released " + t.Key) }
func (w *world) Context(_ *Term, work context.Context) context.Context { return work }
func (w *world) Trace(*Term) string                                    { return "" }
func (w *world) Deliver(notice *mvccpb.KeyValue)                       { w.Note("delivered " + string(notice.Value)) }
func (w *world) QueueOf(string, *lease.Session) *Queue                 { return nil }
func (w *world) Share(func(key string) bool)                           {}
func (w *world) Changed(what protocol.Wait)                            { w.Note("changed " + what.Key) }

func (w *world) NoticesSince(*lease.Session) (rev int64, ok bool) { return w.since, w.since > 0 }
func (w *world) Of(*lease.Session) []Wait                         { return w.waits }

// session returns a session that nobody renews.
func (w *world) session(tb testing.TB) *lease.Session {
	tb.Helper()
	s, err := w.Pool.Session(context.Background(), ttl, true)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// try returns an attempt to claim a key.
func (w *world) try(s *lease.Session, key string) *protocol.Try {
	id := fmt.Sprint(key, "-", w.ids.Add(1))
	value := protocol.Holder{Claim: id, Owner: "owner", Instance: "me", Epoch: w.Store.Epoch().Value}.Encode()
	return &protocol.Try{
		Layout: layout, Mode: protocol.Exclusive{Layout: layout, Key: key}, ID: id, Value: value, PlaceValue: value,
		Lease: int64(s.ID()), Epoch: w.Store.Epoch(),
	}
}

// grant claims a key in etcd.
func (w *world) grant(s *lease.Session, key string, given Given) Grant {
	try := w.try(s, key)
	return Grant{Given: given, Try: try, Rev: w.Put(layout.Own(key), try.Value, try.Lease), Session: s}
}

// hold returns the term of a key, on a session with a place for it.
func (w *world) hold(tb testing.TB, s *lease.Session, key string, given Given) *Term {
	tb.Helper()
	s.Again()
	term := w.Add(w.grant(s, key, given))
	if term == nil {
		tb.Fatal("no term of", key)
	}
	return term
}

// raise raises the epoch.
func (w *world) raise() { w.Put(layout.Epoch(), "1", 0) }

// has reports whether etcd has a key.
func (w *world) has(name string) (there bool) {
	w.Etcd.With(func(m *memetcd.Model) { there = m.KV(name) != nil })
	return there
}

// owner returns who has a key in etcd: "" if it is free, else its kind, or its claim.
func (w *world) owner(key string) string {
	h := w.Parts.Owner(key)
	return cmp.Or(h.Kind, h.Claim)
}

// leaseOf returns the lease that a key is on.
func (w *world) leaseOf(key string) (id int64) {
	w.Etcd.With(func(m *memetcd.Model) { id = m.KV(layout.Own(key)).Lease })
	return id
}

// next is an attempt that waits for a key of its own client.
type next struct {
	w      *world
	s      *lease.Session
	try    *protocol.Try
	undone atomic.Bool
}

// behind puts an attempt in the line behind a term. Its place in the session is reserved.
func (w *world) behind(t *Term) *LocalWaiter {
	t.s.Again()
	f := localline.NewWaiter[Next, *Term](&next{w: w, s: t.s, try: w.try(t.s, t.Key)})
	w.Local.Join(&t.local, f)
	return f
}

func (n *next) Claim() *protocol.Try { return n.try }

func (n *next) Under(e *txn.Epoch) {
	n.try.Epoch = e
	n.w.Note(fmt.Sprint("under ", e.Value))
}

func (n *next) Handed(rev int64, line protocol.Line, _ string) Grant {
	return Grant{Try: n.try, Rev: keyspace.Revision(rev), Session: n.s, Line: line}
}

func (n *next) Undo() { n.undone.Store(true) }

func pass(d time.Duration) { testlayers.Pass(d) }

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
