package term

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/localline"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

const ttl = 30 * time.Second

// layout is where the client of the tests keeps its keys.
var layout = protocol.Layout{Prefix: "/p/", Instance: "me"}

// world is the terms of a client on an etcd in memory. It is also the observer of the terms, and those that wait.
type world struct {
	*Terms
	etcd           *memetcd.Etcd
	life           *life.Life
	slept, stepped atomic.Int64
	ids            atomic.Int64

	mu    sync.Mutex
	sends func(in *pb.TxnRequest) error // answers a transaction in place of etcd
	reply func(in *pb.TxnRequest) error // takes the place of its reply
	what  []string
	waits []Wait
	since int64 // of notices; 0: no caller waits
}

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		test(t, w)
	})
}

// end ends the client.
func (w *world) end() {
	w.answers(nil, nil)
	for _, s := range w.Pool.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
	}
	w.life.BeginEnd()
	w.life.Refuse()
	w.life.End()
}

func newWorld() *world {
	w := &world{etcd: memetcd.NewEtcd(), life: life.New()}
	w.etcd.Sent = func(_ string, in *pb.TxnRequest) error { return call(w, &w.sends, in) }
	w.etcd.Replied = func(_ string, in *pb.TxnRequest) error { return call(w, &w.reply, in) }
	client, made, log := w.etcd.Client(), time.Now(), zap.NewNop()
	machine := clock.Clock{
		Boot: func() time.Duration { return time.Since(made) + time.Duration(w.slept.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(w.slept.Load() + w.stepped.Load())) },
	}
	ignore := func(context.Context, time.Time, error) {}
	st := store.New(store.Config{
		IO: w.life.IO, Etcd: client, Log: log, Layout: layout, Timeout: time.Second, Ops: 128, Bytes: 1 << 20,
		Observe: ignore, ObserveOther: ignore, Requested: func(string, time.Time, error) {}, OnRewind: func(error) {},
	})
	out := outage.New(outage.Config{
		Etcd: client, Log: log, Patience: time.Hour, Unanswered: func() {}, Passing: claimerr.IsPassing,
		Go: func(func(context.Context)) bool { return false },
	})
	pool := lease.NewPool(lease.Config{
		Etcd: client, Store: st, Clock: machine, Log: log, Owner: "owner", Life: w.life, Outage: out,
		Timing: func(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, 5*time.Second) },
		Verify: func(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
			return w.Verify(ctx, s, what)
		},
		Renewed: func(*lease.Session, lease.Renewal) {}, Began: func(int64) {},
	})
	w.Terms = New(Config{
		Store: st, Pool: pool, Life: w.life, Outage: out, Clock: machine, Log: log, Owner: "owner", Observer: w, Waiters: w,
		Uptime: func() time.Duration { return time.Since(made) }, Bound: time.Second,
	})
	return w
}

func call(w *world, f *func(in *pb.TxnRequest) error, in *pb.TxnRequest) error {
	w.mu.Lock()
	answer := *f
	w.mu.Unlock()
	if answer == nil || in == nil {
		return nil
	}
	return answer(in)
}

// answers sets what comes in place of transactions, and in place of their replies.
func (w *world) answers(sends, reply func(in *pb.TxnRequest) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends, w.reply = sends, reply
}

// once returns an answer that is given once.
func once(err error) func(*pb.TxnRequest) error {
	var given atomic.Bool
	return func(*pb.TxnRequest) error {
		if given.Swap(true) {
			return nil
		}
		return err
	}
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = append(w.what, what)
}

// take returns what was called since it was called last.
func (w *world) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.what, ", ")
	w.what = nil
	return all
}

func (w *world) TermLost(t *Term, why claimerr.Loss) {
	w.note("lost " + t.Key + ": " + why.Reason.String())
}
func (w *world) TermEnded(t *Term)                                     { w.note("ended " + t.Key) }
func (w *world) Context(_ *Term, work context.Context) context.Context { return work }
func (w *world) Trace(*Term) string                                    { return "" }
func (w *world) Deliver(notice *mvccpb.KeyValue)                       { w.note("delivered " + string(notice.Value)) }
func (w *world) QueueOf(string, *lease.Session) *Queue                 { return nil }
func (w *world) Share(func(key string) bool)                           {}
func (w *world) Changed(what protocol.Wait)                            { w.note("changed " + what.Key) }

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
	return Grant{Given: given, Try: try, Rev: w.put(layout.Own(key), try.Value, try.Lease), Session: s}
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

// put puts a key in etcd.
func (w *world) put(name, value string, on int64) (rev int64) {
	w.etcd.With(func(m *memetcd.Model) {
		m.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Put([]byte(name), value, on)}})
		rev = m.Rev
	})
	return rev
}

// remove removes a key from etcd.
func (w *world) remove(name string) {
	w.etcd.With(func(m *memetcd.Model) { delete(m.Keys, name) })
}

// raise raises the epoch.
func (w *world) raise() { w.put(layout.Epoch(), "1", 0) }

// has reports whether etcd has a key.
func (w *world) has(name string) (there bool) {
	w.etcd.With(func(m *memetcd.Model) { there = m.Keys[name] != nil })
	return there
}

// owner returns who has a key in etcd: "" if it is free, else its kind, or its claim.
func (w *world) owner(key string) (who string) {
	w.etcd.With(func(m *memetcd.Model) {
		if kv := m.Keys[layout.Own(key)]; kv != nil {
			h, _ := protocol.DecodeHolder(kv.Value)
			if who = h.Kind; who == "" {
				who = h.Claim
			}
		}
	})
	return who
}

// leaseOf returns the lease that a key is on.
func (w *world) leaseOf(key string) (id int64) {
	w.etcd.With(func(m *memetcd.Model) { id = m.Keys[layout.Own(key)].Lease })
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
	n.w.note(fmt.Sprint("under ", e.Value))
}

func (n *next) Handed(rev int64, line protocol.Line, _ string) Grant {
	return Grant{Try: n.try, Rev: keyspace.Revision(rev), Session: n.s, Line: line}
}

func (n *next) Undo() { n.undone.Store(true) }

// pass lets time pass, and what is due by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
